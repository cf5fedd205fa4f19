"""Why a job failed, in one sentence, from what its ranks left and from what it printed. Pure.

Reads the end of a log only, line by line, so that what a job prints for hours, or on one line without an end (a
progress bar), costs no more than its last words. Looks for the root cause first, and takes for an error only what
stands where errors stand: a hint that is printed names memory, ports and time-outs too.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from stash.core.formatting import join_names
from stash.core.units import format_count
from stash.measure.protocol.orders import strip_wraps

MAX_BYTES = 200_000
"""Of a log or a traceback that are read: the cause of a failure stands at its end."""
_TRACEBACK = "Traceback (most recent call last):"
_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.M)
"""PyTorch writes it before every line of a rank's uncaught exception."""
_REPORTED = re.compile(
    r"^\s{0,9}rank\s{0,9}:\s{0,9}(\d{1,9}) [^\n]{0,99}\n\s{0,9}exitcode\s{0,9}:\s{0,9}(-?\d{1,9})",
    re.M,
)
_ROOT_CAUSE = "Root Cause (first observed failure)"
_ELASTIC = re.compile(r"[EW]\d{4} ")
_LAUNCHERS = (
    "torch/distributed/run.py",
    "bin/torchrun",
    "bin/accelerate",
    "accelerate/commands/launch.py",
    "ChildFailedError",
)
"""In the traceback of a launcher, which only says that a rank has failed."""
_CLOSED = re.compile(r"Sending process (\d+) closing signal")
_USAGE = re.compile(r"usage:", re.I)
"""What argparse and click begin with, where an option is wrong …"""
_WRONG = re.compile(r"^(?:\S[^:]{0,99}: )?error: (.+)$", re.I)
"""… and how they end."""
_NAMES_ERROR = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)\b")
_LAST_WORDS = 40
"""Lines among which a job says why it ends."""
_LINES_SHOWN = 8
_LONGEST_CAUSE = 300


class ReportedRank(NamedTuple):
    """A rank in torchrun's report of a failure."""

    rank: int
    code: int


def read_tail(path: Path) -> str:
    """The end of a text file; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MAX_BYTES))
            return file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""


def find_reported(output: str) -> list[ReportedRank]:
    """The ranks that torchrun says have failed, its root cause first."""
    others, _, root_cause = output.partition(_ROOT_CAUSE)
    found = [*_REPORTED.findall(root_cause), *_REPORTED.findall(others)]
    return [ReportedRank(int(rank), int(code)) for rank, code in found]


def find_closed(output: str) -> set[int]:
    """The processes that torchrun ended because another had failed."""
    return {int(pid) for pid in _CLOSED.findall(output)}


def own_output(output: str) -> str:
    """The last lines the job itself printed, without what its launcher, or a rank's traceback, says of it."""
    lines = output[: _launcher_speaks(output)].splitlines()
    kept = [
        line
        for line in lines
        if line.strip() and not _PREFIX.match(line) and not _CLOSED.search(line)
    ]
    return "\n".join(kept[-_LINES_SHOWN:])


def find_stated_cause(output: str) -> str:
    """What is wrong with a job's options, where it printed how it is used, and no traceback."""
    own = output[: _launcher_speaks(output)]
    lines = [line.rstrip() for line in own.splitlines() if not _ELASTIC.match(line)][-_LAST_WORDS:]
    usage = [position for position, line in enumerate(lines) if _USAGE.match(line)]
    if _TRACEBACK in own or not usage:
        return ""
    wrong = next(filter(None, map(_WRONG.match, lines[usage[-1] + 1 :])), None)
    text = "" if wrong is None else wrong[1].rstrip(".")
    return text if len(text) <= _LONGEST_CAUSE else f"{text[:_LONGEST_CAUSE]} …"


def find_cause(own_words: str) -> str:
    """The line of a job's own words that shows best why it failed: an error, not the hints that follow on it."""
    if stating := find_stated_cause(own_words):
        return stating
    lines = find_errors(own_words)
    return next(
        (line for line in reversed(lines) if _NAMES_ERROR.match(line)), lines[-1] if lines else ""
    )


def launchers_words(output: str) -> str:
    """What the job's launcher says about its failure."""
    return output[_launcher_speaks(output) :]


