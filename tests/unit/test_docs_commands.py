"""Commands that the documentation shows to be copied are run, in a folder with the files that their page has.

A launch, a rented machine and an emulated cluster are described instead of started, as ``--dry-run`` does. What
cannot be described is at least parsed, as whole as when it is typed.
"""

import os
import re
import shlex
import shutil
import sys
from itertools import groupby
from pathlib import Path
from unittest import mock

import click
import pytest
from documentation import FENCE, PAGES, ROOT, commands_to_copy, inside, root_command
from forecast_profiles import gpu_job
from typer.testing import CliRunner

from stash.cli.main import app
from stash.core.artefact import save

DESCRIBED = {
    "profile": "--dry-run",
    "characterize": "--dry-run",
    "lab testbed run": "--dry-run",
    "probe": "--no-measure",
}
"""The option with which a command starts nothing."""
QUICKER = {"recommend": "--max-nodes=1"}
"""The option with which the same takes less time."""
PARSED = (
    r"lab dataset make|catalog refresh|lab testbed doctor|store add .*s3:|export .*--to (mlflow|wandb|openmetrics)|"
    r"watch |fix |run |trace |probe .*--(nnodes|for|quick)|spot (learn|guard|run)|"
    r".*--probe |check .*plan|spot (fit|predict|plan --pool)|list grid|"
    r"market (import|backtest|record)|schedule "
)
"""What would change something, takes minutes, or needs files that only a run on those machines makes."""
STAND_INS = {
    "*.host.json": "tests/faults/fuzz/corpus/probe/two-nodes.json",
    "*.plan.json": "tests/golden/schema-1.plan.json",
    "*.curve.json": "tests/golden/schema-1.curve.json",
    "*.market.csv.gz": "tests/recorded/market/dispa.market.csv.gz",
    "*.watch.jsonl": "tests/golden/schema-1.watch.jsonl",
    "*.fix.json": "tests/golden/schema-1.fix.json",
    "*.trace.json": "tests/golden/schema-1.trace.json",
    "*.py": "examples/single_device.py",
}
"""What is read where a page names a file that none of its commands has made."""
OF_THE_MACHINE = "data/"
"""Folders of data, which are made empty; of ``/data/``, too."""
EXIT_CODES = (0, 1, 3)
"""Answers; 2 is a mistake of whoever typed."""


def files_of(page):
    """The files that a page shows: blocks that begin with their name."""
    for _, body in FENCE.findall(PAGES[page]):
        named = re.match(r"# ([\w.-]+\.(?:yaml|csv|txt|ini))\b", body)
        if named:
            yield named[1], body


def stand_in(word, folder):
    path = folder / word.partition(":")[0]
    if word.startswith(OF_THE_MACHINE):
        path.mkdir(parents=True, exist_ok=True)
    elif path.match("*.stash.json") and not path.exists():
        save(gpu_job(), path)
    elif not path.exists():
        for pattern, origin in STAND_INS.items():
            if path.match(pattern):
                shutil.copy(ROOT / origin, path)


def in_the_folder(word):
    """A word as the shell and this folder have it."""
    return word.replace("/data/", "data/").replace("*.stash.json", "1.stash.json")


def words_of(line):
    """The command that is called, its name, and the words after it."""
    command, rest, names = root_command(), shlex.split(line)[1:], []
    while rest and rest[0] in getattr(command, "commands", {}):
        names.append(rest[0])
        command, rest = command.commands[rest[0]], rest[1:]
    return command, " ".join(names), rest


def wrong_with(shown, ids):
    """What is wrong with a command when it is run in the current folder; nothing, if it answers."""
    command, name, rest = words_of(shown.text)
    kept = iter(ids)
    rest = [
        next(kept) if re.fullmatch(r"[0-9a-f]{4}", word) else in_the_folder(word) for word in rest
    ]
    if re.match(PARSED, f"{name} {' '.join(rest)}"):
        try:
            command.make_context(name, list(rest))
        except click.ClickException as error:
            return f"{shown}: {error.format_message()}"
        return ""
    wanted = (DESCRIBED.get(name), QUICKER.get(name))
    option = [each for each in wanted if each is not None and each not in rest]
    done = CliRunner().invoke(app, [*name.split(), *option, *rest])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return f"{shown}: {done.exception}"
    return (
        ""
        if done.exit_code in EXIT_CODES
        else f"{shown}: exit code {done.exit_code}: {done.output}"
    )


@pytest.fixture
def ids(tmp_path, monkeypatch):
    """Of the profiles of a store that is the user's."""
    monkeypatch.setenv("STASH_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("STASH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    files = [
        str(ROOT / "bench/predict/data/testbed" / f"2-x-{rate}mbit-4-MiB.stash.json")
        for rate in (100, 1600)
    ]
    assert CliRunner().invoke(app, ["store", "add", *files]).exit_code == 0
    return re.findall(r'"id": "(\w+)"', CliRunner().invoke(app, ["list", "--json"]).output)


def test_commands_to_copy_run(tmp_path, ids):
    wrong = []
    for page, shown in groupby(commands_to_copy(), key=lambda found: found.page):
        folder = tmp_path / page.replace("/", "-")
        folder.mkdir()
        for name in ("docs", "examples", "tests"):
            (folder / name).symlink_to(ROOT / name)
        for name, text in files_of(page):
            (folder / name).write_text(text)
        with inside(folder), mock.patch("webbrowser.open"):
            for each in shown:
                for word in (*shlex.split(each.text), "train.py"):
                    stand_in(in_the_folder(word), folder)
                wrong.append(wrong_with(each, ids))
    assert not any(wrong), "\n".join(filter(None, wrong))
