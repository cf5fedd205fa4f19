"""The way into every interpreter of a job: Stash's agent, the user's own sitecustomize, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stash
from stash.measure.protocol.folder import claim
from stash.measure.protocol.orders import VARIABLE, Orders

LOOK = """
import sys
print("agent", any(type(finder).__name__ == "PostImport" for finder in sys.meta_path))
print("stash", getattr(sys.modules.get("stash"), "__file__", None))
try:
    import only_there
    print("found")
except ImportError:
    print("not found")
"""


@pytest.fixture
def installed(tmp_path) -> Path:
    """Stash as it is installed elsewhere, beside a package that the job's interpreter lacks."""
    packages = tmp_path / "packages"
    ignore = shutil.ignore_patterns("__pycache__", "*.csv")
    shutil.copytree(Path(stash.__file__).parent, packages / "stash", ignore=ignore)
    (packages / "only_there.py").write_text("")
    return packages


@pytest.fixture
def orders(tmp_path) -> Iterator[Path]:
    launch = tmp_path / "run" / "launch-0-0"
    launch.mkdir(parents=True)
    owner = claim(launch.parent)
    yield Orders(str(launch), ("solo",), 1.0).write()
    os.close(owner)


def looked(site: Path, orders: Path, *more: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, [site / "stash" / "measure" / "agent" / "site", *more]))
    variables = {VARIABLE: str(orders), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", LOOK], env=variables, capture_output=True, text=True, check=True
    )


def test_an_interpreter_of_another_environment_gets_the_agent_and_no_path_to_stashs_own(
    installed: Path, orders: Path, tmp_path
):
    other = tmp_path / "other"
    other.mkdir()
    (other / "stash.py").write_text("raise RuntimeError('another project of that name')")
    done = looked(installed, orders, other)
    assert done.stdout.splitlines() == [
        "agent True",
        f"stash {installed}/stash/__init__.py",
        "not found",
    ]
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
@pytest.mark.parametrize(
    ("does", "sentence"),
    [("raise RuntimeError('of the user')", "of the user"), ("print('hello')", "hello")],
)
def test_a_customisation_of_the_users_own_does_what_it_does_without_stash(
    name, does, sentence, installed: Path, orders: Path, tmp_path
):
    own = tmp_path / "own"
    own.mkdir()
    (own / f"{name}.py").write_text(does)
    plain = subprocess.run(
        [sys.executable, "-c", ""],
        env={"PYTHONPATH": str(own)},
        capture_output=True,
        text=True,
        check=True,
    )
    done = looked(installed, orders, own)
    assert "agent True" in done.stdout
    assert (sentence in done.stdout + done.stderr) is (sentence in plain.stdout + plain.stderr)
