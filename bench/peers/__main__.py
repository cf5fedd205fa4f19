"""Side by side: the same faulty jobs given to Stash and to what people use today; prints Markdown tables.

Every tool watches every fault, on request beside other work on the machine, which the job's truth does not contain.
Needs root, for the testbed. Judges nothing itself: ``answers`` holds the rules, ``jobs`` the truth.
"""

from __future__ import annotations

import argparse
import contextlib
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
from bench.peers.launch import LaunchError, Place, Tool
from bench.table import progress, report, span, table
from stash.core.errors import StashError

TOOLS: dict[str, Tool] = {
    "stash": stash_tool,
    "traceml": traceml,
    "torch-profiler-hta": torch_profiler_hta,
}
HEADS = (
    "fault",
    "truth",
    "tool",
    "in its own words",
    "cause",
    "rank",
    "error, ms",
    "its numbers allow",
    "cause",
    "rank",
    "error, ms",
    "seconds",
)
SUMMARY = (
    "tool",
    "right cause, in its own words",
    "right cause, from its numbers",
    "slow rank named",
    "largest error, ms",
    "seconds an answer",
)
LONGEST_QUOTE = 170
STEPS = 60
"""Of every launch: the profiler's schedule fits into them."""


@dataclass(frozen=True)
class Result:
    """One tool on one fault; ``error`` is the exact line where it failed, ``answer`` None then."""

    fault: Fault
    truth: Truth
    tool: Tool
    answer: Answer | None
    error: str


def main(arguments: Sequence[str] | None = None) -> int:
    names = [fault.name for fault in FAULTS]
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument(
        "--only",
        choices=TOOLS,
        action="append",
        metavar="TOOL",
        help=f"one tool or more of {', '.join(TOOLS)}",
    )
    parser.add_argument(
        "--fault", choices=names, metavar="NAME", help=f"one fault: {', '.join(names)}"
    )
    parser.add_argument(
        "--beside", choices=disturbances.OTHERS, help="other work while the tools watch"
    )
    options = parser.parse_args(arguments)
    tools = [TOOLS[name] for name in options.only or TOOLS]
    results: list[Result] = []
    missing: list[str] = []
    for fault in (fault for fault in FAULTS if options.fault in (None, fault.name)):
        try:
            results += measure(fault, tools, options.beside)
        except StashError as problem:
            missing.append(f"- {fault.name} was not run: {problem}")
    beside = f", beside {options.beside}" if options.beside else ""
    rows = table(HEADS, map(row, results))
    report(
        f"{STEPS} steps a launch{beside}",
        table(SUMMARY, summary(results)),
        rows,
        "\n".join(missing),
    )
    return 1 if missing else 0


def measure(fault: Fault, tools: Sequence[Tool], beside: str | None = None) -> list[Result]:
    """Every tool on one fault, on one testbed."""
    with tempfile.TemporaryDirectory() as folder, fault.make_bed() as bed:
        data = Path(folder) / "data"
        data.mkdir()
        if fault.cold:
            make_files(data, STEPS)
        place, truth = Place(fault, bed, data, Path(folder), STEPS), fault.truth(bed.links)
        others = (
            disturbances.run_other_work(beside, Path(folder) / beside)
            if beside
            else contextlib.nullcontext()
        )
        with others:
            return [Result(fault, truth, tool, *_answer(tool, place)) for tool in tools]


def _answer(tool: Tool, place: Place) -> tuple[Answer | None, str]:
    began = time.monotonic()
    try:
        answer, words = tool.watch(place.inside("watched")), ""
    except LaunchError as problem:
        answer, words = None, str(problem)
    except (
        OSError,
        LookupError,
        ValueError,
    ) as problem:  # the tool wrote less than it does elsewhere
        answer, words = None, f"its output could not be read: {type(problem).__name__}: {problem}"
    took = time.monotonic() - began
    outcome = words or (answer and f"{answer.says} {answer.allows} {answer.quote}")
    progress(place.fault.name, tool.NAME, f"{took:.0f} s", outcome)
    return answer, words


def summary(results: Sequence[Result]) -> list[list[str]]:
    """One line for each tool over all faults; errors of its numbers, where the cause was right, at least broadly."""
    lines = []
    for name in dict.fromkeys(one.tool.NAME for one in results):
        own = [one for one in results if name == one.tool.NAME]
        given = [(one.truth, one.answer) for one in own if one.answer is not None]
        says = [right_cause(answer.says.cause, truth.cause) for truth, answer in given]
        allows = [right_cause(answer.allows.cause, truth.cause) for truth, answer in given]
        ranks = [
            right_rank(answer.says.rank, truth.rank)
            for truth, answer in given
            if truth.rank is not None
        ]
        errors = [
            answer.allows.seconds - truth.seconds
            for verdict, (truth, answer) in zip(allows, given, strict=True)
            if answer.allows.seconds is not None and verdict in ("yes", "broadly")
        ]
        lines.append(
            [
                name,
                *(_count(verdicts, len(own)) for verdicts in (says, allows)),
                f"{ranks.count('yes')} of {sum(one.truth.rank is not None for one in own)}",
                f"{max(errors, key=abs) * 1e3:+.1f}" if errors else "–",
                span([answer.wall_seconds for _, answer in given], "{:.0f}"),
            ]
        )
    return lines


def _count(verdicts: Sequence[str], faults: int) -> str:
    broadly = verdicts.count("broadly")
    return f"{verdicts.count('yes')} of {faults}" + (f", {broadly} broadly" if broadly else "")


def row(result: Result) -> list[str]:
    """One line of the table."""
    truth, answer = result.truth, result.answer
    first = [
        result.fault.name,
        _reading(Reading(truth.cause, truth.rank, truth.seconds)),
        result.tool.NAME,
    ]
    if answer is None:
        return [*first, f"fails: `{_cell(result.error)}`", *["–"] * 8]
    allows = [_reading(answer.allows), *_judge_reading(answer.allows, truth)]
    return [
        *first,
        _cell(answer.quote),
        *_judge_reading(answer.says, truth),
        *allows,
        f"{answer.wall_seconds:.0f}",
    ]


def _judge_reading(reading: Reading, truth: Truth) -> list[str]:
    cause = right_cause(reading.cause, truth.cause)
    # the time of another stall is not an error
    seconds = reading.seconds if cause in ("yes", "broadly") else None
    return [cause, right_rank(reading.rank, truth.rank), error(seconds, truth.seconds)]


def _reading(reading: Reading) -> str:
    if reading.cause is None:
        return "nothing"
    rank = "" if reading.rank is None else f" {reading.rank}"
    return f"{reading.cause}{rank}" + (
        "" if reading.seconds is None else f", {reading.seconds * 1e3:.1f} ms"
    )


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"


if __name__ == "__main__":
    sys.exit(main())
