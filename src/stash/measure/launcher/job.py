"""What the user asked to profile: a script, a module, a workload, any command; and the commit of its repository."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

from stash.core.errors import UserError
from stash.core.files import read_up_to
from stash.core.formatting import join_names
from stash.core.secrets import kept_words
from stash.core.units import find_nearest
from stash.lab.zoo.registry import workload as look_up

# Python processes that the agent cannot get into, since options tell them to ignore PYTHONPATH or sitecustomize.

_PYTHON = re.compile(r"python[\d.]*")
_SHUTTING = "IES"
"""-E and -I do not look at PYTHONPATH, -S does not import ``sitecustomize``."""


def python_options(words: Sequence[str]) -> str | None:
    """Python with those of its options in a command that keep the agent out, if it has any: ``python -I``.

    Also where a shell is to run it, ``bash -c 'python -I train.py'``.
    """
    words = " ".join(words).split()
    for position, word in enumerate(words):
        if _PYTHON.fullmatch(Path(word).name):
            options = itertools.takewhile(
                lambda each: re.match(r"-[A-Za-z]", each), words[position + 1 :]
            )
            letters = "".join(itertools.takewhile(lambda each: each[1] not in "cmXW", options))
            shutting = "".join(letter for letter in _SHUTTING if letter in letters)
            if shutting:
                return f"{Path(word).name} -{shutting}"
    return None


def why_shut_out(options: str) -> str:
    """What to tell the user about such options."""
    return f"`{options}` keeps Stash's agent out of the job, which PYTHONPATH lets in; leave that option away"


_DISTRIBUTED = re.compile(
    r"torch\.distributed|init_process_group|DistributedDataParallel|\baccelerate\b|\blightning\b|pytorch_lightning"
    r"|\btransformers\b|\bdeepspeed\b|\bhorovod\b|LOCAL_RANK|fully_shard"
)
_SPAWNS = re.compile(
    r"\bmp\.spawn\(|multiprocessing\.spawn\(|start_processes\(|notebook_launcher\("
)
_IMPORTED = re.compile(r"^\s*(?:from|import)\s+\.*([\w.]+)", re.MULTILINE)
_RUNS_PYTHON = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed")
"""Programs whose -m names a module."""
_HEAD = 256
"""Bytes of a program that tell what it is."""
_LARGEST = 2**26
"""Bytes of a script that are read."""
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "")
_SCRIPTS = (".py", ".sh", ".bash")
_ZOO = "stash.lab.zoo.train"


@dataclass(frozen=True)
class Job:
    """The target of a profile. ``kind`` is ``script``, ``module`` or ``command``."""

    kind: str
    target: str
    arguments: tuple[str, ...] = ()
    name: str = ""
    data: str | None = None
    """Where its data lie, if Stash was given it."""

    @property
    def command(self) -> tuple[str, ...]:
        """The command as the user would type it."""
        front = ("-m",) if self.kind == "module" else ()
        return (*front, self.target, *self.arguments)

    @cached_property
    def kept_command(self) -> tuple[str, ...]:
        """The same as a profile keeps it: without what may be a secret."""
        script = next((Path(word) for word in self.command if word.endswith(_SCRIPTS)), None)
        if self.kind == "module":
            script = _module_path(self.target)
        if script is None:
            return kept_words(self.command, folders=[Path.cwd()])
        choices = frozenset(_iter_choices(_read_source(script)))
        return kept_words(self.command, choices, [Path.cwd(), script.parent])

    @property
    def title(self) -> str:
        return self.name or (
            name_command(self.command) if self.kind == "command" else Path(self.target).name
        )

    @property
    def is_zoo_workload(self) -> bool:
        """Whether it is one of Stash's own workloads, which train on every device."""
        return self.target == _ZOO


def name_command(words: tuple[str, ...]) -> str:
    """What a launcher's command is about: the script or module that it starts, or itself if that cannot be seen."""
    runs_python = False
    for word, following in itertools.pairwise((*words, "")):
        runs_python = runs_python or _RUNS_PYTHON.fullmatch(Path(word).name) is not None
        if word in ("-m", "--module") and runs_python and following not in _LAUNCHERS:
            return following
        if word.endswith(_SCRIPTS):
            return Path(word).name
    return Path(words[0]).name


