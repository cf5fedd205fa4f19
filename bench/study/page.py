"""The page on the default study: its key figures, what they rest on, and how far they are from known truth."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from bench.study.runs import Row, days, facts, kept
from bench.table import table

GRID = (32, 4)
"""Batches of the grid; others are there for published throughputs alone."""
SHARED = "p2.16xlarge shared PCIe"
SINGLE = ("p2.8xlarge", "p2.16xlarge", SHARED, "p3.8xlarge", "p3.16xlarge")
ALL = " of "
"""In the name of a place that has a rank for every device."""
APART = (("2 × p2.8xlarge", "p2.16xlarge"), ("2 × p3.8xlarge", "p3.16xlarge"))
"""Two nodes, and the one that has as many of the same GPUs."""
PLACES = (
    "p2.xlarge",
    "p2.8xlarge",
    "p2.16xlarge",
    "2 × p2.8xlarge",
    "p3.2xlarge",
    "p3.8xlarge",
    "p3.16xlarge",
    "2 × p3.8xlarge",
)
GOAL = 2.0
"""Points of the step that the mean error should stay below."""
WORSE_LINKS = (
    "a VM's links are worse than the best its hardware has",
    "put in, not found: links carry what collectives reached of their data sheets, see the facts below",
    "cannot be found by an emulation",
)
STALLS = ("compute", "contention", "interconnect", "network", "step")


def page() -> str:
    """Every table, from what was kept."""
    rows = kept()
    grid = [
        row
        for row in rows
        if row.batch in GRID and not (row.batch == 4 and row.workload != "bert_large_qa")
    ]
    standard = [row for row in grid if row.where in PLACES]
    took = [row.number("took") or 0.0 for row in standard]
    head = (
        f"Run on {days()}: {len(standard)} cells of the grid in {sum(took) / 60:.0f} minutes, {min(took):.0f} to "
        f"{max(took):.0f} seconds each, {median(took):.0f} in the middle; {len(rows) - len(standard)} further cells."
    )
    sections = {
        "Beside the paper's findings": findings(grid),
        "Interconnect stalls: (T1 − T0) / T1 of one node": interconnects(grid),
        "Network stalls: (T1 of two nodes − T1 of one) / T1 of one": networks(grid),
        "Against known truth, in points of the step": errors(
            [row for row in rows if ALL not in row.where]
        ),
        "The facts it rests on": "\n".join(f"- {fact}" for fact in facts()),
    }
    parts = (f"## {title}\n\n{section}" for title, section in sections.items())
    return "\n\n".join(["# The paper's grid, emulated", head, *parts])


def find(rows: Sequence[Row], workload: str, where: str) -> Row | None:
    """The grid's cell of a workload somewhere."""
    return next((row for row in rows if row.workload == workload and row.where == where), None)


def workloads(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.workload for row in rows))


def interconnect(row: Row) -> float:
    """Per cent of the step of one node."""
    return 100 * (row.step - (row.seconds("compute") or 0.0)) / row.step


def slower(rows: Sequence[Row], workload: str, apart: str, together: str) -> float | None:
    """The step on two nodes over that on one."""
    two = find(rows, workload, apart)
    one = find(rows, workload, together)
    return two.step / one.step if two is not None and one is not None else None


def interconnects(rows: Sequence[Row]) -> str:
    body = []
    for workload in workloads(rows):
        found = [find(rows, workload, place) for place in SINGLE]
        body.append(
            [
                workload,
                *("not measured" if row is None else f"{interconnect(row):.1f} %" for row in found),
            ]
        )
    return table(["model", *SINGLE], body)


def networks(rows: Sequence[Row]) -> str:
    body = []
    for workload in workloads(rows):
        line = [workload]
        for apart, together in APART:
            times = slower(rows, workload, apart, together)
            line += (
                ["not measured"] * 2
                if times is None
                else [f"{100 * (times - 1):.0f} %", f"{times:.2f} ×"]
            )
        body.append(line)
    heads = [text for apart, together in APART for text in (f"{apart} against {together}", "step")]
    return table(["model", *heads], body)


