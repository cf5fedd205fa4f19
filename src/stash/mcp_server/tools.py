"""What each tool does: one of Stash's commands with ``--json``, in this process; what trains, in one of its own.

Only reads, predicts and runs training commands on this machine: no tool takes an option that rents, starts or writes
elsewhere, commands that are known to rent are not run, and files are local ones. Knows nothing of the protocol.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import anyio
import anyio.abc
from anyio import to_thread
from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema
from pydantic_core import ArgsKwargs

from stash.cli.main import app
from stash.core import parsers
from stash.core.artefact import read_content
from stash.core.documents import FIX as FIXES
from stash.core.errors import JobError, StashError, UserError
from stash.core.output_files import output_file
from stash.core.printable import last_of, shorten_text
from stash.core.records.base import SUFFIX
from stash.core.units import find_nearest
from stash.mcp_server.brief import ANSWERS, Handles, Keys, keys_of
from stash.monitor.records import SUFFIX as WATCH_SUFFIX
from stash.plan.plan_options import PlanOptions
from stash.predict.changes import Alteration
from stash.ui.options import Option, declarations

_RENTS = {
    "aws",
    "az",
    "bsub",
    "eksctl",
    "gcloud",
    "kubectl",
    "modal",
    "qsub",
    "runpodctl",
    "salloc",
    "sbatch",
    "sky",
    "srun",
    "stash",
    "terraform",
    "vastai",
}
"""Programs that start machines, or jobs elsewhere."""
_NOT_ASKED = {
    "runs",
    "study",
    "store",
    "output",
    "launch",
    "json",
    "markdown",
    "pareto",
    "explain",
    "explain_type",
}
_MAX_SECONDS = 600
_PATIENCE = 30.0
"""Seconds that a command has to end by itself once it is interrupted."""

_one_at_a_time = threading.Lock()
"""What commands print is caught by taking ``sys.stdout``, of which there is one."""


def options_of(model: type) -> dict[str, Option]:
    """Of an options model what an agent may give, by the options' names on the command line."""
    return {
        one.name(name).lstrip("-").replace("-", "_"): one
        for name, one in declarations(model).items()
        if name not in _NOT_ASKED
    }


CHANGES, WISHES = options_of(Alteration), options_of(PlanOptions)
_SCALARS = ["string", "number", "boolean", "null"]


def schema_of(options: Mapping[str, Option]) -> dict[str, Any]:
    """The JSON schema of an object of these options, each a text, a number, a flag, or several in a list."""
    several = {"type": [*_SCALARS, "array"], "items": {"type": _SCALARS[:2]}}
    described = {
        name: {
            **({"type": ["boolean", "string"]} if one.kind == "flag" else several),
            "description": f"{one.metavar}: {one.help}" if one.metavar else one.help,
        }
        for name, one in options.items()
    }
    about = "Each as on the command line, like {'nodes': 4}."
    return {
        "type": "object",
        "description": about,
        "properties": described,
        "additionalProperties": False,
    }


