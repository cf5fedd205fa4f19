"""A watched run as a page and as JSON: its last window, changes, stragglers, money. Computes sums, judges nothing."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from stash.core.formatting import format_dollars, format_span, join_names
from stash.core.units import format_count, format_seconds, scale_for
from stash.monitor.accounting import STALL_OF, STALLS
from stash.monitor.baseline import GROUPS
from stash.monitor.machine_state import explain_lateness
from stash.monitor.money import forecast_bill, lost_a_day
from stash.monitor.records import Header, LateRank, RunRecord, Window
from stash.monitor.run_chart import SERIES, step_course
from stash.monitor.run_energy import energy_text, run_energy
from stash.monitor.wall_ledger import WallLedger, WallRow, wall_ledger
from stash.monitor.window_lines import digits
from stash.monitor.window_sums import alert_name, inapplicable_stalls, row_name, sum_windows
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page, Row

SCHEMA = 1
_DAY_FORMAT = "%Y-%m-%d %H:%M:%S UTC"
_ALERT_FIELDS = ("step", "stall", "rank", "ratio", "ended", "what", "stage", "seconds", "text")
_MIN_SHARE = 0.05
"""Of the step: what is worth a sentence."""
_LEAST_SHARE = 0.0005
"""Of a run: what is less is in the JSON alone."""
_LATE_HEAD = ("stage", "later by", "of the step", "its machine then")
_MOST_ROWS = 5
"""Of an epilog's line."""


def page(record: RunRecord, source: str = "", live: bool = False) -> Page:
    """The last window of a run that goes on (``live``), else all of them."""
    header = record.header
    shown = sum_windows(record.windows[-1:] if live else record.windows)
    ranks = "ranks unknown" if header.ranks is None else format_count(header.ranks, "rank")
    nodes = f" on {header.nodes} nodes" if header.nodes > 1 else ""
    if shown is None:
        steps = f"no step recorded{' yet' if live else ''}"
    else:
        taken = shown.last_step - shown.first_step + 1
        span = f"{'last ' if live else ''}{shown.seconds:.0f} s"
        steps = f"step {shown.last_step:,} | {span}: {taken:,} steps"
    wall = wall_ledger(record)
    rows = () if shown is None else _rows(record, shown)
    energy = run_energy(record)
    events = [f"{_format_date(event.when)}  {event.text or event.what}" for event in record.events]
    course = (step_course(record),) if shown else ()
    used = () if energy is None else (("energy", energy_text(energy)),)
    chapters = (
        Chapter("course", "The run over time", label="Course", charts=course),
        Chapter("money", "Money", facts=tuple(_money(record, wall)), brief=True),
        Chapter("energy", "Energy", facts=used, brief=True),
        Chapter("events", "What happened", points=tuple(events), folded=True, brief=True, most=8),
    )
    return Page(
        title=f"{header.job} | {ranks}{nodes} | {steps}",
        source=source,
        verdict=tuple(_verdict(record, shown, live)),
        bar=rows[:-1],
        rows=rows,
        grids=tuple(_grids(record, shown, None if live else wall)),
        warnings=tuple(_warnings(record, shown, wall)),
        below_rows=_describe_rows(record, shown),
        chapters=tuple(each for each in chapters if each.charts or each.facts or each.points),
        made=f"since {_format_date(header.began)}, Stash {header.stash_version}",
    )


def summary(record: RunRecord, source: str) -> Page:
    """What is said when a watch ends: all of the run, without what happened on the way."""
    shown = page(record, source)
    return replace(
        shown, chapters=tuple(each for each in shown.chapters if each.name in ("money", "energy"))
    )


def _verdict(record: RunRecord, shown: Window | None, live: bool) -> Iterator[str]:
    open_ones = [alert for alert in record.alerts if not alert.ended]
    for alert in open_ones:
        yield f"{alert.text[:1].upper()}{alert.text[1:]}."
    if shown is None:
        if not live:
            yield (
                "No training step was recorded, so there is nothing to show. If the script trains, add `import stash` "
                "and call `stash.step()` after each update."
            )
        return
    known = record.header.baseline_stalls.get("step")
    if known:
        against = f" ({record.header.baseline})" if record.header.baseline else ""
        now = shown.step_seconds - (shown.stalls.get("other") or 0.0)
        yield f"A step takes {now / known:.0%} of the profile's{against}."
    elif not (live and open_ones):
        yield f"A step takes {format_seconds(shown.step_seconds)}. {_describe_largest(shown, record.header)}"
    if not record.alerts:
        yield "There was no alert."


