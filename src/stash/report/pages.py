"""The whole pages of saved artefacts, with their charts: a profile, a probe, several of them side by side.

Puts together what others derive and draw. Knows which chapters there are and in which order people need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stash.advice.verdict import Advice
from stash.analysis.breakdown import Breakdown
from stash.analysis.comparison import (
    comparable_sides,
    compare,
    find_changed_facts,
    incomparable,
    network_stall,
)
from stash.analysis.disturbance import remove_disturbance
from stash.analysis.findings.probe_reading import Reading
from stash.analysis.step_times import ranks_side_by_side, step_matrix
from stash.analysis.usage import data_blocks
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.records.host import Probe
from stash.core.records.profile import Loader, Profile
from stash.core.units import format_bytes, format_count, format_seconds
from stash.report import charts, comparison_page, probe_page, profile_page
from stash.report.profile_contract import command_line
from stash.report.profile_page import UNKNOWN
from stash.report.run_page import epoch_bar, epoch_title
from stash.ui.charts.chart import Blank, Grid
from stash.ui.page import Chapter, Page

_NOT_PROBED = "the machines were not probed: `stash probe` measures their links, and `stash report --probe FILE` adds them"


@dataclass(frozen=True)
class ReadRun:
    """One profile and what was derived from it, under the name of its file."""

    name: str
    profile: Profile
    breakdown: Breakdown


def page_of_profile(
    run: ReadRun, advice: Advice, source: str, reading: Reading | None = None
) -> Page:
    """The report of one profile out of the file ``source``; with the ``reading`` of its hosts' links if any."""
    profile = run.profile
    breakdown = run.breakdown
    brief = profile_page.page(breakdown, advice, profile)
    details, *explained = brief.chapters
    chapters = [*_chart_chapters(profile, breakdown), _hosts(profile, reading)]
    # Of what nothing was measured the chapter of what is unknown says why.
    drawn = [
        each
        for each in chapters
        if each.facts
        or each.grids
        or each.points
        or not all(isinstance(chart, Blank) for chart in each.charts)
    ]
    unknown = tuple(_unknown(breakdown, chapters)) or (("nothing", "all is"),)
    settings = profile.settings
    step = brief.rows[-1]
    asked = "a verdict" if settings.until_decided else f"±{settings.precision:.1%} of the step"
    how = (
        ("rungs", f"{', '.join(breakdown.rungs)}; {settings.why}"),
        ("asked for", f"{asked}, within {format_seconds(settings.budget_seconds)}"),
        *(() if profile.world_size > 1 else _exchange_facts(profile)),
        *sorted(profile.software.items()),
    )
    dropped = f", {breakdown.rounds_dropped} more incomplete" if breakdown.rounds_dropped else ""
    return replace(
        brief,
        source=source,
        bar=brief.bar if breakdown.run is None else epoch_bar(breakdown.run),
        bar_title="" if breakdown.run is None else epoch_title(breakdown.run),
        numbers=(
            ("one step", f"{step.time} {step.interval}".strip()),
            ("speed", brief.subtitle[-1]),
            ("measured", format_count(breakdown.rounds, "round") + dropped),
        ),
        chapters=(
            *drawn,
            Chapter("unknown", "What is not known", label="Unknown", facts=unknown),
            details,
            Chapter("how", "How it was measured", facts=how, folded=True),
            *explained,
        ),
        again=command_line(profile),
        made=f"{profile.created.replace('T', ' ')[:16]} UTC, Stash {profile.stash_version}",
    )


def probe_of(profile: Profile) -> Probe | None:
    """The links that a profile's hosts have, as the probe that measured them; ``None`` if they have none."""
    measured = [host.links for host in profile.hosts if host.links is not None]
    if not measured:
        return None
    return Probe(
        stash_version=profile.stash_version,
        created=min(links.created for links in measured),
        hosts=profile.hosts,
        budget_seconds=0.0,
        elapsed_seconds=max(links.elapsed_seconds for links in measured),
    )


