"""Why a job failed, in one sentence, from what its ranks and its launcher left behind. Pure.

Looks for the root cause first, and takes for an error only what stands where errors stand: a hint that is printed
names memory, ports and time-outs too. How tracebacks and reports are found in a log is ``printed``'s business.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stash.base.words.counting import counted
from stash.base.words.quantities import listed
from stash.measure.launch.printed import (
    MOST_BYTES,
    Reported,
    errors,
    last_traceback,
    launchers_words,
    own_output,
    reported,
    stated,
)
from stash.measure.run.tracebacks import without_wraps

_MEMORY = re.compile(
    r"^(?:terminate called after throwing an instance of '|\s*what\(\): +)?(?:[\w.]+: )?(?:[\w.]*MemoryError\b"
    r"|(?:\[enforce fail[^\]]{0,200}\].{0,99})?DefaultCPUAllocator: (?:can't|not enough)"
    r"|(?:CUDA|HIP|XPU|MPS)(?: error:)? out of memory(?:\.|$)"
    r"|(?:\[Errno 12\] |unable to .{0,300})Cannot allocate memory|std::bad_alloc)",
    re.I,
)
"""The begin of an error about memory; what speaks of memory elsewhere may be a hint."""
_PORT = re.compile(r"^[\w.]*(?:Error|Exception)\b.{0,2000}(?:EADDRINUSE|address already in use)", re.I)
_SHARED_MEMORY = re.compile(
    r"_multiprocessing\.SemLock\(|[Ii]nsufficient shared memory|out of shared memory|shared memory object </torch_"
    r"|unable to [\w ]{1,60} file </torch_"
)
"""What loader's workers and their trainer hand batches through."""
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
"""What a rank says that lost its peer: not why the job failed, but that it did."""
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

    A rank that a signal ended can leave no traceback. It outranks those of the others where torchrun saw it fail
    first, and where the others only lost their connection, whichever came first.
    """
    evidence = _shortened(evidence)
    causes = [crash for crash in evidence.crashes if not _NOTICED.search(crash)]
    own = without_wraps(next(iter([*causes, *evidence.crashes]), "") or last_traceback(evidence.output))
    ranks = [*reported(evidence.output), *_terminated(own)]
    killed = next((rank for rank in ranks if rank.code < 0 and rank.code not in _AFTERMATH), None)
    if killed and (killed == ranks[0] or not own or _NOTICED.search(own)):
        return _ended_by_signal(killed, evidence)
    if evidence.left is not None and _NOTICED.search(own):
        return _ended_elsewhere(*evidence.left, evidence)
    silent = _silent(evidence, own)
    if silent and _NOTICED.search(own):
        left = next((rank for rank in ranks if rank.rank in silent and rank.code > 0), None)
        return _left_without_a_word(silent, evidence) if left is None else _left(left, evidence)
    known = _known_error(evidence, own)
    if known is not None:
        return known
    if own:
        return Diagnosis(f"{evidence.title} failed {_when(evidence)}: {_message(own)}", own)
    mistake = _MISTAKE.search(evidence.output)
    if mistake:
        return Diagnosis(mistake[1], users_mistake=True)
    return _without_a_traceback(evidence, ranks[0] if ranks else None)


def _shortened(evidence: Evidence) -> Evidence:
    """The end of everything: what is looked for stands there."""
    crashes = [crash[-MOST_BYTES:] for crash in evidence.crashes if crash.strip()]
    return replace(evidence, crashes=crashes, output=evidence.output[-MOST_BYTES:])


def _known_error(evidence: Evidence, own: str) -> Diagnosis | None:
    """What to do about the errors that are every job's."""
    words = errors(own) if own else own_output(evidence.output).splitlines()
    heard = [*words, *errors(launchers_words(evidence.output))]
    if any(map(_MEMORY.match, words)):
        half = (evidence.batch or 0) // 2
        smaller = f"try --batch {half}" if half else "use a smaller batch"
        return Diagnosis(f"{evidence.title} ran out of memory {_when(evidence)}; {smaller}", own)
    if any(map(_SHARED_MEMORY.search, [own, *words])):
        return Diagnosis(
            f"{evidence.title} could not use shared memory {_when(evidence)}: /dev/shm is missing, full or not "
            "writable; mount it with room for the loader's batches (in a container: --shm-size 8g), or load without "
            "workers",
            own,
        )
    if any(map(_PORT.match, heard)):
        return Diagnosis(
            "the port for the ranks' rendezvous is already in use; choose another with "
            "--rdzv-endpoint HOST:PORT (or end the program that holds it)",
            own,
        )
    if _farthest(evidence.steps) == 0 and any(map(_RENDEZVOUS.match, heard)):
        return Diagnosis(
            "the nodes did not find each other; start the same command on every node, with --rdzv-endpoint "
            "naming an address and port of the first that the others can reach",
            own,
        )
    images = [line for line in words if _IMAGE.search(line)]
    if images:  # a worker's error comes wrapped in others; the last is its own
        return Diagnosis(f"a sample of the data could not be read {_when(evidence)}: {images[-1].strip()}", own)
    return None