def _format_clock(seconds: float, record: RunRecord) -> str:
    """The time of day; with its day where that is not the one on which the watch began."""
    text = _format_date(seconds)
    day = _format_date(record.header.began).split()[0]
    return text.removeprefix(f"{day} ").removesuffix(" UTC")


_GOES_INTO = {
    "epoch start": "epochs that start",
    "evaluation": "evaluation",
    "checkpoint": "saving checkpoints",
    "collector": "Python's garbage collector",
    "compilation": "torch.compile, for the first time or again",
}


def _describe_largest(shown: Window, header: Header) -> str:
    """What most of a step is lost to, and what says more about it; without a loader they hide between steps."""
    apart = ("compute",) if header.loaders else ("compute", "other")
    lost = {name: value or 0.0 for name, value in shown.stalls.items() if name not in apart}
    name = max(lost, key=lambda each: lost[each], default="")
    share = lost[name] / shown.step_seconds if name and shown.step_seconds else 0.0
    if share < _MIN_SHARE:
        return f"No stall takes {_MIN_SHARE:.0%} of it."
    if name == "disturbed":
        return f"Other work on the machine costs {share:.0%} of it."
    if name == "other":
        return f"{share:.0%} of it lies between steps: `stash profile` names the lines."
    what = (
        f"goes into {_GOES_INTO[name]}"
        if name in _GOES_INTO
        else f"is {row_name(name, header.nodes)}"
    )
    return f"{share:.0%} of it {what}: `stash profile` says why, `stash fix` tries changes."


def _describe_rows(record: RunRecord, shown: Window | None) -> str:
    """Which rows do not apply, and which a watch cannot split."""
    if shown is None:
        return ""
    several = record.header.nodes > 1
    joined = ["prep from fetch", *(["interconnect from network"] if several else [])]
    parts = [f"a watch cannot tell {join_names(joined)}; `stash profile` can"]
    away = inapplicable_stalls(record.header)
    if away:
        cpu = record.header.device == "cpu"
        alone = ("one CPU rank" if cpu else "one rank") if record.header.ranks == 1 else "CPUs"
        parts.append(f"does not apply to {alone}: {', '.join(row_name(each) for each in away)}")
    return "; ".join(parts)


