"""A study as a page of the report: how it stands, its stalls, cost against time, and every profile by its id."""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.words.counting import counted
from stash.base.words.units import pace
from stash.derive.study.reading import StudyReading
from stash.derive.study.results import StudyResult
from stash.show.grid import Grid
from stash.show.report.page import Chapter, Page
from stash.show.study.charts import cost_against_time, stalls, table
from stash.show.study.view import matrix, states, where


def page(reading: StudyReading, found: Sequence[StudyResult], source: str, results: str) -> Page:
    """``found``: of all cells that are done; ``results``: the store that has their profiles."""
    standing = matrix(reading)
    return Page(
        title=f"Study: {reading.name}",
        source=source,
        subtitle=(f"{counted(len(reading.cells), 'cell')}: {states(reading)}",),
        verdict=tuple(_verdict(found)),
        chapters=(
            Chapter("stalls", "Where the time goes", charts=stalls(found)),
            Chapter("cost", "What it costs", charts=(cost_against_time(found),)),
            Chapter("table", "Everything measured", grids=(table(found),) if found else ()),
            Chapter(
                "standing",
                "How the study stands",
                points=tuple(_failures(reading)),
                grids=(Grid("Cells", standing[0][1:], standing[1:], frozenset(range(len(standing[0])))),),
            ),
            Chapter("profiles", "Profiles", text=f"In {results}.", grids=(_profiles(reading),), folded=True),
            Chapter("facts", "What it rests on", points=_facts(reading), folded=True),
        ),
    )


def _verdict(found: Sequence[StudyResult]) -> list[str]:
    """For each workload the most samples a second and the least dollars a sample that were measured."""
    by_workload: dict[str, list[StudyResult]] = {}
    for each in found:
        by_workload.setdefault(each.cell.workload, []).append(each)
    said = []
    for workload, own in by_workload.items():
        speeds = [(speed, each) for each in own if (speed := each.samples_per_second) is not None]
        prices = [(price, each) for each in own if (price := each.dollars_per_million) is not None]
        if len(speeds) < 2:
            continue
        most, fastest = max(speeds, key=lambda pair: pair[0])
        text = f"{workload}: most samples a second {_at(fastest)} ({pace(most)})"
        if len(prices) > 1:
            least, cheapest = min(prices, key=lambda pair: pair[0])
            text += f", cheapest {_at(cheapest)} (${least:.2f} a million)"
        said.append(f"{text}.")
    return said


def _at(found: StudyResult) -> str:
    batch = "" if found.cell.batch is None else f"at batch {found.cell.batch} "
    return f"{batch}on {where(found.cell)}"


def _failures(reading: StudyReading) -> list[str]:
    return [f"{cell.title}: {each.why}" for cell in reading.cells if (each := reading.standings[cell.id]).why]


def _profiles(reading: StudyReading) -> Grid:
    rows = []
    for cell in reading.cells:
        last = reading.standings[cell.id].last
        if last is not None and last.ending == "done":
            kept = last.artefact or "in the cell's folder"
            cost = "-" if last.dollars is None else f"${last.dollars:.2f}"
            rows.append((f"{cell.title}, repeat {cell.repeat + 1}", cell.id, kept, cost))
    return Grid("Profiles", ("cell", "artefact", "cost"), tuple(rows), frozenset({0, 1, 2}), first="cell")


def _facts(reading: StudyReading) -> tuple[str, ...]:
    """Of emulated places, what their emulation rests on."""
    return tuple(dict.fromkeys(f for c in reading.cells if c.emulated is not None for f in c.emulated.facts))
