"""A forecast against its measurement as a page, and as the documents of ``stash whatif --json``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from stash.analysis.breakdown import SMALL_SHARE, Breakdown
from stash.core.formatting import join_names, plus_minus
from stash.core.intervals import Interval
from stash.core.ladder import STALLS
from stash.core.ledger_rows import NOW_AND_THEN
from stash.core.units import (
    SECONDS,
    Scale,
    format_bits,
    format_bytes,
    format_count,
    format_pace,
    format_rate,
    format_seconds,
    scale_for,
)
from stash.predict.changes import document_name
from stash.predict.draws import Used, fact_text, why_no_interval
from stash.predict.forecast import Forecast
from stash.predict.sufficiency import Sufficiency
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page
from stash.whatif.answers import Diminishing, WhatIf
from stash.whatif.sweep import Point, SweptOption

UNKNOWN = "unknown"


def page(answer: WhatIf) -> Page:
    """The answer, every stall as it was and as it would be, the facts that this rests on, and what limits it next."""
    scale = scale_for(
        max(answer.measured.step_seconds, answer.forecast.breakdown.step_seconds), SECONDS, 4
    )
    typed = join_names([f"{name} {text}" for name, text in answer.typed.items()], most=20)
    target = answer.forecast.target
    return Page(
        title=answer.workload,
        subtitle=(f"what if {typed}" if typed else "as it was measured",),
        verdict=(_verdict(answer, scale),),
        grids=(_forecast(answer, scale),),
        chapters=(
            Chapter("why", "Why, and what comes next", facts=tuple(_facts(answer)), brief=True),
        ),
        warnings=(*answer.forecast.extrapolations, *_other_epoch_parts(answer.measured)),
        footer=f"{target.nodes} × {target.devices} ranks, machines {target.name}; 95 % intervals from "
        f"{answer.forecast.draws} draws of what is uncertain",
    )


def _other_epoch_parts(measured: Breakdown) -> tuple[str, ...]:
    """What of an epoch is no step, where that is a part worth knowing."""
    rows = () if measured.run is None else measured.run.rows
    parts = {row.name: row.share or 0.0 for row in rows if row.name in NOW_AND_THEN}
    parts = {name: share for name, share in parts.items() if share >= SMALL_SHARE}
    if not parts:
        return ()
    names, takes = join_names(list(parts)), "takes" if len(parts) == 1 else "take"
    share = sum(parts.values())
    return (
        f"Only the step is predicted. Outside of it, {names} {takes} {share:.0%} of an epoch, which stays as it is.",
    )


def _verdict(answer: WhatIf, scale: Scale) -> str:
    before, after = (
        f"{_number(step, scale)} {scale.unit}"
        for step in (answer.measured.step, answer.forecast.breakdown.step)
    )
    was, would = answer.measured.samples_per_second, answer.forecast.breakdown.samples_per_second
    if answer.lost:
        names = join_names([item.name for item in answer.lost])
        return (
            f"The step cannot be predicted, because {names} cannot. The rest would take {after}; the whole step "
            f"takes {before} now."
        )
    if answer.as_measured:
        rate = f", {format_pace(was)} samples/s" if was else ""
        return f"That is what was measured: a step of {before}{rate}."
    longer = answer.forecast.breakdown.step.value / answer.measured.step.value - 1
    text = f"The step would take {after} instead of {before} ({longer:+.1%})"
    if was and would:
        times = (
            f"{would / was:.2f} times as fast"
            if abs(would / was - 1) >= 0.005
            else "as fast as now"
        )
        text += f": {format_pace(would)} samples/s instead of {format_pace(was)}, {times}"
    profiled, asked = answer.devices
    if profiled != asked and "gpus" not in answer.typed:
        text += (
            f"; that is with {format_count(asked, 'device')} a node, and {profiled} were profiled"
        )
    return f"{text}."


def _forecast(answer: WhatIf, scale: Scale) -> Grid:
    """Every stall and the step: as it was, as it would be, what lies between, and where the prediction comes from."""
    parts = {part.stall: part for part in answer.forecast.grounds}
    origins = {item.name: item.why for item in answer.forecast.breakdown.skipped}
    lost = {item.name: UNKNOWN for item in answer.lost}  # why is below
    origins |= {name: part.origin for name, part in parts.items()} | lost
    rows = []
    for name in STALLS:
        before, after = answer.measured.stall(name), answer.forecast.breakdown.stall(name)
        if before is None and after is None and name not in lost:
            continue
        origin = origins.get(name, "")
        was, would = (None if stall is None else stall.time for stall in (before, after))
        if after is not None and after.time.low is None and name in parts:
            origin = "; ".join(filter(None, (origin, why_no_interval(parts[name].facts))))
        rows.append(_row(name, was, would, origin, scale))
    origin = "at least" if answer.lost else ""
    if answer.forecast.breakdown.step.low is None:
        origin = "; ".join(filter(None, (origin, "no interval, as one above has none")))
    rows.append(_row("step", answer.measured.step, answer.forecast.breakdown.step, origin, scale))
    head = ("measured", f"predicted, {scale.unit}", "change", "from")
    return Grid("", head, tuple(rows), frozenset({0, 4}), prose=True, total=True, first="stall")


def _row(
    name: str, before: Interval | None, after: Interval | None, origin: str, scale: Scale
) -> tuple[str, ...]:
    change = ""
    if before is not None and after is not None:
        change = f"{(after.value - before.value) / scale.size:+,.{scale.decimals}f}"
        if not float(change.replace(",", "")):
            change = change.lstrip("+-")
    return name, _number(before, scale), _number(after, scale), change, origin


def _number(time: Interval | None, scale: Scale) -> str:
    return "–" if time is None else f"{scale.number(time.value)} {plus_minus(time, scale)}"


def _facts(answer: WhatIf) -> Iterator[tuple[str, str]]:
    yield from _reason_rows(answer)
    for item in answer.lost:
        yield item.name, f"unknown: {item.why}"
    over = answer.forecast.target.transport_name
    if over is not None:
        others = (
            "" if over != "sockets" else "; `--transport efa` or `infiniband` where they have it"
        )
        yield "transport", f"between nodes over {over}{others}"
    yield "next", _next(answer)
    for stop in answer.enough:
        yield "enough", _stopping_text(stop)
    yield from _data(answer)
    if answer.epochs:
        first, *later = map(format_seconds, answer.epochs)
        yield (
            "epochs",
            f"the first takes {first}, then {', '.join(later)}: nodes keep in memory what they have read",
        )
    yield from _memory(answer)
    for sentence in answer.training:
        yield "training", sentence
    yield from _open_question_rows(answer)


def _reason_rows(answer: WhatIf) -> Iterator[tuple[str, str]]:
    """The facts that each changed stall rests on, every fact once; latencies are left out."""
    seen: set[str] = set()
    for part in answer.forecast.grounds:
        known = () if part.origin == "measured" else part.facts
        new = [fact for fact in known if fact.about not in seen]
        new = [
            fact
            for fact in new
            if not (fact.about.startswith("latency") or fact.about.endswith("as it was"))
        ]
        seen |= {fact.about for fact in new}
        if new:
            yield part.stall, "; ".join(map(fact_text, new))


def _next(answer: WhatIf) -> str:
    stall = answer.next
    if stall.name == "compute":
        return f"compute limits the step ({stall.share:.0%} of it): every stall is small"
    gone = 1 - stall.seconds / answer.forecast.breakdown.step_seconds
    return (
        f"{stall.name} limits the step next, {format_seconds(stall.seconds)} of it ({stall.share:.0%}); "
        f"without it a step would be {1 / gone:.2f} times as fast"
    )


def _stopping_text(stop: Diminishing) -> str:
    pays = f"doubling it gains less than {stop.gain:.0%}"
    if stop.option in ("nodes", "gpus"):
        pays = "twice as many gain less than half of the possible speedup"
    shown = {
        "network": format_bits,
        "disk": format_rate,
        "memory": format_bytes,
        "cache": "{:.0%}".format,
        "compress": "{:g}x".format,
    }.get(stop.option, "{:g}".format)
    return f"from --{stop.option} {shown(stop.value)} on, {pays}"


def _data(answer: WhatIf) -> Iterator[tuple[str, str]]:
    """DS-Analyzer's rates and its three questions."""
    found = answer.data
    if found is None:
        return
    fetch = "" if found.fetch_rate is None else f", fetch {format_pace(found.fetch_rate)}"
    rates = f"devices {format_pace(found.device_rate)}, prep {format_pace(found.prep_rate)}{fetch} samples/s"
    yield (
        "data",
        f"{rates}; DS-Analyzer would predict the lowest, {format_pace(found.baseline)}",
    )
    masks = "more workers than one would start"
    if found.workers is not None:
        masks = f"{format_count(found.workers, 'worker')} a device"
    cores = "" if not found.cores_per_rank else f" on {found.cores_per_rank:.2g} cores"
    makes = "makes" if found.workers == 1 else "make"
    parts = [f"{masks}{cores} {makes} samples as fast as the devices train"]
    prep = answer.forecast.breakdown.stall("prep")
    enough = found.workers is not None and 0 < found.workers <= found.workers_now
    if (
        prep is not None and prep.share >= SMALL_SHARE and enough
    ):  # so that prep is no waiting for samples
        parts.append(
            f"it has {found.workers_now}, so the {format_seconds(prep.seconds)} of prep are loading and training "
            "slowing each other down: cheaper samples help, more workers do not"
        )
    if found.disk_bytes_per_second is not None:
        parts.append(
            f"a disk faster than {format_rate(found.disk_bytes_per_second)} for each node does not help"
        )
        cached = "no part" if found.cached is None else f"{found.cached:.0%}"
        parts.append(
            "storage keeps up even with no data in memory"
            if found.cached == 0
            else f"with {cached} of the data in memory, storage keeps up"
        )
    yield "suffices", "; ".join(parts)