def last_traceback(output: str) -> str:
    """The last Python traceback in the output that is not its launcher's own."""
    text = _PREFIX.sub("", output)
    found = [text[begin:end] for begin, end in _find_tracebacks(text)]
    return next((each for each in reversed(found) if not _is_launchers(each)), "")


def find_errors(traceback: str) -> list[str]:
    """The lines of a traceback that speak: exceptions with their messages, not the source they came from."""
    lines = _PREFIX.sub("", traceback).splitlines()
    return [line for line in lines if line.strip() and not line.startswith((" ", "\t", _TRACEBACK))]


def _find_tracebacks(text: str) -> Iterator[tuple[int, int]]:
    """Where each begins, and ends: with the first line that is not indented."""
    begin, position = None, 0
    for line in text.splitlines(keepends=True):
        if _TRACEBACK in line:
            if begin is not None:
                yield begin, position
            begin = position + line.index(_TRACEBACK)
        elif begin is not None and line.strip() and not line.startswith((" ", "\t")):
            yield begin, position + len(line)
            begin = None
        position += len(line)
    if begin is not None:
        yield begin, position


def _is_launchers(traceback: str) -> bool:
    return any(name in traceback for name in _LAUNCHERS)


def _launcher_speaks(output: str) -> int:
    """Where the launcher's report begins: with a line of torchrun's log, or with its traceback."""
    first = next(
        (begin for begin, end in _find_tracebacks(output) if _is_launchers(output[begin:end])),
        len(output),
    )
    position = 0
    for line in output[:first].splitlines(keepends=True):
        if _ELASTIC.match(line) and "torch/distributed/elastic" in line and "failed" in line:
            return position
        position += len(line)
    return first


_MEMORY = re.compile(
    r"^(?:terminate called after throwing an instance of '|\s*what\(\): +)?(?:[\w.]+: )?(?:[\w.]*MemoryError\b"
    r"|(?:\[enforce fail[^\]]{0,200}\].{0,99})?DefaultCPUAllocator: (?:can't|not enough)"
    r"|(?:CUDA|HIP|XPU|MPS)(?: error:)? out of memory(?:\.|$)"
    r"|(?:\[Errno 12\] |unable to .{0,300})Cannot allocate memory|std::bad_alloc)",
    re.I,
)
"""The begin of an error about memory; what speaks of memory elsewhere may be a hint."""
_PORT = re.compile(
    r"^[\w.]*(?:Error|Exception)\b.{0,2000}(?:EADDRINUSE|address already in use)", re.I
)
_SHARED_MEMORY = re.compile(
    r"_multiprocessing\.SemLock\(|[Ii]nsufficient shared memory|out of shared memory|shared memory object </torch_"
    r"|unable to [\w ]{1,60} file </torch_|shared memory segment /dev/shm/nccl"
)
"""What loader's workers and their trainer hand batches through, and NCCL's ranks of one machine gradients."""
_RENDEZVOUS = re.compile(
    r"^[\w.]*(?:Rendezvous(?:Timeout|Connection)Error"
    r"|(?:Dist\w*|Runtime|Timeout)Error: .{0,300}timed out .{0,200}(?:connect|store|clients joined))",
    re.I,
)
_IMAGE = re.compile(r"cannot identify image file|cannot be decoded|image file is truncated")
_NOTICED = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|broken)|broken pipe|failed to (?:recv|send)|remote process exited"
    r"|ncclRemoteError|ncclSystemError|gloo/transport|peer (?:is )?gone|NCCL communicator was aborted"
    r"|DistNetworkError|DistStoreError|wait timeout after \d+ ?ms|collective operation timeout",
    re.I,
)
"""What a rank prints that lost its peer: not why the job failed, but that it did."""
_TERMINATED = re.compile(r"process (\d+) terminated with signal (SIG\w+)")
_PASSED_ON = re.compile(r"Process (\d+) terminated with the following error")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$")
_LONGEST_MESSAGE = 500
"""Characters of an exception in a sentence; the traceback has them all."""
_MISTAKE = re.compile(r"^(?:\[rank\d+\]: ?)?error: (.*)$", re.M)
"""How the zoo's workloads print a user's mistake."""
_KILLED = "SIGKILL (killed, or out of memory)"
_SHELL = 128
"""A shell adds this to the number of a signal, where a program says its exit code."""
_AFTERMATH = (-15, -6)
"""SIGTERM is torchrun's own, to the ranks left; SIGABRT often a library's, on noticing that a peer is gone."""

