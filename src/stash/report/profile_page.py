"""A breakdown made ready to be shown, and as text for a terminal: verdict, bar, table, next steps, details."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from stash.advice.verdict import Advice
from stash.analysis.breakdown import Breakdown, Missing, Paper, Rates, SampleCounts, Stall, Waits, figures, slower
from stash.core.formatting import listed, plus_minus
from stash.core.intervals import Interval
from stash.core.ladder import DATA_STALLS, EXCHANGE_STALLS, STALLS
from stash.core.records.profile import Profile
from stash.core.units import counted, format_bits, format_bytes, format_seconds, pace
from stash.report.profile_contract import words
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.ui.page import Row

# View ------------------------------------------------------------------------------------------------------
# A breakdown made ready to be shown: every string and every fraction that any renderer needs.
#
# All arithmetic of presentation happens here (units, rounding that keeps sums, lengths of bars as fractions), so
# that renderers only arrange. Knows nothing of terminals, colours or HTML.

UNKNOWN = "unknown"


@dataclass(frozen=True)
class View:
    """Everything a report says, in the order in which it says it."""

    title: str
    subtitle: tuple[str, ...]
    rows: tuple[Row, ...]
    total: Row
    verdict: str = ""
    stalls: tuple[str, ...] = ()
    """Those that may dominate."""
    next_steps: tuple[str, ...] = ()
    details: str = "Details"
    """Heading of all that follows."""
    warnings: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Label and text of second opinions: rates, exchange, the paper's percentages."""
    notes: tuple[str, ...] = ()
    footer: str = ""
    words: tuple[tuple[str, str], ...] = ()
    """What they mean, for whoever asked."""


def view(breakdown: Breakdown, advice: Advice, profile: Profile, explain: bool = False) -> View:
    """The view of one profile's breakdown; with ``explain`` also what its words mean."""
    rows, total = table_rows(breakdown.stalls, breakdown.skipped, breakdown.step)
    facts = _facts(breakdown, advice)
    return View(
        title=profile.workload.name,
        subtitle=_subtitle(breakdown, profile),
        rows=rows,
        total=total,
        verdict=advice.text,
        stalls=advice.stalls,
        next_steps=advice.next_steps,
        details=_details(len(breakdown.stability.warnings)),
        warnings=breakdown.stability.warnings,
        facts=facts,
        notes=breakdown.notes,
        footer=_footer(breakdown, profile),
        words=words([row.name for row in rows], [*(label for label, _ in facts), "measured"]) if explain else (),
    )


def table_rows(
    stalls: Sequence[Stall], skipped: Sequence[Missing] = (), step: Interval | None = None
) -> tuple[tuple[Row, ...], Row]:
    """Rows of the table in ladder order, and the row of their sum; all times in the step's unit."""
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
        )
    spread = plus_minus(step, written.scale) if step is not None else ""
    total = Row("step", time=written.step, interval=spread, share="100.0%", fraction=1.0)
    return tuple(rows[name] for name in STALLS if name in rows), total


def _subtitle(breakdown: Breakdown, profile: Profile) -> tuple[str, ...]:
    speed = breakdown.samples_per_second
    nodes = counted(breakdown.nodes, "node")
    return (
        f"{_devices(breakdown, profile)} on {nodes}",
        _batch(breakdown.samples),
        f"{pace(speed)} samples/s" if speed is not None else f"samples/s {UNKNOWN}",
    )


def _batch(samples: SampleCounts | None) -> str:
    if samples is None:
        return f"batch {UNKNOWN}"
    if samples.least == samples.most:
        return f"batch {samples.most:g} per device"
    return f"batch {samples.least:.3g} to {samples.most:.3g} per device"


def _devices(breakdown: Breakdown, profile: Profile) -> str:
    count = breakdown.world_size
    if all(rank.device == "cpu" for rank in profile.ranks):
        return counted(count, "CPU rank")
    names = {gpu.name for host in profile.hosts for gpu in host.gpus}
    if len(names) == 1:
        return f"{count} × {names.pop()}"
    return counted(count, "device")


def _details(warnings: int) -> str:
    if not warnings:
        return "Details"
    return f"Details, with {counted(warnings, 'warning')}"