def _memory(answer: WhatIf) -> Iterator[tuple[str, str]]:
    fit = answer.fit
    if not answer.on_device or fit is None:
        return
    needed = format_bytes(fit.needed_bytes)
    if fit.memory_bytes is None:
        yield "memory", f"{needed} of a device; what it has is unknown"
        return
    verdict = "fits" if fit.fits else "does not fit"
    yield (
        "memory",
        f"{needed} of {format_bytes(fit.memory_bytes)}, {verdict}; the largest batch would be {fit.largest_batch}",
    )


def _open_question_rows(answer: WhatIf) -> Iterator[tuple[str, str]]:
    """What this profile does not know; the command that records it only once."""
    by_why: dict[str, list[str]] = {}
    for item in answer.unanswered:
        by_why.setdefault(item.why, []).append(item.question)
    reasons = "; ".join(f"{'; '.join(questions)}: {why}" for why, questions in by_why.items())
    if reasons:
        yield "unknown", f"{reasons}. `{answer.unanswered[0].command}` records it"


# The documents that ``stash whatif --json`` prints: a contract, see docs/format.md.

SCHEMA = 1
_DIGITS = 6
_NOTHING = 1e-12
"""Rounding of sums that cancel."""


def document(answer: WhatIf) -> dict[str, Any]:
    """Write one answer as JSON; seconds per step, samples per second, base units; what is not known is null."""
    forecast, fit = answer.forecast, answer.fit
    measured = [
        {"name": stall.name, "seconds": _ends(stall.time)} for stall in answer.measured.stalls
    ]
    unknown = [item.model_dump() for item in answer.lost]
    return {
        "schema": SCHEMA,
        "workload": answer.workload,
        "changes": {document_name(option): text for option, text in answer.typed.items()},
        "target": forecast.target.model_dump(mode="json"),
        "measured": {**_pace(answer.measured), "stalls": measured},
        "forecast": {**_forecast_document(forecast), "unknown": unknown},
        "next": answer.next.name,
        "enough": [
            {"option": stop.option, "value": _short(stop.value), "gain": stop.gain}
            for stop in answer.enough
        ],
        "data": None if answer.data is None else _data_document(answer.data),
        "memory": fit and {**asdict(fit), "needed_bytes": round(fit.needed_bytes)},
        "epoch_seconds": list(answer.epochs),
        "training": list(answer.training),
        "unanswered": [item._asdict() for item in answer.unanswered],
    }


