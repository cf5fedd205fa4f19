"""What ``pip install .`` would do to environments that a user may have: it adds little, and never touches PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
TORCH, TORCHVISION = "2.13.0", "0.28.0"
TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "sympy", "typing_extensions")
"""What PyTorch brings besides, on CPUs."""
INSTALLED: dict[str, dict[str, str]] = {
    "nothing": {},
    "torch": {"torch": TORCH},
    "torch and torchvision": {"torch": TORCH, "torchvision": TORCHVISION},
}
MOST_PACKAGES = 14
"""Beside NumPy and SciPy, in an environment that has PyTorch."""


def requirements() -> list[str]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["dependencies"])


def resolved(python: Path | str, *words: str) -> list[str]:
    """The names that pip would install, in small letters; skips where no index can be asked."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--dry-run", "--quiet"]
    command += ["--disable-pip-version-check", "--report", "-", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode and any(sign in done.stderr for sign in ("from versions: none", "Could not fetch", "Network")):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return [item["metadata"]["name"].lower().replace("-", "_") for item in report["install"]]


def environment(folder: Path, packages: dict[str, str]) -> Path:
    """A new environment in which pip believes these to be installed, NumPy and SciPy too, which are large."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    needs = dict.fromkeys(("numpy", "scipy", *(TORCH_NEEDS if packages else ())), "99.0")
    for name, version in {**packages, **needs}.items():
        facts = site / f"{name}-{version}.dist-info"
        facts.mkdir()
        pinned = f"Requires-Dist: torch=={TORCH}\n" if name == "torchvision" else ""
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{pinned}")
        (facts / "RECORD").write_text("")
        (facts / "INSTALLER").write_text("pip\n")
    return python


@pytest.mark.parametrize("had", INSTALLED)
def test_no_torch_is_installed_or_replaced(had: str, tmp_path: Path) -> None:
    added = resolved(environment(tmp_path / "env", INSTALLED[had]), *requirements())
    assert not {"torch", "torchvision", "triton"} & set(added)
    assert not [name for name in added if name.startswith("nvidia_") and name != "nvidia_ml_py"]
    assert len(set(added) - set(TORCH_NEEDS)) <= MOST_PACKAGES, sorted(added)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_every_python_finds_wheels_of_everything(version: str, tmp_path: Path) -> None:
    words = ("--python-version", version, "--only-binary=:all:", "--target", str(tmp_path), *requirements())
    assert "pydantic" in resolved(sys.executable, *words)


def test_no_message_tells_to_install_a_name_that_is_not_registered() -> None:
    """Whoever registered it would be run by everyone who follows such advice."""
    for path in (ROOT / "src").rglob("*.py"):
        assert "stash-ddl[" not in path.read_text(), path