def errors(rows: Sequence[Row]) -> str:
    """Mean and worst error of each stall, and over all of them."""
    body = []
    every = []
    for stall in STALLS:
        found = [
            (100 * row.error(stall), row) for row in rows if stall == "step" or stall in row.stalls
        ]
        if not found:
            continue
        every += [abs(error) for error, _ in found] if stall != "step" else []
        worst, at = max(found, key=lambda pair: abs(pair[0]))
        mean = fmean(abs(error) for error, _ in found)
        bias = fmean(error for error, _ in found)
        body.append(
            [
                stall,
                str(len(found)),
                f"{mean:.2f}",
                f"{bias:+.2f}",
                f"{worst:+.1f}",
                f"{at.workload} on {at.where}",
            ]
        )
    kept_to = "kept" if fmean(every) <= GOAL else "missed"
    goal = (
        f"Over all stalls the mean is {fmean(every):.2f} points; the goal of {GOAL:g} is {kept_to}."
    )
    heads = ["stall", "cells", "mean size of the error", "bias", "worst", "which is"]
    return f"{table(heads, body)}\n\n{goal}"


def findings(rows: Sequence[Row]) -> str:
    """Each finding of the paper, what comes out here, and whether that agrees."""
    body = [_up_to_90(rows), _five_times(rows), _dearest(rows), WORSE_LINKS]
    return table(["the paper", "here", "agrees?"], body)


def _up_to_90(rows: Sequence[Row]) -> list[str]:
    def most(places: Sequence[str]) -> Row:
        return max((row for row in rows if row.where in places), key=interconnect)

    listed = most([place for place in SINGLE if place != SHARED])
    shared = most([SHARED])
    here = (
        f"{interconnect(listed):.0f} % at most with links as collectives were seen to use them ({listed.workload} on "
        f"{listed.where}); {interconnect(shared):.0f} % where 16 GPUs share one PCIe root ({shared.workload})"
    )
    verdict = (
        "only with the shared root"
        if interconnect(shared) > 80 > interconnect(listed)
        else "see the numbers"
    )
    return ["interconnect stalls of up to 90 %", here, verdict]


def _five_times(rows: Sequence[Row]) -> list[str]:
    found = [
        (times, workload, apart, together)
        for workload in workloads(rows)
        for apart, together in APART
        if (times := slower(rows, workload, apart, together)) is not None
    ]
    times, workload, apart, together = max(found)
    passed = sum(each[0] >= 5 for each in found)
    at = f"{workload}, {apart} against {together}"
    here = f"{times:.1f} times at most ({at}); 5 times or more in {passed} of {len(found)}"
    verdict = "yes, and beyond for some" if times > 5 else "no, less"
    return ["two nodes train up to 5 times slower than one", here, verdict]


def _dearest(rows: Sequence[Row]) -> list[str]:
    """Of the places, the ones with the highest price an hour, against the fastest and the cheapest a sample."""
    prices = {
        row.where: row.number("dollars_per_hour") or 0.0 for row in rows if row.where in PLACES
    }
    top = max(prices.values())
    dearest = [where for where, price in prices.items() if price == top]
    not_fastest = []
    not_cheapest = []
    for workload in workloads(rows):
        own = [row for row in rows if row.workload == workload and row.where in PLACES]
        if max(own, key=lambda row: row.number("samples_per_second") or 0.0).where not in dearest:
            not_fastest.append(workload)
        if min(own, key=lambda row: row.number("dollars_per_million") or 0.0).where not in dearest:
            not_cheapest.append(workload)
    slowed = [w for w in workloads(rows) if _slower_than_its_half(rows, w)]
    here = (
        f"the dearest ({' and '.join(dearest)}, ${top:.2f} an hour) are not the cheapest a sample for "
        f"{len(not_cheapest)} of {len(workloads(rows))} models, nor the fastest for {len(not_fastest) or 'none'}; "
        f"2 × p3.8xlarge trains slower than one p3.8xlarge at half its price: {', '.join(slowed) or 'none'}"
    )
    return ["the dearest instance is not always the best", here, "yes" if not_cheapest else "no"]


def _slower_than_its_half(rows: Sequence[Row], workload: str) -> bool:
    pair = [find(rows, workload, where) for where in ("2 × p3.8xlarge", "p3.8xlarge")]
    two, one = (each.number("samples_per_second") or 0 if each is not None else 0 for each in pair)
    return None not in pair and two < one