MARK_STEPS = (
    "put `import stash` at its top and `stash.step()` after the update in its training loop"
)
"""What to write where no step is seen."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a launch that did not end as planned."""

    exit_code: int
    crashes: Sequence[str]
    output: str
    steps: Mapping[int, int]
    """Optimizer steps each rank had taken."""
    title: str
    silent: Sequence[int] = ()
    """Ranks that were gone without a traceback."""
    left: tuple[int, str] | None = None
    """A node whose launcher had ended, with its address."""

    @property
    def moment(self) -> str:
        return _describe_progress(self.steps)


@dataclass(frozen=True)
class Diagnosis:
    """One sentence for the user, and the job's own words."""

    sentence: str
    own_words: str = ""
    users_mistake: bool = False


def diagnose(evidence: Evidence) -> Diagnosis:
    """The sentence to print, with the first failing rank's own traceback.

    A rank that a signal ended can leave no traceback. It outranks those of the others where torchrun saw it fail
    first, and where the others only lost their connection, whichever came first.
    """
    crashes = [crash[-MAX_BYTES:] for crash in evidence.crashes if crash.strip()]
    # causes stand at the end
    evidence = replace(evidence, crashes=crashes, output=evidence.output[-MAX_BYTES:])
    causes = [crash for crash in evidence.crashes if not _NOTICED.search(crash)]
    own = strip_wraps(
        next(iter([*causes, *evidence.crashes]), "") or last_traceback(evidence.output)
    )
    # What the parent of `mp.spawn` says of a rank that was killed.
    names = {number.name: number for number in signal.Signals}
    found = [(rank, names.get(name)) for rank, name in _TERMINATED.findall(own)]
    terminated = [ReportedRank(int(rank), -number) for rank, number in found if number is not None]
    ranks = [*find_reported(evidence.output), *terminated]
    killed = next((rank for rank in ranks if rank.code < 0 and rank.code not in _AFTERMATH), None)
    if killed and (killed == ranks[0] or not own or _NOTICED.search(own)):
        return _ended_by_signal(killed, evidence)
    if evidence.left is not None and _NOTICED.search(own):
        node, address = evidence.left
        return Diagnosis(
            f"{evidence.title} was ended on node {node} ({address}) {evidence.moment}: what is printed there says why"
        )
    spoke = {int(rank) for rank in _PASSED_ON.findall(own)}  # through the parent of ``mp.spawn``
    silent = [rank for rank in evidence.silent if rank not in spoke]
    if silent and _NOTICED.search(own):
        return _connection_lost(silent, ranks, evidence)
    known = _known_error(evidence, own)
    if known is not None:
        return known
    if own:
        # The line of a traceback that names the exception.
        lines = [line for line in own.strip().splitlines() if _EXCEPTION.match(line)]
        message = lines[-1] if lines else own.strip().splitlines()[-1]
        exception_line = (
            message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]} …"
        )
        return Diagnosis(f"{evidence.title} failed {evidence.moment}: {exception_line}", own)
    mistake = _MISTAKE.search(evidence.output)
    if mistake:
        return Diagnosis(mistake[1], users_mistake=True)
    return _diagnose_ending(evidence, ranks[0] if ranks else None)


def _known_error(evidence: Evidence, own: str) -> Diagnosis | None:
    """What to do about the errors that are every job's."""
    words = find_errors(own) if own else own_output(evidence.output).splitlines()
    all_words = [*words, *find_errors(launchers_words(evidence.output))]
    if any(map(_MEMORY.match, words)):
        memory = f"{evidence.title} ran out of memory {evidence.moment}; use a smaller batch"
        return Diagnosis(memory, own)
    if any(map(_SHARED_MEMORY.search, [own, *words])):
        return Diagnosis(
            f"{evidence.title} could not use shared memory {evidence.moment}: /dev/shm is missing, full or not "
            "writable; mount it with more room (in a container: --shm-size 8g), or load without workers",
            own,
        )
    if any(map(_PORT.match, all_words)):
        return Diagnosis(
            "the port for the ranks' rendezvous is already in use; choose another with "
            "--rdzv-endpoint HOST:PORT (or end the program that holds it)",
            own,
        )
    if not any(evidence.steps.values()) and any(map(_RENDEZVOUS.match, all_words)):
        return Diagnosis(
            "the nodes did not find each other; start the same command on every node, with --rdzv-endpoint "
            "naming an address and port of the first that the others can reach",
            own,
        )
    images = [line for line in words if _IMAGE.search(line)]
    if images:  # a worker's error comes wrapped in others; the last is its own
        return Diagnosis(
            f"a sample of the data could not be read {evidence.moment}: {images[-1].strip()}", own
        )
    return None


