"""A profile's breakdown as a page: the verdict, the stalls of the step, next steps, second opinions.

All arithmetic of presentation happens here (units, rounding that keeps sums, lengths of bars as fractions), so that
renderers only arrange. Charts are added by ``pages``: a terminal needs none.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from stash.advice.verdict import Advice
from stash.analysis.breakdown import Breakdown, Missing, Paper, Rates, SampleCounts, Stall, Waits
from stash.analysis.run_account import IN_COMPUTE
from stash.analysis.step_figures import make_figures, slower_text
from stash.core.formatting import join_names, plus_minus
from stash.core.intervals import Interval
from stash.core.ladder import DATA_STALLS, EXCHANGE_STALLS, STALLS
from stash.core.records.profile import Profile
from stash.core.units import format_bits, format_bytes, format_count, format_pace, format_seconds
from stash.report import model_facts
from stash.report.profile_contract import PARTS, explain_words
from stash.report.run_page import epoch_grids
from stash.ui.page import Chapter, Page, Row

UNKNOWN = "unknown"
_MOST_REMOVED = 6
"""Files that the command names which removes them."""
WORTH_SAYING = 0.01
"""Of the step: what was lost to other work, if less, is not mentioned."""


def page(breakdown: Breakdown, advice: Advice, profile: Profile, explain: bool = False) -> Page:
    """A profile's page: the answer, then its details; with ``explain`` a terminal also shows what words mean."""
    stalls, total = table_rows(breakdown.stalls, breakdown.skipped, breakdown.step, advice.stalls)
    model = model_facts.model_facts(breakdown, profile)
    shown = advice.shown_steps
    facts = (*_facts(breakdown, advice), *model, ("measured", how_measured(breakdown, profile)))
    further = Chapter(
        "further", "What else helps", points=advice.next_steps[shown:], brief=explain, folded=True
    )
    figures = Chapter(
        "figures",
        "Further figures",
        facts=_further_figures(breakdown, profile),
        brief=explain,
        folded=True,
    )
    parts = Chapter(
        "parts",
        "What each ± is made of",
        facts=_parts(breakdown.stalls),
        brief=explain,
        folded=True,
    )
    words = sorted((name for row in stalls for name in row.name.split(", ")), key=STALLS.index)
    if breakdown.run is not None:
        words += [*(row.name for row in breakdown.run.rows if row.is_between_steps), "epoch"]
    return Page(
        title=profile.workload.name,
        subtitle=_subtitle(breakdown, profile),
        verdict=(advice.text,),
        bar=bar_of(stalls),
        rows=(*stalls, total),
        below_rows=_not_in_table(breakdown, profile),
        grids=epoch_grids(breakdown.run),
        warnings=(*breakdown.stability.warnings, *describe_left_files(profile.left_files)),
        next_steps=advice.next_steps[:shown],
        chapters=(
            Chapter("details", "Details", facts=facts, brief=True),
            *(chapter for chapter in (further, figures, parts) if chapter.points or chapter.facts),
            Chapter(
                "words",
                "Words",
                brief=explain,
                folded=True,
                facts=explain_words(words, [label for label, _ in (*facts, *figures.facts)]),
            ),
        ),
    )


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

    ``strong`` are the stalls that may dominate. Of what was ``skipped`` only what is unknown has a row.
    """
    written = make_figures(stalls)
    rows = {
        names[0]: Row(", ".join(names), why=why) for why, names in unknown_stalls(skipped).items()
    }
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


def describe_left_files(names: Sequence[str]) -> tuple[str, ...]:
    """A sentence about what the profiled job left, with the command that removes it."""
    if not names:
        return ()
    shown = names[:_MOST_REMOVED]
    remove = "rm -r" if any(name.endswith("/") for name in shown) else "rm"
    more = (
        f" (and {len(names) - len(shown)} more: `left_files` of --json)"
        if len(shown) < len(names)
        else ""
    )
    what = "files and folders" if remove == "rm -r" else "files"
    one = "a folder" if names[0].endswith("/") else "a file"
    created = (
        f"{one}; if you do not need it"
        if len(names) == 1
        else f"{len(names)} {what}; if you do not need them"
    )
    words = " ".join(shlex.quote(f"./{name}" if name.startswith("-") else name) for name in shown)
    return (f"The profiled job created {created}: `{remove} {words}`{more}.",)


def unknown_stalls(skipped: Sequence[Missing]) -> dict[str, list[str]]:
    """Of what was ``skipped``, the stalls that could have been measured and may matter, by the reason."""
    found: dict[str, list[str]] = {}
    for missing in skipped:
        if missing.is_unknown:
            found.setdefault(missing.why, []).append(missing.name)
    return found


def _not_in_table(breakdown: Breakdown, profile: Profile) -> str:
    """The stalls that this job cannot have, and those that are certainly too short to matter; may be empty."""
    absent = [missing.name for missing in breakdown.skipped if not missing.possible]
    short = [missing for missing in breakdown.skipped if missing.possible and missing.small]
    found = (
        [f"does not apply to {_shape(absent, breakdown, profile)}: {', '.join(absent)}"]
        if absent
        else []
    )
    if short:
        share = max(missing.share_at_most or 0.0 for missing in short)
        names = join_names([missing.name for missing in short])
        found.append(
            f"no data loader was seen: {names} are at most {share:.1%} of a step, as part of compute"
        )
    own = [
        row
        for row in (() if breakdown.run is None else breakdown.run.rows)
        if row.name in IN_COMPUTE
    ]
    inside = [row for row in own if row.seconds >= WORTH_SAYING * breakdown.step_seconds]
    if inside:
        names = join_names([f"{format_seconds(row.seconds)} of {row.name}" for row in inside])
        is_one_rank = (
            any(row.rank is not None for row in inside)
            and breakdown.stall("contention") is not None
        )
        compute = breakdown.stall("compute")
        if is_one_rank:
            where = "compute and contention contain"
        elif compute is not None and sum(row.seconds for row in own) > compute.seconds:
            where = "compute and the exchange contain"
        else:
            where = "compute contains"
        found.append(f"{where} {names}, which the table below tells apart")
    return "; ".join(found)


def _shape(absent: Sequence[str], breakdown: Breakdown, profile: Profile) -> str:
    """``"2 CPU processes on one node"``: what of the job's shape makes the ``absent`` stalls impossible."""
    world = breakdown.world_size
    nodes = breakdown.nodes
    devices = {rank.device.partition(":")[0] for rank in profile.ranks}
    kinds = {"cpu": ("CPU process", "CPU processes"), "cuda": ("GPU", "GPUs")}
    one, many = kinds.get(devices.pop() if len(devices) == 1 else "", ("device", "devices"))
    without = ["data files"] if "fetch" in absent else []
    if world > nodes and "interconnect" in absent:
        without.append("groups inside a node")
    if nodes > 1 and "network" in absent:
        without.append("groups across nodes")
    shape = f"one {one}" if world == 1 else f"{world} {many}"
    shape += f" without {join_names(without)}" if without else ""
    if world > 1:
        shape += " on one node" if nodes == 1 else f" on {nodes} nodes"
    return f"{shape}, one on each" if 1 < nodes == world else shape


