"""``-o`` of every command: one sentence says what was written, where it disturbs no answer for programs."""

import json
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from stash.cli.main import app
from tests.support import commands
from tests.unit.cli.test_golden_commands import PLAN, laid_out

WRITING = {
    "probe": "probe --no-measure -o x.host.json",
    "show": "show one.stash.json --redact -o x.stash.json",
    "report": "report one.stash.json -o x.html",
    "recommend": "recommend two.stash.json --samples 1M --gpu V100 --cloud aws --max-nodes 1 -o x.md",
    "whatif": "whatif slow-net.stash.json --sweep nodes=1..2 -o x.html",
    "query": "query --store . 'SELECT workload FROM profiles' -o x.csv",
    "export": "export two.stash.json --to openmetrics -o x.prom",
    "spot fit": "spot fit fit.csv -o x.fleet.json",
    "spot plan": f"{PLAN} --deadline 2400s --loss 0.8 -o x.plan.json",
}


def writers(command, *before):
    """Commands that have ``-o``."""
    if any("-o" in each.opts for each in command.params):
        yield " ".join(before), command
    for name in getattr(command, "commands", {}):
        yield from writers(command.commands[name], *before, name)


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_was_written_is_said_once(
    name,
    as_json,
    tmp_path,
    monkeypatch,
    capsys,
):
    command = dict(writers(get_command(app)))[name]
    if as_json and all(each.name != "json" for each in command.params):
        pytest.skip(f"stash {name} prints no JSON")
    words = [*shlex.split(WRITING[name]), *(["--json"] if as_json else [])]
    with laid_out(tmp_path):
        capsys.readouterr()
        assert commands.run(monkeypatch, *words) == 0
        out, err = capsys.readouterr()
        target = words[words.index("-o") + 1]
        assert Path(target).exists()
    if as_json:
        json.loads(out)
    lines = [
        line
        for line in (err if as_json else out).splitlines()
        if line.startswith(f"Wrote {target}")
    ]
    assert len(lines) == 1
    assert lines[0].endswith(".")
    assert "Wrote" not in (out if as_json else err)