def _diagnose_ending(evidence: Evidence, root_cause: ReportedRank | None) -> Diagnosis:
    """Of a job that printed nothing of its own: how it ended."""
    if root_cause and root_cause.code < 0:
        return _ended_by_signal(root_cause, evidence)
    if evidence.exit_code < 0:
        return Diagnosis(
            f"{evidence.title} was ended by {_name_signal(evidence.exit_code)} {evidence.moment}"
        )
    code = root_cause.code if root_cause else evidence.exit_code
    shells = (
        f" (what a shell says of {_name_signal(_SHELL - code)})"
        if code - _SHELL in list(signal.Signals)
        else ""
    )
    why = find_stated_cause(evidence.output)
    ended = f"{evidence.title} ended with exit code {code}{shells} {evidence.moment}"
    return Diagnosis(f"{ended}: {why}" if why else ended, own_output(evidence.output))


def _connection_lost(
    silent: Sequence[int], ranks: Sequence[ReportedRank], evidence: Evidence
) -> Diagnosis:
    """Of ranks that noticed that these were gone, which had printed nothing."""
    lost = f"{evidence.moment}; the others lost their connection to it"
    for rank, code in ranks:
        if rank in silent and code > 0:
            ended = f"rank {rank} of {evidence.title} ended with exit code {code} {lost}"
            return Diagnosis(ended, own_output(evidence.output))
    names = join_names([str(rank) for rank in silent])
    who = f"rank {names}" if len(silent) == 1 else f"one of the ranks {names}"
    when, _, others = lost.partition(";")
    return Diagnosis(
        f"{who} of {evidence.title} ended without a word {when}, most likely by {_KILLED};{others}"
    )


def _ended_by_signal(killed: ReportedRank, evidence: Evidence) -> Diagnosis:
    return Diagnosis(
        f"rank {killed.rank} of {evidence.title} was ended by {_name_signal(killed.code)} {evidence.moment}"
    )


def _name_signal(code: int) -> str:
    if -code not in list(signal.Signals):
        return f"signal {-code}"
    return _KILLED if -code == signal.SIGKILL else signal.Signals(-code).name


def combine_diagnoses(first: Diagnosis, second: Diagnosis, ranks: int) -> Diagnosis:
    """Diagnose a job that failed as one plain process and, started by torchrun, again before its first step."""
    again = f"started again by torchrun, as {format_count(ranks, 'rank')}"
    return Diagnosis(
        f"{first.sentence}; {again}: {second.sentence}",
        f"{first.own_words.rstrip()}\n\n{again}:\n{second.own_words}",
        second.users_mistake,
    )


def diagnose_early_exit(
    left: tuple[int, int], output: str, steps: Mapping[int, int], title: str
) -> Diagnosis:
    """The sentence for a rank (its number, its exit code) that ended by itself while it was measured."""
    rank, code = left
    who = f"rank {rank} of {title}" if len(steps) > 1 else title
    return Diagnosis(
        f"{who} ended with exit code {code} {_describe_progress(steps)}", own_output(output)
    )


def diagnose_lost_nodes(nodes: Sequence[tuple[int, str]], since: float, steps: int) -> Diagnosis:
    """The sentence for nodes (number, address) that are silent since then (Unix time)."""
    who = join_names([f"node {node} ({address})" for node, address in nodes])
    what = (
        "those nodes, or the links to them, are"
        if len(nodes) > 1
        else "that node, or the link to it, is"
    )
    at = time.strftime("%H:%M:%S", time.localtime(since))
    return Diagnosis(f"{who} stopped answering at {at}, after {steps} training steps: {what} down")


def _describe_progress(steps: Mapping[int, int]) -> str:
    most = max(steps.values(), default=0)
    return "before its first training step" if most == 0 else f"after {most} training steps"