def _subtitle(breakdown: Breakdown, profile: Profile) -> tuple[str, ...]:
    speed = breakdown.samples_per_second
    nodes = format_count(breakdown.nodes, "node")
    shared = model_facts.shared_among(profile)
    count = breakdown.world_size
    if profile.is_on_cpu:
        devices = format_count(count, "CPU rank")
    else:
        names = {gpu.name for host in profile.hosts for gpu in host.gpus}
        if len(names) == 1:
            devices = f"{count} × {names.pop()}"
        else:
            devices = format_count(count, "device")
    return (
        f"{devices} on {nodes}{shared and ': '}{shared}",
        _batch(breakdown.samples),
        f"{format_pace(speed)} samples/s" if speed is not None else f"samples/s {UNKNOWN}",
    )


def _batch(samples: SampleCounts | None) -> str:
    if samples is None:
        return f"batch {UNKNOWN}"
    if samples.least == samples.most:
        return f"batch {samples.most:g} per device"
    least, most = (
        f"{size:,.0f}" if size >= 100 else f"{size:.3g}" for size in (samples.least, samples.most)
    )
    return f"batch {least} to {most} per device"


def _facts(breakdown: Breakdown, advice: Advice) -> tuple[tuple[str, str], ...]:
    slow = breakdown.slow_rank
    facts = [
        ("disturbed", _disturbance_sentence(breakdown)),
        ("samples/s", _rates(breakdown.rates)),
        ("waited", _waits(breakdown.waits)),
        ("gradients", _exchange(breakdown)),
        ("slowest", f"rank {slow.rank} is {slower_text(slow)}" if slow is not None else ""),
        *(
            (
                "hidden",
                f"without the {item.removed} stall, a {item.appears} stall of {format_seconds(item.seconds)}",
            )
            for item in breakdown.surfacing
            if item.removed != advice.stall
        ),
        *(("note", note) for note in breakdown.notes),
    ]
    return tuple((label, text) for label, text in facts if text)


def _further_figures(breakdown: Breakdown, profile: Profile) -> tuple[tuple[str, str], ...]:
    """What few ask for: other definitions, and what is no part of a step."""
    startup = breakdown.startup_seconds
    facts = (
        (
            "loader",
            f"{format_seconds(startup)} until the first batch" if startup is not None else "",
        ),
        ("paper's %", _paper(breakdown.paper)),
        ("by waits", _waits_sentence(breakdown)),
        ("energy", model_facts.unknown_energy(profile.energy)),
    )
    return tuple((label, text) for label, text in facts if text)


