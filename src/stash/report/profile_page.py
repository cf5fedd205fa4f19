"""A profile's breakdown as a page: the verdict, the stalls of the step, next steps, second opinions.

All arithmetic of presentation happens here (units, rounding that keeps sums, lengths of bars as fractions), so that
renderers only arrange. Charts are added by ``pages``: a terminal needs none.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.advice.verdict import Advice
from stash.analysis.breakdown import Breakdown, Missing, Paper, Rates, SampleCounts, Stall, Waits
from stash.analysis.shared_cores import STEAL
from stash.analysis.step_figures import figures, slower
from stash.core.formatting import listed, plus_minus
from stash.core.intervals import Interval
from stash.core.ladder import DATA_STALLS, EXCHANGE_STALLS, STALLS
from stash.core.records.profile import Profile
from stash.core.units import counted, format_bits, format_bytes, format_seconds, pace
from stash.report import model_facts
from stash.report.profile_contract import PARTS, words
from stash.ui.page import Chapter, Page, Row

UNKNOWN = "unknown"
WORTH_SAYING = 0.01
"""Of the step: what was lost to other work, if less, is not mentioned."""


def page(breakdown: Breakdown, advice: Advice, profile: Profile, explain: bool = False) -> Page:
    """A profile's page: the answer, then its details; with ``explain`` a terminal also shows what words mean."""
    stalls, total = table_rows(breakdown.stalls, breakdown.skipped, breakdown.step, advice.stalls)
    model = model_facts.facts(breakdown, profile)
    facts = (*_facts(breakdown, advice), *model, ("measured", how_measured(breakdown, profile)))
    further = Chapter("further", "What else helps", points=advice.next_steps[1:], brief=explain, folded=True)
    parts = Chapter("parts", "What each ± is made of", facts=_parts(breakdown.stalls), brief=explain, folded=True)
    return Page(
        title=profile.workload.name,
        subtitle=_subtitle(breakdown, profile),
        verdict=(advice.text,),
        bar=bar_of(stalls),
        rows=(*stalls, total),
        warnings=breakdown.stability.warnings,
        next_steps=advice.next_steps[:1],
        chapters=(
            Chapter("details", "Details", facts=facts, brief=True),
            *(chapter for chapter in (further, parts) if chapter.points or chapter.facts),
            Chapter("words", "Words", brief=explain, folded=True,
                    facts=words([row.name for row in stalls], [label for label, _ in facts])),
        ),
    )  # fmt: skip