def _rows(record: RunRecord, shown: Window) -> tuple[Row, ...]:
    scale = scale_for(shown.step_seconds, ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")), 4)
    rows = []
    for name in STALLS:
        if name not in shown.stalls or name in inapplicable_stalls(record.header):
            continue
        value = shown.stalls[name]
        title = row_name(name, record.header.nodes)
        if value is None:
            rows.append(Row(title, why="no copy to a device was seen"))
            continue
        # clocks tell nanoseconds; what is less is neither late nor early
        value = round(value, 9) + 0.0
        share = value / shown.step_seconds if shown.step_seconds else 0.0
        rows.append(
            Row(
                title,
                time=scale.text(value),
                interval=_remark(record, shown, name),
                share=f"{share:.1%}",
                fraction=share,
                series=SERIES.get(name, name),
            )
        )
    return (*rows, Row("step", time=scale.text(shown.step_seconds), share="100%", fraction=1.0))


def _remark(record: RunRecord, shown: Window, name: str) -> str:
    """What stands beside a stall: the rank that is late in it."""
    if name == "other" and not record.header.loaders:
        forward = any(stages.get("forward") for stages in shown.ranks.values())
        return f"with {'what makes batches' if forward else 'the forward pass'}: no loader is seen"
    if name == "disturbed":
        cores = [each.others_cores for each in shown.machines if each.others_cores is not None]
        return f"others use {max(cores):.1f} cores" if cores else ""
    stall = "compute" if name == "contention" else name  # one rank's alone
    late = [each.rank for each in shown.stragglers if STALL_OF[each.stage] == stall]
    return f"rank {late[0]}" if late and name != "compute" else ""


def _baseline_grid(record: RunRecord, shown: Window) -> Grid | None:
    """The same beside the profile, with the stalls that only the ladder tells apart."""
    split = record.header.baseline_stalls
    rows = []
    for name, parts in GROUPS.items():
        known = [f"{format_seconds(split[part])} {part}" for part in parts if part in split]
        now = shown.stalls.get(name)
        if known:
            seconds = "unknown" if now is None else format_seconds(now)
            rows.append((row_name(name, record.header.nodes), seconds, " + ".join(known)))
    grid = Grid("Against the profile", ("now", "in the profile"), tuple(rows), frozenset({0, 2}))
    return grid if split else None


def _wall_grid(record: RunRecord, wall: WallLedger) -> Grid:
    """Rows of the whole run, in dollars too where they are known."""
    price = record.header.price
    rate = 0.0 if price is None else price.dollars_per_hour / 3600
    shown = [row for row in wall.rows if abs(row.seconds) >= _LEAST_SHARE * wall.seconds]
    is_repeated = any(row.times > 1 for row in shown)
    rows = []
    for row in (*shown, WallRow("wall", wall.seconds)):
        cells = [row_name(row.name, record.header.nodes), format_span(row.seconds)]
        cells.append(f"{row.seconds / wall.seconds:.1%}" if wall.seconds else "")
        if rate:
            cells.append(format_dollars(row.seconds * rate))
        if is_repeated:
            cells.append(f"{row.times} times" if row.times > 1 else "")
        rows.append(tuple(cells))
    head = ("takes", "share", *(("costs",) if rate else ()), *(("",) if is_repeated else ()))
    words = {0, len(head)} if is_repeated else {0}
    return Grid("The whole run", head, tuple(rows), frozenset(words), first="row", total=True)


def _grids(record: RunRecord, shown: Window | None, wall: WallLedger | None) -> Iterator[Grid]:
    if wall is not None and len(wall.rows) > 1:
        yield _wall_grid(record, wall)
    if shown is not None and (beside := _baseline_grid(record, shown)) is not None:
        yield beside
    nodes = record.header.nodes
    if record.alerts:
        head = ("step", "stall", "rank", "longer", "± 95 %", "until", "what")
        changes = tuple(
            (
                _format_clock(alert.first_told, record),
                f"{alert.step:,}",
                alert_name(alert, nodes),
                "" if alert.rank is None else str(alert.rank),
                "" if alert.seconds is None else format_seconds(alert.seconds),
                "" if alert.plus_minus is None else format_seconds(alert.plus_minus),
                _format_clock(alert.when, record) if alert.ended else "open",
                alert.text,
            )
            for alert in record.alerts[-12:]
        )
        texts = frozenset({0, 2, 7})
        yield Grid("Changes", head, changes, texts, first="since (UTC)", prose=True)
    if shown is not None and shown.stragglers:
        late_ones = tuple(
            (
                f"rank {late.rank}"
                + (f", node {late.node}" if late.node is not None and nodes > 1 else ""),
                late.stage,
                format_seconds(late.seconds),
                f"{late.seconds / shown.step_seconds:.1%}",
                _machine_then(record.windows, late),
            )
            for late in shown.stragglers
        )
        yield Grid("Stragglers", _LATE_HEAD, late_ones, frozenset({0, 1, 4}))


def _machine_then(windows: Sequence[Window], late: LateRank) -> str:
    """What may explain it of the machine that the rank is on, in the last window that it was late in."""
    for window in reversed(windows):
        if any((each.rank, each.stage) == (late.rank, late.stage) for each in window.stragglers):
            return "; ".join(
                explain_lateness(each) for each in window.machines if each.node == late.node
            )
    return ""


def _warnings(record: RunRecord, shown: Window | None, wall: WallLedger) -> Iterator[str]:
    if shown is None:
        return
    taken = shown.last_step - shown.first_step + 1
    if wall.loses_unknown_work:
        yield "the job was started again and no checkpoint was seen before: what it had to do twice is not known"
    if shown.ambiguous:
        yield (
            "ranks wait for each other inside collectives in the middle of a step, as with sharded models: a watch "
            "cannot tell which stage such a wait belongs to; `stash profile` can"
        )
    if shown.steps < taken:
        yield f"{shown.steps:,} of {taken:,} steps were read; the others were too fast, traced, or not watched"
    if record.header.unseen:
        yield record.header.unseen
    if shown.delay is not None and shown.delay > 0.02 * shown.step_seconds:
        yield (
            f"a training thread waited {format_seconds(shown.delay)} a step for a core: other work on the machine, "
            "or more ranks and loader workers than cores"
        )


def _money(record: RunRecord, wall: WallLedger) -> Iterator[tuple[str, str]]:
    price = record.header.price
    if price is None or not record.windows:
        return
    last = record.windows[-1]
    found = forecast_bill(
        price, wall.seconds, record.windows, last.last_step, record.header.planned_steps
    )
    hourly = format_dollars(price.dollars_per_hour)
    yield "spent", f"{format_dollars(found.so_far)} at {hourly} an hour ({price.source})"
    if found.forecast is not None and found.plus_minus is not None:
        yield "whole bill", f"{format_dollars(found.forecast)} ± {format_dollars(found.plus_minus)}"
    lost = sorted(lost_a_day(last, price).items(), key=lambda each: -each[1])
    texts = [f"{name} {format_dollars(value)}" for name, value in lost if value >= 0.005]
    yield "lost per day", ", ".join(texts) or "nothing"


def _format_date(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime(_DAY_FORMAT)


def document(record: RunRecord) -> dict[str, Any]:
    """The contract of ``stash show RUN.watch.jsonl --json``: over all windows, and for each."""
    header = record.header
    wall = wall_ledger(record)
    energy = run_energy(record)

    def cost(seconds: float) -> float | None:
        price = header.price
        return None if price is None else digits(seconds * price.dollars_per_hour / 3600)

    return {
        "schema": SCHEMA,
        "kind": "watch",
        **header.model_dump(include={"job", "ranks", "nodes", "began", "baseline"}),
        **_sum_window(sum_windows(record.windows)),
        "wall": {
            "seconds": digits(wall.seconds),
            "dollars": cost(wall.seconds),
            "exit_code": wall.code,
            "rows": [
                {
                    "name": row.name,
                    "seconds": digits(row.seconds),
                    "share": digits(row.seconds / wall.seconds) if wall.seconds else None,
                    "dollars": cost(row.seconds),
                    "times": row.times or None,
                }
                for row in wall.rows
            ],
        },
        "energy": None if energy is None else energy.model_dump(),
        "alerts": [
            {name: getattr(alert, name) for name in _ALERT_FIELDS} for alert in record.alerts
        ],
        "windows": [
            {
                **each.model_dump(include={"began", "first_step", "last_step"}),
                **_sum_window(each),
                "machines": [machine.model_dump(mode="json") for machine in each.machines],
            }
            for each in record.windows
        ],
        "events": [event.model_dump(include={"when", "what", "text"}) for event in record.events],
    }


def epilog(record: RunRecord) -> str:
    """One line of a run that has ended, for a job's epilog: how it ended, its wall, its largest rows, its bill."""
    wall = wall_ledger(record)
    header = record.header
    ended = "still runs, or its watcher was killed" if wall.code is None else f"exit {wall.code}"
    large = sorted(wall.rows, key=lambda row: -row.seconds)[:_MOST_ROWS]
    text = ", ".join(
        f"{row_name(row.name, header.nodes)} {row.seconds / wall.seconds:.0%}"
        for row in large
        if wall.seconds
    )
    if header.price is not None:
        text += f"; {format_dollars(wall.seconds * header.price.dollars_per_hour / 3600)}"
    if record.alerts:
        text += f"; {format_count(len(record.alerts), 'alert')}"
    return f"{header.job} {format_span(wall.seconds)}, {ended}: {text}"


def _sum_window(window: Window | None) -> dict[str, Any]:
    if window is None:
        return {"steps": 0, "step_seconds": None, "stalls": [], "stragglers": []}
    step = window.step_seconds
    return {
        "steps": window.last_step - window.first_step + 1,
        "step_seconds": step,
        "stalls": [
            {
                "name": name,
                "seconds": seconds,
                "share": None if seconds is None or not step else seconds / step,
                "rank": window.set_by.get(name),
            }
            for name, seconds in window.stalls.items()
        ],
        "stragglers": [each.model_dump() for each in window.stragglers],
    }
