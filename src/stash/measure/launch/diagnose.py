"""Why a job failed, in one sentence, from what its ranks and its launcher left behind. Pure."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stash.base.words.quantities import listed

_MEMORY = re.compile(
    r"out of memory|DefaultCPUAllocator: (?:can't|not enough)|Cannot allocate memory|std::bad_alloc", re.I
)
_PORT = re.compile(r"EADDRINUSE|Address already in use|port .* (?:is )?already in use", re.I)
_RENDEZVOUS = re.compile(
    r"RendezvousTimeoutError|RendezvousConnectionError|timed out .*(?:connect|store|rendezvous)", re.I
)
_IMAGE = re.compile(r"^\S.*(?:cannot identify image file|cannot be decoded|image file is truncated).*$", re.M)
_REPORTED = re.compile(r"rank\s*:\s*(\d+)[^\n]*\n\s*exitcode\s*:\s*(-?\d+)")
_NOTICED = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|broken)|broken pipe|failed to (?:recv|send)|remote process exited"
    r"|ncclRemoteError|ncclSystemError|gloo/transport|peer (?:is )?gone",
    re.I,
)
"""What a rank says that lost its peer: not why the job failed, but that it did."""
_TERMINATED = re.compile(r"process (\d+) terminated with signal (SIG\w+)")
_PASSED_ON = re.compile(r"Process (\d+) terminated with the following error")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$")
_ROOT_CAUSE = "Root Cause (first observed failure)"
_LAUNCHER = re.compile(
    r"^(?:[EW]\d{4} .*torch/distributed/elastic.*failed|Traceback \(most recent call last\):\n(?:  .*\n)*?"
    r"  File \"[^\"]*(?:torch/distributed/run\.py|bin/torchrun|bin/accelerate)\")",
    re.M,
)
_MISTAKE = re.compile(r"^(?:\[rank\d+\]: ?)?error: (.*)$", re.M)
"""How the zoo's workloads print a user's mistake."""
_KILLED = "SIGKILL (killed, or out of memory)"
_SHELL = 128
"""A shell adds this to the number of a signal, where a program says its exit code."""
_AFTERMATH = (-15, -6)
"""SIGTERM is torchrun's own, to the ranks left; SIGABRT often a library's, on noticing that a peer is gone."""

MARK_STEPS = "put `import stash` at its top and `stash.step()` after the update in its training loop"
"""What to write where nobody sees a step."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a launch that did not end as planned."""

    exit_code: int
    crashes: Sequence[str]
    output: str
    steps: Mapping[int, int]
    """Optimizer steps each rank had taken."""
    title: str
    batch: int | None = None
    silent: Sequence[int] = ()
    """Ranks that were gone without a traceback."""
    left: tuple[int, str] | None = None
    """A node whose launcher had ended, with its address."""


@dataclass(frozen=True)
class Diagnosis:
    """One sentence for the user, and what the job itself said."""

    sentence: str
    own_words: str = ""
    users_mistake: bool = False


def diagnose(evidence: Evidence) -> Diagnosis:
    """The sentence to print, with the first failing rank's own traceback.

    A rank that a signal ended outranks the others' tracebacks about lost connections, whichever came first: it can
    leave none of its own.
    """
    causes = [crash for crash in evidence.crashes if not _NOTICED.search(crash)]
    own = next(iter([*causes, *evidence.crashes]), "") or _last_traceback(evidence.output)
    words = own or evidence.output
    when = _when(evidence)
    reported = [*_reported(evidence.output), *_terminated(own)]
    if _MEMORY.search(words):
        smaller = f"; try --batch {evidence.batch // 2}" if evidence.batch and evidence.batch > 1 else ""
        return Diagnosis(f"{evidence.title} ran out of memory {when}{smaller or '; use a smaller batch'}", own)
    killed = next((rank for rank in reported if rank.code < 0 and rank.code not in _AFTERMATH), None)
    if killed and (_NOTICED.search(own) or _TERMINATED.search(own)):
        return _ended_by_signal(killed, evidence)
    if evidence.left is not None and _NOTICED.search(own):
        return _ended_elsewhere(*evidence.left, evidence)
    silent = _silent(evidence, own)
    if silent and _NOTICED.search(own):
        return _left_without_a_word(silent, evidence)
    if _PORT.search(words):
        return Diagnosis(
            "the port for the ranks' rendezvous is already in use; choose another with "
            "--rdzv-endpoint HOST:PORT (or end the program that holds it)",
            own,
        )
    if _RENDEZVOUS.search(words):
        return Diagnosis(
            "the nodes did not find each other; start the same command on every node, with --rdzv-endpoint "
            "naming an address and port of the first that the others can reach",
            own,
        )
    images = _IMAGE.findall(words)  # a worker's error comes wrapped in others; the last is its own
    if images:
        return Diagnosis(f"a sample of the data could not be read {when}: {images[-1].strip()}", own)
    if own:
        return Diagnosis(f"{evidence.title} failed {when}: {_message(own)}", own)
    mistake = _MISTAKE.search(evidence.output)
    if mistake:
        return Diagnosis(mistake[1], users_mistake=True)
    root_cause = reported[0] if reported else None
    signalled = killed or (root_cause if root_cause and root_cause.code < 0 else None)
    if signalled:
        return _ended_by_signal(signalled, evidence)
    if evidence.exit_code < 0:
        return Diagnosis(f"{evidence.title} was ended by {_signal(evidence.exit_code)} {when}")
    code = root_cause.code if root_cause else evidence.exit_code
    shells = f" (what a shell says of {_signal(_SHELL - code)})" if code - _SHELL in list(signal.Signals) else ""
    return Diagnosis(f"{evidence.title} ended with exit code {code}{shells} {when}", own_output(evidence.output))


