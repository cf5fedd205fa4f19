"""Side by side: the same faulty jobs given to Stash and to what people use today; prints Markdown tables.

For every fault the untouched job is run first and last, and the tools in between, on request beside other work on the
machine, which the job's truth does not contain. Needs root, for the testbed. Judges
nothing itself: ``answers`` holds the rules, ``jobs`` the truth.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.noise import disturbances
from bench.peers import stash_tool, torch_profiler_hta, traceml
from bench.peers.answers import Answer, Reading, error, right_cause, right_rank
from bench.peers.jobs import FAULTS, Fault, Truth, make_files
from bench.peers.launch import LaunchError, Place, Tool, plain
from bench.table import progress, report, span, table
from stash.core.errors import StashError

TOOLS: dict[str, Tool] = {
    "stash": stash_tool,
    "traceml": traceml,
    "torch-profiler-hta": torch_profiler_hta,
}
HEADS = (
    "fault", "truth", "tool", "in its own words", "cause", "rank", "error, ms", "its numbers allow", "cause", "rank",
    "error, ms", "seconds", "lines", "overhead",
)  # fmt: skip
SUMMARY = (
    "tool", "right cause, in its own words", "right cause, from its numbers", "slow rank named", "largest error, ms",
    "seconds an answer", "lines changed", "overhead",
)  # fmt: skip
LONGEST_QUOTE = 170
MIN_STEPS = 35  # the profiler's schedule must fit


@dataclass(frozen=True)
class Result:
    """One tool on one fault; ``error`` is the exact line where it failed, ``answer`` None then."""

    fault: Fault
    truth: Truth
    tool: Tool
    answer: Answer | None
    error: str
    plain_seconds: float
    """The step of the untouched job."""


def main(arguments: Sequence[str] | None = None) -> int:
    names = [fault.name for fault in FAULTS]
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument(
        "--only", choices=TOOLS, action="append", metavar="TOOL", help=f"one tool or more of {', '.join(TOOLS)}"
    )
    parser.add_argument("--fault", choices=names, metavar="NAME", help=f"one fault: {', '.join(names)}")
    parser.add_argument("--beside", choices=disturbances.OTHERS, help="other work while the tools watch")
    parser.add_argument("--steps", type=_steps, default=60, metavar="N", help="steps of every launch (default 60)")
    options = parser.parse_args(arguments)
    tools = [TOOLS[name] for name in options.only or TOOLS]
    faults = [fault for fault in FAULTS if options.fault in (None, fault.name)]
    results: list[Result] = []
    missing: list[str] = []
    for fault in faults:
        try:
            results += measure(fault, tools, options.steps, options.beside)
        except StashError as problem:
            missing.append(f"- {fault.name} was not run: {problem}")
        except KeyboardInterrupt:
            missing.append(f"- {fault.name} and what follows it was not run: interrupted")
            break
    results_table = table(HEADS, [row(result) for result in results])
    remarks = "\n".join([*notes(results), *missing])
    beside = f", beside {options.beside}" if options.beside else ""
    report(f"{options.steps} steps a launch{beside}", table(SUMMARY, summary(results)), results_table, remarks)
    return 1 if missing else 0


def measure(fault: Fault, tools: Sequence[Tool], steps: int, beside: str | None = None) -> list[Result]:
    """Every tool on one fault, on one testbed, between two runs of the untouched script."""
    with tempfile.TemporaryDirectory() as folder, fault.bed() as bed:
        data = Path(folder) / "data"
        data.mkdir()
        if fault.cold:
            make_files(data, steps)
        place = Place(fault, bed, data, Path(folder), steps)
        untouched = [_plain(place)]
        others = disturbances.beside(beside, Path(folder) / beside) if beside else contextlib.nullcontext()
        with others:
            answers = [(tool, *_answer(tool, place)) for tool in tools]
        untouched.append(_plain(place))
        truth = fault.truth(bed.links)
        mean = statistics.mean(untouched)
        return [Result(fault, truth, tool, answer, words, mean) for tool, answer, words in answers]


def _plain(place: Place) -> float:
    seconds = plain(place.inside("plain"))
    progress(place.fault.name, "untouched", f"{seconds * 1e3:.1f} ms a step")
    return seconds


def _answer(tool: Tool, place: Place) -> tuple[Answer | None, str]:
    began = time.monotonic()
    try:
        answer, words = tool.watch(place.inside("watched")), ""
    except LaunchError as problem:
        answer, words = None, str(problem)
    except (OSError, LookupError, ValueError) as problem:  # the tool wrote less than it does elsewhere
        answer, words = None, f"its output could not be read: {type(problem).__name__}: {problem}"
    took = time.monotonic() - began
    outcome = words or (answer and f"{answer.says} {answer.allows} {answer.quote}")
    progress(place.fault.name, tool.NAME, f"{took:.0f} s", outcome)
    return answer, words


def summary(results: Sequence[Result]) -> list[list[str]]:
    """One line for each tool over all faults; errors where the cause was right, at least broadly."""
    lines = []
    for name in dict.fromkeys(one.tool.NAME for one in results):
        own = [one for one in results if name == one.tool.NAME]
        given = [(one, one.answer) for one in own if one.answer is not None]
        slow = [one for one in own if one.truth.rank is not None]
        ranks = [right_rank(one.answer.says.rank, one.truth.rank) for one in slow if one.answer is not None]
        lines.append([
            name,
            _count([right_cause(answer.says.cause, one.truth.cause) for one, answer in given], len(own)),
            _count([right_cause(answer.allows.cause, one.truth.cause) for one, answer in given], len(own)),
            f"{ranks.count('yes')} of {len(slow)}",
            _largest_error(own),
            span([answer.wall_seconds for _, answer in given], "{:.0f}"),
            str(own[0].tool.lines()),
            span([a.step_seconds / one.plain_seconds - 1 for one, a in given if a.step_seconds], "{:+.1%}"),
        ])  # fmt: skip
    return lines


def _count(verdicts: Sequence[str], faults: int) -> str:
    broadly = verdicts.count("broadly")
    return f"{verdicts.count('yes')} of {faults}" + (f", {broadly} broadly" if broadly else "")


def _largest_error(results: Sequence[Result]) -> str:
    """Signed, of what its numbers allow."""
    errors = [
        one.answer.allows.seconds - one.truth.seconds
        for one in results
        if one.answer is not None
        and one.answer.allows.seconds is not None
        and right_cause(one.answer.allows.cause, one.truth.cause) in ("yes", "broadly")
    ]
    return f"{max(errors, key=abs) * 1e3:+.1f}" if errors else "–"


def row(result: Result) -> list[str]:
    """One line of the table."""
    truth, answer = result.truth, result.answer
    first = [result.fault.name, _reading(Reading(truth.cause, truth.rank, truth.seconds)), result.tool.NAME]
    if answer is None:
        return [*first, f"fails: `{_cell(result.error)}`", *["–"] * 8, str(result.tool.lines()), "–"]
    overhead = "–" if answer.step_seconds is None else f"{answer.step_seconds / result.plain_seconds - 1:+.1%}"
    return [
        *first, _cell(answer.quote), *_judged(answer.says, truth), _reading(answer.allows),
        *_judged(answer.allows, truth), f"{answer.wall_seconds:.0f}", str(result.tool.lines()), overhead,
    ]  # fmt: skip


def _judged(reading: Reading, truth: Truth) -> list[str]:
    cause = right_cause(reading.cause, truth.cause)
    seconds = reading.seconds if cause in ("yes", "broadly") else None  # the time of another stall is not an error
    return [cause, right_rank(reading.rank, truth.rank), error(seconds, truth.seconds)]


def _reading(reading: Reading) -> str:
    if reading.cause is None:
        return "nothing"
    rank = "" if reading.rank is None else f" {reading.rank}"
    return f"{reading.cause}{rank}" + ("" if reading.seconds is None else f", {reading.seconds * 1e3:.1f} ms")


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"


def notes(results: Sequence[Result]) -> list[str]:
    """What stands under the table: whole steps, how each tool was used, what it could not do."""
    steps = {
        one.fault.name: f"{one.truth.step_seconds * 1e3:.1f} ms (untouched {one.plain_seconds * 1e3:.1f} ms)"
        for one in results
    }
    lines = ["- The whole step as worked out: " + ", ".join(f"{name} {text}" for name, text in steps.items()) + "."]
    for name in dict.fromkeys(one.tool.NAME for one in results):
        own = [(one.tool, one.fault.name, one.answer) for one in results if name == one.tool.NAME and one.answer]
        if own:
            lines.append(f"- {(own[0][0].__doc__ or '').splitlines()[0]} Its numbers: {own[0][2].why}.")
        faults: dict[str, list[str]] = {}
        for _, fault, answer in own:
            if answer.note:
                faults.setdefault(answer.note, []).append(fault)
        lines += [f"  - {', '.join(names)}: {note}" for note, names in faults.items()]
    return lines


def _steps(text: str) -> int:
    if (number := int(text)) < MIN_STEPS:
        raise argparse.ArgumentTypeError(f"it must be at least {MIN_STEPS}")
    return number


if __name__ == "__main__":
    sys.exit(main())
