"""The pages of saved artefacts: a profile, a probe, several of them side by side, and their machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stash.advice.verdict import Advice
from stash.analysis.breakdown import Breakdown
from stash.analysis.comparison import DifferingFact, changed, compare, incomparable, network_stall
from stash.analysis.findings.probe_reading import Reading
from stash.analysis.step_times import course, ranks_side_by_side, step_matrix
from stash.analysis.usage import data_blocks, readiness, usage
from stash.core.formatting import listed
from stash.core.records.host import Host, Probe
from stash.core.records.profile import Loader, Profile
from stash.core.units import counted, format_bytes, format_seconds
from stash.report import run_charts, stage_charts
from stash.report.comparison_page import view as view_of_runs
from stash.report.ladder_charts import changes, ladder, steps_side_by_side
from stash.report.probe_page import machine, view
from stash.report.profile_contract import command
from stash.report.profile_page import UNKNOWN, View
from stash.report.profile_page import view as profile_view
from stash.ui.charts.chart import Blank, Chart, Grid
from stash.ui.page import Chapter, Page

# Hosts -----------------------------------------------------------------------------------------------------
# The chapter about machines: what each is, what its links carry, what was found about them.

_NOT_PROBED = (
    "the machines were not probed: `stash probe` measures their links, and `stash report --probe FILE` adds them"
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


def host_chapter(profile: Profile, reading: Reading | None) -> Chapter:
    """The machines of a profile, with the reading of their links where they were probed."""
    probe, title = probe_of(profile), "The machines"
    if probe is None or reading is None:
        blank = Blank("links", "Links", _NOT_PROBED)
        return Chapter("hosts", title, label="Machines", charts=(blank,), grids=(machines(profile.hosts),))
    shown = view(probe, reading)
    return Chapter(
        "hosts", title, label="Machines", charts=link_charts(reading, len(profile.hosts) > 1),
        grids=(machines(profile.hosts), *shown.grids), points=shown.findings, facts=shown.notes,
    )  # fmt: skip


def link_charts(reading: Reading, several: bool) -> tuple[Chart | Blank, ...]:
    """What links carry, and all-reduce by size."""
    return run_charts.links(reading, several), run_charts.all_reduce(reading.exchanges)


_MAX_COLUMNS = 6


def machines(hosts: Sequence[Host]) -> Grid:
    """What the hosts are, a column each; those that are alike share one, and of very many kinds some are shown."""
    sheets = [machine(host, node, len(hosts) > 1) for node, host in enumerate(hosts)]
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for sheet in sheets:
        alike.setdefault(sheet.facts, []).append(sheet.title)
    labels = dict.fromkeys(label for facts in alike for label, _ in facts)
    columns = [dict(facts) for facts in alike][:_MAX_COLUMNS]
    left_out = sum(len(names) for names in list(alike.values())[_MAX_COLUMNS:])
    return Grid(
        title="",
        head=tuple(listed(names, most=4) for names in list(alike.values())[:_MAX_COLUMNS]),
        rows=tuple((label, *(column.get(label, "none stated") for column in columns)) for label in labels),
        texts=frozenset(range(1 + len(columns))),
        below=f"{left_out} more machines differ from these in some of it." if left_out else "",
    )


# Of profile ------------------------------------------------------------------------------------------------
# The report of a profile: verdict and next steps, then the step, how it was measured, and what is not known.
#
# Puts together what others derive and draw. Knows which chapters there are and in which order people need them.


@dataclass(frozen=True)
class ReadRun:
    """One profile and what was derived from it, under the name of its file."""

    name: str
    profile: Profile
    breakdown: Breakdown


def page_of_profile(run: ReadRun, advice: Advice, source: str, reading: Reading | None = None) -> Page:
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
        Chapter("rounds", "How steady it was", label="Rounds", charts=(run_charts.rounds(course(profile), rungs),)),
        Chapter(
            "ranks", "Rank beside rank", label="Ranks",
            charts=(run_charts.ranks(breakdown, ranks_side_by_side(profile, kept), profile),),
        ),
        Chapter(
            "exchange", "The gradient exchange", label="Exchange",
            charts=(stage_charts.exchange(breakdown), stage_charts.readiness(readiness(profile))),
            facts=tuple(_exchange_facts(profile)),
        ),
        Chapter(
            "data", "The data pipeline", label="Data",
            charts=(stage_charts.rates(breakdown), stage_charts.residency(data_blocks(profile, kept))),
            grids=_loaders(profile.workload.loaders),
            facts=tuple(_data_facts(profile, breakdown)),
        ),
        Chapter(
            "usage", "How busy the machines were", label="Usage",
            charts=(
                stage_charts.shares(uses, rungs),
                *(stage_charts.traffic(uses, rungs, each) for each in ("network", "disk")),
            ),
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


# Of probe --------------------------------------------------------------------------------------------------
# The report of a probe: what was found about the machines first, then what each is and what its links carry.


def page_of_probe(probe: Probe, reading: Reading, source: str) -> Page:
    """The report of one probe, saved as ``source``."""
    shown = view(probe, reading, source)
    names = list(dict.fromkeys(host.hostname for host in probe.hosts))
    several = len(probe.hosts) > 1
    return Page(
        title=listed(names, most=4),
        source=source,
        subtitle=(counted(len(probe.hosts), "machine"), "links measured by stash probe"),
        verdict=shown.findings,
        next_steps=shown.next_steps,
        chapters=(
            Chapter("hosts", "The machines", label="Machines", grids=(machines(probe.hosts),)),
            Chapter("links", "The links", label="Links", charts=link_charts(reading, several)),
            Chapter("tables", "Every link, beside the catalog", label="Tables", grids=shown.grids),
            Chapter("unknown", "What is not known, and notes", label="Notes", facts=shown.notes),
        ),
        made=f"{probe.created.replace('T', ' ')[:16]} UTC, Stash {probe.stash_version}",
    )


# Of runs ---------------------------------------------------------------------------------------------------
# The report of several artefacts: their steps side by side, what changed from the first to each other, then each.
#
# Profiles of different jobs are shown beside each other, and said to be different; no difference is computed of
# them.


def page_of_runs(runs: Sequence[ReadRun], parts: Sequence[Page]) -> Page:
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
    shown = view_of_runs(comparison, (first.profile.workload.name, [first.name], [run.name]), facts, (), network)
    drawn: Chart = changes(comparison, shown, name)
    return shown.verdict, Chapter(
        name, title, text=shown.verdict, charts=(drawn,), points=shown.notes, grids=_causes(facts),
    )  # fmt: skip


def _causes(facts: Sequence[DifferingFact]) -> tuple[Grid, ...]:
    if not facts:
        return ()
    rows = tuple((fact.name, fact.before, fact.after) for fact in facts)
    return (Grid("What else differs", ("before", "after"), rows, frozenset({0, 1, 2}), first="fact"),)
