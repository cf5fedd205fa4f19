"""What ``pip install .`` would do to environments that a user may have: it adds little, and never touches PyTorch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
TORCH, TORCHVISION = "2.13.0", "0.28.0"
TORCH_NEEDS = (
    "filelock",
    "fsspec",
    "jinja2",
    "markupsafe",
    "mpmath",
    "networkx",
    "sympy",
    "typing_extensions",
)
"""What PyTorch brings besides, on CPUs."""
INSTALLED = {
    "nothing": {},
    "torch": {"torch": TORCH},
    "torch and torchvision": {"torch": TORCH, "torchvision": TORCHVISION},
}
MOST_PACKAGES = 14
"""Beside NumPy, in an environment that has PyTorch."""
MOST_BYTES, MOST_WHEEL_BYTES = 120 * 10**6, 40 * 10**6
"""Installed beside PyTorch, NumPy too; and of each file that is downloaded."""


def requirements():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(project["dependencies"])


def pip(python, *words):
    """What pip says; skips where no index can be asked."""
    command = [sys.executable, "-m", "pip", "--python", str(python), *words]
    command += ["--quiet", "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=570)
    if done.returncode and any(
        sign in done.stderr for sign in ("from versions: none", "Could not fetch", "Network")
    ):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(python, *words):
    """The names that pip installs, or would, in small letters."""
    report = json.loads(pip(python, "install", "--report", "-", *words))
    return [item["metadata"]["name"].lower().replace("-", "_") for item in report["install"]]


def environment(folder, packages):
    """A new environment in which pip believes these to be installed; with PyTorch what comes with it, and NumPy."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip())
    needs = dict.fromkeys(("numpy", *TORCH_NEEDS) if packages else (), "99.0")
    for name, version in {**packages, **needs}.items():
        facts = site / f"{name}-{version}.dist-info"
        facts.mkdir()
        pinned = f"Requires-Dist: torch=={TORCH}\n" if name == "torchvision" else ""
        (facts / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{pinned}"
        )
        (facts / "RECORD").write_text("")
        (facts / "INSTALLER").write_text("pip\n")
    return python


@pytest.mark.parametrize(
    "had",  # of what is not even added where there is nothing, nothing can be replaced
    [pytest.param(had, marks=[pytest.mark.slow] if INSTALLED[had] else []) for had in INSTALLED],
)
def test_no_torch_is_installed_or_replaced(had, tmp_path):
    added = installed(environment(tmp_path / "env", INSTALLED[had]), "--dry-run", *requirements())
    assert not {"torch", "torchvision", "triton"} & set(added)
    assert not [name for name in added if name.startswith("nvidia_") and name != "nvidia_ml_py"]
    assert len(set(added) - {*TORCH_NEEDS, "numpy"}) <= MOST_PACKAGES, sorted(added)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_every_python_finds_wheels_of_everything(version, tmp_path):
    words = (
        "--dry-run",
        "--python-version",
        version,
        "--only-binary=:all:",
        "--target",
        str(tmp_path),
    )
    added = installed(sys.executable, *words, *requirements())
    assert {"numpy", "pydantic"} <= set(added)
    assert "scipy" not in added
    assert not {"torch", "torchvision", "triton"} & set(added)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_little_is_downloaded_and_installed(tmp_path):
    python = environment(tmp_path / "env", {})
    site = next((tmp_path / "env").glob("lib/*/site-packages"))
    added = installed(python, "--no-compile", *requirements())
    taken = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    pip(sys.executable, "download", "--no-deps", "--dest", str(tmp_path / "wheels"), *added)
    wheels = {path.name: path.stat().st_size for path in (tmp_path / "wheels").iterdir()}
    print(
        f"{len(added)} packages, {taken / 1e6:.1f} MB; {sum(wheels.values()) / 1e6:.1f} MB "
        f"downloaded, largest {max(wheels, key=wheels.__getitem__)} of {max(wheels.values()) / 1e6:.1f} MB"
    )
    assert taken <= MOST_BYTES
    assert max(wheels.values()) <= MOST_WHEEL_BYTES


def test_no_message_tells_to_install_a_name_that_is_not_registered():
    """Whoever registered it would be run by everyone who follows such advice."""
    for path in (ROOT / "src").rglob("*.py"):
        assert "stash-ddl[" not in path.read_text(), path
