"""A forecast beside its measurement, made ready to be shown, and as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from stash.core.formatting import Unit, listed, plain, plus_minus
from stash.core.intervals import Interval
from stash.core.ladder import STALLS
from stash.core.units import (
    SECONDS,
    Scale,
    counted,
    format_bits,
    format_bytes,
    format_rate,
    format_seconds,
    pace,
    scale_for,
)
from stash.predict.draws import Quantity, Used
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.whatif.answers import Diminishing, WhatIf

# View ------------------------------------------------------------------------------------------------------
# A forecast beside its measurement, made ready to be shown: every string that a renderer needs.
#
# All times are in the unit of the step. Knows nothing of terminals or colours.

UNKNOWN = "unknown"
_MAX_SOURCE = 90
"""Characters of a source in a line."""


@dataclass(frozen=True)
class ForecastLine:
    """One stall, or the step: as it was, as it would be, what lies between, and where the prediction comes from."""

    name: str
    before: str
    after: str
    change: str
    origin: str


@dataclass(frozen=True)
class ForecastView:
    """Everything that is said of one question, in the order in which it is said."""

    title: str
    question: str
    verdict: str
    unit: str
    lines: tuple[ForecastLine, ...]
    total: ForecastLine
    facts: tuple[tuple[str, str], ...]
    """Label and text."""
    warnings: tuple[str, ...]
    """Where the forecast reaches beyond what was calibrated."""
    footer: str


def view(answer: WhatIf) -> ForecastView:
    """The view of one answer."""
    measured, told = answer.measured, answer.told.breakdown
    scale = scale_for(max(measured.step_seconds, told.step_seconds), SECONDS, 4)
    return ForecastView(
        title=answer.workload,
        question=f"what if {asked(answer)}" if answer.typed else "as it was measured",
        verdict=_verdict(answer, scale),
        unit=scale.unit,
        lines=tuple(_lines(answer, scale)),
        total=_line("step", measured.step, told.step, "at least" if answer.lost else "", scale),
        facts=tuple(_facts(answer)),
        warnings=answer.told.beyond,
        footer=_footer(answer),
    )


def asked(answer: WhatIf) -> str:
    """``"network 100gbit and nodes 8"``."""
    return listed([f"{name} {text}" for name, text in answer.typed.items()], most=20)


def _verdict(answer: WhatIf, scale: Scale) -> str:
    before, after = answer.measured.step, answer.told.breakdown.step
    if answer.lost:
        names = listed([item.name for item in answer.lost])
        known, now = f"{_number(after, scale)} {scale.unit}", f"{_number(before, scale)} {scale.unit}"
        return (
            f"Nobody can tell the step: {names} cannot be predicted. The rest of it would take {known}; the whole "
            f"takes {now} now."
        )
    if answer.as_measured:
        pace_now = answer.measured.samples_per_second
        rate = f", {pace(pace_now)} samples/s" if pace_now else ""
        return f"That is what was measured: a step of {_number(before, scale)} {scale.unit}{rate}."
    text = (
        f"The step would take {_number(after, scale)} {scale.unit} instead of {_number(before, scale)} {scale.unit} "
        f"({after.value / before.value - 1:+.1%})"
    )
    was, would = answer.measured.samples_per_second, answer.told.breakdown.samples_per_second
    if was and would:
        text += f": {pace(would)} samples/s instead of {pace(was)}, {_times(would / was)}"
    return f"{text}."


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times as fast" if not 0.995 < ratio < 1.005 else "as fast as now"


def _lines(answer: WhatIf, scale: Scale) -> Iterator[ForecastLine]:
    grounds = {part.stall: part for part in answer.told.grounds}
    reasons = {item.name: item.why for item in answer.told.breakdown.skipped}
    for name in STALLS:
        before, after = answer.measured.stall(name), answer.told.breakdown.stall(name)
        if before is None and after is None and name not in {item.name for item in answer.lost}:
            continue
        origin = grounds[name].origin if name in grounds else reasons.get(name, "")
        yield _line(name, before.time if before else None, after.time if after else None, origin, scale)


def _line(name: str, before: Interval | None, after: Interval | None, origin: str, scale: Scale) -> ForecastLine:
    change = "" if before is None or after is None else _apart(after.value - before.value, scale)
    return ForecastLine(name, _number(before, scale), _number(after, scale), change, origin)


def _apart(seconds: float, scale: Scale) -> str:
    written = f"{seconds / scale.size:+,.{scale.decimals}f}"
    return written if float(written.replace(",", "")) else f"{0:.{scale.decimals}f}"


def _number(time: Interval | None, scale: Scale) -> str:
    if time is None:
        return "–"
    return f"{scale.number(time.value)} {plus_minus(time, scale)}"


def _facts(answer: WhatIf) -> Iterator[tuple[str, str]]:
    yield from _whys(answer)
    for item in answer.lost:
        yield item.name, f"unknown: {item.why}"
    yield "next", _next(answer)
    for stop in answer.enough:
        yield "enough", _enough(stop)
    yield from _data(answer)
    yield from _memory(answer)
    for sentence in answer.training:
        yield "training", sentence
    yield from _unanswered(answer)


def _whys(answer: WhatIf) -> Iterator[tuple[str, str]]:
    """The facts that each changed stall rests on, every fact once; of latencies nobody wants to read here."""
    told: set[str] = set()
    for part in answer.told.grounds:
        if part.origin == "measured":
            continue
        new = [fact for fact in part.facts if fact.about not in told and not _unsaid(fact)]
        told |= {fact.about for fact in new}
        if new:
            yield part.stall, "; ".join(_used(fact) for fact in new)


def _unsaid(fact: Used) -> bool:
    return fact.about.endswith("as it was") or fact.about.startswith("latency")


def _used(fact: Used) -> str:
    source = fact.quantity.source
    short = source if len(source) <= _MAX_SOURCE else source[: _MAX_SOURCE - 2] + " …"
    dated = f", {fact.quantity.as_of}" if fact.quantity.as_of and fact.quantity.as_of not in short else ""
    return f"{fact.about} {_quantity(fact)} ({fact.quantity.origin}: {short}{dated})"


def _quantity(fact: Used) -> str:
    told: Quantity = fact.quantity
    value, *ends = (None if end is None else _plain(end, fact) for end in (told.value, told.low, told.high))
    if None in ends or ends[0] == ends[1]:
        return value or UNKNOWN
    return f"{value} ({ends[0]} to {ends[1]})"


def _plain(value: float, fact: Used) -> str:
    unit = fact.unit
    if unit == "bytes/s" and "between nodes" in fact.about:
        return format_bits(value)
    known: dict[str, Unit] = {"bytes/s": "bytes/s", "seconds": "seconds", "bytes": "bytes", "fraction": "fraction"}
    return plain(value, known[unit]) if unit in known else f"{value:.3g}"


def _next(answer: WhatIf) -> str:
    stall, told = answer.next, answer.told.breakdown
    if stall.name == "compute":
        return f"compute limits the step, {stall.share:.0%} of it: every stall is small"
    gone = 1 - stall.seconds / told.step_seconds
    return (
        f"{stall.name} limits the step next, {format_seconds(stall.seconds)} of it ({stall.share:.0%}); "
        f"without it a step would be {1 / gone:.2f} times as fast"
    )


def _enough(stop: Diminishing) -> str:
    devices = "with twice as many, speed grows by less than half of what it could"
    pays = devices if stop.option in ("nodes", "gpus") else f"twice as much brings less than {stop.gain:.0%}"
    return f"from {stop.option} {_option(stop.option, stop.value)} on, {pays}"


def _option(option: str, value: float) -> str:
    if option == "network":
        return format_bits(value)
    if option == "disk":
        return format_rate(value)
    if option in ("memory", "bucket"):
        return format_bytes(value)
    if option == "cache":
        return f"{value:.0%}"
    return f"{value:g}x" if option == "compress" else f"{value:g}"


def _data(answer: WhatIf) -> Iterator[tuple[str, str]]:
    """DS-Analyzer's rates and its three questions."""
    found = answer.data
    if found is None:
        return
    fetch = "" if found.fetch_rate is None else f", fetch {pace(found.fetch_rate)}"
    rates = f"devices {pace(found.device_rate)}, prep {pace(found.prep_rate)}{fetch} samples/s"
    yield "data", f"{rates}; the least of them, {pace(found.baseline)}, is what DS-Analyzer would predict"
    masks = "more workers than one would start"
    if found.workers is not None:
        masks = f"{counted(found.workers, 'worker')} a device"
    cores = "" if not found.cores_per_rank else f" on {found.cores_per_rank:.2g} cores"
    parts = [f"{masks}{cores} hide making samples"]
    if found.disk_bytes_per_second is not None:
        parts.append(f"a disk faster than {format_rate(found.disk_bytes_per_second)} for each node does not help")
        cached = "no part" if found.cached is None else f"{found.cached:.0%}"
        parts.append(
            "storage keeps up with nothing in memory"
            if found.cached == 0
            else f"with {cached} of the data in memory storage keeps up"
        )
    yield "suffices", "; ".join(parts)


