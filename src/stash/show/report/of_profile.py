"""The report of a profile: verdict and next steps, then the step, how it was measured, and what is not known.

Puts together what others derive and draw. Knows which chapters there are and in which order people need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stash.base.records import Loader, Profile
from stash.base.words.counting import counted
from stash.base.words.quantities import listed
from stash.base.words.units import format_bytes, format_seconds
from stash.derive.advise import Advice
from stash.derive.findings import Reading
from stash.derive.stalls import (
    Breakdown,
    course,
    data_blocks,
    ranks_side_by_side,
    readiness,
    step_matrix,
    usage,
)
from stash.show.charts import busy, exchanging, feeding, measuring
from stash.show.charts.chart import Blank
from stash.show.charts.ladder import ladder
from stash.show.grid import Grid
from stash.show.profile.view import UNKNOWN, View
from stash.show.profile.view import view as profile_view
from stash.show.report.again import command
from stash.show.report.hosts import host_chapter
from stash.show.report.page import Chapter, Page


@dataclass(frozen=True)
class ReadRun:
    """One profile and what was derived from it, under the name of its file."""

    name: str
    profile: Profile
    breakdown: Breakdown


def page(run: ReadRun, advice: Advice, source: str, reading: Reading | None = None) -> Page:
    """The report of one profile out of the file ``source``; with the ``reading`` of its hosts' links if any."""
    profile, breakdown = run.profile, run.breakdown
    shown = profile_view(breakdown, advice, profile, explain=True)
    when = f"{profile.created.replace('T', ' ')[:16]} UTC"
    chapters = [*_measured(profile, breakdown), host_chapter(profile, reading)]
    return Page(
        title=shown.title,
        source=source,
        subtitle=(source, when),
        verdict=(advice.text,),
        bar=tuple(row for row in shown.rows if row.why is None and row.fraction > 0),
        rows=(*shown.rows, shown.total),
        numbers=_numbers(shown, breakdown),
        warnings=breakdown.stability.warnings,
        next_steps=advice.next_steps,
        chapters=(*chapters, *_small_print(profile, breakdown, shown, chapters)),
        again=command(profile),
        made=f"{when}, Stash {profile.stash_version}",
    )


def _numbers(shown: View, breakdown: Breakdown) -> tuple[tuple[str, str], ...]:
    devices, batch, speed = shown.subtitle
    dropped = f", {breakdown.rounds_dropped} more disturbed" if breakdown.rounds_dropped else ""
    return (
        ("one step", f"{shown.total.time} {shown.total.interval}".strip()),
        ("speed", speed),
        ("job", devices),
        ("batch", batch.removeprefix("batch ")),
        ("measured", counted(breakdown.rounds, "round") + dropped),
    )


def _measured(profile: Profile, breakdown: Breakdown) -> list[Chapter]:
    """The chapters that have charts, in the order of the questions that people ask."""
    kept = step_matrix(profile).calmed()
    uses, rungs = usage(profile, kept), breakdown.rungs
    return [
        Chapter("step", "Where the step goes", label="Step", charts=(ladder(breakdown),)),
        Chapter("rounds", "How steady it was", label="Rounds", charts=(measuring.rounds(course(profile), rungs),)),
        Chapter(
            "ranks", "Rank beside rank", label="Ranks",
            charts=(measuring.ranks(breakdown, ranks_side_by_side(profile, kept), profile),),
        ),
        Chapter(
            "exchange", "The gradient exchange", label="Exchange",
            charts=(exchanging.exchange(breakdown), exchanging.readiness(readiness(profile))),
            facts=tuple(_exchange_facts(profile)),
        ),
        Chapter(
            "data", "The data pipeline", label="Data",
            charts=(feeding.rates(breakdown), feeding.residency(data_blocks(profile, kept))),
            grids=_loaders(profile.workload.loaders),
            facts=tuple(_data_facts(profile, breakdown)),
        ),
        Chapter(
            "usage", "How busy the machines were", label="Usage",
            charts=(busy.shares(uses, rungs), *(busy.traffic(uses, rungs, each) for each in ("network", "disk"))),
        ),
    ]  # fmt: skip