def _split_command(given: Any) -> Any:
    """A command that is one text, word by word as a shell has it."""
    try:
        return shlex.split(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ValueError(f"cannot be read as a command: {error}") from None


def _make_list(given: Any) -> Any:
    """One text where several may be given."""
    return [given] if isinstance(given, str) else given


def _parse_seconds(given: Any) -> Any:
    """A time as the command line takes it."""
    try:
        return parsers.duration(given) if isinstance(given, str) else given
    except UserError as error:
        raise ValueError(str(error)) from None


ArtefactName = Annotated[
    str, Field(description="A file on this machine: a *.stash.json, or another that Stash wrote.")
]
TrainingWords = Annotated[
    list[str],
    Field(
        description="What trains, word by word: ['train.py', '--lr', '0.1'], ['-m', 'my.training'], or "
        "another launcher's words."
    ),
    BeforeValidator(_split_command),
]
TimeLimit = Annotated[
    float,
    BeforeValidator(_parse_seconds),
    WithJsonSchema(
        {
            "type": ["number", "string"],
            "description": f"Seconds, or like 2m: at most so long, up to {_MAX_SECONDS}.",
        }
    ),
]
Output = Annotated[
    str | None, Field(description="A new file for what is measured; else named after the script.")
]
TextList = Annotated[list[str], BeforeValidator(_make_list)]


class AgentTool(NamedTuple):
    """One tool: an agent is given its function's parameters and docstring."""

    function: Any
    keys: Keys | None
    """Of its answer, the keys that are told; ``None``: all of them."""
    runs: bool = False
    """Whether it runs the command that it is given."""

    @property
    def input_schema(self) -> dict[str, Any]:
        return TypeAdapter(self.function).json_schema()


class AgentTools:
    """The tools by name, and the answers that they gave."""

    def __init__(self) -> None:
        self._handles = Handles()
        self.table = {
            "profile": AgentTool(self.profile, ANSWERS["profile"], runs=True),
            "fix": AgentTool(self.fix, ANSWERS["fix"], runs=True),
            "watch": AgentTool(self.watch, ANSWERS["watch"], runs=True),
            "list": AgentTool(self.list_artefacts, ANSWERS["listing"]),
            "explain": AgentTool(self.explain, None),
            "compare": AgentTool(self.compare, ANSWERS["comparison"]),
            "check": AgentTool(self.check, ANSWERS["decisions"]),
            "what_if": AgentTool(self.what_if, ANSWERS["whatif"]),
            "recommend": AgentTool(self.recommend, ANSWERS["plan"]),
            "more": AgentTool(self.more, ANSWERS["more"]),
        }

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """What a tool answers, JSON; raises StashError, and ValidationError for an argument of another type.

        What reads does so in a thread, so that the protocol goes on meanwhile.
        """
        if name not in self.table:
            raise UserError(f"there is no tool {shorten_text(name, 100)}")
        tool = self.table[name]
        parameters = tool.input_schema["properties"]
        given = {key: value for key, value in arguments.items() if key in parameters}
        beside = {key: value for key, value in arguments.items() if key not in parameters}
        for nested in (key for key, schema in parameters.items() if "properties" in schema):
            # models write changes and options beside the run, too
            given[nested] = {**given.get(nested, {}), **beside}
            beside = {}
        answer = await to_thread.run_sync(
            TypeAdapter(tool.function).validate_python, ArgsKwargs((), {**given, **beside})
        )
        return str(await answer if tool.runs else answer)

    async def profile(
        self, command: TrainingWords, budget: TimeLimit = 60, output: Output = None
    ) -> str:
        """Profile a training command on this machine for some seconds, and explain the result. It runs the
        command."""
        return await self._measure("profile", SUFFIX, command, budget, output)

    async def fix(
        self, command: TrainingWords, budget: TimeLimit = 300, output: Output = None
    ) -> str:
        """Find out what makes a training script faster: try changes on it, and write a patch beside it. It runs the
        command many times; the script itself stays as it is."""
        return await self._measure("fix", FIXES.suffix, command, budget, output)

    async def watch(
        self, command: TrainingWords, budget: TimeLimit = 60, output: Output = None
    ) -> str:
        """Watch a training command for some seconds, then end it, and say what its steps waited for and which alerts
        there were. It runs the command. The record of a run that is watched already is a file for explain."""
        return await self._measure("watch", WATCH_SUFFIX, command, budget, output)

    async def _measure(
        self, name: str, suffix: str, command: list[str], budget: float, output: str | None
    ) -> str:
        """Run the command of that name on a job, and explain its file; ``watch`` has no budget, and is ended."""
        target = _new_file(command, budget, output, suffix)
        watches = name == "watch"
        limit = [] if watches else [f"--budget={budget:g}"]
        words = [name, *limit, f"--output={target}", *_job(command)]
        await _run(words, stop_after=budget if watches else None)
        return self._explain_file(str(target), file=str(target))

    def list_artefacts(
        self,
        folder: Annotated[
            str, Field(description="A folder on this machine with files that Stash wrote.")
        ] = ".",
        limit: Annotated[int, Field(description="Show the N newest.", ge=1, le=1000)] = 30,
    ) -> str:
        """List the profiles, probes and records of fixes in a folder: their names, jobs, steps and largest stalls."""
        rows = _command("list", [f"--limit={limit}"], _local_name("folder", folder))
        return self._handles.answer({"folder": folder, "artefacts": rows}, ANSWERS["listing"])

    def explain(self, run: ArtefactName) -> str:
        """Say what a saved file tells: of a profile the verdict, each stall, and what to do next."""
        return self._explain_file(_local_file("run", run))

    def _explain_file(self, name: str, **about: str) -> str:
        document = _command("show", (), name)
        return self._handles.answer(document, keys_of(document), **about)

    def compare(
        self,
        before: Annotated[str, Field(description="A profile on this machine, *.stash.json.")],
        after: Annotated[str, Field(description="Another of the same workload.")],
    ) -> str:
        """Say what differs between two profiles of one job, stall by stall, and whether more than chance is shown."""
        before = _local_file("before", before)
        after = _local_file("after", after)
        (document,) = _command("compare", (), before, after)
        return self._handles.answer(document, ANSWERS["comparison"])

    def check(
        self,
        run: ArtefactName,
        most: Annotated[
            TextList, Field(description="Limits, like network=15% or step=250ms.")
        ] = [],  # noqa: B006 - never changed
        least: Annotated[TextList, Field(description="Limits from below, like samples/s=60.")] = [],  # noqa: B006
        baseline: Annotated[
            str | None, Field(description="The profile that slower is about.")
        ] = None,
        slower: Annotated[
            TextList,
            Field(
                description="Maximum slowdown against the baseline, of the step (5%) or of one stall (fetch=20%)."
            ),
        ] = [],  # noqa: B006
        require: Annotated[
            TextList, Field(description="Facts that must be so, like ranks=8.")
        ] = [],  # noqa: B006
    ) -> str:
        """Say whether a profile keeps limits. The verdict is passes, fails or cannot tell."""
        run = _local_file("run", run)
        against = [_local_file("baseline", baseline)] if baseline else []
        given = {
            "max": most,
            "min": least,
            "slower": slower,
            "require": require,
            "against": against,
        }
        words = [f"--{name}={text}" for name, texts in given.items() for text in texts]
        return self._handles.answer(_command("check", words, run), ANSWERS["decisions"])

    def what_if(
        self,
        run: ArtefactName,
        changes: Annotated[dict[str, Any], WithJsonSchema(schema_of(CHANGES))] = {},  # noqa: B006 - never changed
    ) -> str:
        """Predict a profiled job's step on other machines or with other settings."""
        words = _option_words(changes, CHANGES)
        return self._handles.answer(
            _command("whatif", words, _local_file("run", run)), ANSWERS["whatif"]
        )

    def recommend(
        self,
        runs: Annotated[
            TextList, Field(description="Profiles of one job on this machine, *.stash.json.")
        ],
        options: Annotated[dict[str, Any], WithJsonSchema(schema_of(WISHES))] = {},  # noqa: B006 - never changed
    ) -> str:
        """Say what to rent for a profiled job, by published prices; nothing is rented."""
        files = [_local_file("runs", run) for run in runs]
        return self._handles.answer(
            _command("recommend", _option_words(options, WISHES), *files), ANSWERS["plan"]
        )

    def more(
        self,
        handle: Annotated[str, Field(description="What an earlier answer has as `more`.")],
        path: Annotated[
            str, Field(description="Where in its document, like choices/0/dollars.")
        ] = "",
        offset: Annotated[int, Field(description="The character to begin with.")] = 0,
    ) -> str:
        """The whole of an earlier answer's document, piece by piece."""
        return self._handles.piece(handle, path, offset)


def refuse_to_rent(command: Sequence[str]) -> None:
    """Raise UserError for a command that is known to start machines or jobs elsewhere, or is none."""
    words = [
        word
        for word in command
        if not re.fullmatch(r"\w+=.*", word) and word not in ("env", "exec", "nohup")
    ]
    if not words:
        raise UserError("command is empty; give what trains, like ['train.py', '--lr', '0.1']")
    # Programs that start others (sudo, nice, uv run), modules, and a shell's lines.
    programs: set[str] = set()
    launched = False
    for flag, word in pairwise(["", *words]):
        if (
            flag == "-m"
            or re.fullmatch("-[a-z]*[cS]|--split-string", flag)
            or word.startswith(("-S", "-m", "--split-string="))
        ):
            programs |= set(re.findall(r"[\w-]+", re.sub("^-[Sm]", "", word)))
        elif word.endswith(".py"):  # what follows is the script's own
            break
        elif not launched:
            programs.add(Path(word).name)
        launched = launched or flag == "-m"
    rents = sorted(programs & _RENTS)
    if rents:
        raise UserError(
            f"{shlex.join(command)} is not started: {rents[0]} can start what costs money; profile what trains, here",
            code="costs_money",
        )


def _option_words(given: Mapping[str, Any], known: Mapping[str, Option]) -> list[str]:
    """Options as on the command line; raises UserError for others."""
    words = []
    for key, value in given.items():
        name = plain_name(key)
        if name not in known:
            raise UserError(f"there is no option {key}; {near_names(name, known)}")
        option = f"--{name.replace('_', '-')}"
        if known[name].kind == "flag":
            typed = str(value).lower()
            if typed not in ("true", "false", "none"):
                raise UserError(f"{key}={shorten_text(str(value), 100)}: it is true or false")
            words += [option] if (typed == "true") else []
        elif known[name].many and isinstance(value, list):
            words += [f"{option}={_format_argument(key, each)}" for each in value]
        elif value is not None:
            words.append(f"{option}={_format_argument(key, value)}")
    return words


def plain_name(key: str) -> str:
    """An option's name however it is written: ``--max-dollars`` is ``max_dollars``."""
    return key.lstrip("-").replace("-", "_")


def near_names(name: str, known: Collection[str]) -> str:
    """What may have been meant, for the end of an error."""
    alike = find_nearest(name, known, 3)
    return f"did you mean {' or '.join(alike)}?" if alike else f"there are {', '.join(known)}"


def _format_argument(key: str, value: Any) -> str:
    """A value as it is typed: 4, 4.0 and "4" alike, a list with commas; raises UserError for what names a URL."""
    if isinstance(value, list):
        return ",".join(_format_argument(key, each) for each in value)
    if isinstance(value, dict):
        raise UserError(f"{key}: it is a text or a number, not an object")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.15g}"
    return _local_name(key, str(value))


