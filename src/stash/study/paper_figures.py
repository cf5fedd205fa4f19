"""The paper's figures of a study: prep and fetch, interconnect and network, cold and warm, utilisation, batches.

Each is a matrix of workloads by places, so that dozens of both fit on a page and stand apart by place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stash.core.formatting import dollars
from stash.core.units import format_seconds
from stash.study.fields import EmulatedTarget
from stash.study.overview import what, where
from stash.study.results import StudyResult, twins
from stash.study.sheet import ReadTile, StudySheet, TileText, Unknown, tile_charts
from stash.ui.charts.chart import Blank, Chart, Legend, TileBar

Charts = tuple[Chart | Blank, ...]
Spending = Callable[[StudyResult, float], float | None]
"""Of a million samples, if a step takes so many seconds."""
Writing = Callable[[float], str]
_SIGNS = "Hatched: not measured. –: unknown there, or not part of the study."
_TITLES = {
    "interconnect": "Interconnect stall",
    "network": "Network stall, against one node of the same job",
    "prep": "Prep stall",
    "fetch": "Fetch stall",
}
_FORMULAS = {
    "interconnect": "What all devices of a node add to the step of one: (T all − T one) / T all",
    "network": "What several nodes add to the step of one node: (T all nodes − T one node) / T one node",
    "prep": "What real data from the page cache add to the step: (T warm − T replayed) / T warm",
    "fetch": "What reading them from storage adds to it: (T cold − T warm) / T cold",
}
_ADDED_BY = {"interconnect": ("contention", "interconnect")}
"""Stalls that the paper's difference holds, where it is not the one of its name."""


def stall(shown: StudySheet, name: str) -> Charts:
    """One of the paper's stalls, in per cent of its formula and in seconds."""
    known = [each.paper[name] for each in shown.results.values() if name in each.paper]
    whole = max([100.0, *known])

    def read(result: StudyResult) -> TileText | Unknown:
        if name not in result.paper:
            if name == "interconnect" and result.devices == result.cell.nodes:
                return Unknown("one device a node")
            return Unknown(result.why_unknown.get(name, "a rung that it needs was not run"))
        seconds = sum(result.seconds.get(each, 0.0) for each in _ADDED_BY.get(name, (name,)))
        return _in_both(result.paper[name], seconds, whole, name)

    how = f"{_FORMULAS[name]}, and seconds of a step. A full bar is {whole:.0f}%. {_SIGNS}"
    return _drawn(shown, read, name, _TITLES[name], how)


def network_against_one_machine(shown: StudySheet) -> Charts:
    """The paper's own network stall: several nodes against one with as many of the same GPUs."""
    name, title = "network-twin", "Network stall, against one machine with as many GPUs"
    found = {twin.many.cell.id: twin for twin in twins(tuple(shown.results.values()))}
    if not found:
        return (Blank(name, title, "the study has no place with as many of the same GPUs in one machine"),)
    whole = max(100.0, *(100 * twin.share for twin in found.values()))

    def read(result: StudyResult) -> TileText | Unknown:
        twin = found.get(result.cell.id)
        if twin is None:
            one = result.cell.nodes == 1
            return Unknown("one node" if one else "no machine of the study has as many of the same GPUs")
        tile = _in_both(100 * twin.share, twin.seconds, whole, "network")
        return TileText(tile.texts, f"{tile.texts[0]}, against {where(twin.one.cell)}", bars=tile.bars)

    how = f"(T several machines − T one) / T one, 400% is five times slower. A full bar is {whole:.0f}%. {_SIGNS}"
    return _drawn(shown, read, name, title, how)


def placement(shown: StudySheet) -> Charts:
    """One machine type with its GPUs on links of a mesh that differ: what a sub-optimal placement costs."""
    name, title = "placement", "Link placement: which GPUs of a mesh a machine gets"
    best: dict[tuple[object, ...], StudyResult] = {}
    for result in shown.results.values():
        kind = _placed_kind(result)
        if kind is not None and (kind not in best or result.step.value < best[kind].step.value):
            best[kind] = result
    if not best:
        why = "no target says `gpus:`, which of a mesh's GPUs a node has" if shown.results else "no cell is done yet"
        return (Blank(name, title, why),)
    slowest = max(
        result.step.value / best[kind].step.value
        for result in shown.results.values()
        if (kind := _placed_kind(result)) is not None
    )

    def read(result: StudyResult) -> TileText | Unknown:
        kind = _placed_kind(result)
        if kind is None:
            return Unknown("its GPUs are not named")
        first, seconds = best[kind], result.exchange_seconds
        times = result.step.value / first.step.value
        stalled = f", {format_seconds(seconds)} of it exchange" if seconds is not None else ""
        texts = (f"{times:.2f} × {format_seconds(result.step.value)}", f"{times:.2f} ×")
        if result is first:
            texts = (f"best {format_seconds(result.step.value)}", "best")
        tip = f"{times:.2f} times the step on {where(first.cell)}{stalled}"
        waits = (seconds or 0.0) / first.step.value / slowest
        bars = (TileBar(times / slowest, "shade", faint=True), TileBar(waits, "interconnect"))
        return TileText(texts, tip, bars=bars)

    how = (
        "The step over that on the placement that is fastest (faint), and its exchange (strong). Four GPUs of eight "
        f"V100s have two rings of NVLinks, one, or none. {_SIGNS}"
    )
    keys = (Legend("shade", "step"), Legend("interconnect", "exchange"))
    return _drawn(shown, read, name, title, how, keys)


