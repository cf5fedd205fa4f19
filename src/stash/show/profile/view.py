"""A breakdown made ready to be shown: every string and every fraction that any renderer needs.

All arithmetic of presentation happens here (units, rounding that keeps sums, lengths of bars as fractions),
so that renderers only arrange. Knows nothing of terminals, colours or HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.base.ladder import STALLS
from stash.base.records import Profile
from stash.base.words.quantities import plus_minus
from stash.base.words.rounding import round_to_sum, scale_for
from stash.base.words.units import SECONDS, format_bytes, format_rate, format_seconds
from stash.derive.advise import Advice
from stash.derive.stalls import Breakdown, Communication, Missing, Stall

UNKNOWN = "unknown"
_STEP_DIGITS = 4
"""Of a step's time, which all its stalls share; one more than elsewhere, since they are parts of it."""


@dataclass(frozen=True)
class Row:
    """One stall: measured (``time``, ``interval``, ``share`` are texts) or not (``why`` is)."""

    name: str
    time: str = ""
    interval: str = ""
    share: str = ""
    fraction: float = 0.0
    """Of the step, as measured: may be negative."""
    within_noise: bool = False
    why: str | None = None


@dataclass(frozen=True)
class View:
    """Everything a report says, in the order in which it says it."""

    title: str
    subtitle: tuple[str, ...]
    rows: tuple[Row, ...]
    total: Row
    verdict: str = ""
    stall: str = ""
    """The dominating one."""
    next_steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Label and text of second opinions: rates, exchange, the paper's percentages."""
    notes: tuple[str, ...] = ()
    footer: str = ""


def view(breakdown: Breakdown, advice: Advice, profile: Profile) -> View:
    """The view of one profile's breakdown."""
    rows, total = table_rows(breakdown.stalls, breakdown.skipped)
    return View(
        title=profile.workload.name,
        subtitle=_subtitle(breakdown, profile),
        rows=rows,
        total=total,
        verdict=advice.text,
        stall=advice.stall,
        next_steps=advice.next_steps,
        warnings=breakdown.stability.warnings,
        facts=_facts(breakdown, advice),
        notes=breakdown.notes,
        footer=_footer(breakdown, profile),
    )


def table_rows(stalls: Sequence[Stall], skipped: Sequence[Missing] = ()) -> tuple[tuple[Row, ...], Row]:
    """Rows of the table in ladder order, and the row of their sum; all times in the step's unit."""
    step = sum(stall.seconds for stall in stalls)
    scale = scale_for(step, SECONDS, _STEP_DIGITS)
    times = round_to_sum([stall.seconds / scale.size for stall in stalls], scale.decimals)
    shares = round_to_sum([stall.share * 100 for stall in stalls], 1)
    rows = {missing.name: Row(missing.name, why=missing.why) for missing in skipped}
    for stall, time, share in zip(stalls, times, shares, strict=True):
        rows[stall.name] = Row(
            name=stall.name,
            time=f"{time:,.{scale.decimals}f} {scale.unit}",
            interval=plus_minus(stall.time, scale),
            share=f"{share:.1f}%",
            fraction=stall.share,
            within_noise=stall.within_noise,
        )
    total = Row("step", time=scale.text(step), share="100.0%", fraction=1.0)
    return tuple(rows[name] for name in STALLS if name in rows), total


def _subtitle(breakdown: Breakdown, profile: Profile) -> tuple[str, ...]:
    batch, speed = profile.workload.batch, breakdown.samples_per_second
    nodes = f"{breakdown.nodes} node{'s' if breakdown.nodes != 1 else ''}"
    parts = [f"{_devices(breakdown, profile)} on {nodes}"]
    parts.append(f"batch {batch} per device" if batch else f"batch {UNKNOWN}")
    parts.append(f"{_number(speed)} samples/s" if speed is not None else f"samples/s {UNKNOWN}")
    return tuple(parts)


def _devices(breakdown: Breakdown, profile: Profile) -> str:
    count = breakdown.world_size
    if all(rank.device == "cpu" for rank in profile.ranks):
        return f"{count} CPU rank{'s' if count != 1 else ''}"
    names = {gpu.name for host in profile.hosts for gpu in host.gpus}
    if len(names) == 1:
        return f"{count} × {names.pop()}"
    return f"{count} device{'s' if count != 1 else ''}"


def _facts(breakdown: Breakdown, advice: Advice) -> tuple[tuple[str, str], ...]:
    rates, exchange, paper = breakdown.rates, breakdown.communication, breakdown.paper.model_dump()
    facts = []
    known = [
        f"{label} {_number(rate)}"
        for label, rate in (
            ("devices can train", rates.device),
            ("loaders prepare", rates.prep),
            ("from disk", rates.fetch),
        )
        if rate is not None
    ]
    if known:
        facts.append(("samples/s", ", ".join(known)))
    if exchange.bytes and exchange.exposed_seconds is not None:
        facts.append(("gradients", _exchange(exchange)))
    if breakdown.slow_rank is not None:
        slow = breakdown.slow_rank
        text = f"rank {slow.rank}: {format_seconds(slow.seconds)}, others {format_seconds(slow.others_seconds)}"
        facts.append(("slowest", text))
    facts.extend(
        (
            "hidden",
            f"without the {item.removed} stall, a {item.appears} stall of {format_seconds(item.seconds)}",
        )
        for item in breakdown.surfacing
        if item.removed != advice.stall
    )
    if breakdown.startup_seconds is not None:
        facts.append(("loader", f"{format_seconds(breakdown.startup_seconds)} until the first batch"))
    percentages = [
        f"{key.removesuffix('_pct')} {'unknown' if value is None else f'{value:.1f}%'}"
        for key, value in paper.items()
    ]
    if any(value is not None for value in paper.values()):
        facts.append(("paper's %", ", ".join(percentages)))
    return tuple(facts)


def _exchange(exchange: Communication) -> str:
    exposed = format_seconds(exchange.exposed_seconds or 0.0)
    text = f"{format_bytes(exchange.bytes or 0)} a step, {exposed} exposed"
    if exchange.total_seconds is not None:
        text += f", {format_seconds(exchange.total_seconds)} when run alone"
    if exchange.wire_bytes_per_second is not None:
        text += f" ({format_rate(exchange.wire_bytes_per_second)})"
    return text


def _footer(breakdown: Breakdown, profile: Profile) -> str:
    rounds = f"{breakdown.rounds} round{'s' if breakdown.rounds != 1 else ''}"
    launches = profile.settings.launches
    where = "one launch" if launches == 1 else f"{launches} launches"
    ended = {
        "precision": "precise enough",
        "budget": "time budget spent",
        "script ended": "until the script ended",
        "interrupted": "interrupted",
    }.get(profile.ended, profile.ended)
    intervals = "95% intervals" if breakdown.rounds > 1 else "no intervals"
    return f"{rounds} in {format_seconds(profile.elapsed_seconds)}, {where}, {ended}; {intervals}"


def _number(value: float) -> str:
    return f"{value:,.{0 if value >= 1000 else 1}f}"
