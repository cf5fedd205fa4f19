"""What each tool does: one of Stash's commands with ``--json``, in this process; a profile in one of its own.

Only reads, predicts and profiles on this machine: no tool takes an option that rents, starts or writes elsewhere, and
commands that are known to rent are not profiled. Knows nothing of the protocol.
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
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio

from stash.cli.main import app
from stash.core.errors import JobError, StashError, UserError
from stash.core.output_files import output_file
from stash.core.printable import last_of
from stash.core.records.base import SUFFIX
from stash.mcp_server.brief import COMPARISON, DECISIONS, PLAN, WHATIF, Handles, keys_of
from stash.plan.plan_options import PlanOptions
from stash.predict.changes import Alteration
from stash.ui.options import declarations

_RENTS = {
    "aws", "az", "bsub", "eksctl", "gcloud", "kubectl", "modal", "qsub", "runpodctl", "salloc", "sbatch", "sky",
    "srun", "stash", "terraform", "vastai",
}  # fmt: skip
"""Programs that start machines, or jobs elsewhere."""
_NOT_ASKED = {"runs", "study", "store", "output", "launch", "json", "markdown", "pareto", "explain_type"}
_MAX_SECONDS = 600

_one_at_a_time = threading.Lock()
"""What commands print is caught by taking ``sys.stdout``, of which there is one."""


def options_of(model: type) -> dict[str, str]:
    """Of an options model what an agent may give, by the options' names on the command line, and what it means."""
    return {
        one.name(name).lstrip("-").replace("-", "_"): f"{one.metavar or 'true'}: {one.help}"
        for name, one in declarations(model).items()
        if name not in _NOT_ASKED
    }


CHANGES, WISHES = options_of(Alteration), options_of(PlanOptions)


class AgentTools:
    """The tools: an agent is given each method's name, parameters and docstring."""

    def __init__(self) -> None:
        self._handles = Handles()

    async def profile(self, command: list[str], budget: float = 60, output: str | None = None) -> str:
        """Profile a training command on this machine for at most budget seconds, and explain the result. The command
        is ["train.py", "--lr", "0.1"], ["-m", "my.training"], or another launcher's words; output is a new file."""
        refuse_to_rent(command)
        if not 0 < budget <= _MAX_SECONDS:
            raise UserError(f"budget={budget:g}: it is more than 0 and at most {_MAX_SECONDS}")
        if output is not None and os.path.lexists(output):
            raise UserError(f"output={output}: it is there already, and nothing is replaced; name a new file")
        target = output_file(None if output is None else Path(output), Path(command[0]).stem or "job", SUFFIX)
        words = [sys.executable, "-m", "stash", "profile", f"--budget={budget:g}", f"--output={target}"]
        words += command if Path(command[0]).suffix == ".py" or command[0] == "-m" else ["--", *command]
        with tempfile.TemporaryFile() as log:
            process = await anyio.open_process(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            try:
                code = await process.wait()
            except BaseException:  # the client gave up: as Ctrl-C does, which puts the job's files back
                process.send_signal(signal.SIGINT)
                with anyio.CancelScope(shield=True):
                    await process.wait()
                raise
            log.seek(0)
            printed = log.read().decode(errors="replace")
        if code:
            text = last_of(printed.rpartition("error: ")[2], 1500)
            raise UserError(text) if code == UserError.exit_code else JobError(text)
        document = _command("show", (), str(target))
        return self._handles.answer(document, keys_of(document), file=str(target))

    def explain(self, run: str) -> str:
        """Say what a saved file tells: of a profile the verdict, each stall, and what to do next."""
        document = _command("show", (), run)
        return self._handles.answer(document, keys_of(document))

    def compare(self, before: str, after: str) -> str:
        """Say what differs between two profiles of one job, stall by stall, and whether more than chance is shown."""
        (document,) = _command("compare", (), before, after)
        return self._handles.answer(document, COMPARISON)

    def check(
        self, run: str, most: list[str] = [], least: list[str] = [], baseline: str | None = None,  # noqa: B006 - never changed
        slower: list[str] = [], require: list[str] = [],  # noqa: B006
    ) -> str:  # fmt: skip
        """Say whether a profile keeps limits: most ["network=15%", "step=250ms"], least ["samples/s=60"], against a
        baseline slower ["5%", "fetch=20%"], require ["ranks=8"]. The verdict is passes, fails or cannot tell."""
        against = [baseline] if baseline else []
        given = {"max": most, "min": least, "slower": slower, "require": require, "against": against}
        words = [f"--{name}={text}" for name, texts in given.items() for text in texts]
        return self._handles.answer(_command("check", words, run), DECISIONS)

    def what_if(self, run: str, changes: dict[str, str]) -> str:
        """Predict a profiled job's step on other machines or with other settings."""
        return self._handles.answer(_command("whatif", _words(changes, CHANGES), run), WHATIF)

    def recommend(self, runs: list[str], options: dict[str, str]) -> str:
        """Say what to rent for a profiled job, by published prices; nothing is rented."""
        return self._handles.answer(_command("recommend", _words(options, WISHES), *runs), PLAN)

    def more(self, handle: str, path: str = "", offset: int = 0) -> str:
        """The whole of an earlier answer's document, piece by piece: at a path like "choices/0/dollars", from a
        character on."""
        return self._handles.piece(handle, path, offset)


def refuse_to_rent(command: Sequence[str]) -> None:
    """Raise UserError for a command that is known to start machines or jobs elsewhere, or is none."""
    words = [word for word in command if not re.fullmatch(r"\w+=.*", word) and word not in ("env", "exec", "nohup")]
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


def _words(given: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """Options as on the command line; raises UserError for others."""
    words = []
    for key, value in given.items():
        name = key.lstrip("-").replace("-", "_")
        if name not in known:
            raise UserError(f"there is no option {key}; there are {', '.join(known)}")
        option = f"--{name.replace('_', '-')}"
        if not known[name].startswith("true:"):
            words.append(f"{option}={value}")
        elif value.lower() not in ("true", "false"):
            raise UserError(f"{key}={value}: it is true or false")
        elif value.lower() == "true":
            words.append(option)
    return words


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
