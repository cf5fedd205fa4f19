"""Findings about the parts that compute: what the kernel and the driver saw, and figures below those of their like.

One table of checks: what a part's state must be for a finding, and one for figures. Whose business each finding is,
the machine's or that of whoever uses it, ``advice.rental`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from stash.analysis.findings.machine import (
    Fact,
    Finding,
    make_finding,
    working_gpus,
)
from stash.analysis.findings.rates import burst_rates, gpu_index
from stash.analysis.findings.standings import ERROR_RATE, FigureStanding, list_slow
from stash.core.formatting import Unit, format_fact, format_quantity, join_names
from stash.core.grouping import group_by
from stash.core.records.host import Host, PartState

THROTTLED, OTHERS = 0.02, 0.25
"""Of periods with a used up quota; cores that other programs took."""
_SLOW_CLOCK = 0.95
_LINK_ERRORS = 100
"""Since the driver was loaded: a few replays are healed by the link itself."""
_WARM = 1.05
"""Times slower in the last burst than in the first one."""
_EATEN = 0.85
"""Of what products of one core keep, each by the time that its core had: below it, others use the memory."""
_MANY = 3
"""Slow figures of one part that are named."""


class StateCheck(NamedTuple):
    """A row of the table: the finding that a part's state is, if it holds."""

    name: str
    field: str
    """The measured one."""
    holds: Callable[[PartState], bool]
    text: str
    unit: Unit = "count"


def _is_braked(state: PartState) -> bool:
    """A power cap alone is how a busy GPU keeps within its watts."""
    is_slow = state.clock is None or state.clock < _SLOW_CLOCK
    return bool({"power brake", "heat", "hardware"} & {*(state.held_by or ())}) and is_slow


STATE_CHECKS = (
    StateCheck(
        "quota-used-up",
        "throttled",
        lambda state: (state.throttled or 0) > THROTTLED,
        "the quota of CPU time of its control group was used up in {value:.0%} of its periods",
        "fraction",
    ),
    StateCheck(
        "busy-cores",
        "others_cores",
        lambda state: (state.others_cores or 0) > OTHERS,
        "other programs used {value:.1f} cores meanwhile{programs}",
    ),
    StateCheck(
        "gpu-in-use",
        "",
        lambda state: bool(state.users),
        "{part} was in use by {users}: its figures are of what is left",
    ),
    StateCheck(
        "held-clock",
        "clock",
        _is_braked,
        "{part} ran at {value:.0%} of its highest clock, held down by {held}{heat}",
        "fraction",
    ),
    StateCheck(
        "memory-errors",
        "memory_errors",
        lambda state: bool(state.memory_errors),
        "{part} had {value:.0f} uncorrectable errors of its memory since its driver was loaded",
    ),
    StateCheck(
        "repair-due",
        "",
        lambda state: bool(state.repair_due),
        "{part} has memory that waits for a reset to be put out of use, or could not be",
    ),
    StateCheck(
        "link-errors",
        "link_errors",
        lambda state: (state.link_errors or 0) > _LINK_ERRORS,
        "the NVLinks of {part} had {value:,.0f} errors and replays since its driver was loaded",
    ),
)


def state_findings(host: Host) -> Iterator[Finding]:
    """What held the parts of one machine back, by the table; lost NVLinks, NUMA nodes out of reach, heat."""
    if host.links is None:
        return
    programs = join_names([f"{each.name} ({each.cores:.1f})" for each in host.programs])
    for state in host.links.states:
        words = {
            "part": f"GPU {gpu_index(state.device)}",
            "programs": f", most of all {programs}" if programs else "",
            "users": join_names(list(state.users)),
            "held": join_names(list(state.held_by or ())),
            "heat": "" if state.celsius is None else f", {state.celsius:.0f} °C",
        }
        for check in STATE_CHECKS:
            if check.holds(state):
                value = getattr(state, check.field, None)
                text = check.text.format(value=value, **words)
                yield make_finding(host, check.name, text, value, unit=check.unit)
    lanes = {gpu.index: gpu.nvlinks for gpu in working_gpus(host) if gpu.nvlinks is not None}
    most = max(lanes.values(), default=0)
    for index, count in lanes.items():
        if count < most:
            text = f"GPU {index} has {count} of the {most} NVLinks that the other GPUs here have"
            yield make_finding(host, "lost-nvlinks", text, count, unit="count")
    allowed = host.allowed_nodes
    for gpu in host.gpus:
        if allowed and gpu.numa_node is not None and gpu.numa_node not in allowed:
            text = (
                f"GPU {gpu.index} is on NUMA node {gpu.numa_node}, and this process may only use cores of others: "
                "every copy crosses between sockets"
            )
            yield make_finding(host, "far-numa", text, unit="count")
    for figure in host.links.figures:
        rates = burst_rates(figure)
        if figure.device == "cpu" or len(rates) < 3:
            continue
        if rates[0] > max(*rates[1:], _WARM * rates[-1]):
            first, last = (format_fact(rates[at], figure.unit) for at in (0, -1))
            text = (
                f"GPU {gpu_index(figure.device)} slows down as it gets warm: {figure.name} {first} at first, "
                f"{last} at the end"
            )
            yield make_finding(host, "slow-when-warm", text, unit="count")


def is_disturbed(host: Host) -> bool:
    """Whether other programs, or a quota, took part of its figures: it is no peer then."""
    return any(
        finding.name in ("quota-used-up", "busy-cores", "gpu-in-use")
        for finding in state_findings(host)
    )


def _own_share(found: Sequence[FigureStanding], kinds: tuple[str, ...]) -> float | None:
    """Of what is usual, by the time that the core gave: how much the others take of it does not count."""
    single = [
        each for each in found if each.group.startswith(kinds) and each.group.endswith(", 1 core")
    ]
    ratios = [each.own_ratio for each in single if each.own_ratio is not None]
    return median(ratios) if ratios else None


def standing_findings(host: Host, found: Sequence[FigureStanding]) -> Iterator[Finding]:
    """One for each part of a machine with figures below what its like reaches; the worst figures are named.

    Where other programs are busy, whether memory suffers from them more than products do.
    """
    own = [each for each in found if each.hostname == host.hostname]
    by_part = group_by(list_slow(own), lambda standing: (standing.part, standing.member))
    for (_, member), each in by_part.items():
        worst = each[0]
        named = "; ".join(
            f"{it.group} {format_quantity(it.rate, it.unit)}, {1 - it.ratio:.0%} below "
            f"{format_fact(it.usual, it.unit)}"
            for it in each[:_MANY]
        )
        sure = f"of healthy machines, 1 probe in {1 / ERROR_RATE:.0f} says so of any part"
        if not worst.peers:
            sure = "a data sheet proves little about one machine"
        text = f"{f'{member}: ' if member else ''}{named} (usual: {worst.about}; {sure})"
        fact = Fact(value=worst.usual, unit=worst.unit, about=worst.about)
        yield make_finding(
            host, "slow-part" if worst.peers else "below-sheet", text, worst.rate, fact
        )
    memory = _own_share(own, ("triad", "copy"))
    products = _own_share(own, ("gemm",))
    busy = [finding.text for finding in state_findings(host) if finding.name == "busy-cores"]
    if busy and memory is not None and products is not None and memory < _EATEN * products:
        text = (
            f"other programs take memory bandwidth: for each second of its core, one core moves {memory:.0%} of "
            f"what is usual, while its matrix products are at {products:.0%}; {busy[0]}"
        )
        yield Finding(name="busy-memory", hostname=host.hostname, text=text)