def _memory(answer: WhatIf) -> Iterator[tuple[str, str]]:
    if not answer.on_device:
        return
    if answer.fit is None:
        return
    fit = answer.fit
    if fit.memory_bytes is None:
        yield "memory", f"{format_bytes(fit.needed_bytes)} of a device; what it has is unknown"
        return
    verdict = "fits" if fit.fits else "does not fit"
    text = f"{format_bytes(fit.needed_bytes)} of {format_bytes(fit.memory_bytes)}, {verdict}"
    yield "memory", f"{text}; the largest batch would be {fit.largest_batch}"


def _unanswered(answer: WhatIf) -> Iterator[tuple[str, str]]:
    """What this profile cannot tell; the command that records it only once."""
    if answer.unanswered:
        by_why: dict[str, list[str]] = {}
        for item in answer.unanswered:
            by_why.setdefault(item.why, []).append(item.question)
        told = "; ".join(f"{'; '.join(questions)}: {why}" for why, questions in by_why.items())
        yield "untold", f"{told}. `{answer.unanswered[0].command}` records it"


def _footer(answer: WhatIf) -> str:
    told = answer.told
    return (
        f"{told.target.nodes} × {told.target.devices} ranks, machines {told.target.name}; 95 % intervals from "
        f"{told.draws} draws of every uncertain fact"
    )


