"""The report of several artefacts: their steps side by side, what changed from the first to each other, then each.

Profiles of different jobs are shown beside each other, and said to be different; no difference is computed of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.words.quantities import listed
from stash.derive.comparison import DifferingFact, changed, compare, incomparable, network_stall
from stash.show.charts.chart import Blank, Chart
from stash.show.charts.differing import changes
from stash.show.charts.ladder import steps_side_by_side
from stash.show.comparison.view import view
from stash.show.grid import Grid
from stash.show.report.of_profile import ReadRun
from stash.show.report.page import Chapter, Page


def page(runs: Sequence[ReadRun], parts: Sequence[Page]) -> Page:
    """The report of ``parts``, and among them of the profiled ``runs``, of which the first is held to the others."""
    chapters = [_beside(runs)] if len(runs) > 1 else []
    verdicts = []
    for number, run in enumerate(runs[1:], 1):
        sentence, chapter = _against(runs[0], run, number)
        chapters.append(chapter)
        verdicts.append(f"{run.name} against {runs[0].name}: {sentence[0].lower()}{sentence[1:]}")
    titles = list(dict.fromkeys(part.title for part in parts))
    return Page(
        title=listed(titles, most=3),
        source=f"{len(parts)} files",
        subtitle=(f"{len(runs)} profiles" if len(runs) == len(parts) else f"{len(parts)} profiles and probes",),
        verdict=tuple(verdicts),
        chapters=tuple(chapters),
        made=max((part.made for part in parts), default=""),
        parts=tuple(parts),
    )


def _beside(runs: Sequence[ReadRun]) -> Chapter:
    return Chapter("runs", "Side by side", charts=(steps_side_by_side([(run.name, run.breakdown) for run in runs]),))


def _against(first: ReadRun, run: ReadRun, number: int) -> tuple[str, Chapter]:
    """What is said of a run held to the first, and the chapter about it."""
    name, title = f"changes-{number}", f"From {first.name} to {run.name}"
    different = incomparable([first.profile], [run.profile])
    if different:
        told = listed([f"{fact.name} ({fact.before} and {fact.after})" for fact in different])
        why = f"another job than {first.name}, in {told}; a difference of their times would say nothing"
        return f"{why}.", Chapter(name, title, charts=(Blank(name, "What changed", why),))
    comparison = compare([first.breakdown], [run.breakdown])
    facts = changed([first.profile], [run.profile])
    network = network_stall([first.profile], [run.profile])
    shown = view(comparison, (first.profile.workload.name, [first.name], [run.name]), facts, (), network)
    drawn: Chart = changes(comparison, shown, name)
    return shown.verdict, Chapter(
        name, title, text=shown.verdict, charts=(drawn,), points=shown.notes, grids=_causes(facts),
    )  # fmt: skip


def _causes(facts: Sequence[DifferingFact]) -> tuple[Grid, ...]:
    if not facts:
        return ()
    rows = tuple((fact.name, fact.before, fact.after) for fact in facts)
    return (Grid("What else differs", ("before", "after"), rows, frozenset({0, 1, 2}), first="fact"),)
