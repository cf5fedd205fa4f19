"""A study as a page of the report: how it stands, its stalls, cost against time, and every profile by its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from stash.core.formatting import listed
from stash.core.ladder import STALLS
from stash.core.units import counted
from stash.study.overview import states, what, where
from stash.study.paper_figures import (
    network_against_one_machine,
    placement,
    stall,
    time_and_cost,
    utilisation,
)
from stash.study.results import StudyResult
from stash.study.sheet import StudySheet, downloads, sheet, whole_table
from stash.study.status import StudyReading
from stash.study.study_charts import cost_against_time, line_grids, models, stalls
from stash.ui.page import Chapter, Page

_MAX_NAMED = 3
"""Places that a sentence of the verdict names."""


def page(
    reading: StudyReading,
    found: Sequence[StudyResult],
    source: str,
    results: str,
    files: Mapping[str, str] | None = None,
) -> Page:
    """``found``: of all cells that are done; ``results``: the store that has their profiles.

    ``files``: where profiles lie, seen from the page, by cell's id; those that lie elsewhere are left out.
    """
    shown = sheet(reading, found)
    facts = dict.fromkeys(f for c in reading.cells if c.emulated is not None for f in c.emulated.facts)
    return Page(
        title=f"Study: {reading.name}",
        source=source,
        subtitle=(
            f"{counted(len(reading.cells), 'cell')}: {states(reading)}",
            *(("places are emulated on this machine",) if _emulated(reading) else ()),
        ),
        verdict=tuple(_verdict(found)),
        chapters=(
            *(_marked(each) if _emulated(reading) else each for each in _figures(shown, found)),
            Chapter(
                "table",
                "Everything measured",
                label="Table",
                text=f"Profiles are in {results}.",
                grids=(whole_table(reading, found, files or {}),),
                downloads=downloads(reading, found),
            ),
            *_failures(reading),
            Chapter("facts", "What it rests on", points=tuple(facts), folded=True),
        ),
    )


def _emulated(reading: StudyReading) -> bool:
    return any(cell.emulated is not None for cell in reading.cells)


def _marked(chapter: Chapter) -> Chapter:
    """The same with every chart called emulated, since a picture travels without its page."""
    return replace(chapter, charts=tuple(replace(each, title=f"{each.title} (emulated)") for each in chapter.charts))


def _figures(shown: StudySheet, found: Sequence[StudyResult]) -> tuple[Chapter, ...]:
    exchange = (*stall(shown, "interconnect"), *stall(shown, "network"), *network_against_one_machine(shown))
    data = (*stall(shown, "prep"), *stall(shown, "fetch"))
    return (
        Chapter("stalls", "Where the time goes", label="Stalls", charts=stalls(shown)),
        Chapter("exchange", "Interconnect and network", label="Exchange", charts=(*exchange, *placement(shown))),
        Chapter("data", "Preparing and fetching data", label="Data", charts=data),
        Chapter("cost", "What it costs", label="Cost", charts=(cost_against_time(found), *time_and_cost(shown))),
        Chapter("use", "How busy machines are", label="Use", charts=utilisation(shown)),
        Chapter("models", "What models exchange", label="Models", charts=models(found), grids=line_grids(found)),
    )  # fmt: skip


def _failures(reading: StudyReading) -> tuple[Chapter, ...]:
    failures = tuple(
        f"{cell.title}: {each.why}" for cell in reading.cells if (each := reading.standings[cell.id]).why
    )
    if not failures:
        return ()
    return (Chapter("failures", "What was not measured, and why", label="Failures", points=failures, folded=True),)


def _verdict(found: Sequence[StudyResult]) -> list[str]:
    """Where most workloads are fastest and cheapest; and the stall that costs most."""
    best = _best(found)
    sentences = []
    for word, places in (
        ("Fastest", [fastest for fastest, _ in best.values()]),
        ("Cheapest", [cheapest for _, cheapest in best.values() if cheapest is not None]),
    ):
        counts = Counter(where(each.cell) for each in places).most_common()
        if counts:
            of = [f"{place} for {count if len(best) > 1 else 'the'}" for place, count in counts[:_MAX_NAMED]]
            rest = sum(count for _, count in counts[_MAX_NAMED:])
            of += [f"others for {rest}"] if rest else []
            sentences.append(
                f"{word}: {listed(of)}{f' of {len(best)} workloads' if len(best) > 1 else ' one workload'}."
            )
    largest = _largest_stall(found)
    return [*sentences, largest] if largest else sentences


def _largest_stall(found: Sequence[StudyResult]) -> str:
    """The stall that costs most of a million samples, in the mean over what has a price; else most of a step."""
    priced = [each for each in found if each.dollars_per_million is not None]
    means, worst = {}, {}
    for name in STALLS[1:]:
        known = [
            (each.shares[name] * ((each.dollars_per_million or 0.0) if priced else 1.0), each)
            for each in priced or found
            if name in each.shares
        ]
        if known:
            means[name] = fmean(weight for weight, _ in known)
            worst[name] = max(known, key=lambda pair: pair[0])
    if not means or max(means.values()) <= 0:
        return ""
    name = max(means, key=lambda each: means[each])
    most, where_most = worst[name]
    written = "${:.2f} of a million samples" if priced else "{:.0%} of a step"
    mean, peak = written.format(means[name]), written.format(most)
    return (
        f"The largest stall is {name}: {mean} in the mean, at its worst {peak}, "
        f"{what(where_most.cell)} on {where(where_most.cell)}."
    )


def _best(found: Sequence[StudyResult]) -> dict[str, tuple[StudyResult, StudyResult | None]]:
    """By workload, of those measured in several ways: most samples a second, and fewest dollars a sample."""
    chosen: dict[str, tuple[StudyResult, StudyResult | None]] = {}
    for workload in dict.fromkeys(each.cell.workload for each in found):
        own = [each for each in found if each.cell.workload == workload and each.samples_per_second is not None]
        priced = [each for each in own if each.dollars_per_million is not None]
        if len(own) > 1:
            cheapest = min(priced, key=lambda each: each.dollars_per_million or 0.0) if len(priced) > 1 else None
            chosen[workload] = max(own, key=lambda each: each.samples_per_second or 0.0), cheapest
    return chosen