def _facts(breakdown: Breakdown, advice: Advice) -> tuple[tuple[str, str], ...]:
    slow, startup = breakdown.slow_rank, breakdown.startup_seconds
    facts = [
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
        ("method", _method(breakdown)),
    ]
    return tuple((label, text) for label, text in facts if text)


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
    told = [f"{format_seconds(wait)} a step with {where}" for where, wait in named if wait is not None]
    return f"for the loader {listed(told)}" if told else ""


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
    told = [f"{name} {UNKNOWN if value is None else f'{value:.1f}% of {whole}'}" for name, value, whole in named]
    return f"shares of other wholes than the table's: {', '.join(told)}"


def _method(breakdown: Breakdown) -> str:
    """The method's own error of each stall, apart from the noise in the table."""
    told = [
        f"{stall.name} ± {format_seconds(stall.method)}" for stall in breakdown.stalls if stall.method is not None
    ]
    known = f"besides noise, known to {listed(told)}" if told else ""
    if not breakdown.by_waits:
        return known
    names = [stall.name for stall in breakdown.stalls if stall.name in DATA_STALLS]
    is_are = "is" if len(names) == 1 else "are"
    by = f"{listed(names)} {is_are} what steps waited for the loader, which works in the training process itself"
    return f"{known}; {by}" if known else by