def bar_of(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows that a stacked bar can show: what was measured as negative has no place in it."""
    return tuple(row for row in rows if row.why is None and row.fraction > 0)


def table_rows(
    stalls: Sequence[Stall],
    skipped: Sequence[Missing] = (),
    step: Interval | None = None,
    strong: Sequence[str] = (),
) -> tuple[tuple[Row, ...], Row]:
    """Rows of the table in ladder order, and the row of their sum; all times in the step's unit.

    ``strong`` are the stalls that may dominate.
    """
    written = figures(stalls)
    rows = {missing.name: Row(missing.name, why=missing.why) for missing in skipped}
    for stall in stalls:
        rows[stall.name] = Row(
            name=stall.name,
            time=written.time(stall.name),
            interval=written.spread(stall.name),
            share=written.share(stall.name),
            fraction=stall.share,
            within_noise=stall.within_noise,
            strong=stall.name in strong,
        )
    spread = plus_minus(step, written.scale) if step is not None else ""
    total = Row("step", time=written.step, interval=spread, share="100.0%", fraction=1.0)
    return tuple(rows[name] for name in STALLS if name in rows), total


def _subtitle(breakdown: Breakdown, profile: Profile) -> tuple[str, ...]:
    speed = breakdown.samples_per_second
    nodes = counted(breakdown.nodes, "node")
    shared = model_facts.shared_among(profile)
    return (
        f"{_devices(breakdown, profile)} on {nodes}{shared and ': '}{shared}",
        _batch(breakdown.samples),
        f"{pace(speed)} samples/s" if speed is not None else f"samples/s {UNKNOWN}",
    )


def _batch(samples: SampleCounts | None) -> str:
    if samples is None:
        return f"batch {UNKNOWN}"
    if samples.least == samples.most:
        return f"batch {samples.most:g} per device"
    least, most = (f"{size:,.0f}" if size >= 100 else f"{size:.3g}" for size in (samples.least, samples.most))
    return f"batch {least} to {most} per device"


def _devices(breakdown: Breakdown, profile: Profile) -> str:
    count = breakdown.world_size
    if all(rank.device == "cpu" for rank in profile.ranks):
        return counted(count, "CPU rank")
    names = {gpu.name for host in profile.hosts for gpu in host.gpus}
    if len(names) == 1:
        return f"{count} × {names.pop()}"
    return counted(count, "device")


def _facts(breakdown: Breakdown, advice: Advice) -> tuple[tuple[str, str], ...]:
    slow, startup = breakdown.slow_rank, breakdown.startup_seconds
    facts = [
        ("disturbed", _disturbed(breakdown)),
        ("samples/s", _rates(breakdown.rates)),
        ("waited", _waits(breakdown.waits)),
        ("gradients", _exchange(breakdown)),
        ("slowest", f"rank {slow.rank} is {slower(slow)}" if slow is not None else ""),
        *(
            ("hidden", f"without the {item.removed} stall, a {item.appears} stall of {format_seconds(item.seconds)}")
            for item in breakdown.surfacing
            if item.removed != advice.stall
        ),
        ("loader", f"{format_seconds(startup)} until the first batch" if startup is not None else ""),
        ("paper's %", _paper(breakdown.paper)),
        ("by waits", _by_waits(breakdown)),
        *(("note", note) for note in breakdown.notes),
    ]
    return tuple((label, text) for label, text in facts if text)


def _disturbed(breakdown: Breakdown) -> str:
    """What other work on the machine cost the step, and which that was."""
    found = breakdown.disturbed
    if found is None or found.time.value < WORTH_SAYING * breakdown.step_seconds:
        return ""
    lost = f"{format_seconds(found.time.value)} more were lost in every step to other work on this machine"
    busy = [f"{each.name} ({each.cores:.0%} of a core)" for each in found.programs]
    if found.steal is not None and found.steal >= STEAL:
        busy.append(f"other tenants (steal {found.steal:.0%})")
    return f"{lost}{f': {listed(busy)}' if busy else ''}; no stall contains them (--as-seen puts them back)"


def _rates(rates: Rates) -> str:
    named = (
        ("devices can train", rates.device, None),
        ("loaders alone prepare", rates.prep, rates.prep_spread),
        ("loaders alone read and prepare", rates.fetch, rates.fetch_spread),
    )
    return ", ".join(
        f"{label} {pace(rate)}" + ("" if spread is None else f" (± {spread:.0%})")
        for label, rate, spread in named
        if rate is not None
    )


def _waits(waits: Waits) -> str:
    named = (("files in memory", waits.warm), ("files on disk", waits.cold))
    texts = [f"{format_seconds(wait)} a step with {where}" for where, wait in named if wait is not None]
    return f"for the loader {listed(texts)}" if texts else ""


def _exchange(breakdown: Breakdown) -> str:
    """The exchange's bytes, the part of it that steps waited for, and the whole of it by itself."""
    exchange = breakdown.communication
    if not exchange.bytes or exchange.exposed_seconds is None:
        return ""
    exposed = f"{figures(breakdown.stalls).time(*EXCHANGE_STALLS)} exposed"
    if exchange.exposed_seconds <= 0:
        exposed = "none exposed"
    elif exchange.exposed_low is not None and exchange.exposed_low <= 0:
        exposed += " (within noise)"
    text = f"{format_bytes(exchange.bytes)} a step, {exposed}"
    if exchange.total_seconds is not None:
        text += f", {format_seconds(exchange.total_seconds)} when run alone"
    if exchange.wire_bytes_per_second is not None:
        text += f" ({format_bits(exchange.wire_bytes_per_second)})"
    return f"{text}; exchanging and computing slow each other down" if exchange.slowed else text


def _paper(paper: Paper) -> str:
    """The paper's percentages, each with the whole it is a share of, which is not the table's."""
    named = (
        ("interconnect with contention", paper.interconnect_pct, "node"),
        ("network", paper.network_pct, "one node"),
        ("prep", paper.prep_pct, "warm"),
        ("fetch", paper.fetch_pct, "cold"),
    )
    if all(value is None for _, value, _ in named):
        return ""
    shares = [f"{name} {UNKNOWN if value is None else f'{value:.1f}% of {whole}'}" for name, value, whole in named]
    return f"shares of other wholes than the table's: {', '.join(shares)}"


def _by_waits(breakdown: Breakdown) -> str:
    if not breakdown.by_waits:
        return ""
    names = [stall.name for stall in breakdown.stalls if stall.name in DATA_STALLS]
    is_are = "is" if len(names) == 1 else "are"
    return f"{listed(names)} {is_are} what steps waited for the loader, which works in the training process itself"


def _parts(stalls: Sequence[Stall]) -> tuple[tuple[str, str], ...]:
    """Of each stall with an interval the half-widths that make it up, and what they mean."""
    found, used = [], dict[str, str]()
    for stall in stalls:
        if stall.low is None:
            continue
        known = {name: half for name, half in stall.parts.model_dump().items() if half is not None}
        unknown = ", method unknown" if stall.parts.method is None else ""
        found.append((stall.name, ", ".join(f"{n} ± {format_seconds(half)}" for n, half in known.items()) + unknown))
        used |= {name: PARTS[name] for name in known}
    return (*found, *((name, meaning) for name, meaning in used.items()))


def how_measured(breakdown: Breakdown, profile: Profile) -> str:
    """``"6 rounds in 41.8 s, one launch, time budget spent; 95% intervals"``."""
    rounds = counted(breakdown.rounds, "round")
    launches = profile.settings.launches
    where = "one launch" if launches == 1 else f"{launches} launches"
    ended = {
        "decided": "until the verdict held",
        "settled": "until more would not change the verdict",
        "precision": "precise enough",
        "budget": "time budget spent",
        "script ended": "until the script ended",
        "interrupted": "interrupted",
    }.get(profile.ended, profile.ended)
    intervals = "95% intervals" if breakdown.rounds > 1 else "no intervals"
    return f"{rounds} in {_time_taken(profile)}, {where}, {ended}; {intervals}"


def _time_taken(profile: Profile) -> str:
    before = profile.seconds_before_blocks
    if before is None:
        return format_seconds(profile.elapsed_seconds)
    measuring = format_seconds(profile.elapsed_seconds - before)
    return f"{measuring} after {format_seconds(before)} of starting and warming up"