def _hosts(profile: Profile, reading: Reading | None) -> Chapter:
    """The machines of a profile, with the reading of their links where they were probed."""
    probe = probe_of(profile)
    chapter = Chapter("hosts", "The machines", label="Machines")
    machines = probe_page.machines_grid(profile.hosts)
    if probe is None or reading is None:
        return replace(chapter, charts=(Blank("links", "Links", _NOT_PROBED),), grids=(machines,))
    several = len(profile.hosts) > 1
    return replace(
        chapter,
        charts=(charts.all_reduce(reading.exchanges),),
        grids=(machines, *probe_page.link_grids(profile.hosts, reading)),
        points=probe_page.findings_of(reading, several) or ("No findings.",),
        facts=probe_page.notes(probe, reading),
    )


def _chart_chapters(profile: Profile, breakdown: Breakdown) -> list[Chapter]:
    """The chapters that have charts, in the order of the questions that people ask."""
    profile = remove_disturbance(profile).profile
    kept = step_matrix(profile)
    found = [
        Chapter("step", "Where the step goes", "Step", charts=(charts.ladder_chart(breakdown),)),
    ]
    if profile.world_size > 1:
        ranks = charts.ranks_chart(breakdown, ranks_side_by_side(profile, kept), profile)
        facts = tuple(_exchange_facts(profile))
        found += [
            Chapter("ranks", "Rank by rank", "Ranks", charts=(ranks,)),
            Chapter("exchange", "The gradient exchange", "Exchange", facts=facts),
        ]
    data = Chapter(
        "data", "The data pipeline", "Data", facts=tuple(_data_facts(profile, breakdown))
    )
    data = replace(data, grids=_loaders(profile.workload.loaders))
    read = charts.residency_grid(data_blocks(profile, kept))
    return [*found, _add_grid(data, read)]


def _add_grid(chapter: Chapter, grid: Grid | Blank) -> Chapter:
    """With a table, or why there is none."""
    if isinstance(grid, Blank):
        return replace(chapter, charts=(grid,))
    return replace(chapter, grids=(*chapter.grids, grid))


def _exchange_facts(profile: Profile) -> Iterator[tuple[str, str]]:
    work = profile.workload
    if work.parameters is not None:
        size = f", {format_bytes(work.parameter_bytes)}" if work.parameter_bytes is not None else ""
        yield (
            "parameters",
            f"{work.parameters:,}{size}{f', {work.precision}' if work.precision else ''}",
        )
    if work.bucket_bytes:
        yield "buckets", join_names([format_bytes(size) for size in work.bucket_bytes], most=8)
    if work.exchange_hook is not None:
        yield "communication hook", work.exchange_hook or "none of the job's own"
    if work.collectives_per_step:
        counts = sorted(work.collectives_per_step.items())
        yield (
            "the script's own",
            join_names([f"{count:g} {name}" for name, count in counts]) + " a step",
        )


def _data_facts(profile: Profile, breakdown: Breakdown) -> Iterator[tuple[str, str]]:
    work = profile.workload
    waits = breakdown.waits
    unrecorded = f"{UNKNOWN}: not recorded"
    for name, size in (
        ("a sample on disk", work.sample_disk_bytes),
        ("a sample as delivered", work.sample_bytes),
    ):
        yield name, format_bytes(size) if size is not None else unrecorded
    if work.dataset_bytes is not None:
        yield "the data set on disk", f"at most {format_bytes(work.dataset_bytes)}"
    for name, rung, wait in (("in memory", "warm", waits.warm), ("on disk", "cold", waits.cold)):
        why = unrecorded if rung in breakdown.rungs else f"{UNKNOWN}: the rung {rung} was not run"
        yield f"waited, files {name}", f"{format_seconds(wait)} a step" if wait is not None else why


