"""The workflow of the page on gates is one: YAML with steps, whose script answers each exit code of a check."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from stash.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "gate-ci.md"


@pytest.fixture(scope="module")
def workflow() -> Any:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return yaml.safe_load(block)


def steps(workflow: Any) -> list[dict[str, Any]]:
    (job,) = workflow["jobs"].values()
    assert job["runs-on"]
    return list(job["steps"])


def script(workflow: Any, name: str) -> str:
    (found,) = (step["run"] for step in steps(workflow) if step.get("name") == name)
    return str(found)


def run(text: str, folder: Path, exits: int) -> subprocess.CompletedProcess[str]:
    """As GitHub runs a step, with a ``stash`` that ends with that code."""
    (folder / "stash").write_text(f'#!/bin/sh\necho "$@"\nexit {exits}\n')
    (folder / "stash").chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", text]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_every_step_runs_or_uses_something(workflow: Any) -> None:
    assert workflow[True] == ["pull_request"]  # YAML reads the word on as true, GitHub does not
    assert len(steps(workflow)) > 4
    assert all(("run" in step) != ("uses" in step) for step in steps(workflow))
    assert all("@" in step["uses"] for step in steps(workflow) if "uses" in step)


def test_options_in_its_scripts_exist(workflow: Any) -> None:
    root: Any = typer.main.get_command(app)
    lines = [line for step in steps(workflow) for line in step.get("run", "").splitlines() if "stash " in line]
    found = [match for line in lines for match in re.findall(r"\bstash (profile|check|compare) ([^|;}]*)", line)]
    assert {name for name, _ in found} == {"profile", "check", "compare"}
    for name, rest in found:
        known = {option for parameter in root.commands[name].params for option in parameter.opts}
        assert {word for word in shlex.split(rest) if word.startswith("-")} <= known


@pytest.mark.parametrize(
    ("exits", "code", "sentence"), [(0, 0, ""), (1, 1, ""), (2, 2, ""), (3, 0, "whether the step")]
)
def test_its_check_fails_when_it_should(workflow: Any, tmp_path: Path, exits: int, code: int, sentence: str) -> None:
    done = run(script(workflow, "Check"), tmp_path, exits)
    assert done.returncode == code, done.stderr
    assert sentence in done.stdout


def test_its_summary_has_the_comparison(workflow: Any, tmp_path: Path) -> None:
    assert run(script(workflow, "What changed"), tmp_path, 0).returncode == 0
    assert (tmp_path / "summary.md").read_text().splitlines()[1].startswith("compare baseline.stash.json today")