class _Reported(NamedTuple):
    """A rank in torchrun's report of a failure."""

    rank: int
    code: int


def _reported(output: str) -> list[_Reported]:
    """The ranks that torchrun says have failed, its root cause first."""
    others, _, root_cause = output.partition(_ROOT_CAUSE)
    found = [*_REPORTED.findall(root_cause), *_REPORTED.findall(others)]
    return [_Reported(int(rank), int(code)) for rank, code in found]


def _terminated(traceback: str) -> list[_Reported]:
    """What the parent of ``mp.spawn`` says of a rank that was killed."""
    names = {number.name: number for number in signal.Signals}
    found = [(rank, names.get(name)) for rank, name in _TERMINATED.findall(traceback)]
    return [_Reported(int(rank), -number) for rank, number in found if number is not None]


def _silent(evidence: Evidence, own: str) -> list[int]:
    """Ranks that said nothing at all, not through the parent of ``mp.spawn`` either."""
    spoke = {int(rank) for rank in _PASSED_ON.findall(own)}
    return [rank for rank in evidence.silent if rank not in spoke]


def _left_without_a_word(ranks: Sequence[int], evidence: Evidence) -> Diagnosis:
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"one of the ranks {listed([str(rank) for rank in ranks])}"
    return Diagnosis(
        f"{who} of {evidence.title} ended without a word {_when(evidence)}, most likely by {_KILLED}; "
        "the others lost their connection to it"
    )


def _ended_elsewhere(node: int, address: str, evidence: Evidence) -> Diagnosis:
    return Diagnosis(
        f"{evidence.title} was ended on node {node} ({address}) {_when(evidence)}: what is printed there says why"
    )


def _ended_by_signal(killed: _Reported, evidence: Evidence) -> Diagnosis:
    return Diagnosis(f"rank {killed.rank} of {evidence.title} was ended by {_signal(killed.code)} {_when(evidence)}")


def _signal(code: int) -> str:
    if -code not in list(signal.Signals):
        return f"signal {-code}"
    return _KILLED if -code == signal.SIGKILL else signal.Signals(-code).name


def fell_silent(nodes: Sequence[tuple[int, str]], since: float, steps: int) -> Diagnosis:
    """The sentence for nodes (number, address) not heard of since then (Unix time); they cannot say it themselves."""
    names = [f"node {node} ({address})" for node, address in nodes]
    several = len(names) > 1
    who = f"{', '.join(names[:-1])} and {names[-1]}" if several else names[0]
    what = "those nodes, or the links to them, are" if several else "that node, or the link to it, is"
    at = time.strftime("%H:%M:%S", time.localtime(since))
    return Diagnosis(f"{who} stopped answering at {at}, after {steps} training steps: {what} down")


def _message(traceback: str) -> str:
    """The line of a traceback that names the exception."""
    lines = [line for line in traceback.strip().splitlines() if _EXCEPTION.match(line)]
    return lines[-1] if lines else traceback.strip().splitlines()[-1]


def own_output(output: str, lines: int = 8) -> str:
    """The last lines the job itself printed, without what torchrun says about its failure."""
    kept = [line for line in output[: _launcher_speaks(output)].rstrip().splitlines() if line.strip()]
    return "\n".join(kept[-lines:])


def _launcher_speaks(output: str) -> int:
    match = _LAUNCHER.search(output)
    return match.start() if match else len(output)


def _when(evidence: Evidence) -> str:
    steps = max(evidence.steps.values(), default=0)
    return "before its first training step" if steps == 0 else f"after {steps} training steps"


def _last_traceback(output: str) -> str:
    """The last Python traceback in the output that is not the launcher's own."""
    start = "Traceback (most recent call last):"
    pieces = output.split(start)
    for piece in reversed(pieces[1:]):
        if "torch/distributed/run.py" in piece or "ChildFailedError" in piece:
            continue
        lines = piece.splitlines()
        kept = [lines[0]]
        for line in lines[1:]:
            kept.append(line)
            if line and not line.startswith((" ", "\t")):
                break
        return start + "\n".join(kept)
    return ""