def _disturbance_sentence(breakdown: Breakdown) -> str:
    """What other work on the machine cost the step, and which that was."""
    found = breakdown.disturbed
    if found is None or found.time.value < WORTH_SAYING * breakdown.step_seconds:
        return ""
    lost = f"Other processes cost another {format_seconds(found.time.value)} a step"
    busy = [f"{each.name} ({each.cores:.0%} of a core)" for each in found.programs]
    return f"{lost}{f', by {join_names(busy)}' if busy else ''} (excluded above; include with --as-seen)"


def _rates(rates: Rates) -> str:
    named = (
        ("devices can train", rates.device, None),
        ("loaders alone prepare", rates.prep, rates.prep_spread),
        ("loaders alone read and prepare", rates.fetch, rates.fetch_spread),
    )
    return ", ".join(
        f"{label} {format_pace(rate)}" + ("" if spread is None else f" (± {spread:.0%})")
        for label, rate, spread in named
        if rate is not None
    )


def _waits(waits: Waits) -> str:
    named = (("files in memory", waits.warm), ("files on disk", waits.cold))
    texts = [
        f"{format_seconds(wait)} a step with {where}" for where, wait in named if wait is not None
    ]
    return f"for the loader {join_names(texts)}" if texts else ""


def _exchange(breakdown: Breakdown) -> str:
    """The exchange's bytes, the part of it that steps waited for, and the whole of it by itself."""
    exchange = breakdown.communication
    if not exchange.bytes or exchange.exposed_seconds is None:
        return ""
    exposed = f"{make_figures(breakdown.stalls).time(*EXCHANGE_STALLS)} exposed"
    if exchange.exposed_seconds <= 0:
        exposed = "none exposed"
    elif exchange.exposed_low is not None and exchange.exposed_low <= 0:
        exposed += " (within noise)"
    text = f"{format_bytes(exchange.bytes)} a step, {exposed}"
    if exchange.total_seconds is not None:
        text += f", {format_seconds(exchange.total_seconds)} when run alone"
    if exchange.wire_bytes_per_second is not None:
        text += f" ({format_bits(exchange.wire_bytes_per_second)})"
    return f"{text}; exchanging and computing slow each other down" if exchange.is_slowed else text


def _paper(paper: Paper) -> str:
    """The paper's percentages, each with the whole it is a share of, which is not the table's."""
    named = (
        ("interconnect with contention", paper.interconnect_pct, "node"),
        ("network", paper.network_pct, "one node"),
        ("prep", paper.prep_pct, "warm"),
        ("fetch", paper.fetch_pct, "cold"),
    )
    shares = [
        f"{name} {value:.1f}% of {whole}" for name, value, whole in named if value is not None
    ]
    return f"percentages as the Stash paper defines them: {', '.join(shares)}" if shares else ""


def _waits_sentence(breakdown: Breakdown) -> str:
    if not breakdown.by_waits:
        return ""
    names = [stall.name for stall in breakdown.stalls if stall.name in DATA_STALLS]
    is_are = "is" if len(names) == 1 else "are"
    return f"{join_names(names)} {is_are} what steps waited for the loader, which works in the training process itself"


def _parts(stalls: Sequence[Stall]) -> tuple[tuple[str, str], ...]:
    """Of each stall with an interval the half-widths that make it up, and what they mean."""
    found = []
    used = dict[str, str]()
    for stall in stalls:
        if stall.low is None:
            continue
        known = {name: half for name, half in stall.parts.model_dump().items() if half is not None}
        unknown = ", method unknown" if stall.parts.method is None else ""
        found.append(
            (
                stall.name,
                ", ".join(f"{n} ± {format_seconds(half)}" for n, half in known.items()) + unknown,
            )
        )
        used |= {name: PARTS[name] for name in known}
    return (*found, *((name, meaning) for name, meaning in used.items()))


def how_measured(breakdown: Breakdown, profile: Profile) -> str:
    """``"6 rounds in 41.8 s, one launch, time budget spent; 95% intervals"``."""
    rounds = format_count(breakdown.rounds, "round")
    launches = profile.settings.launches
    where = "one launch" if launches == 1 else f"{launches} launches"
    ended = {
        "decided": "until the verdict held",
        "settled": "stopped: more rounds would not change the verdict",
        "precision": "precise enough",
        "budget": "time budget spent",
        "script ended": "until the script ended",
        "interrupted": "interrupted",
    }.get(profile.ended, profile.ended)
    intervals = "95% intervals" if breakdown.rounds > 1 else "no intervals"
    before = profile.seconds_before_blocks
    if before is None:
        time_taken = format_seconds(profile.elapsed_seconds)
    else:
        measuring = format_seconds(profile.elapsed_seconds - before)
        time_taken = f"{measuring} after {format_seconds(before)} of starting and warming up"
    return f"{rounds} in {time_taken}, {where}, {ended}; {intervals}"