def _without_a_traceback(evidence: Evidence, root_cause: Reported | None) -> Diagnosis:
    """Of a job that said nothing of its own: how it ended."""
    when = _when(evidence)
    if root_cause and root_cause.code < 0:
        return _ended_by_signal(root_cause, evidence)
    if evidence.exit_code < 0:
        return Diagnosis(f"{evidence.title} was ended by {_signal(evidence.exit_code)} {when}")
    code = root_cause.code if root_cause else evidence.exit_code
    shells = f" (what a shell says of {_signal(_SHELL - code)})" if code - _SHELL in list(signal.Signals) else ""
    why = stated(evidence.output)
    ended = f"{evidence.title} ended with exit code {code}{shells} {when}"
    return Diagnosis(f"{ended}: {why}" if why else ended, own_output(evidence.output))


def _terminated(traceback: str) -> list[Reported]:
    """What the parent of ``mp.spawn`` says of a rank that was killed."""
    names = {number.name: number for number in signal.Signals}
    found = [(rank, names.get(name)) for rank, name in _TERMINATED.findall(traceback)]
    return [Reported(int(rank), -number) for rank, number in found if number is not None]


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


def _left(rank: Reported, evidence: Evidence) -> Diagnosis:
    return Diagnosis(
        f"rank {rank.rank} of {evidence.title} ended with exit code {rank.code} {_when(evidence)}; "
        "the others lost their connection to it",
        own_output(evidence.output),
    )


def _ended_elsewhere(node: int, address: str, evidence: Evidence) -> Diagnosis:
    return Diagnosis(
        f"{evidence.title} was ended on node {node} ({address}) {_when(evidence)}: what is printed there says why"
    )


def _ended_by_signal(killed: Reported, evidence: Evidence) -> Diagnosis:
    return Diagnosis(f"rank {killed.rank} of {evidence.title} was ended by {_signal(killed.code)} {_when(evidence)}")


def _signal(code: int) -> str:
    if -code not in list(signal.Signals):
        return f"signal {-code}"
    return _KILLED if -code == signal.SIGKILL else signal.Signals(-code).name


def after(first: Diagnosis, second: Diagnosis, ranks: int) -> Diagnosis:
    """Of a job that failed as one plain process and, started by torchrun, again before its first step."""
    again = f"started again by torchrun, as {counted(ranks, 'rank')}"
    return Diagnosis(
        f"{first.sentence}; {again}: {second.sentence}",
        f"{first.own_words.rstrip()}\n\n{again}:\n{second.own_words}",
        second.users_mistake,
    )


def left_early(left: tuple[int, int], output: str, steps: Mapping[int, int], title: str) -> Diagnosis:
    """The sentence for a rank (its number, its exit code) that ended by itself while it was measured."""
    rank, code = left
    who = f"rank {rank} of {title}" if len(steps) > 1 else title
    return Diagnosis(f"{who} ended with exit code {code} {_after(steps)}", own_output(output))


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
    message = lines[-1] if lines else traceback.strip().splitlines()[-1]
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]} …"


def _when(evidence: Evidence) -> str:
    return _after(evidence.steps)


def _after(steps: Mapping[int, int]) -> str:
    most = _farthest(steps)
    return "before its first training step" if most == 0 else f"after {most} training steps"


def _farthest(steps: Mapping[int, int]) -> int:
    return max(steps.values(), default=0)
