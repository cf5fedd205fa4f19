"""Waits of a mesh's groups, loads of experts and lookups in tables, beside what was put into the jobs.

    python -m bench.truth.groups        root; 8 minutes of a quiet machine

*Groups*: tensor and data groups of four ranks on two emulated nodes exchange set bytes, a part of them beside work
(``tests/integration/scripts/two_axes.py``): bytes over the rate that a transfer just before verified, less what
hides.
*Experts* take a set time for each row they are sent (``experts.py``): ranks wait for the one that is sent most.
*Tables* have set sizes, lookups and hottest rows (``tables.py``); the script itself times its lookups, without Stash.
Errors are hundredths of the step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.machine import ROOT, arguments
from bench.table import report, show
from bench.truth.emulated import Cluster, number, run_plain, run_profile
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.analysis.seen import expert_loads
from stash.core.records.profile import Profile
from stash.lab.testbed.bed import Testbed

SCRIPTS = ROOT / "tests/integration/scripts"
CLUSTER = Cluster(2, network="40mbit", interconnect="200mbit")
NODE, RANK = Cluster(1, interconnect=None, ranks=2), Cluster(1, ranks=1)
WORK = 0.3
"""Seconds that the ranks of a mesh work, once before and once beside an exchange."""
AXES = ((False, 5_000_000, 2_000_000), (True, 1_000_000, 10_000_000), (False, 10_000_000, 500_000))
"""Whether tensor groups lie across nodes, bytes of each of their two exchanges, and of the data groups' one."""
SHARES = (0.5, 0.6, 0.75, 0.9)
"""Of the tokens, the last of two experts'."""
TOKENS, TOKEN = 64, 0.0005
"""Of each rank, and seconds of one forward pass; the backward pass takes twice that."""
TABLES = (((200_000, 1000), 20, 0.25), ((1_000_000, 1_000_000), 40, 0.5), ((5000,), 5, 0.9))
"""Rows of each, lookups of each of 512 samples in each, and the hottest row's share of them."""
SAMPLES, STEPS = 512, 300
Row = list[object]


def exchange(bed: Testbed, link: str, size: int) -> float:
    """Seconds of an all-reduce of two ranks: on either link two of each rank's ``size`` bytes follow one another."""
    rate = min(each.measured for each in bed.links if each.name == link)
    return (2 * size - next(each.burst_bytes for each in bed.links if each.name == link)) / rate


def measure_axes(
    apart: bool, activations: int, gradients: int, budget: float, folder: Path
) -> tuple[Profile, Breakdown, float, float]:
    """Profile and breakdown of a mesh, and what an exchange of its tensor groups, and its data groups' one, take."""
    links = ("network", "interconnect") if apart else ("interconnect", "network")
    sizes = ("--activations", activations, "--gradients", gradients, "--seconds", WORK)
    with CLUSTER.made() as bed:
        job = (SCRIPTS / "two_axes.py", *sizes, *(("--apart",) if apart else ()))
        profile = run_profile(bed, CLUSTER, job, budget, folder)
        tensor, data = (
            exchange(bed, *each) for each in zip(links, (activations, gradients), strict=True)
        )
    return profile, attribute(profile), tensor, data


def axes(case: tuple[bool, int, int], budget: float, folder: Path) -> Iterator[Row]:
    _, breakdown, tensor, data = measure_axes(*case, budget, folder)
    waits = {wait.name: wait for wait in breakdown.seen.waits} if breakdown.seen else {}
    for name, truth in (("tp", tensor + max(0.0, tensor - WORK)), ("dp", data)):
        what = f"{name}, {waits[name].stall}, {case[1] / 1e6:g} and {case[2] / 1e6:g} MB"
        yield _row(what, truth, waits[name].exchange, breakdown.step_seconds)


def experts(share: float, budget: float, folder: Path) -> Iterator[Row]:
    with NODE.made() as bed:
        profile = run_profile(bed, NODE, (SCRIPTS / "experts.py", "--share", share), budget, folder)
    (load,) = expert_loads(profile)
    last = round(share * TOKENS)
    late = (2 * last - 2 * (TOKENS - last)) * 3 * TOKEN
    what = f"experts, {share:.0%} for one of two: even loads would save"
    yield _row(what, late / 2, load.saves, attribute(profile).step_seconds)
    yield [
        f"  its rows over the mean: {load.ratio:.3f}, by hand {last / TOKENS * 2:.3f}",
        "",
        "",
        "",
    ]


def tables(case: tuple[Sequence[int], int, float], budget: float, folder: Path) -> Iterator[Row]:
    rows, pooling, hot = case
    job = (SCRIPTS / "tables.py", "--rows", *rows, "--pooling", pooling, "--hot", hot)
    with RANK.made() as bed:
        output = run_plain(bed, RANK, job, STEPS)
        profile = run_profile(bed, RANK, job, budget, folder)
    step = number(output, "a step takes")
    found = profile.workload.embeddings
    looking = sum(table.forward_seconds or 0.0 for table in found)
    yield _row(
        f"tables of {rows} rows, looking up", number(output, "looking up takes"), looking, step
    )
    lookups = pooling * SAMPLES
    counted = {
        (table.rows, table.lookups, round(table.hottest, 4), table.sparse) for table in found
    }
    right = counted == {
        (each, lookups, round(round(hot * lookups) / lookups, 4), True) for each in rows
    }
    yield [
        f"  rows, lookups, the hottest row's share: {'as put in' if right else f'**{counted}**'}",
        "",
        "",
        "",
    ]


def _row(what: str, truth: float, found: float, step: float) -> Row:
    return [
        what,
        f"{step * 1e3:.1f}",
        f"{truth * 1e3:.1f}, {found * 1e3:.1f}",
        f"{100 * (found - truth) / step:+.1f}",
    ]


def main() -> None:
    budget = arguments(__doc__, budget=(20.0, "seconds of each profile")).budget
    report()
    with tempfile.TemporaryDirectory() as name:
        kinds: dict[Callable[..., Iterator[Row]], Sequence[Any]] = {
            axes: AXES,
            experts: SHARES,
            tables: TABLES,
        }
        jobs = [(kind, case) for kind, cases in kinds.items() for case in cases]
        found = (
            row
            for number, (job, case) in enumerate(jobs)
            for row in job(case, budget, Path(name) / f"{number}")
        )
        show(("what", "step, ms", "truth, found, ms", "error, points"), found)


if __name__ == "__main__":
    main()
