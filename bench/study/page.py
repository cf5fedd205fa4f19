"""The page on the default study: its key figures, what they rest on, and how far they are from known truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median

from bench.study.published import pairs
from bench.study.runs import Row, days, facts, kept
from bench.table import table

GRID = (32, 4)
"""Batches of the grid; others are there for published throughputs alone."""
SHARED = "p2.16xlarge shared PCIe"
SINGLE = ("p2.8xlarge", "p2.16xlarge", SHARED, "p3.8xlarge", "p3.16xlarge")
ALL = " of "
"""In the name of a place that has a rank for every device."""
APART = (("2 × p2.8xlarge", "p2.16xlarge"), ("2 × p3.8xlarge", "p3.16xlarge"))
"""Two nodes, and the one that has as many of the same GPUs."""
PLACES = ("p2.xlarge", "p2.8xlarge", "p2.16xlarge", "2 × p2.8xlarge", "p3.2xlarge", "p3.8xlarge", "p3.16xlarge",
          "2 × p3.8xlarge")  # fmt: skip
GOAL = 2.0
"""Points of the step that the mean error should stay below."""

HEAD = """# The paper's grid, emulated

The paper's seven CNNs at batch 32, and BERT at batch 4, on eight set-ups of AWS's K80 and V100 machines, as
`stash characterize` measures them on a fleet that is emulated on one machine of two cores. Run on {days}: {grid}
cells of the grid in {minutes:.0f} minutes, {least:.0f} to {most:.0f} seconds each, {median:.0f} in the middle;
{more} further cells for the comparisons below. `make study` runs it, goes on where it was left, and writes this page;
`python -m bench.study --page` writes it again from the tables that were kept (`bench/study/data`).

**Nothing here was measured on AWS.** Devices take times that somebody published, or half of their peak where nobody
did; links carry what collectives were seen to reach of such links. Then real DistributedDataParallel exchanges real
gradients over shaped links, and Stash measures that as it would any job. So the page shows what follows from those
facts, and how well Stash finds it. [How an instance is emulated](how-to/emulated-fleet.md) says what is in it and
what is not: no loading of data, so neither prep nor fetch stalls, and no latency of collectives.
"""
INTERCONNECT = """## Interconnect stalls

By the paper's formula, (T1 − T0) / T1 of one node: what all its GPUs wait for each other, as a part of their step.
*p2.16xlarge shared PCIe* is no instance of the catalog, but what the paper suspects of one: all 16 GPUs behind one
PCIe root.
"""
NETWORK = """## Network stalls

By the paper's formula, (T1 of two nodes − T1 of one) / T1 of one, where the one node has as many of the same GPUs;
and the step on two nodes over that on one.
"""
COST = """## What it costs

Dollars for a million samples, on demand as the catalog lists them; **the cheapest** of each row.
"""
SPEED = """## How fast it is

Samples per second; **the fastest** of each row.
"""
FINDINGS = """## Beside the paper's findings

The findings are the abstract's ([arXiv 2208.14344](https://arxiv.org/abs/2208.14344)); values of single figures were
not at hand. [The paper's headlines](headlines.md) has the formula behind the first two.
"""
READING = """### Reading it

- **The network is where the emulation and the paper agree.** Ten Gbit/s between nodes slow a model down by as much
  as its gradients outweigh its compute: AlexNet most, SqueezeNet least, and the faster GPU more than the slower one.
  Where two nodes pass the paper's mark by far, the device is at half of its peak because nobody published its speed
  at that batch: a guess that lengthens or shortens the compute that is left to hide behind.
- **Inside a node they differ, and links are why.** The catalog's PCIe rate for K80s rests on two published machines
  that lie far apart. With it most models hardly stall. If all GPUs share one root, as the paper suspects, they stall
  as it says. A data sheet cannot tell which of the two one rents; [`stash probe`](probe.md) on the machine can.
"""
PUBLISHED = """## Beside published throughput

The same model, batch and number of the same GPUs in one machine, float32. Where the data are *real* the published
job also reads and prepares images, which the emulation does not, so it is bound to be faster there. One GPU is not
compared: its published speed is what the emulation is made of. Gavel's ResNet-18 trains on CIFAR-10, and is left out.
"""
TRUTH = """## Against known truth

The testbed knows what it was set to: the devices' times, the links' rates, and the order in which DDP's buckets
fill. The truth follows from those by hand (`bench/study/truth.py`, with the calculators of the [truth
suite](proof.md)), without latencies of collectives and bursts of links, which the instance hardly has and the testbed
does. Errors are in points: what was measured less what is true, in per cent of the true step. Cells of one rank for
each device are not in this table: see the last one.
"""
RANKS = """### Two ranks, or all of them

Two ranks stand for the devices of a node in all cells but these, which ran one for each device on the same two cores:
what two ranks came out as, beside all, and the truth. Many ranks wait for the cores as well as for the links, which
two hardly do: the more there are, the less their exchange is that of the links.
"""
FACTS = """## The facts it rests on

Each with its source; the [catalog](catalog.md) has their dates.
"""


def page() -> str:
    """All of it, from what was kept."""
    rows = kept()
    grid = [row for row in rows if row.batch in GRID and not (row.batch == 4 and row.workload != "bert_large_qa")]
    standard = [row for row in grid if row.where in PLACES]
    took = [row.number("took") or 0.0 for row in standard]
    head = HEAD.format(
        days=days(), grid=len(standard), more=len(rows) - len(standard), minutes=sum(took) / 60,
        median=median(took), least=min(took), most=max(took),
    )  # fmt: skip
    parts = [
        head,
        f"{FINDINGS}\n{findings(grid)}\n",
        READING,
        f"{INTERCONNECT}\n{interconnects(grid)}\n",
        f"{NETWORK}\n{networks(grid)}\n",
        f"{COST}\n{by_place(grid, 'dollars_per_million', min, '${:.2f}')}\n",
        f"{SPEED}\n{by_place(grid, 'samples_per_second', max, '{:.0f}')}\n",
        f"{PUBLISHED}\n{published(rows)}\n",
        f"{TRUTH}\n{errors([row for row in rows if ALL not in row.where])}\n\n{every_error(rows)}\n",
        f"{RANKS}\n{all_ranks(rows)}\n",
        f"{FACTS}\n" + "\n".join(f"- {fact}" for fact in facts()) + "\n",
    ]
    return "\n".join(parts)


def find(rows: Sequence[Row], workload: str, where: str) -> Row | None:
    """The grid's cell of a workload somewhere."""
    return next((row for row in rows if row.workload == workload and row.where == where), None)


def workloads(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.workload for row in rows))


