"""One virtual environment a project, all layered over a base that holds torch, so that torch is unpacked once.

A layer is an empty environment whose path ends with the base's packages; pip sees those as installed and puts on
top what a project needs in another version. The base also holds Stash, from the checkout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_PINNED = ("torch==2.13.0", "torchvision==0.28.0")
"""As constraints-dev.txt: an unpinned torch would pull several gigabytes of CUDA libraries."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment and the one below it."""

    folder: Path
    base: Path

    @property
    def python(self):
        return str(self.folder / "bin" / "python")

    def variables(self):
        """As a shell that activated it has them."""
        path = os.pathsep.join(
            [str(self.folder / "bin"), str(self.base / "bin"), os.environ["PATH"]]
        )
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return {**kept, "PATH": path, "VIRTUAL_ENV": str(self.folder)}

    def version(self, package):
        """Of an installed distribution."""
        ask = f"from importlib.metadata import version; print(version({package!r}))"
        return subprocess.run(
            [self.python, "-c", ask], capture_output=True, text=True, check=True
        ).stdout.strip()


def base(cache):
    """torch and Stash, from this checkout; made once, Stash installed again every time."""
    folder = cache / "base"
    made = Environment(folder, folder)
    if not (folder / "bin" / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    _install(made, made, (*_PINNED, "--editable", str(ROOT)), cache)
    return made


def layer(name, requirements, below, cache):
    """The environment of one project; made again only when its requirements change. Raises CalledProcessError."""
    made = Environment(cache / name, below.folder)
    wanted, done = json.dumps(requirements), cache / name / "requirements.json"
    if done.exists() and done.read_text() == wanted:
        return made
    subprocess.run(
        [below.python, "-m", "venv", "--without-pip", "--clear", str(made.folder)], check=True
    )
    packages = f"lib/python{sysconfig.get_python_version()}/site-packages"
    # A line that starts with `import` is executed: the base's own .pth files (Stash's) count too.
    line = f"import site; site.addsitedir({str(below.folder / packages)!r})\n"
    (made.folder / packages / "base.pth").write_text(line)
    if requirements:
        _install(below, made, requirements, cache)
    done.write_text(wanted)
    return made


def _install(pip, into, what, cache):
    constraints = cache / "constraints.txt"
    constraints.write_text("\n".join(_PINNED) + "\n")
    command = [
        pip.python,
        "-m",
        "pip",
        "--python",
        into.python,
        "install",
        "--quiet",
        "--constraint",
        str(constraints),
    ]
    with (cache / "pip.log").open("a") as log:
        subprocess.run([*command, *what], stdout=log, stderr=log, check=True)