def _local_name(parameter: str, name: str) -> str:
    """The name of something on this machine; raises UserError for a URL, to which a hostile text could send data."""
    if "://" in name or "::" in name or "\0" in name:
        raise UserError(
            f"{parameter}={shorten_text(name, 200)}: it is a file on this machine, not a URL; copy it here"
        )
    return name


def _local_file(parameter: str, name: str) -> str:
    """A regular file on this machine; raises UserError, or ArtefactError where there is none."""
    path = Path(_local_name(parameter, name))
    try:
        is_there = path.is_file()
    except OSError as error:
        raise UserError(
            f"{parameter}={shorten_text(name, 200)}: {error.strerror}; name a file on this machine"
        ) from None
    if not is_there:
        read_content(path)  # says what is there instead, and names files that could be meant
    return str(path)


def _new_file(command: Sequence[str], budget: float, output: str | None, suffix: str) -> Path:
    """Where what a command is run for is saved; raises UserError if it may not be run, or is there already."""
    refuse_to_rent(command)
    if not 0 < budget <= _MAX_SECONDS:
        raise UserError(f"budget={budget:g}: it is more than 0 and at most {_MAX_SECONDS}")
    if output is not None and os.path.lexists(_local_name("output", output)):
        raise UserError(
            f"output={output}: it is there already, and nothing is replaced; name a new file"
        )
    return output_file(
        None if output is None else Path(output), Path(command[0]).stem or "job", suffix
    )


