"""``stash compare`` and ``stash check``: the words of the command line, exit codes, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from breakdowns import CALM
from commands import run
from profile_builder import build

from stash.core.artefact import save
from stash.core.errors import UserError
from stash.report.command import parse_sides

SLOW = {name: [1.2 * value for value in values] for name, values in CALM.items()}
Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, times, batch in (
        ("a", CALM, 8),
        ("b", CALM, 8),
        ("slow", SLOW, 8),
        ("twice", CALM, 16),
    ):
        save(build(times, batch=batch), tmp_path / f"{name}.stash.json")
    save(build(CALM, workload={"name": "other.py"}), tmp_path / "other.stash.json")
    return tmp_path


def test_the_first_is_compared_with_each_other_one() -> None:
    assert parse_sides(["a", "b", "c"]) == [(("a",), ("b",)), (("a",), ("c",))]


def test_with_vs_all_before_it_are_a_side() -> None:
    assert parse_sides(["a", "b", "vs", "c"]) == [(("a", "b"), ("c",))]


@pytest.mark.parametrize("words", [["a"], ["vs", "a"], ["a", "vs"]])
def test_a_side_without_a_profile_is_refused(words: list[str]) -> None:
    with pytest.raises(UserError, match="needs two profiles"):
        parse_sides(words)


@pytest.mark.parametrize(
    "words", [["a", "b", "./a"], ["a", "b", "vs", "c", "a"], ["a", "a", "vs", "b"]]
)
def test_a_profile_compared_with_itself_is_refused(words: list[str]) -> None:
    with pytest.raises(UserError, match="a profile does not differ from itself"):
        parse_sides(words)


def test_compare_prints_each_pair(monkeypatch: Patch, capsys: Capture) -> None:
    assert run(monkeypatch, "compare", "a.stash.json", "b.stash.json", "slow.stash.json") == 0
    text = capsys.readouterr().out
    assert text.count("before: a.stash.json") == 2
    assert text.index("No difference of the step is shown") < text.index(
        "Slower: the step changed by"
    )


def test_compare_prints_documents(monkeypatch: Patch, capsys: Capture) -> None:
    assert (
        run(
            monkeypatch,
            "compare",
            "--json",
            "a.stash.json",
            "vs",
            "b.stash.json",
            "slow.stash.json",
        )
        == 0
    )
    (document,) = json.loads(capsys.readouterr().out)
    assert document["after"] == ["b.stash.json", "slow.stash.json"]


def test_different_jobs_are_refused_unless_anyway(monkeypatch: Patch, capsys: Capture) -> None:
    assert run(monkeypatch, "compare", "a.stash.json", "other.stash.json") == 2
    words = "different jobs, in workload (train.py and other.py); compare them all the same with --force"
    assert words in capsys.readouterr().err
    assert run(monkeypatch, "compare", "--force", "a.stash.json", "other.stash.json") == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--max", "step=1s"), 0),
        (("--max", "step=1ms"), 1),
        (("--max", "step=176ms"), 3),
        (("--max", "step=176ms", "--max", "step=1ms"), 1),
        (("--max", "step=1s", "--max", "step=176ms"), 3),
        (("--against", "b.stash.json", "--slower", "5%"), 0),
        (("--against", "slow.stash.json", "--slower", "5%"), 0),
        (("--against", "slow.stash.json", "--slower", "5%", "--slower", "prep=10%"), 0),
        (("--against", "twice.stash.json", "--slower", "5%"), 1),
        (("--against", "b.stash.json", "--slower", "network=5%"), 2),
        (("--against", "b.stash.json", "--slower", "speed=5%"), 2),
        (("--require", "ranks=2"), 0),
        (("--require", "ranks=8"), 1),
        (("--require", "kernel=6"), 3),
        (("--require", "colour=red"), 2),
        (("--against", "b.stash.json"), 2),
        (("--slower", "5%"), 2),
        (("--against", "other.stash.json", "--slower", "5%"), 2),
        (("--max", "network=5%"), 2),
        ((), 2),
    ],
)
def test_check_answers_with_its_exit_code(
    monkeypatch: Patch, capsys: Capture, words: tuple[str, ...], code: int
) -> None:
    assert run(monkeypatch, "check", "a.stash.json", *words) == code
    assert capsys.readouterr().err.count("error: ") == (code == 2)


def test_a_probe_is_no_profile(files: Path, monkeypatch: Patch, capsys: Capture) -> None:
    from probe_builder import host, probe

    save(probe(host()), files / "node.host.json")
    assert run(monkeypatch, "compare", "a.stash.json", "node.host.json") == 2
    assert "node.host.json is a probe of a machine" in capsys.readouterr().err


def test_check_writes_junit_beside_its_lines(monkeypatch: Patch, capsys: Capture) -> None:
    words = ("--max", "step=1ms", "--require", "nodes=1", "--junit", "stash.xml")
    assert run(monkeypatch, "check", "a.stash.json", *words) == 1
    assert (
        capsys.readouterr().out.splitlines()[0]
        == "passes: nodes is 1; asked for is 1 (--require nodes=1)"
    )
    suite = ElementTree.parse("stash.xml").getroot()[0]
    assert [case[0].tag for case in suite] == ["system-out", "failure"]
    assert (
        run(monkeypatch, "check", "a.stash.json", "--max", "step=1s", "--junit", "no/where.xml")
        == 2
    )
    assert (
        "--junit no/where.xml: No such file or directory; choose another place"
        in capsys.readouterr().err
    )


def test_check_writes_over_nothing_that_it_checks(monkeypatch: Patch, capsys: Capture) -> None:
    before = Path("a.stash.json").read_bytes()
    words = ("a.stash.json", "--against", "b.stash.json", "--slower", "5%")
    for file in ("a.stash.json", "b.stash.json"):
        assert run(monkeypatch, "check", *words, "--junit", file) == 2
        assert f"--junit {file} is what is checked; choose another file" in capsys.readouterr().err
    assert Path("a.stash.json").read_bytes() == before
