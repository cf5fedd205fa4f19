"""Other work on the machine, as there is on ordinary ones: each kind a context manager that starts it and ends it.

They are real processes outside the job's tree, at normal priority, in process groups of their own that end with the
block, or with this process should it be killed. None needs a network. Two kinds are no other work but the job's own
limits: ``quota``, a CPU limit of one core, and ``crowded``, more ranks than cores; what they cost is the job's, and
their context does nothing (``accounts`` sets the quota, ``jobs`` the ranks).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

TRAIN = Path(__file__).with_name("train.py")
LARGE = 512 * 2**20
"""Bytes of the file that is copied and read."""
PACKAGES, MODULES = 3, 250
"""Wheels that pip installs, and modules in each."""
_GRACE = 2.0


@contextlib.contextmanager
def running(argv: Sequence[str], folder: Path) -> Iterator[None]:
    """A command in ``folder`` with all that it starts, ended at the end of the block."""
    tied = ["setpriv", "--pdeathsig", "KILL", "--", *argv]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        tied,
        cwd=folder,
        env=environment,
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(
                f"the disturbance {' '.join(argv)} ended by itself with status {process.returncode}"
            )
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group, whose number no other can have before its leader was waited for."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + _GRACE
        while number == signal.SIGTERM and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    process.wait()


def _again_and_again(
    script: str, folder: Path, *words: str
) -> contextlib.AbstractContextManager[None]:
    return running(("sh", "-c", f"while :; do {script}; done", "disturbance", *words), folder)


@contextlib.contextmanager
def nothing(folder: Path) -> Iterator[None]:
    """No other work; what else runs on the machine is recorded all the same."""
    yield


@contextlib.contextmanager
def pip(folder: Path) -> Iterator[None]:
    """`pip install` of a few local wheels of many modules, which it also compiles."""
    shelf = folder / "wheels"
    names = wheels(shelf)
    install = '"$1" -m pip install --quiet --no-deps --no-index --no-cache-dir --disable-pip-version-check'
    with _again_and_again(
        f'{install} --find-links "$2" --target site $3; rm -rf site',
        folder,
        sys.executable,
        str(shelf),
        names,
    ):
        yield


def wheels(shelf: Path) -> str:
    """Make the wheels that are installed; returns the names of their packages."""
    shelf.mkdir(parents=True, exist_ok=True)
    names = [f"shelved{number}" for number in range(PACKAGES)]
    for name in names:
        path = shelf / f"{name}-1.0-py3-none-any.whl"
        if path.exists():
            continue
        body = "".join(
            f"def f{n}(a, b={n}):\n    return [a * i + b for i in range({n})]\n\n"
            for n in range(60)
        )
        files = {
            f"{name}/m{number}.py": f'"""Module {number}."""\n{body}' for number in range(MODULES)
        }
        files[f"{name}/__init__.py"] = ""
        about = f"{name}-1.0.dist-info"
        files[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        files[f"{about}/WHEEL"] = (
            "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        files[f"{about}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{about}/RECORD"))
        part = path.with_suffix(".part")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, text in files.items():
                archive.writestr(file, text)
        part.replace(path)
    return " ".join(names)


@contextlib.contextmanager
def compile_(folder: Path) -> Iterator[None]:
    """g++ on a file of templates, one compilation after the other."""
    classes = "\n".join(
        f"template <class T> struct S{n} {{ std::map<std::string, std::vector<T>> m; T f(T x) {{ "
        f"for (auto& p : m) x += T(p.second.size()); return x * T({n}); }} }};\n"
        f"int u{n}() {{ S{n}<int> a; S{n}<double> b; return a.f({n}) + int(b.f({n})); }}"
        for n in range(40)
    )
    source = folder / "templates.cpp"
    source.write_text(
        f"#include <map>\n#include <regex>\n#include <string>\n#include <vector>\n{classes}\n"
    )
    with _again_and_again("g++ -O2 -c templates.cpp -o templates.o", folder):
        yield


@contextlib.contextmanager
def training(folder: Path) -> Iterator[None]:
    """Another training on one thread."""
    with running((sys.executable, str(TRAIN), "--no-loader"), folder):
        yield


@contextlib.contextmanager
def bursts(folder: Path) -> Iterator[None]:
    """One core busy for 0.3 to 1.5 s, every 1 to 3 s, as cron jobs and daemons are."""
    with running((sys.executable, __file__, "bursts"), folder):
        yield


@contextlib.contextmanager
def copy(folder: Path) -> Iterator[None]:
    """A backup: a large file copied to the disk, written out to the end, again and again."""
    large = _large(folder)
    with _again_and_again('dd "if=$1" of=copied bs=1M conv=fsync', folder, str(large)):
        yield


@contextlib.contextmanager
def cache(folder: Path) -> Iterator[None]:
    """A large file read again and again, from the disk: what is in the page cache makes room for it."""
    with running((sys.executable, __file__, "cache", str(_large(folder))), folder):
        yield


def _large(folder: Path) -> Path:
    path = folder / "large.bin"
    if not path.exists():
        part, chunk = path.with_suffix(".part"), random.Random(0).randbytes(2**20)
        with part.open("wb") as file:
            for _ in range(LARGE // len(chunk)):
                file.write(chunk)
            os.fsync(file.fileno())
        part.replace(path)
    return path


Disturbance = Callable[[Path], contextlib.AbstractContextManager[None]]
OTHERS: dict[str, Disturbance] = {
    "nothing": nothing,
    "pip": pip,
    "compile": compile_,
    "training": training,
    "bursts": bursts,
    "copy": copy,
    "cache": cache,
}
"""Work of others: the truth is that of the quiet job."""
OWN = ("quota", "crowded")
"""The job's own limits: the truth is that of the job under them, with nothing else running."""


def run_other_work(name: str, folder: Path) -> contextlib.AbstractContextManager[None]:
    """That kind of other work, with its files in ``folder``; none for the job's own limits."""
    folder.mkdir(parents=True, exist_ok=True)
    return OTHERS.get(name, nothing)(folder)


# What the processes do that this file is, too ------------------------------------------------------------------


def _burst(seed: int = 30) -> None:
    chance = random.Random(seed)
    while True:
        end = time.monotonic() + chance.uniform(0.3, 1.5)
        while time.monotonic() < end:
            pass
        time.sleep(chance.uniform(1, 3))


def _read(path: str) -> None:
    buffer = bytearray(2**20)
    while True:
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.readinto(buffer):
                pass


if __name__ == "__main__":
    if sys.argv[1] == "bursts":
        _burst()
    _read(sys.argv[2])
