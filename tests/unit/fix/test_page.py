"""The page of a record, what a record becomes when it is run with, and its file."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from typer.testing import CliRunner

from stash.cli.main import app
from stash.core.errors import ArtefactError, UserError
from stash.core.fix_records import FILE, CallPlace, Fix, Launched, Proof, Tried
from stash.core.intervals import Interval
from stash.fix.command import FixOptions, _save_and_show
from stash.fix.page import page
from stash.fix.patch import Patch
from stash.fix.running import kept_variables
from stash.fix.search_state import NO_PROOF, NO_TIME
from stash.ui.html import render as render_html
from stash.ui.terminal import render

KEPT = (
    Tried(
        name="workers=6",
        knob="workers",
        text="num_workers 2 -> 6",
        effect="none",
        standing="kept",
        saves=Interval(value=0.0581, low=0.0541, high=0.0621),
        written="patch",
        place=CallPlace(file="/home/me/train.py", line=24),
    ),
    Tried(
        name="cores=own",
        knob="cores",
        text="each rank on cores of its own (0, 1)",
        effect="none",
        standing="kept",
        saves=Interval(value=0.006, low=0.0031, high=0.0089),
        written="setting",
        how="set it",
        cores={"ranks": [[0], [1]]},
        variables={"OMP_NUM_THREADS": "1"},
    ),
)
OTHERS = (
    Tried(
        name="pin",
        knob="pin",
        text="pin_memory False -> True",
        effect="none",
        standing="no difference",
        saves=Interval(value=0.0003, low=-0.0008, high=0.0014),
    ),
    Tried(
        name="bfloat16",
        knob="bfloat16",
        text="forward passes in bfloat16",
        effect="numerics",
        standing="asks",
        saves=Interval(value=0.12, low=0.114, high=0.126),
        why="changes numerics: --allow numerics",
    ),
    Tried(
        name="bad", knob="bad", text="bad", effect="none", standing="failed", why="out of memory"
    ),
    Tried(name="late", knob="late", text="late", effect="none", standing="left out", why="no time"),
)


def fix(**fields):
    usual = {
        "stash_version": "0.1.0",
        "created": "2026-11-25T12:00:00+00:00",
        "workload": "train.py",
        "command": ("train.py",),
        "ranks": 2,
        "error_rate": 0.05,
        "step_seconds": 0.412,
        "together": Interval(value=0.0719, low=0.0675, high=0.0763),
        "after_seconds": 0.3401,
        "final_rounds": 5,
        "tried": (*KEPT, *OTHERS),
        "elapsed_seconds": 250.0,
        "patch": "--- a/train.py\n",
        "launches": (
            Launched(stage="final", round=0, changes=(), step_seconds=0.412, elapsed_seconds=8.0),
        ),
    }
    return Fix(**{**usual, **fields})


GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "fix.expected.txt"
"""``PYTHONPATH=src:tests/support python tests/unit/fix/test_page.py`` writes it again."""


def every_kind():
    """A record with a change of every standing and way, and every chapter."""
    proof = Proof(
        holds=True,
        losses=40,
        batches=20,
        largest_difference=0.0,
        text="40 losses the same, bit for bit",
    )
    saves = Interval(value=0.004, low=0.001, high=0.007)
    kept = [
        (f"by {way}", {"written": way, "how": how, "compile_seconds": seconds})
        for way, how, seconds in (
            ("command", "--jobs 4", None),
            ("command", "jobs: 4 in big.yaml, line 2", None),
            ("explained", "model.compile()\n# first", 9.0),
        )
    ]
    tried = [
        *(
            Tried(
                name=text,
                knob=text,
                text=text,
                effect="none",
                standing="kept",
                saves=saves,
                proof=proof,
                **more,
            )
            for text, more in kept
        ),
        *(
            Tried(name=each, knob=each, text=each, effect="none", standing=each, why=why)
            for each, why in (
                ("slower", ""),
                ("unproven", "not shown in 12 rounds"),
                ("other training", "batches"),
            )
        ),
    ]
    launches = (
        Launched(stage="turns", round=0, changes=("pin",), step_seconds=0.41),
        Launched(
            stage="final",
            round=1,
            changes=(),
            step_seconds=0.412,
            steps=20,
            elapsed_seconds=8.0,
            resident_bytes=2**30,
        ),
        Launched(
            stage="screening",
            round=0,
            changes=("bad",),
            step_seconds=None,
            elapsed_seconds=2.0,
            failure="no",
        ),
    )
    return fix(
        tried=(*KEPT, *OTHERS, *tried),
        launches=launches,
        advice=("Make samples cheaper",),
        repeats=False,
        proof=proof,
        interrupted=True,
        notes=("train.py reads its own source",),
        left=("waits: none in every step",),
        patch="--- a/train.py\n+++ b/train.py\n",
        sources={"/home/me/train.py": "0"},
        engine="torchrun",
    )


def shown():
    found = page(every_kind(), "train.fix.json", "train.fix.patch")
    nothing = page(
        fix(together=None, after_seconds=None, tried=OTHERS, patch="", final_in_turns=True)
    )
    words = re.sub(
        r"<[^>]+>",
        "\n",
        re.sub(r"<(style|script|svg)\b.*?</\1>", "", render_html(found), flags=re.DOTALL),
    )
    texts = (render(found, width=80), re.sub(r"\s*\n\s*", "\n", words), render(nothing, width=80))
    return "\n".join(line.rstrip() for line in "\n---\n".join(texts).splitlines()) + "\n"


def test_the_page_says_what_is_kept_what_was_tried_and_what_to_type():
    assert shown() == GOLDEN.read_text()


def test_what_no_setting_changes_stands_behind_what_was_found():
    loop = "The script's own code between steps takes 20 ms of every 30 ms step."
    first, second = page(fix(by_hand=loop)).verdict
    assert first.startswith("A step takes")
    assert second == f"No setting changes this: {loop}"


def test_a_record_of_the_first_schema_is_still_read():
    golden = Path(__file__).resolve().parents[2] / "golden" / "schema-1.fix.json"
    assert FILE.load(golden).kept == (KEPT[0], KEPT[1].model_copy(update={"variables": {"A": "1"}}))


def test_show_and_report_know_the_record_and_compare_refuses_it(tmp_path):
    path = str(tmp_path / "train.fix.json")
    FILE.save(fix(), path)
    assert "1.21 times as fast" in CliRunner().invoke(app, ["show", path]).output
    assert '"tried"' in CliRunner().invoke(app, ["show", path, "--json"]).output
    assert (
        "num\\_workers 2 -\\> 6"
        in CliRunner().invoke(app, ["report", path, "--format", "md"]).output
    )
    refused = CliRunner().invoke(app, ["compare", path, path + "x"])
    assert isinstance(refused.exception, UserError) or refused.exit_code


def test_what_is_set_from_outside_goes_into_the_environment():
    assert kept_variables(fix()) == {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["fix", "--try", "wrkers", "train.py"],
            "there is no wrkers; the names are workers, prefetch",
        ),
        (
            ["fix", "--allow", "everything", "train.py"],
            "there is no everything; the names are numerics, cache",
        ),
        (["fix", "no-such.py"], "there is no script no-such.py"),
        (["fix", "train.py"], "on one machine"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # as torchrun starts a rank of two nodes
    for name, value in {"RANK": 0, "WORLD_SIZE": 4, "MASTER_ADDR": "a", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    (tmp_path / "train.py").write_text("pass\n")
    found = CliRunner().invoke(app, words)
    assert isinstance(found.exception, UserError)
    assert sentence in str(found.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_what_to_type_again_is_what_was_typed():
    launched = page(
        fix(command=("torchrun", "--nproc-per-node", "2", "train.py")), "train.fix.json"
    )
    assert launched.again == "stash fix -- torchrun --nproc-per-node 2 train.py"
    run = "`stash run --with train.fix.json -- torchrun --nproc-per-node 2 train.py`"
    assert any(run in step for step in launched.next_steps)
    assert page(fix(engine="torchrun")).again == "stash fix --nproc-per-node 2 train.py"


@pytest.mark.parametrize(("standing", "why"), [("left out", NO_TIME), ("unproven", NO_PROOF)])
def test_what_no_time_was_left_for_is_no_reason_to_leave_the_script_as_it_is(standing, why):
    saves = None if standing == "left out" else Interval(value=0.0327, low=None, high=None)
    late = Tried(
        name="cache=memory",
        knob="cache",
        text="samples kept",
        effect="none",
        standing=standing,
        why=why,
        saves=saves,
    )
    verdict = page(fix(together=None, after_seconds=None, tried=(late,), patch="")).verdict
    assert "`stash fix --budget 6m train.py`" in str(verdict)
    assert "leave it" not in str(verdict)


def test_what_was_found_is_shown_though_it_cannot_be_saved(tmp_path, capsys):
    with pytest.raises(ArtefactError, match="cannot write"):
        _save_and_show(fix(), Patch(), tmp_path / "gone" / "train.fix.json", FixOptions())
    shown = capsys.readouterr().out
    assert "1.21 times as fast" in shown
    assert "git apply" not in shown
    assert "1 launch of the script" in shown


def test_a_record_takes_no_name_that_another_fix_has_taken_meanwhile(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.fix.json").write_text("theirs")
    text = "--- a/train.py\n+API_KEY = 'abcdef'\n"
    patch = cast(Patch, SimpleNamespace(make_diff=lambda: text))
    assert _save_and_show(fix(), patch, Path("train.fix.json"), FixOptions()) == Path(
        "train-2.fix.json"
    )
    assert Path("train.fix.json").read_text() == "theirs"
    # the file is applied: nothing in it is masked
    assert Path("train-2.fix.patch").read_text() == text
    assert "git apply train-2.fix.patch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "value"),
    [("LD_PRELOAD", "/tmp/x.so"), ("PYTHONPATH", "/tmp"), ("OMP_NUM_THREADS", "x")],
)
def test_a_record_sets_no_variable_that_fix_does_not(name, value):
    planted = KEPT[1].model_copy(update={"variables": {name: value}})
    with pytest.raises(UserError, match=name):
        kept_variables(fix(tried=(planted,)))


TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


def test_a_record_with_secrets_in_it_is_shown_without_them_everywhere(tmp_path):
    # GIVEN a record, saved before or by somebody else, whose patch and settings hold what is secret
    patch = f'--- a/train.py\n+++ b/train.py\n-login(token="{TOKEN}")\n+login(token="{TOKEN}", new=True)\n'
    kept = KEPT[1].model_copy(
        update={"variables": {"OMP_NUM_THREADS": TOKEN, "WANDB_API_KEY": "hunter2"}}
    )
    document = fix().model_copy(update={"tried": (KEPT[0], kept), "patch": patch}).model_dump_json()
    assert TOKEN in document
    path = tmp_path / "train.fix.json"
    path.write_text(document)
    # WHEN it is shown in any way THEN nobody reads them
    ways = [["show", str(path)], ["show", str(path), "--json"]]
    ways += [
        ["report", str(path), "--format", kind, "-o", str(tmp_path / f"page.{kind}")]
        for kind in ("html", "md")
    ]
    for words in ways:
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.output
        text = found.output + "".join(page.read_text() for page in tmp_path.glob("page.*"))
        assert TOKEN not in text
        assert "hunter2" not in text
    assert "login(token=***" in (tmp_path / "page.html").read_text()


if __name__ == "__main__":
    GOLDEN.write_text(shown())


def test_an_interrupted_search_that_kept_nothing_says_so_once():
    shown = page(fix(together=None, after_seconds=None, interrupted=True, tried=(), patch=""))
    assert "nothing is kept" in str(shown.verdict)
    assert not any("interrupted" in warning for warning in shown.warnings)