def _job(command: list[str]) -> list[str]:
    """The words of a job, behind what keeps another launcher's from being taken for Stash's own."""
    return command if Path(command[0]).suffix == ".py" or command[0] == "-m" else ["--", *command]


async def _run(words: list[str], stop_after: float | None = None) -> None:
    """Run a command of Stash's to its end, or interrupt it after some seconds; raises UserError and JobError."""
    with tempfile.TemporaryFile() as log:
        process = await anyio.open_process(
            [sys.executable, "-m", "stash", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with anyio.move_on_after(stop_after) as running:
                await process.wait()
        except BaseException:  # the client gave up: as Ctrl-C does, which puts the job's files back
            await _interrupt_process(process)
            raise
        if running.cancelled_caught:
            await _interrupt_process(process)
        log.seek(0)
        printed = log.read().decode(errors="replace")
    if process.returncode and not running.cancelled_caught:
        text = last_of(printed.rpartition("error: ")[2], 1500)
        raise UserError(text) if process.returncode == UserError.exit_code else JobError(text)


async def _interrupt_process(process: anyio.abc.Process) -> None:
    """End a command and its job, as Ctrl-C in a terminal does, and by force if they do not."""
    with anyio.CancelScope(shield=True):
        for number, patience in (
            (signal.SIGINT, _PATIENCE),
            (signal.SIGTERM, 5.0),
            (signal.SIGKILL, 5.0),
        ):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with anyio.move_on_after(patience):
                await process.wait()
                return


def _command(name: str, options: Sequence[str], *files: str) -> Any:
    """What the command prints as JSON; raises StashError."""
    with _one_at_a_time, redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()):
        try:
            app([name, "--json", *options, "--", *files], standalone_mode=False)
        except StashError:
            raise
        except Exception as error:  # click's, of what typer cannot parse
            if not hasattr(error, "format_message"):
                raise
            raise UserError(error.format_message()) from None
    return json.loads(printed.getvalue())