def _exchange_facts(profile: Profile) -> Iterator[tuple[str, str]]:
    work = profile.workload
    if work.parameters is not None:
        size = f", {format_bytes(work.parameter_bytes)}" if work.parameter_bytes is not None else ""
        yield "parameters", f"{work.parameters:,}{size}{f', {work.precision}' if work.precision else ''}"
    if work.bucket_bytes:
        yield "buckets", listed([format_bytes(size) for size in work.bucket_bytes], most=8)
    if work.exchange_hook is not None:
        yield "communication hook", work.exchange_hook or "none of the job's own"
    if work.collectives_per_step:
        counts = sorted(work.collectives_per_step.items())
        yield "the script's own", listed([f"{count:g} {name}" for name, count in counts]) + " a step"


def _data_facts(profile: Profile, breakdown: Breakdown) -> Iterator[tuple[str, str]]:
    work, waits = profile.workload, breakdown.waits
    unrecorded = f"{UNKNOWN}: not recorded"
    for name, size in (("a sample on disk", work.sample_disk_bytes), ("a sample as delivered", work.sample_bytes)):
        yield name, format_bytes(size) if size is not None else unrecorded
    if work.dataset_bytes is not None:
        yield "the data set on disk", f"at most {format_bytes(work.dataset_bytes)}"
    for name, rung, wait in (("in memory", "warm", waits.warm), ("on disk", "cold", waits.cold)):
        why = unrecorded if rung in breakdown.rungs else f"{UNKNOWN}: the rung {rung} was not climbed"
        yield f"waited, files {name}", f"{format_seconds(wait)} a step" if wait is not None else why


def _loaders(loaders: tuple[Loader, ...]) -> tuple[Grid, ...]:
    """Settings of the loaders, a column each."""
    if not loaders:
        return ()
    told: tuple[tuple[str, Callable[[Loader], str]], ...] = (
        ("kind", lambda loader: loader.kind),
        ("workers", lambda loader: _said(loader.workers)),
        ("batches each prefetches", lambda loader: _said(loader.prefetch_factor)),
        ("persistent workers", lambda loader: _said(loader.persistent_workers)),
        ("pinned memory", lambda loader: _said(loader.pin_memory)),
        ("samples in the data set", lambda loader: _said(loader.samples)),
        ("batches a step", lambda loader: str(loader.batches_per_step)),
        ("first batch after", lambda loader: UNKNOWN if loader.startup_seconds is None
                                             else format_seconds(loader.startup_seconds)),
    )  # fmt: skip
    names = ("loader",) if len(loaders) == 1 else tuple(f"loader {n}" for n in range(1, len(loaders) + 1))
    rows = tuple((label, *map(tell, loaders)) for label, tell in told)
    return (Grid("", names, rows, frozenset(range(1 + len(names)))),)


def _said(value: bool | int | None) -> str:
    if value is None:
        return UNKNOWN
    return ("no", "yes")[value] if isinstance(value, bool) else f"{value:,}"


def _small_print(profile: Profile, breakdown: Breakdown, shown: View, chapters: list[Chapter]) -> tuple[Chapter, ...]:
    """What is not known, what else was observed, what words mean, how it was measured."""
    settings = profile.settings
    how = (
        ("measured", shown.footer),
        ("climbed", f"{', '.join(breakdown.rungs)}; {settings.why}"),
        ("asked for", f"±{settings.precision:.1%} of the step, within {format_seconds(settings.budget_seconds)}"),
        *sorted(profile.software.items()),
    )
    return (
        Chapter(
            "unknown",
            "What is not known",
            label="Unknown",
            facts=tuple(_unknown(breakdown, chapters)) or (("nothing", "all is"),),
        ),
        Chapter("details", "Second opinions and notes", label="Notes", facts=shown.facts, points=shown.notes),
        Chapter("how", "How it was measured", facts=how, folded=True),
        Chapter("words", "What the words mean", facts=shown.words, folded=True),
    )


def _unknown(breakdown: Breakdown, chapters: list[Chapter]) -> Iterator[tuple[str, str]]:
    """Stalls, charts that cannot be drawn, and what is missing in those that can; each with its reason."""
    for missing in breakdown.skipped:
        yield f"{missing.name} stall", missing.why
    for chart in (chart for chapter in chapters if chapter.name != "step" for chart in chapter.charts):
        if isinstance(chart, Blank):
            yield chart.title.lower(), chart.why
        else:
            for lane in chart.lanes:
                if lane.quiet:
                    yield f"{chart.title.lower()}: {lane.name}", lane.text.removeprefix(f"{UNKNOWN}: ")