# The paper's formulas -------------------------------------------------------------------------------------------


def interconnect(row: Row) -> float:
    """Per cent of the step of one node."""
    return 100 * (row.step - (row.seconds("compute") or 0.0)) / row.step


def slower(rows: Sequence[Row], workload: str, apart: str, together: str) -> float | None:
    """The step on two nodes over that on one."""
    two, one = find(rows, workload, apart), find(rows, workload, together)
    return two.step / one.step if two is not None and one is not None else None


# Tables ---------------------------------------------------------------------------------------------------------


def interconnects(rows: Sequence[Row]) -> str:
    body = []
    for workload in workloads(rows):
        found = [find(rows, workload, place) for place in SINGLE]
        body.append([workload, *("not measured" if row is None else f"{interconnect(row):.1f} %" for row in found)])
    return table(["model", *SINGLE], body)


def networks(rows: Sequence[Row]) -> str:
    body = []
    for workload in workloads(rows):
        line = [workload]
        for apart, together in APART:
            times = slower(rows, workload, apart, together)
            line += ["not measured"] * 2 if times is None else [f"{100 * (times - 1):.0f} %", f"{times:.2f} ×"]
        body.append(line)
    heads = [text for apart, together in APART for text in (f"{apart} against {together}", "step")]
    return table(["model", *heads], body)


def by_place(rows: Sequence[Row], field: str, best: Callable[[Sequence[float]], float], form: str) -> str:
    """One number of each cell, the best of a row marked."""
    body = []
    for workload in workloads(rows):
        found = [
            (row.number(field) if (row := find(rows, workload, place)) is not None else None) for place in PLACES
        ]
        known = [value for value in found if value is not None]
        chosen = best(known) if known else None
        texts = ["unknown" if value is None else form.format(value) for value in found]
        body.append([workload, *(f"**{t}**" if v == chosen else t for t, v in zip(texts, found, strict=True))])
    return table(["model", *PLACES], body)


def published(rows: Sequence[Row]) -> str:
    body = [
        [
            f"{pair.row.workload}, batch {pair.row.batch}", pair.row.where, str(pair.gpus),
            f"{pair.row.number('samples_per_second'):.0f}", f"{pair.published:.0f}", f"{pair.ratio:.2f}", pair.data,
            pair.source,
        ]
        for pair in pairs(rows)
    ]  # fmt: skip
    heads = ["model", "emulated as", "GPUs", "emulated /s", "published /s", "ratio", "published data", "source"]
    return table(heads, body)


# Truth ----------------------------------------------------------------------------------------------------------

STALLS = ("compute", "contention", "interconnect", "network", "step")


def errors(rows: Sequence[Row]) -> str:
    """Mean and worst error of each stall, and over all of them."""
    body, every = [], []
    for stall in STALLS:
        found = [(100 * row.error(stall), row) for row in rows if stall == "step" or stall in row.stalls]
        if not found:
            continue
        every += [abs(error) for error, _ in found] if stall != "step" else []
        worst, at = max(found, key=lambda pair: abs(pair[0]))
        mean, bias = fmean(abs(error) for error, _ in found), fmean(error for error, _ in found)
        body.append(
            [stall, str(len(found)), f"{mean:.2f}", f"{bias:+.2f}", f"{worst:+.1f}", f"{at.workload} on {at.where}"]
        )
    kept_to = "kept" if fmean(every) <= GOAL else "missed"
    said = f"Over all stalls the mean is {fmean(every):.2f} points; the goal of {GOAL:g} is {kept_to}."
    heads = ["stall", "cells", "mean size of the error", "bias", "worst", "which is"]
    return f"{table(heads, body)}\n\n{said}"