def _placed_kind(result: StudyResult) -> tuple[object, ...] | None:
    """What differs in the placement alone is of one kind; ``None`` where no placement is named."""
    target = result.cell.place.target
    if not isinstance(target, EmulatedTarget) or target.gpus is None:
        return None
    return what(result.cell), result.cell.nodes, target.instance, target.precision, len(target.gpus)


def time_and_cost(shown: StudySheet) -> Charts:
    """Hours and dollars of a million samples, warm and cold."""
    return (
        *_spent(shown, "time", "Time, warm and cold", "Hours", StudyResult.hours_per_million, hours_in_words),
        *_spent(shown, "cost", "Cost, warm and cold", "Dollars", StudyResult.dollars_of, dollars),
    )


def _spent(shown: StudySheet, name: str, title: str, unit: str, of: Spending, write: Writing) -> Charts:
    rows: dict[str, float] = {}
    for result in shown.results.values():
        most = of(result, result.step.value)
        if most is not None:
            rows[what(result.cell)] = max(most, rows.get(what(result.cell), 0.0))

    def read(result: StudyResult) -> TileText | Unknown:
        whole = of(result, result.step.value)
        if whole is None:
            known = result.samples_per_step is not None
            return Unknown("it has no price" if known else "how many samples a step trains was not counted")
        warm_step = result.warm_seconds
        warm = None if warm_step is None or result.cold_seconds is None else of(result, warm_step)
        most = rows[what(result.cell)]
        if warm is None:
            tip = f"{write(whole)} {_read_from(result)}"
            return TileText((write(whole),), tip, bars=(TileBar(whole / most, "shade"),))
        bars = (TileBar(whole / most, "shade", faint=True), TileBar(warm / most, "shade"))
        return TileText(_both(write(warm), write(whole)), f"warm {write(warm)}, cold {write(whole)}", bars=bars)

    how = (
        f"{unit} of a million samples: with files in the page cache → from storage (the faint end), or the one of "
        f"both that was measured, or on batches in memory. The most of each row has a full bar. {_SIGNS}"
    )
    return _drawn(shown, read, name, title, how)


def _both(warm: str, cold: str) -> tuple[str, ...]:
    """Two numbers with their unit once, where it is the same."""
    first, _, unit = warm.partition(" ")
    short = f"{first}→{cold}" if cold.endswith(unit) else f"{warm}→{cold}"
    return f"{warm} → {cold}", short, cold


def _read_from(result: StudyResult) -> str:
    if result.cold_seconds is not None:
        return "with files from storage"
    return "with files in the page cache" if result.warm_seconds is not None else "on batches in memory"


def utilisation(shown: StudySheet) -> Charts:
    """How busy GPUs and cores are under the highest rung, beside what of a step is stalled."""

    def read(result: StudyResult) -> TileText | Unknown:
        gpu, cpu = result.busy.get("gpu"), result.busy.get("cpu")
        if gpu is None and cpu is None:
            return Unknown("no block recorded how busy its host was")
        known = (("GPU", gpu), ("CPU", cpu), ("stalled", result.stalled))
        shares = [f"{name} {share:.0%}" for name, share in known if share is not None]
        bars = (
            *_busy_bar(gpu, "compute", 2), *_busy_bar(cpu, "contention", 1), *_busy_bar(result.stalled, "shade", 0),
        )  # fmt: skip
        return TileText((" · ".join(shares), " · ".join(each.split()[1] for each in shares)), bars=bars)

    keys = [Legend("compute", "GPUs")] if any("gpu" in each.busy for each in shown.results.values()) else []
    cores = [Legend("contention", "cores")] if any("cpu" in each.busy for each in shown.results.values()) else []
    how = (
        "Busy share of GPUs (upper bar) and of the hosts' cores (middle) while the job trains, and what of a step "
        f"is stalled (lower). Emulated GPUs are busy while layers compute; emulated cores are unknown. {_SIGNS}"
    )
    keys += [*cores, Legend("shade", "stalled")]
    return _drawn(shown, read, "utilisation", "Utilisation beside stalls", how, keys)


def _busy_bar(share: float | None, series: str, line: int) -> tuple[TileBar, ...]:
    return () if share is None else (TileBar(share, series, line=line),)


def _in_both(percent: float, seconds: float, whole: float, series: str) -> TileText:
    time = format_seconds(seconds)
    texts = (f"{percent:.0f}% {time}", f"{percent:.0f}% {time.replace(' ', '')}", f"{percent:.0f}%")
    return TileText(texts, bars=(TileBar(percent / whole, series),))


def hours_in_words(hours: float) -> str:
    """``"1.2 h"``, ``"26 min"``."""
    value, unit = (hours, "h") if hours >= 1 else (60 * hours, "min")
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def _drawn(shown: StudySheet, read: ReadTile, name: str, title: str, how: str, keys: Sequence[Legend] = ()) -> Charts:
    """The matrix, or why none of its cells is known."""
    if not shown.results:
        return (Blank(name, title, "no cell is done yet"),)
    known = {column for (_, column), each in shown.results.items() if not isinstance(read(each), Unknown)}
    reasons: dict[str, list[str]] = {}
    for (_, column), each in shown.results.items():
        tile = read(each)
        if column not in known and isinstance(tile, Unknown):
            reasons.setdefault(tile.why, []).append(column)
    if not known:
        return (Blank(name, title, "; ".join(reasons)),)
    gone = {column for columns in reasons.values() for column in columns}
    kept = replace(shown, columns=tuple(column for column in shown.columns if column not in gone))
    without = [f"{', '.join(dict.fromkeys(columns))} ({why})" for why, columns in reasons.items()]
    return tile_charts(kept, read, name, title, f"{how} Left out: {'; '.join(without)}." if without else how, keys)