def make_script_job(path: str, arguments: tuple[str, ...]) -> Job:
    """A Python script; raises UserError if it is missing or does not parse."""
    file = Path(path)
    if not file.exists():
        there = {found.stem: str(found) for found in sorted(file.parent.glob("*.py"))}
        meant = [there[name] for name in find_nearest(file.stem, there)]
        scripts = join_names([Path(found).name for found in there.values()]) or "none"
        hint = f"did you mean {' or '.join(meant)}?" if meant else f"its folder has {scripts}"
        raise UserError(f"there is no script {path}; {hint}")
    if file.is_dir():
        raise UserError(
            f"{path} is a folder; name a script in it, or use `stash profile -m PACKAGE.MODULE`"
        )
    if file.suffix in (".sh", ".bash"):
        raise UserError(f"{path} is a shell script; profile it with `stash profile -- bash {path}`")
    if file.suffix == ".ipynb":
        raise UserError(
            f"{path} is a notebook; `jupyter nbconvert --to script {path}` makes a script of it"
        )
    try:
        source = read_up_to(file, _LARGEST)
        # which encoding it has, Python sees itself
        compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise UserError(f"{path}{line}: {error.msg}; python cannot run it") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot read {path} as a Python script: {why}") from None
    return Job("script", path, arguments)


def make_command_job(words: tuple[str, ...]) -> Job:
    """Any launcher's command, run as it is; raises UserError if there is no such program."""
    if not words:
        raise UserError(
            "nothing after `--`; type the command that starts your job, like `-- torchrun train.py`"
        )
    program = shutil.which(words[0])
    if program is None:
        raise UserError(
            f"there is no program {words[0]!r} on PATH; type the command as you would without Stash"
        )
    _check_runs(Path(program))
    options = python_options(words)
    if options is not None:
        raise UserError(why_shut_out(options))
    return Job("command", words[0], words[1:])


def _check_runs(program: Path) -> None:
    """Raise UserError for text that the system cannot run, since it does not say by what."""
    try:
        head = read_up_to(program, _HEAD)
    except OSError:
        return  # it may be run, and not read
    if b"\0" in head:
        return  # a binary
    by = head.partition(b"\n")[0].removeprefix(b"#!").split()
    if not head.startswith(b"#!"):
        runs = program if program.suffix == ".py" else f"-- bash {program}"
        raise UserError(
            f"{program} has no first line that names what runs it (#!), so nothing can start it; type "
            f"`stash profile {runs}`"
        )
    if by and not Path(os.fsdecode(by[0])).exists():
        raise UserError(
            f"{program} is to be run by {os.fsdecode(by[0])}, as its first line says, which is not there"
        )


def make_workload_job(name: str, data: str | None, batch: int | None, more: tuple[str, ...]) -> Job:
    """A workload of the zoo; raises UserError for an unknown name, naming the nearest."""
    spec = look_up(name)
    spec.require_packages()
    if data:
        spec.require_files()
    arguments = ["--workload", spec.name]
    arguments += ["--data", data] if data else ["--synthetic"]
    arguments += ["--batch", str(batch)] if batch else []
    if data and not Path(data).is_dir():
        raise UserError(
            f"there is no data folder {data}; make one with `stash lab dataset make {spec.kind} {data}`"
        )
    return Job("module", _ZOO, (*arguments, *more), name=spec.name, data=data)


# PyTorch is the user's: it has to be where the job runs, which may be another Python than Stash's own.

_OLDEST_TORCH = (2, 4)
_FIND_TORCH = """
from importlib import metadata, util
if util.find_spec("torch") is None:
    print("missing")
else:
    print("found", metadata.version("torch"))
"""
_FIND_SECONDS = 10.0


def require_torch_of(job: Job) -> None:
    """Raise UserError where the Python that the job starts with lacks PyTorch."""
    python = python_of(job)
    if python is not None:
        require_torch(
            job.title, python, "name the Python that trains, like `-- /path/to/python train.py`"
        )


def require_torch(purpose: str, python: str = sys.executable, instead: str = "") -> None:
    """Raise UserError where this Python has no PyTorch, or an old one; the job finds out whatever this cannot."""
    version = _find_torch(python)
    if version is None:
        return
    number = re.match(r"(\d+)\.(\d+)", version)
    oldest = ".".join(map(str, _OLDEST_TORCH))
    if not version:
        found, package = "has none", "torch"
    elif number and tuple(map(int, number.groups())) < _OLDEST_TORCH:
        found, package = f"has {version}", f"'torch>={oldest}'"
    else:
        return
    answer = f"type `{python} -m pip install {package}`" + (f", or {instead}" if instead else "")
    raise UserError(f"{purpose} needs PyTorch {oldest} or newer, and {python} {found}: {answer}")


