"""The workflow of the page on comparing is one: YAML with steps, whose commands and inputs exist."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from stash.cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/compare.md"


@pytest.fixture(scope="module")
def workflow():
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return yaml.safe_load(block)


def steps(workflow):
    (job,) = workflow["jobs"].values()
    assert job["runs-on"]
    return list(job["steps"])


def unknown(line):
    """Options of a command line that its command does not have."""
    words = shlex.split(line)
    known = {o for p in typer.main.get_command(app).commands[words[1]].params for o in p.opts}  # type: ignore[attr-defined]
    return {word for word in words if word.startswith("-")} - known


def test_every_step_runs_or_uses_something(workflow):
    assert workflow[True] == ["pull_request"]  # YAML reads the word on as true, GitHub does not
    assert len(steps(workflow)) > 4
    assert all(("run" in step) != ("uses" in step) for step in steps(workflow))
    assert all("@" in step["uses"] for step in steps(workflow) if "uses" in step)


def test_its_commands_and_their_options_exist(workflow):
    lines = [step["run"] for step in steps(workflow) if step.get("run", "").startswith("stash ")]
    assert [line.split()[1] for line in lines] == ["profile", "report"]
    assert [unknown(line) for line in lines] == [set(), set()]


def test_it_uses_the_action_with_inputs_that_it_has(workflow):
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (given,) = (
        step["with"]
        for step in steps(workflow)
        if step.get("uses", "").startswith("stash-ddl/stash@")
    )
    assert set(given) <= set(action["inputs"])
    assert {name for name, each in action["inputs"].items() if each.get("required")} <= set(given)
    permissions = next(iter(workflow["jobs"].values()))["permissions"]
    assert permissions["pull-requests"] == "write"
