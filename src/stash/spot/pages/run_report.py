"""A training that was lived through, as text and as JSON: its time line, how fast each fleet was, who took over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.core.units import counted, format_seconds
from stash.spot.records.runs import LeaseBooks, SpotEvent, SpotLog, SpotStretch, SpotTakeover
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.ui.tables import fleet, ground, table

SCHEMA = 1
TAKEOVERS = ("gone", "notice", "missed", "decided", "joined", "by")
"""The head of their table."""
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class SpotRunView:
    """What there is to say afterwards."""

    title: str
    sums: tuple[str, ...]
    stretches: tuple[tuple[str, ...], ...]
    takeovers: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]


def document(log: SpotLog) -> dict[str, Any]:
    """What ``--json`` prints: the log without its updates, and what they come to."""
    kept = log.model_dump(exclude={"updates", "log_schema"})
    stretches = [{**each.model_dump(), "observed": each.observed} for each in log.stretches]
    return {"schema": SCHEMA, **kept, "stretches": stretches, "updates": len(log.updates.seconds), **_rates(log)}


def _rates(log: SpotLog) -> dict[str, float | None]:
    """Of the whole run: updates per second, as observed, and as predicted of the fleets that it had."""
    made, seconds = sum(each.updates for each in log.stretches), sum(_length(each) for each in log.stretches)
    known = [each.predicted * _length(each) for each in log.stretches if each.predicted is not None]
    whole = seconds > 0 and len(known) == len(log.stretches)
    return {
        "updates_per_second": made / seconds if seconds > 0 else None,
        "predicted_updates_per_second": sum(known) / seconds if whole else None,
    }


def _length(stretch: SpotStretch) -> float:
    return stretch.stop - stretch.start


def line(event: SpotEvent, began: float | None) -> str | None:
    """An event as it is told while it happens, timed from the first update; ``None`` for what is told otherwise."""
    text = _TEXTS.get(event.what)
    if text is None or event.at is None:
        return None
    clock = f"{event.at - began:8.1f} s  " if began is not None else "           "
    facts = event.model_dump()
    for name in ("leases", "samples"):
        if facts[name] is not None:
            facts[name] = counted(facts[name], name.removesuffix("s"))
    facts["type"] = f" ({event.type})" if event.type and event.type != "server" else ""
    return clock + text.format_map(facts) + "".join(f"; {each}" for each in event.told)


_TEXTS = {
    "joined": "{who}{type} joined",
    "server joined": "{who} joined",
    "began": "training began",
    "notice": "{who} is told that it will be gone in {seconds:g} s",
    "saved": "a checkpoint is whole, {seconds:.1f} s after {who} was told",
    "not saved": "{who} ends without a checkpoint",
    "wanted": "{who}{type} is launched for {instead_of}",
    "left": "{who} left, with nothing lost",
    "lost": "{who} is gone; {leases} given out again",
    "server lost": "{who} is gone",
    "not finite": "{who} computed gradients that are not finite on {samples}; they are refused, and others try",
    "dismissed": "{who} gets no more leases: another worker trained on the samples on which it failed",
    "formed": "the script is started on {who}",
    "vanished": "{who} is gone",
    "restarted": "torchrun put no group together in {seconds:.0f} s: all nodes are started anew",
    "rolled back": "{who} goes on from its last checkpoint: {samples} to train on again",
}


def view(log: SpotLog) -> SpotRunView:
    """Everything that is said."""
    rates = _rates(log)
    slower = f", {log.slower:g} times slower than planned" if log.slower != 1 else ""
    observed = rates["updates_per_second"]
    speed = "updates/s unknown" if observed is None else f"{observed:.3g} updates/s"
    return SpotRunView(
        title=f"{counted(len(log.updates.seconds), 'update')} on {ground(log.on)}{slower}: {log.reason}",
        sums=(
            f"{speed}; {_beside(observed, rates['predicted_updates_per_second'])}",
            f"loss {_number(log.loss)} (mean of the last {log.loss_window} updates); {_stale(log)}",
            _booked(log.books),
            *([log.saved.said] if log.saved is not None and log.saved.wrong is None else []),
        ),
        stretches=tuple(_stretch(each, _began(log)) for each in log.stretches),
        takeovers=tuple(map(_takeover, log.takeovers)),
        warnings=tuple(_warnings(log)),
    )


def _warnings(log: SpotLog) -> Iterator[str]:
    if log.books is not None and log.books.wrong is not None:
        yield f"the books are wrong: {log.books.wrong}"
    if log.saved is not None and log.saved.wrong is not None:
        yield log.saved.wrong


def _beside(observed: float | None, predicted: float | None) -> str:
    if observed is None or not predicted:
        return "nothing was predicted of it"
    return f"predicted {predicted:.3g} ({(observed / predicted - 1) * 100:+.1f} %)"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.4g}"


def _stale(log: SpotLog) -> str:
    found = log.updates.staleness
    if not found:
        return "staleness unknown"
    bound = "no bound" if log.bound is None else f"bound {log.bound}"
    return f"staleness {sum(found) / len(found):.2g} on average, {max(found)} at most ({bound})"


def _booked(books: LeaseBooks | None) -> str:
    if books is None:
        return "how the leases stand is unknown: it ended too suddenly"
    kept = "no lease lost, none trained on twice" if books.wrong is None else "see below"
    return f"{books.done:,} samples trained on, {counted(books.reissued, 'lease')} given out again: {kept}"


def _began(log: SpotLog) -> float:
    """When the first update was, which events are timed from as well."""
    return next((event.at for event in log.events if event.what == "began" and event.at is not None), 0.0)


def _stretch(found: SpotStretch, began: float) -> tuple[str, ...]:
    predicted = "" if found.predicted is None else f"{found.predicted:.3g}"
    error = "" if not found.predicted else f"{(found.observed / found.predicted - 1) * 100:+.1f} %"
    times = f"{found.start - began:.1f} to {found.stop - began:.1f}"
    return times, f"{found.observed:.3g}", predicted, error, fleet(found.workers)


def _takeover(found: SpotTakeover) -> tuple[str, ...]:
    told = "none" if found.notice is None else f"{found.notice:g} s"
    return (
        found.gone, told, _after(found.noticed_seconds), _after(found.decided_seconds), _after(found.joined_seconds),
        found.successor or "nobody",
    )  # fmt: skip


def _after(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)


def _report(view: SpotRunView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold")]
    for text in view.sums:
        parts += paragraph(text, width, "", "")
    parts += _table(("seconds", "updates/s", "predicted", "", "fleet"), view.stretches, width)
    parts += _table(TAKEOVERS, view.takeovers, width)
    for text in view.warnings:
        parts += paragraph(text, width, "! ", "color(196)")
    return parts


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], width: int) -> list[RenderableType]:
    return [Text(""), *table((head, *rows), width)] if rows else []


render: Renderer[SpotRunView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole of it."""