def _loaders(loaders: tuple[Loader, ...]) -> tuple[Grid, ...]:
    """Settings of the loaders, a column each."""
    if not loaders:
        return ()
    settings = {
        "kind": "kind",
        "workers": "workers",
        "batches each prefetches": "prefetch_factor",
        "persistent workers": "persistent_workers",
        "pinned memory": "pin_memory",
        "samples in the data set": "samples",
        "batches a step": "batches_per_step",
        "first batch after": "startup_seconds",
    }
    names = tuple(f"loader {number}" for number in range(1, len(loaders) + 1))
    rows = tuple(
        (label, *(_format_setting(getattr(loader, name)) for loader in loaders))
        for label, name in settings.items()
    )
    head = names if len(names) > 1 else ("loader",)
    return (Grid("", head, rows, frozenset(range(1 + len(names)))),)


def _format_setting(value: str | bool | int | float | None) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_seconds(value)
    return f"{value:,}" if isinstance(value, int) else value


def _unknown(breakdown: Breakdown, chapters: list[Chapter]) -> Iterator[tuple[str, str]]:
    """Stalls, and charts that cannot be drawn, each with its reason."""
    for why, names in profile_page.unknown_stalls(breakdown.skipped).items():
        yield f"{', '.join(names)} stall{'s' * (len(names) > 1)}", why
    for chart in (chart for chapter in chapters for chart in chapter.charts):
        if isinstance(chart, Blank):
            yield chart.title.lower(), chart.why


def page_of_probe(probe: Probe, reading: Reading, source: str) -> Page:
    """The report of one probe, saved as ``source``: the brief one with charts of the links."""
    brief = probe_page.page(probe, reading, source)
    hosts, *others = brief.chapters
    drawn = Chapter(
        "links", "The links", label="Links", charts=(charts.all_reduce(reading.exchanges),)
    )
    return replace(brief, source=source, chapters=(hosts, drawn, *others))


def page_of_runs(runs: Sequence[ReadRun], parts: Sequence[Page]) -> Page:
    """The report of ``parts``, and among them of the profiled ``runs``, of which the first is held to the others.

    Profiles of different jobs are shown side by side and called different; no difference is computed.
    """
    chapters = []
    verdicts = []
    if len(runs) > 1:
        drawn = charts.steps_side_by_side([(run.name, run.breakdown) for run in runs])
        chapters.append(Chapter("runs", "Side by side", charts=(drawn,)))
    for number, run in enumerate(runs[1:], 1):
        sentence, its = _against(runs[0], run, number)
        chapters += its
        verdicts.append(f"{run.name} against {runs[0].name}: {sentence[0].lower()}{sentence[1:]}")
    return Page(
        title=join_names(list(dict.fromkeys(part.title for part in parts)), most=3),
        source=f"{len(parts)} files",
        subtitle=(f"{len(runs)} profiles",) if len(runs) == len(parts) else (),
        verdict=tuple(verdicts),
        chapters=tuple(chapters),
        made=max((part.made for part in parts), default=""),
        parts=tuple(parts),
    )


def _against(first: ReadRun, run: ReadRun, number: int) -> tuple[str, tuple[Chapter, ...]]:
    """The sentences about a run compared with the first, and the chapters about it."""
    name = f"changes-{number}"
    title = f"From {first.name} to {run.name}"
    different = incomparable([first.profile], [run.profile])

    def refusal(sentence: str, why: str) -> tuple[str, tuple[Chapter, ...]]:
        return sentence, (Chapter(name, title, charts=(Blank(name, "What changed", why),)),)

    if different:
        facts = join_names([f"{fact.name} ({fact.before} and {fact.after})" for fact in different])
        why = f"not compared, as it is another job than {first.name}: {facts}"
        return refusal(f"{why}.", why)
    sides = [first.profile], [run.profile]
    try:
        comparison = compare(
            *comparable_sides({first.name: first.profile}, {run.name: run.profile})
        )
    except UserError as error:
        return refusal(f"not compared: {error}.", str(error))
    sentence = comparison_page.verdict(comparison)
    changes, *causes = comparison_page.chapters(
        comparison, name, title, find_changed_facts(*sides), network_stall(*sides)
    )
    return sentence, (replace(changes, text=sentence), *causes)