def all_ranks(rows: Sequence[Row]) -> str:
    """Cells of as many ranks as devices, beside those of the same instance with few."""
    body = []
    for row in rows:
        few = find(rows, row.workload, row.where.split(ALL)[0])
        if ALL in row.where and few is not None:
            both = [f"{interconnect(each):.1f} %" for each in (few, row)]
            true = 100 * (row.true_step - float(row.stalls["compute"]["truth"])) / row.true_step
            ranks = [each.cell["ranks"] for each in (few, row)]
            body.append(
                [f"{row.workload} on {few.where}", *ranks, *both, f"{true:.1f} %", f"{100 * row.error('step'):+.1f}"]
            )
    heads = ["cell", "few ranks", "all", "interconnect, few", "all", "true", "error of the step with all, points"]
    return table(heads, body)


def every_error(rows: Sequence[Row]) -> str:
    """A line a cell; times are the instance's."""
    body = []
    for row in rows:
        points = [
            "-" if name != "step" and name not in row.stalls else f"{100 * row.error(name):+.1f}" for name in STALLS
        ]
        name = f"{row.workload} {row.batch} on {row.where}"
        scale = f"{row.number('time_scale'):.3g}"
        body.append([name, f"{1000 * row.true_step:.1f} ms", f"{1000 * row.step:.1f} ms", *points, scale])
    return table(["cell", "true step", "measured", *STALLS, "time scale"], body)


# Findings -------------------------------------------------------------------------------------------------------


def findings(rows: Sequence[Row]) -> str:
    """Each finding of the paper, what comes out here, and whether that agrees."""
    body = [_up_to_90(rows), _five_times(rows), _dearest(rows), _worse_links(rows)]
    return table(["the paper", "here", "agrees?"], body)


def _up_to_90(rows: Sequence[Row]) -> list[str]:
    def most(places: Sequence[str]) -> Row:
        return max((row for row in rows if row.where in places), key=interconnect)

    listed, shared = most([place for place in SINGLE if place != SHARED]), most([SHARED])
    here = (
        f"{interconnect(listed):.0f} % at most with links as collectives were seen to use them ({listed.workload} on "
        f"{listed.where}); {interconnect(shared):.0f} % where 16 GPUs share one PCIe root ({shared.workload})"
    )
    verdict = "only with the shared root" if interconnect(shared) > 80 > interconnect(listed) else "see the numbers"
    return ["interconnect stalls of up to 90 %", here, verdict]


def _five_times(rows: Sequence[Row]) -> list[str]:
    found = [
        (times, workload, apart, together)
        for workload in workloads(rows)
        for apart, together in APART
        if (times := slower(rows, workload, apart, together)) is not None
    ]
    times, workload, apart, together = max(found)
    passed = sum(each[0] >= 5 for each in found)
    at = f"{workload}, {apart} against {together}"
    here = f"{times:.1f} times at most ({at}); 5 times or more in {passed} of {len(found)}"
    return [
        "two nodes train up to 5 times slower than one",
        here,
        "yes, and beyond for some" if times > 5 else "no, less",
    ]


def _dearest(rows: Sequence[Row]) -> list[str]:
    """Of the places, the ones with the highest price an hour, against the fastest and the cheapest a sample."""
    prices = {row.where: row.number("dollars_per_hour") or 0.0 for row in rows if row.where in PLACES}
    top = max(prices.values())
    dearest = [where for where, price in prices.items() if price == top]
    not_fastest, not_cheapest = [], []
    for workload in workloads(rows):
        own = [row for row in rows if row.workload == workload and row.where in PLACES]
        if max(own, key=lambda row: row.number("samples_per_second") or 0.0).where not in dearest:
            not_fastest.append(workload)
        if min(own, key=lambda row: row.number("dollars_per_million") or 0.0).where not in dearest:
            not_cheapest.append(workload)
    slowed = [w for w in workloads(rows) if _slower_than_its_half(rows, w)]
    here = (
        f"the dearest ({' and '.join(dearest)}, ${top:.2f} an hour) are not the cheapest a sample for "
        f"{len(not_cheapest)} of {len(workloads(rows))} models, nor the fastest for {len(not_fastest) or 'none'}; "
        f"2 × p3.8xlarge trains slower than one p3.8xlarge at half its price: {', '.join(slowed) or 'none'}"
    )
    return ["the dearest instance is not always the best", here, "yes" if not_cheapest else "no"]


def _slower_than_its_half(rows: Sequence[Row], workload: str) -> bool:
    two, one = find(rows, workload, "2 × p3.8xlarge"), find(rows, workload, "p3.8xlarge")
    return (
        two is not None
        and one is not None
        and (two.number("samples_per_second") or 0) < (one.number("samples_per_second") or 0)
    )


def _worse_links(rows: Sequence[Row]) -> list[str]:
    del rows  # what goes in cannot be found
    here = "put in, not found: links carry what collectives reached of their data sheets, see the facts below"
    return ["a VM's links are worse than the best its hardware has", here, "cannot be told by an emulation"]