# Terminal --------------------------------------------------------------------------------------------------
# A forecast as text for a terminal: the answer, a table beside what was measured, why, and what comes next.

_GAP = "  "
_ORIGIN = "from"


def _report(view: ForecastView, width: int, colour: bool) -> list[RenderableType]:
    head = Text(" " * INDENT).append(view.title, style="bold").append(f" · {view.question}")
    return [
        head if len(head.plain) <= width else Text("\n").join(_head(view, width)),
        Text(),
        *paragraph(view.verdict, width, "", "", bold=True),
        Text(),
        *_table(view, width),
        *_fact_lines(view, width),
        *_warnings(view, width),
        Text(),
        *paragraph(view.footer, width, "", "", dim=True),
    ]


render: Renderer[ForecastView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole answer."""


def _head(view: ForecastView, width: int) -> list[Text]:
    return [*paragraph(view.title, width, "", "", bold=True), *paragraph(view.question, width, "", "")]


def _table(view: ForecastView, width: int) -> list[Text]:
    heads = ForecastLine("", "measured", f"predicted, {view.unit}", "change", _ORIGIN)
    rows = [_cells(line) for line in (heads, *view.lines, view.total)]
    columns = [max(len(row[number]) for row in rows) for number in range(4)]
    left = INDENT + sum(columns) + len(_GAP) * 4
    lines = []
    for number, (row, line) in enumerate(zip(rows, (heads, *view.lines, view.total), strict=True)):
        if number == len(rows) - 1:
            lines.append(Text(" " * INDENT + "─" * (left - INDENT - len(_GAP)), style="dim"))
        lines += _row(row, columns, line.origin, left, width, dim=number == 0)
    return lines


def _cells(line: ForecastLine) -> tuple[str, ...]:
    return (line.name, line.before, line.after, line.change)


def _row(row: Sequence[str], columns: Sequence[int], origin: str, left: int, width: int, dim: bool) -> list[Text]:
    line = Text(" " * INDENT + row[0].ljust(columns[0]), style="dim" if dim else "")
    for number in (1, 2, 3):
        style = "bold" if number == 2 and not dim else "dim" if number == 1 else ""
        line.append(_GAP + row[number].rjust(columns[number]), style=style)
    words = textwrap.wrap(origin, max(12, width - left)) or [""]
    line.append(_GAP + words[0], style="dim")
    return [line, *(Text(" " * left + more, style="dim") for more in words[1:3])]


def _fact_lines(view: ForecastView, width: int) -> list[Text]:
    labels = max((len(label) for label, _ in view.facts), default=0) + 2
    parts, before = [Text()], ""
    for label, text in view.facts:
        parts += paragraph(text, width, ("" if label == before else label).ljust(labels), "bold")
        before = label
    return parts


def _warnings(view: ForecastView, width: int) -> list[Text]:
    found = [line for sentence in view.warnings for line in paragraph(sentence, width, "! ", "color(220)", dim=True)]
    return [Text(), *found] if found else []
