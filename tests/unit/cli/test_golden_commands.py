"""What commands print, whole: text at 80 columns, JSON, Markdown, HTML and ``--help``, over recorded artefacts.

``PYTHONPATH=src:tests/support python tests/unit/cli/test_golden_commands.py`` writes the files again; look at the
diff, it is what users will see.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pytest
import typer
from golden_numbers import copy_close_numbers

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/commands"
ARTEFACTS = {
    "one.stash.json": "tests/golden/one-node.stash.json",
    "two.stash.json": "tests/golden/two-nodes.stash.json",
    "old.stash.json": "tests/golden/schema-2.stash.json",
    "rounds.stash.json": "tests/faults/fuzz/corpus/profile-schema-2/several-rounds.json",
    "squeezenet.stash.json": "docs/pictures/squeezenet1_0.stash.json",
    "light.stash.json": "bench/plan/data/fleet-light.stash.json",
    "heavy.stash.json": "bench/plan/data/fleet-heavy.stash.json",
    "slow-net.stash.json": "bench/predict/data/testbed/2-x-100mbit-4-MiB.stash.json",
    "fast-net.stash.json": "bench/predict/data/testbed/2-x-1600mbit-4-MiB.stash.json",
    "slow-disk.stash.json": "bench/predict/data/testbed/disk-20MB-s-workers-1-batch-4.stash.json",
    "two.host.json": "tests/faults/fuzz/corpus/probe/two-nodes.json",
    "unknown.host.json": "tests/faults/fuzz/corpus/probe/unknown-type.json",
    "rent.plan.json": "tests/golden/schema-1.plan.json",
    "fleet.plan.json": "tests/faults/fuzz/corpus/spot-plan/one.json",
    "run.spotlog.json": "tests/golden/schema-1.spotlog.json",
    "log.spotlog.json": "tests/faults/fuzz/corpus/spot-log/one.json",
    "job.curve.json": "tests/golden/schema-1.curve.json",
    "pool.yaml": "bench/spot/data/spotdnn.pool.yaml",
    "speeds.csv": "bench/spot/data/cmdare_speeds.csv",
    "trace.json": "tests/faults/fuzz/corpus/spot-trace/plain.json",
    "own.yaml": "tests/faults/fuzz/corpus/own-instances/plain.yaml",
}
FIT = """servers,workers,updates_per_second
1,v100=1,16.2
1,k80=1,4.7
1,v100=2+k80=1,33.5
1,v100=4,44.1
1,k80=6,27.2
"""
PLAN = "spot plan --pool pool.yaml"
COMMANDS = {
    **{
        f"show-{name}": f"show {name}"
        for name in ARTEFACTS
        if name.endswith(".json") and name != "trace.json"
    },
    **{
        f"show-{name}-json": f"show {name} --json"
        for name in (
            "one.stash.json",
            "two.stash.json",
            "squeezenet.stash.json",
            "two.host.json",
            "rent.plan.json",
        )
    },
    "show-explain": "show two.stash.json --explain",
    "show-missing": "show nothing.stash.json",
    "show-damaged": "show speeds.csv",
    "report-markdown": "report two.stash.json -o out.md",
    "report-picture-file": "report one.stash.json -o ladder.svg",
    "report-html": "report squeezenet.stash.json -o out.html",
    "report-probe": "report two.host.json -o out.md",
    "report-log": "report run.spotlog.json -o out.html",
    "compare": "compare slow-net.stash.json fast-net.stash.json",
    "compare-json": "compare slow-net.stash.json fast-net.stash.json --json",
    "compare-other-jobs": "compare one.stash.json squeezenet.stash.json",
    "check-kept": "check squeezenet.stash.json --max prep=99%",
    "check-broken": "check slow-net.stash.json --max network=1%",
    "check-json": "check slow-net.stash.json --max network=1% --json",
    "export-openmetrics": "export two.stash.json --to openmetrics",
    "list": "list .",
    "list-json": "list . --json",
    "query": "query --store . 'SELECT workload, gpu, step_seconds FROM profiles ORDER BY 1, 3'",
    "whatif-nodes": "whatif slow-net.stash.json --nodes 4",
    "whatif-json": "whatif slow-net.stash.json --nodes 4 --json",
    "whatif-target": "whatif two.stash.json --instance p3.8xlarge --nodes 2",
    "whatif-sweep": "whatif slow-net.stash.json --sweep nodes=1..8",
    "whatif-two-axes": "whatif slow-net.stash.json --sweep nodes=1..4 --sweep network=1gbit,10gbit",
    "whatif-refused": "whatif one.stash.json --nodes many",
    "recommend": "recommend two.stash.json --samples 1M --cloud aws",
    "recommend-deadline": "recommend two.stash.json --samples 10M --deadline 10h --cloud aws",
    "recommend-json": "recommend two.stash.json --samples 1M --gpu V100 --cloud aws --max-nodes 1 --json",
    "recommend-cpus": "recommend light.stash.json --samples 1M --cloud aws",
    "recommend-output": "recommend two.stash.json --samples 10M --cloud aws --max-nodes 2 -o out.md",
    "recommend-nothing": "recommend two.stash.json --samples 100M --deadline 1min --cloud aws",
    "catalog-aws": "catalog --cloud aws --gpu V100",
    "catalog-json": "catalog --cloud aws --gpu V100 --json",
    "catalog-own": "catalog --instances own.yaml",
    "check-plan": "check rent.plan.json two.stash.json --instance p3.8xlarge",
    "check-plan-limits": "check rent.plan.json two.stash.json --max step=1s",
    "check-plan-json": "check rent.plan.json two.stash.json --json",
    "recommend-explain": "recommend two.stash.json --samples 1M --gpu V100 --cloud aws --explain-type p3.8xlarge",
    "spot-fit": "spot fit fit.csv",
    "spot-plan": f"{PLAN} --deadline 2400s --loss 0.8",
    "spot-plan-json": f"{PLAN} --deadline 2400s --loss 0.8 --json",
    "spot-plan-none": f"{PLAN} --deadline 60s --loss 0.8",
    "spot-plan-risk": f"{PLAN} --deadline 2400s --loss 0.8 --interruptions 5-10%/month",
    "spot-run-dry": "spot run fleet.plan.json examples/spot_job.py:job --infra aws/us-east-1",
    "zoo": "lab zoo",
    "testbed-refused": "lab testbed run --nodes 0 -- true",
    "unknown-command": "profil train.py",
    "unknown-option": "show one.stash.json --jsn",
}
CHANGING = (
    (re.compile(r"(?<=weighed in )\d+\.\d+ s"), "… s"),
    (
        re.compile(r'"(search_seconds|created|elapsed_seconds|price_age_days)": [^,\n}]+'),
        r'"\1": "…"',
    ),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC|\+00:00)?"), "DATE"),
    (
        re.compile(r'run="[0-9a-f]{24}"'),
        'run="ID"',
    ),  # of all fields of the record, those that come later too
    (re.compile(r"\b\d+ d\b( \*)?|(?<=age_days\": )\d+"), "AGE"),
    (re.compile(r"(?<=in )\d+(\.\d+)? s(?= )"), "… s"),
    (re.compile(r"(?<=may be )[\d,]+(?= days old)"), "AGE"),
)
"""What differs from run to run, and what stands for it."""


LACKING = ("torch", "torchvision", "PIL", "cloudpickle", "transformers", "ray")
"""What a plain install lacks: nothing that reads needs it."""


class PlainInstall:
    """A finder that finds none of those packages."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *more):
        lacking = name.partition(".")[0] in LACKING or not hasattr(self.finder, "find_spec")
        return None if lacking else self.finder.find_spec(name, *more)

    def __getattr__(self, name):
        return getattr(self.finder, name)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The artefacts, and Stash loaded again without those packages."""
    for name in [name for name in sys.modules if name.partition(".")[0] in (*LACKING, "stash")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [PlainInstall(finder) for finder in sys.meta_path])
    with laid_out(tmp_path) as place:
        yield place
    for name in [name for name in sys.modules if name.partition(".")[0] == "stash"]:
        del sys.modules[name]


@contextlib.contextmanager
def laid_out(place):
    """A folder with the artefacts, which is current; nothing of this machine's own settings counts."""
    for name, origin in ARTEFACTS.items():
        shutil.copy(ROOT / origin, place / name)
    (place / "fit.csv").write_text(FIT)
    shutil.copytree(ROOT / "examples", place / "examples")
    home = {
        name: value for name, value in os.environ.items() if not name.startswith(("STASH_", "XDG_"))
    }
    home |= {"HOME": str(place), "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "LINES": "50"}
    before = Path.cwd()
    os.chdir(place)
    try:
        with mock.patch.dict(os.environ, home, clear=True):
            yield place
    finally:
        os.chdir(before)


def transcript(words, place):
    """What the command prints, writes to ``out.*`` and ends with."""
    from stash.cli.main import main

    for left in place.glob("out.*"):
        left.unlink()
    printed = io.StringIO()
    errors = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["stash", *shlex.split(words)]),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
    parts = [f"$ stash {words}\n", printed.getvalue(), f"exit code {code or 0}\n"]
    parts += [f"--- standard error\n{errors.getvalue()}"] if errors.getvalue() else []
    parts += [f"--- {path.name}\n{body(path)}\n" for path in sorted(place.glob("out.*"))]
    text = "".join(parts).replace(str(place), "FOLDER")
    for pattern, instead in CHANGING:
        text = pattern.sub(instead, text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def body(path):
    """A file's text; of a page its words without style, script and drawings."""
    text = path.read_text()
    if path.suffix == ".html":
        text = re.sub(r"<(style|script|svg)\b.*?</\1>", "", text, flags=re.DOTALL)
        text = re.sub(r"\s*\n\s*", "\n", re.sub(r"<[^>]+>", "\n", text))
    return text.strip()


def helps(place):
    """``--help`` of every command, ``--help-all`` of those that have more than it shows."""
    from stash.cli.main import app

    def texts(command, words):
        whole = "--help-all" if command.uncommon else "--help"
        yield transcript(" ".join((*words, whole)), place)
        for name in sorted(getattr(command, "commands", {})):
            yield from texts(command.commands[name], (*words, name))

    return "\n".join(texts(typer.main.get_command(app), ()))


def transcripts(place):
    """What everything prints, by the name of its file."""
    return {
        **{name: transcript(words, place) for name, words in COMMANDS.items()},
        "help": helps(place),
    }


def test_commands_print_what_they_printed(folder):
    """Every command of the table, and all options, without torch: the differences are listed together."""
    now = transcripts(folder)
    wrong = []
    for name, text in now.items():
        kept = GOLDEN / f"{name}.txt"
        expected = kept.read_text() if kept.exists() else ""
        if copy_close_numbers(text, expected) != expected:
            (folder / f"{name}.now").write_text(text)
            wrong.append(f"diff {kept} {folder / name}.now")
    wrong += [f"{kept} is of no command" for kept in GOLDEN.glob("*.txt") if kept.stem not in now]
    renewal = (
        f"renew them by `PYTHONPATH=src:tests/support python {Path(__file__).relative_to(ROOT)}`"
    )
    assert not wrong, "\n".join([*wrong, renewal])


if __name__ == "__main__":
    goldens = {path.stem: path.read_text() for path in GOLDEN.glob("*.txt")}
    with tempfile.TemporaryDirectory() as made, laid_out(Path(made)) as folder_of_now:
        now = transcripts(folder_of_now)
    for name in goldens.keys() - now.keys():
        (GOLDEN / f"{name}.txt").unlink()
    for name, text in now.items():
        (GOLDEN / f"{name}.txt").write_text(copy_close_numbers(text, goldens.get(name, "")))