def _find_torch(python: str) -> str | None:
    """The version of PyTorch that a Python has, empty if none; ``None`` if that cannot be told."""
    if (
        python == sys.executable
    ):  # to start another takes a tenth of a second, which the job waits for
        try:
            return metadata.version("torch") if util.find_spec("torch") is not None else ""
        except metadata.PackageNotFoundError:
            return None
    try:
        done = subprocess.run(
            [python, "-c", _FIND_TORCH],
            check=False,
            capture_output=True,
            text=True,
            timeout=_FIND_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    word, _, version = done.stdout.strip().partition(" ")
    return {"missing": "", "found": version}.get(word)


def python_of(job: Job) -> str | None:
    """The Python that a job starts with; None of programs that are something else, and may start any."""
    if job.kind != "command":
        return sys.executable
    program = shutil.which(job.target)
    if program is None or _PYTHON.fullmatch(Path(program).name):
        return program
    try:
        head = os.fsdecode(read_up_to(Path(program), _HEAD)).partition("\n")[0]
    except OSError:
        return None
    words = head.removeprefix("#!").split() if head.startswith("#!") else []
    found = (word for word in words if _PYTHON.fullmatch(Path(word).name))
    return shutil.which(next(found, ""))


def may_train_on_several(job: Job) -> bool:
    """Whether a script, started with ranks, might train with them: judged by reading it and the modules next to it.

    Only a hint to the user follows from this; what is started is what was typed.
    """
    if job.kind == "command" or job.name:
        return False
    path = Path(job.target) if job.kind == "script" else _module_path(job.target)
    if path is None:
        return False
    text = _read_source(path)
    for name in sorted({*_IMPORTED.findall(text)}):
        local = path.parent / name.replace(".", "/")
        text += _read_source(local.with_suffix(".py")) + _read_source(local / "__init__.py")
    return _DISTRIBUTED.search(text) is not None and _SPAWNS.search(text) is None


def _iter_choices(source: str) -> Iterator[str]:
    """Words that a script's source offers: options, and literal choices of them (argparse, click)."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        listed = [keyword.value for keyword in node.keywords if keyword.arg == "choices"]
        listed += node.args[:1] if called == "Choice" else []
        words = list(node.args) if called == "add_argument" else []
        for choices in listed:
            words += getattr(choices, "elts", ())
        yield from (str(word.value) for word in words if isinstance(word, ast.Constant))


def _module_path(name: str) -> Path | None:
    parts = name.split(".")
    for root in [Path.cwd(), *map(Path, sys.path)]:
        for candidate in (
            root.joinpath(*parts).with_suffix(".py"),
            root.joinpath(*parts, "__main__.py"),
        ):
            if candidate.is_file():
                return candidate
    return None


def _read_source(path: Path) -> str:
    try:
        return read_up_to(path, _LARGEST).decode(errors="replace")
    except OSError:
        return ""


# What git says is asked with care: it may take seconds, take no lock and start no program of the repository's.
# Whatever fails is not known.

_GIT = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.fsmonitor=false",
    "status",
    "--porcelain=v2",
    "--branch",
    "--no-ahead-behind",
    "--untracked-files=no",
    "--ignore-submodules=all",
)
_COMMIT = re.compile(r"# branch\.oid ([0-9a-f]{40}|[0-9a-f]{64})")
_GIT_SECONDS = 3.0


class Commit(NamedTuple):
    """What is known of the repository; both ``None`` where there is none, or git does not say."""

    name: str | None = None
    """The commit, in hexadecimal digits."""
    dirty: bool | None = None
    """Whether files that git knows were changed since."""


def commit_of(job: Job) -> Commit:
    """Find the commit of the repository that the job's script is in, else of the one that it is started in."""
    if job.kind == "module" and job.target.startswith("stash."):
        return Commit()  # a workload of the zoo, or a function: its module is Stash's own
    words = {"script": (job.target,), "command": job.command}.get(job.kind, ())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    scripts = (path for path in map(Path, words) if path.suffix in _SCRIPTS and path.is_file())
    try:
        there = next(scripts, None)
        done = subprocess.run(
            _GIT,
            cwd=None if there is None else there.resolve().parent,
            env={**environment, "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=True,
            text=True,
            errors="replace",
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return Commit()  # no git, no repository or somebody else's, a large one
    lines = done.stdout.splitlines()
    commit = next(filter(None, map(_COMMIT.fullmatch, lines)), None)
    if commit is None:
        return Commit()
    return Commit(commit[1], any(not line.startswith("# ") for line in lines))