def _footer(breakdown: Breakdown, profile: Profile) -> str:
    rounds = counted(breakdown.rounds, "round")
    launches = profile.settings.launches
    where = "one launch" if launches == 1 else f"{launches} launches"
    ended = {
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


# Terminal --------------------------------------------------------------------------------------------------
# A view as text for a terminal: the verdict, the step as a stacked bar, a table of stalls, next steps; then
# details.
#
# With colour bars are made of block characters, without of a letter for each stall. Arranges and wraps, computes
# nothing but widths.

STYLES = {
    "compute": "color(72)",
    "transfer": "color(74)",
    "contention": "color(140)",
    "interconnect": "color(221)",
    "network": "color(209)",
    "prep": "color(169)",
    "fetch": "color(167)",
}
LETTERS = {
    "compute": "#",
    "transfer": "t",
    "contention": "x",
    "interconnect": "i",
    "network": "n",
    "prep": "p",
    "fetch": "f",
}
_EIGHTHS = " ▏▎▍▌▋▊▉"


def _report(view: View, width: int, colour: bool) -> list[RenderableType]:
    return [
        _header(view, width),
        *_verdict(view, width),
        stall_table(view, plain=not colour),
        *_next_steps(view, width),
        *_detail_lines(view, width),
        *_words(view, width),
    ]


render: Renderer[View] = terminal_renderer(_report, narrowest=60, widest=110)
"""The whole report."""


class stall_table:  # noqa: N801 - used like a function: stall_table(view) is a rich renderable
    """The stacked bar and the table of a view's stalls, as wide as the console it is printed on."""

    def __init__(self, view: View, plain: bool = False) -> None:
        self.view = view
        self.plain = plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _table(self.view, options.max_width, self.plain)


def _table(view: View, width: int, plain: bool) -> list[Text]:
    measured = [row for row in (*view.rows, view.total) if row.why is None]
    names = max(len(row.name) for row in (*view.rows, view.total))
    times = max(len(row.time) for row in measured)
    intervals = max(len(row.interval) for row in measured)
    left = INDENT + 2 + names + 2
    bar = width - (left + times + 1 + intervals + 2 + 6 + 2)
    lines = [_stacked(view.rows, width - INDENT, plain), Text()]
    for row in view.rows:
        line = _marker(row, plain).append(row.name.ljust(names + 2), style=_name_style(row, view))
        if row.why is not None:
            lines.extend(_unknown(line, row.why, left, width))
            continue
        line.append(row.time.rjust(times), style="" if row.within_noise else "bold")
        line.append(" " + row.interval.ljust(intervals) + "  ", style="dim")
        line.append(row.share.rjust(6) + "  ")
        lines.append(line.append_text(_row_end(row, bar, plain)))
    total = Text(" " * (INDENT + 2) + view.total.name.ljust(names + 2))
    total.append(view.total.time.rjust(times), style="bold")
    total.append(" " + view.total.interval.ljust(intervals) + "  ", style="dim").append(view.total.share.rjust(6))
    rule = Text(" " * (INDENT + 2) + "─" * (len(total.plain) - INDENT - 2), style="dim")
    return [*lines, rule, total]


def _name_style(row: Row, view: View) -> str:
    return "dim" if row.why is not None else "bold" if row.name in view.stalls else ""


def _marker(row: Row, plain: bool) -> Text:
    if row.why is not None:
        return Text(" " * (INDENT + 2))
    glyph = LETTERS[row.name] if plain else "■"
    return Text(" " * INDENT).append(glyph + " ", style=STYLES[row.name])


def _unknown(line: Text, why: str, left: int, width: int) -> list[Text]:
    wrapped = textwrap.wrap(f"unknown: {why}", max(20, width - left)) or ["unknown"]
    rest = [Text(" " * left + text, style="dim") for text in wrapped[1:]]
    return [line.append(wrapped[0], style="dim"), *rest]


def _row_end(row: Row, bar: int, plain: bool) -> Text:
    if row.within_noise:
        return Text("(within noise)", style="dim")
    length = max(0.0, min(1.0, row.fraction)) * max(0, bar)
    if plain:
        return Text(LETTERS[row.name] * round(length))
    whole = math.floor(length)
    end = _EIGHTHS[math.floor((length - whole) * 8)].strip()
    return Text("█" * whole + end, style=STYLES[row.name])


def _stacked(rows: tuple[Row, ...], width: int, plain: bool) -> Text:
    """One bar for the whole step; stalls measured as negative have no place in it."""
    shown = [row for row in rows if row.why is None and row.fraction > 0]
    whole = sum(row.fraction for row in shown) or 1.0
    bar, done, drawn = Text(" " * INDENT), 0.0, 0
    for row in shown:
        done += row.fraction / whole
        upto = round(done * width)
        bar.append((LETTERS[row.name] if plain else "█") * (upto - drawn), style=STYLES[row.name])
        drawn = upto
    return bar


def _header(view: View, width: int) -> Text:
    header = Text(" " * INDENT).append(view.title, style="bold")
    for part in view.subtitle:
        header.append("  ·  " if width >= 100 else " · ", style="dim").append(part)
    if len(header.plain) > width:
        lines = textwrap.wrap(" · ".join(view.subtitle), width - INDENT)
        header = Text(" " * INDENT).append(view.title, style="bold")
        for line in lines:
            header.append("\n" + " " * INDENT + line)
    return header.append("\n")


def _verdict(view: View, width: int) -> list[Text]:
    return [*paragraph(view.verdict, width, "", _style(view), bold=True), Text()] if view.verdict else []


def _style(view: View) -> str:
    """The colour of what dominates, if one stall does."""
    return STYLES.get(view.stalls[0], "") if len(view.stalls) == 1 else ""


def _next_steps(view: View, width: int) -> list[Text]:
    parts = [Text()] if view.next_steps else []
    for number, step in enumerate(view.next_steps, 1):
        parts += paragraph(step, width, f"{number}. ", _style(view))
    return parts


def _detail_lines(view: View, width: int) -> list[Text]:
    facts = [*view.facts, *(("note", note) for note in view.notes)]
    facts += [("measured", view.footer)] if view.footer else []
    if not facts and not view.warnings:
        return []
    parts = [Text(), Text(" " * INDENT).append(view.details, style="bold")]
    for warning in view.warnings:
        parts += paragraph(warning, width, "! ", "color(220)")
    return [*parts, *_labelled(facts, width, dim=True)]


def _words(view: View, width: int) -> list[Text]:
    if not view.words:
        return []
    return [Text(), Text(" " * INDENT).append("Words", style="bold"), *_labelled(view.words, width)]


def _labelled(pairs: Sequence[tuple[str, str]], width: int, dim: bool = False) -> list[Text]:
    """Texts under each other, with their labels in a column of their own."""
    labels = max((len(label) for label, _ in pairs), default=0)
    return [line for label, text in pairs for line in paragraph(text, width, label.ljust(labels + 2), "dim", dim=dim)]