def sweep_document(
    workload: str, typed: dict[str, str], over: Sequence[SweptOption], points: Sequence[Point]
) -> dict[str, Any]:
    """Write a sweep as JSON: one forecast a point, null where there is none, with the reason."""
    options = [document_name(axis.option) for axis in over]
    return {
        "schema": SCHEMA,
        "workload": workload,
        "changes": {document_name(option): text for option, text in typed.items()},
        "over": options,
        "points": [
            {
                "values": dict(zip(options, point.texts, strict=True)),
                "forecast": point.forecast and _forecast_document(point.forecast),
                "why": point.why,
            }
            for point in points
        ],
    }


def _forecast_document(forecast: Forecast) -> dict[str, Any]:
    """The forecast alone."""
    breakdown = forecast.breakdown
    return {
        **_pace(breakdown),
        "origin": forecast.origin,
        "stalls": [
            {
                "name": stall.name,
                "seconds": _ends(stall.time),
                "share": round(stall.share, 4),
                "origin": grounds.origin,
                "facts": [_fact_document(fact) for fact in grounds.facts],
                "beyond": list(grounds.beyond),
            }
            for stall, grounds in zip(breakdown.stalls, forecast.grounds, strict=True)
        ],
        "beyond": list(forecast.extrapolations),
        "draws": forecast.draws,
        "seed": forecast.seed,
    }


def _pace(breakdown: Breakdown) -> dict[str, Any]:
    return {
        "step_seconds": _ends(breakdown.step),
        "samples_per_second": _short(breakdown.samples_per_second),
        "samples_per_step": _short(breakdown.samples_per_step),
    }


def _data_document(found: Sufficiency) -> dict[str, float | int | None]:
    return {
        "device_rate": _short(found.device_rate),
        "prep_rate": _short(found.prep_rate),
        "fetch_rate": _short(found.fetch_rate),
        "baseline_rate": _short(found.baseline),
        "workers_to_hide_prep": found.workers,
        "cores_per_rank_to_hide_prep": _short(found.cores_per_rank),
        "cache_that_suffices": _short(found.cached),
        "disk_bytes_per_second_that_suffices": _short(found.disk_bytes_per_second),
    }


def _fact_document(fact: Used) -> dict[str, Any]:
    quantity = fact.quantity.model_dump()
    ends = {name: _short(quantity[name]) for name in ("value", "low", "high")}
    return {"about": fact.about, "unit": fact.unit, **quantity, **ends}


def _ends(interval: Interval) -> dict[str, float | None]:
    return {name: _short(getattr(interval, name)) for name in ("value", "low", "high")}


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    return float(f"{value:.{_DIGITS}g}") if abs(value) >= _NOTHING else 0.0
