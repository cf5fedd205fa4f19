"""The wheel that rented machines install: pip takes it, and what it installs is the Stash that runs here."""

import io
import os
import shlex
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distributions
from pathlib import Path
from zipfile import ZipFile

import pytest

import stash
from stash.core.errors import UserError
from stash.study import wheel
from stash.study.wheel import Wheel, own_wheel

PACKAGE = Path(stash.__file__).parent


def installed(line: str, home: Path, *more: str) -> None:
    """Run the line as a rented machine would, but for what needs an index."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *more]
    shell = line.replace(" torch", "").replace("pip install", shlex.join(pip))
    subprocess.run(["bash", "-c", shell], check=True, env={"HOME": str(home), "PATH": os.environ["PATH"]}, cwd=home)


def sources(package: Path) -> set[Path]:
    found = (path.relative_to(package) for path in package.rglob("*") if path.is_file())
    return {path for path in found if "__pycache__" not in path.parts}


def lay(found: Wheel, home: Path) -> None:
    """As SkyPilot would."""
    for there, here in found.mount(home / "run").items():
        path = Path(there.replace("~", str(home)))
        path.parent.mkdir(exist_ok=True)
        assert Path(here).parent == home / "run"
        path.write_bytes(found.shared[Path(here).name])


def test_pip_installs_every_file_of_what_runs_here(tmp_path: Path) -> None:
    lay(own_wheel(), tmp_path)
    installed(own_wheel().install(None, extra="spot"), tmp_path, "--target", "site")
    assert sources(tmp_path / "site/stash") == sources(PACKAGE)
    tell = "import stash, importlib.metadata as m; print(stash.__file__); print(m.version('stash-ddl'))"
    # -S: where this environment's packages are, an editable Stash would be found as well
    run = [sys.executable, "-S", "-c", tell]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    output = subprocess.run(
        run, check=True, capture_output=True, text=True, env=variables, cwd=tmp_path
    ).stdout.split()
    assert output == [str(tmp_path / "site/stash/__init__.py"), own_wheel().name.split("-")[1]]
    assert (tmp_path / "site/bin/stash").is_file()


@pytest.mark.parametrize("folder", ["stash_ddl-0.1.0.dist-info/METADATA", "stash_ddl.egg-info/PKG-INFO"])
def test_what_pip_knows_may_lie_beside_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / folder).parent.mkdir()
    (tmp_path / folder).write_text("Metadata-Version: 2.1\nName: stash-ddl\nVersion: 0.1.0\nSummary: Version: x\n")
    (known,) = distributions(name="stash-ddl", path=[str(tmp_path)])
    monkeypatch.setattr(wheel, "distribution", lambda name: known)
    found = own_wheel.__wrapped__()
    version = found.name.split("-")[1]
    with ZipFile(io.BytesIO(found.content)) as archive:
        metadata = archive.read(f"stash_ddl-{version}.dist-info/METADATA").decode()
    assert f"\nVersion: {version}\nSummary: Version: x" in metadata


def test_the_version_tells_contents_apart_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stash/__pycache__").mkdir(parents=True)
    (tmp_path / "stash/__init__.py").write_text("")
    monkeypatch.setattr(stash, "__file__", str(tmp_path / "stash/__init__.py"))
    build = own_wheel.__wrapped__
    first = build()
    (tmp_path / "stash/__pycache__/more.pyc").write_text("compiled")
    os.utime(tmp_path / "stash/__init__.py", (0, 0))
    assert (build().name, build().content) == (first.name, first.content)
    (tmp_path / "stash/__init__.py").write_text("changed = 1")
    assert build().name != first.name


def test_the_job_s_requirements_are_installed_with_it_if_it_has_some(tmp_path: Path) -> None:
    found = Wheel("stash_ddl-1.0-py3-none-any.whl", b"")
    assert (
        found.install(tmp_path, "ray==2.50")
        == "pip install ~/stash-wheel/stash_ddl-1.0-py3-none-any.whl torch ray==2.50"
    )
    (tmp_path / "requirements.txt").write_text("timm\n")
    assert found.install(tmp_path).endswith("any.whl torch -r requirements.txt")
    assert "requirements" not in found.install(None)


def test_a_stash_that_was_never_installed_cannot_be_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise PackageNotFoundError(name)

    (tmp_path / "stash_ddl-0.1.0.dist-info").mkdir()
    empty = next(iter(Distribution.discover(path=[str(tmp_path)])))
    for known in (unknown, lambda name: empty):
        monkeypatch.setattr(wheel, "distribution", known)
        with pytest.raises(UserError, match=r"never installed here; in its folder, type `pip install \.`"):
            own_wheel.__wrapped__()
