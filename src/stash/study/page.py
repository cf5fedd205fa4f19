"""A study as a page of the report: where models are fast and cheap, the paper's figures, every profile by its id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from stash.core.formatting import format_quantity, join_names
from stash.core.ladder import STALLS
from stash.core.units import format_count, format_pace
from stash.study.cells import Cell
from stash.study.figures import UNKNOWN, draw_stalls, make_matrix, write_shares
from stash.study.overview import missing_word, states_text
from stash.study.results import StudyResult
from stash.study.status import StudyReading
from stash.ui.charts.chart import Grid, GridLink
from stash.ui.page import Chapter, Page

_MAX_NAMED = 3
"""Places that a sentence of the verdict names."""
_CHAPTERS = (
    ("exchange", "Interconnect and network", "Exchange", ("interconnect", "network", "twin")),
    ("data", "Preparing and fetching data", "Data", ("prep", "fetch")),
    ("cost", "What it costs", "Cost", ("time", "cost")),
)


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
    emulated = any(cell.emulated is not None for cell in reading.cells)
    facts = dict.fromkeys(
        fact for cell in reading.cells if cell.emulated is not None for fact in cell.emulated.facts
    )
    stalls = draw_stalls(found)
    if emulated:  # the title says so, since a picture travels without its page
        stalls = tuple(replace(each, title=f"{each.title} (emulated)") for each in stalls)
    chapters = [Chapter("stalls", "Where the time goes", label="Stalls", charts=stalls)]
    for name, title, label, shown in _CHAPTERS:
        read = [make_matrix(reading, found, each) for each in shown]
        grids = tuple(each for each in read if isinstance(each, Grid))
        unknown = tuple(each for each in read if isinstance(each, str))
        chapters.append(Chapter(name, title, label=label, grids=grids, points=unknown))
    failures = tuple(
        f"{cell.title}: {standing.why}"
        for cell in reading.cells
        if (standing := reading.standings[cell.id]).why
    )
    where = f"Profiles are in {results}."
    table = whole_table(reading, found, files or {})
    chapters += [
        Chapter("table", "Everything measured", label="Table", text=where, grids=(table,)),
        Chapter(
            "failures",
            "What was not measured, and why",
            label="Failures",
            points=failures,
            folded=True,
        ),
        Chapter("facts", "What it rests on", points=tuple(facts), folded=True),
    ]
    how = ("places are emulated on this machine",) if emulated else ()
    return Page(
        title=f"Study: {reading.name}",
        source=source,
        subtitle=(f"{format_count(len(reading.cells), 'cell')}: {states_text(reading)}", *how),
        verdict=tuple(_verdict(found)),
        chapters=tuple(each for each in chapters if each.charts or each.grids or each.points),
    )


def _verdict(found: Sequence[StudyResult]) -> list[str]:
    """Where most workloads are fastest and cheapest; and the stall that is longest."""
    sentences = []
    for word, field in (("Fastest", "seconds_per_million"), ("Cheapest", "dollars_per_million")):
        best: dict[str, StudyResult] = {}
        for each in found:
            value = getattr(each, field)
            first = best.get(each.cell.workload)
            if value is not None and (first is None or value < getattr(first, field)):
                best[each.cell.workload] = each
        places = Counter(each.cell.column_name for each in best.values())
        named = [f"{place} for {count}" for place, count in places.most_common(_MAX_NAMED)]
        if named:
            sentences.append(
                f"{word}: {join_names(named)} of {format_count(len(best), 'workload')}."
            )
    shares = {name: [each for each in found if name in each.shares] for name in STALLS[1:]}
    means = {name: fmean(each.shares[name] for each in own) for name, own in shares.items() if own}
    longest = max(means, key=lambda name: means[name], default="")
    if longest and means[longest] > 0:
        worst = max(shares[longest], key=lambda each: each.shares[longest])
        sentences.append(
            f"The largest stall is {longest}: {means[longest]:.0%} of a step in the mean, at its worst "
            f"{worst.shares[longest]:.0%}, {worst.cell.row_name} on {worst.cell.column_name}."
        )
    return sentences


_WHOLE_HEAD = [
    "workload",
    "batch",
    "place",
    "nodes",
    "state",
    "profile",
    "devices",
    "step",
    "samples/s",
]


def whole_table(
    reading: StudyReading, found: Sequence[StudyResult], files: Mapping[str, str]
) -> Grid:
    """Every combination of the study, with a link to each profile; ``files``: where profiles are, by cell's id."""
    present = [stall for stall in STALLS if any(stall in each.shares for each in found)]
    head = [*_WHOLE_HEAD, *present, "$/million samples"]
    results = {(each.cell.row_name, each.cell.column_name): each for each in found}
    rows: dict[tuple[str, str], tuple[str, ...]] = {}
    links = {}
    for cell in sorted(reading.cells, key=lambda cell: cell.size_order):
        at = cell.row_name, cell.column_name
        if at in rows:
            continue
        result = results.get(at)
        state = missing_word(reading.standings[cell.id].state)
        measured: tuple[str, ...] = (state, *(UNKNOWN for _ in head[5:]))
        if result is not None:
            links[len(rows), head.index("profile")] = profiles = tuple(
                _link(reading, each, files) for each in result.cells
            )
            speed = result.samples_per_second
            dollars = result.dollars_per_million
            measured = (
                "done",
                " ".join(each.text for each in profiles),
                str(result.devices),
                format_quantity(result.step, "seconds"),
                "unknown" if speed is None else format_pace(speed),
                *write_shares(result, present),
                "no price" if dollars is None else f"${dollars:.2f}",
            )
        batch = UNKNOWN if cell.batch is None else str(cell.batch)
        rows[at] = (cell.workload, batch, cell.place.name, str(cell.nodes), *measured)
    return Grid(
        title="Every combination: shares of the step, mean over repeats",
        first=head[0],
        head=tuple(head[1:]),
        rows=tuple(rows.values()),
        texts=frozenset({0, 2, 4, 5}),
        below="A profile's name is its id in the study's store: `stash show --store STORE ID`. A link leads to the "
        "file where it lies next to this page.",
        filters=(0, 1, 2, 3, 4),
        links=links,
    )


def _link(reading: StudyReading, cell: Cell, files: Mapping[str, str]) -> GridLink:
    last = reading.standings[cell.id].last
    name = last.artefact if last is not None and last.artefact else cell.id
    return GridLink(name.removesuffix(".stash.json"), files.get(cell.id, ""))
