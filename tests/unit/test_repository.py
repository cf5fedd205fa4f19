"""What a contributor meets: the workflow, the forms, the hooks, the container and the notebook name what is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command

from stash.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"


def test_the_workflow_runs_the_gate_with_no_more_rights_than_reading():
    text = (GITHUB / "workflows/gate.yml").read_text()
    workflow = yaml.safe_load(text)
    (job,) = workflow["jobs"].values()
    assert workflow["permissions"] == {"contents": "read"}
    assert "permissions" not in job
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12"]
    assert [step["run"].split()[:2] for step in job["steps"] if "run" in step][1:] == [
        ["make", "check"],
        ["make", "test"],
    ]
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)


def test_an_image_is_made_of_files_that_are_there():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]]
    kept = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    assert set(copied) == kept
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"].split()[0] == "make"


def notebook_cells():
    cells = json.loads((ROOT / "examples/notebook.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebooks_loop_trains():
    """Without a kernel; a slow test runs it in one, with what the magics print."""
    _, model, magic, *_ = notebook_cells()
    line, _, loop = magic.partition("\n")
    assert line.startswith("%%stash --budget ")
    known: dict[str, Any] = {}
    exec(model, known)
    before = known["model"][0].weight.detach().clone()
    exec(loop.replace("range(1000)", "range(1)"), known)
    assert not before.equal(known["model"][0].weight)


def test_the_notebooks_options_are_the_commands():
    words = notebook_cells()[2].splitlines()[0].split()[1:]
    known = {name for each in get_command(app).commands["profile"].params for name in each.opts}  # type: ignore[attr-defined]
    assert {word for word in words if word.startswith("--")} <= known
