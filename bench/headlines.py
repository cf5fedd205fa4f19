"""The paper's two headline effects in emulation: interconnect stalls near 90 %, network slowdowns of 5 times.

AWS instances from the catalog are emulated on one machine (as root), and ``stash profile`` measures them as it would
measure real ones. What a prediction knows is the ring formula, the catalog's peak rates and DDP's rule for buckets;
it uses none of Stash's own arithmetic, and knows nothing of what real instances reach of their links' peaks.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from scipy.optimize import brentq

from bench.study.truth import buckets
from bench.table import progress, report, table
from bench.truth.cases import exposed
from stash import catalog
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.artefact import load as load_profile
from stash.core.errors import JobError, StashError, UserError
from stash.core.units import format_bits
from stash.lab.testbed import train_emulated as emulated_training
from stash.lab.testbed.bed import Started, Testbed
from stash.lab.testbed.emulation import Emulation, dump, load
from stash.lab.testbed.generate import emulate

K80, V100 = "K80", "V100-SXM2-16GB"
IMAGES_PER_SECOND = {K80: 51.9, V100: 367.29}
"""Published for ResNet-50 on one GPU in fp32, which says how much of its peak a GPU reaches. K80: TensorFlow's
performance benchmarks of May 2017, synthetic images. V100: Oneflow's DLPerf report, PyTorch 1.5."""
BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel's default. Its first bucket, of 1 MiB, is left out."""
RANK_SECONDS = 0.1
"""An emulated step lasts so long for each rank: gloo's own time grows with them, and is to stay a small part."""
PRECISION, BUDGET = "3", "40"
"""Of each profile: per cent of the step, and seconds. It ends as soon as it is that precise."""
WAIT_SECONDS, PORT = 240.0, ":29577"


@dataclass(frozen=True)
class Cluster:
    """Instances of one type as an all-reduce sees them; rates in bytes per second, None for no limit."""

    gpu: str
    nodes: int
    devices: int
    seconds_per_byte: float
    """Of the ring all-reduce, per byte of gradients, on the real links."""
    interconnect: float | None = None
    """The one medium that the ranks of a node share."""
    network: float | None = None
    gradient_bytes: float = 1e6
    """What all gradients of a model are scaled to."""

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices


@dataclass(frozen=True)
class Case:
    """A model at one of the paper's batches (samples per GPU), on a cluster."""

    model: str
    batch: int
    cluster: Cluster

    @property
    def emulation(self) -> Emulation:
        return accelerated(self.model, self.batch, self.cluster.gpu)

    @property
    def ratio(self) -> float:
        """Seconds of the exchange by itself, over seconds of compute."""
        return self.emulation.bytes * self.cluster.seconds_per_byte / self.emulation.compute_seconds

    @property
    def predicted(self) -> float:
        """Seconds of a step."""
        return predicted_step(self.emulation, self.cluster.seconds_per_byte)


@dataclass(frozen=True)
class Measured:
    """A step alone and with the exchange, in seconds of the real accelerator, and the halves of their intervals."""

    alone: float
    step: float
    stall_half: float
    step_half: float

    @property
    def stall_percent(self) -> str:
        return f"{percent(self.step, self.alone, self.step):.1f} ± {self.stall_half / self.step * 100:.1f} %"


def percent(longer: float, shorter: float, whole: float) -> float:
    """The paper's formula for interconnect (``whole`` is ``longer``) and network (``whole`` is ``shorter``)."""
    return (longer - shorter) / whole * 100


def known(rate: float | None) -> float:
    """A catalog's rate that must not be missing; raises UserError."""
    if rate is None:
        raise UserError("the catalog has lost a link rate of p2.16xlarge, p3.8xlarge or p3.16xlarge; repair its data")
    return rate


def shared_bus(share: float = 1.0, limited: bool = True) -> Cluster:
    """p2.16xlarge, its 16 GPUs behind one PCIe root that carries ``share`` of an x16 link's peak.

    All ranks' traffic passes one medium, as on a testbed's loopback: 2(p−1) bytes of it per gradient byte.
    """
    ranks, rate = 16, share * known(catalog.instance("p2.16xlarge").pcie_bytes_per_second)
    return Cluster(K80, 1, ranks, 2 * (ranks - 1) / rate, interconnect=rate if limited else None)


def mesh() -> Cluster:
    """p3.16xlarge: each GPU sends 2(p−1)/p bytes per gradient byte over NVLinks of its own.

    Scaled like the others, the mesh is faster than this machine's loopback, so the emulation has no limit.
    """
    ranks, rate = 8, known(catalog.instance("p3.16xlarge").interconnect_bytes_per_second)
    return Cluster(V100, 1, ranks, 2 * (ranks - 1) / ranks / rate)


def pair() -> Cluster:
    """Two p3.8xlarge: the ring of 8 enters and leaves each node once, so each uplink carries one rank's share.

    NVLink inside the nodes is too fast, against 10 Gbit/s, to show; it has no limit.
    """
    ranks, rate = 8, known(catalog.instance("p3.8xlarge").network_bytes_per_second)
    return Cluster(V100, 2, ranks // 2, 2 * (ranks - 1) / ranks / rate, network=rate)


def two_ranks(model: str, batch: int, ratio: float) -> Cluster:
    """Two hosts of one V100 each, on the network that makes the exchange take ``ratio`` times the compute."""
    emulation = accelerated(model, batch, V100)
    rate = emulation.bytes / (ratio * emulation.compute_seconds)  # 2(p−1)/p = 1 for two ranks
    return Cluster(V100, 2, 1, 1 / rate, network=rate, gradient_bytes=4e6)


@cache
def accelerated(model: str, batch: int, gpu: str) -> Emulation:
    """A model on a GPU that reaches as much of its peaks as it does on ResNet-50."""
    facts = catalog.gpu(gpu)
    rates = known(facts.fp32_flops_per_second), known(facts.memory_bytes_per_second)
    published = batch / IMAGES_PER_SECOND[gpu]
    reached = emulate("resnet50", *rates, batch=batch).compute_seconds / published
    return emulate(model, *rates, batch=batch, efficiency=reached)


def predicted_step(emulation: Emulation, seconds_per_byte: float) -> float:
    """Seconds of a step: buckets fill in backward order, and queue for the link once full."""
    ready = buckets(emulation, BUCKET_BYTES)
    return emulation.compute_seconds + exposed(ready, lambda size: size * seconds_per_byte)


def predicted_stall(emulation: Emulation, seconds_per_byte: float) -> float:
    """Per cent of the step."""
    step = predicted_step(emulation, seconds_per_byte)
    return percent(step, emulation.compute_seconds, step)


def measure(case: Case) -> Measured:
    """Emulate the case and profile it with the command a user would type; raises JobError if that fails."""
    cluster, emulation = case.cluster, case.emulation
    size = cluster.gradient_bytes / emulation.bytes
    time = RANK_SECONDS * cluster.ranks / case.predicted
    bed = Testbed(
        cluster.nodes,
        cluster.devices,
        interconnect=cluster.interconnect and cluster.interconnect * size / time,
        network=cluster.network and cluster.network * size / time,
    )
    with tempfile.TemporaryDirectory() as folder, bed:
        model = Path(folder) / "model.yaml"
        model.write_text(dump(emulation.scaled(size, time)))
        job = ["-m", "bench.headlines", "--train", str(model), "--bucket-bytes", str(BUCKET_BYTES * size)]

        def command(node: int) -> list[str]:
            meet = f"--nnodes {cluster.nodes} --node-rank {node} --rdzv-endpoint {bed.address(0)}{PORT}".split()
            where, rungs = (meet, "solo,cluster") if cluster.nodes > 1 else ([], "solo,node")
            return [
                *(sys.executable, "-m", "stash", "profile", "--nproc-per-node", str(cluster.devices), *where),
                *("--rungs", rungs, "--noise", PRECISION, "--budget", BUDGET),
                *("-o", f"{folder}/{node}.stash.json", *job),
            ]

        hosts = bed.run_all(command, env={"NO_COLOR": "1"})
        ended(hosts)
        return unscaled(attribute(load_profile(f"{folder}/0.stash.json")), time)


def ended(hosts: Sequence[Started]) -> None:
    """Wait for the profile on every host; raises JobError with the last line of one that failed."""
    for host in hosts:
        try:
            failed = host.wait(WAIT_SECONDS) != 0
        except subprocess.TimeoutExpired:
            raise JobError(f"profiling took more than {WAIT_SECONDS:.0f} s; let other work end first") from None
        if failed:
            lines = host.output.strip().splitlines() or ["no output"]
            raise JobError(f"profiling failed on host {host.node}: {lines[-1]}")


def unscaled(breakdown: Breakdown, time: float) -> Measured:
    """What was measured, in the time of the real accelerator; raises JobError without intervals."""
    halves = [(s.high - s.low) / 2 / time for s in breakdown.stalls if s.high is not None and s.low is not None]
    if len(halves) != 2:
        raise JobError(f"only {breakdown.rounds} rounds were measured; let other work on the machine end first")
    return Measured(breakdown.stalls[0].seconds / time, breakdown.step_seconds / time, halves[1], sum(halves))


def slowdown(several: Measured, one: Measured) -> tuple[float, float]:
    """How many times longer a step takes, and the half of its interval: relative errors of a ratio add as squares."""
    times = several.step / one.step
    return times, times * math.hypot(several.step_half / several.step, one.step_half / one.step)


INTERCONNECT = (("alexnet", 32, 0.5), ("alexnet", 32, 1.0), ("vgg11", 32, 1.0), ("resnet18", 32, 1.0))
"""Model, batch and the share of PCIe's peak that the bus carries."""
NETWORK = (("alexnet", 128), ("vgg11", 32), ("resnet50", 32))
SWEPT, RATIOS = ("resnet18", 32), (1.0, 4.0, 10.0)
MODELS = sorted({case[0] for case in (*INTERCONNECT, *NETWORK, SWEPT)})


def facts(case: Case) -> list[str]:
    """The first columns of both effects' tables."""
    emulation, rate = case.emulation, case.cluster.interconnect or case.cluster.network
    exchange = emulation.bytes * case.cluster.seconds_per_byte
    return [
        case.model,
        str(case.batch),
        f"{emulation.bytes / 1e6:.1f} MB",
        f"{emulation.compute_seconds * 1e3:.0f} ms",
        format_bits(known(rate)),
        f"{exchange * 1e3:.0f} ms",
        f"{case.ratio:.2f}",
    ]


FACTS = ["model", "batch", "gradients", "compute", "link", "exchange alone", "ratio"]


def interconnect(rows: Iterable[tuple[str, int, float]]) -> str:
    """The first effect: 16 K80s of a p2.16xlarge, stalls as a share of the step."""
    cells = []
    for model, batch, share in rows:
        case = Case(model, batch, shared_bus(share))
        expected = percent(case.predicted, case.emulation.compute_seconds, case.predicted)
        cells.append([*facts(case), f"{expected:.1f} %", measure(case).stall_percent])
        progress(*cells[-1])
    return table([*FACTS, "interconnect, predicted", "interconnect, measured"], cells)


def floor(model: str, batch: int) -> str:
    """What the emulation itself costs: the same 16 ranks, exchanging over a bus without limit."""
    case = Case(model, batch, shared_bus(limited=False))
    found = measure(case)
    added, half = (seconds / case.predicted * 100 for seconds in (found.step - found.alone, found.stall_half))
    return (
        f"Floor: without a limit, the exchange of {model} at batch {batch} over 16 ranks still adds "
        f"{added:.1f} ± {half:.1f} % of the step predicted with one."
    )


def network(rows: Iterable[tuple[str, int]]) -> str:
    """The second effect: a step on two p3.8xlarge against one on a p3.16xlarge of as many GPUs."""
    cells = []
    for model, batch in rows:
        one, two = Case(model, batch, mesh()), Case(model, batch, pair())
        large, small = measure(one), measure(two)
        times, half = slowdown(small, large)
        cells.append([
            *facts(two),
            f"{one.predicted * 1e3:.0f} / {large.step * 1e3:.0f} ms",
            f"{two.predicted * 1e3:.0f} / {small.step * 1e3:.0f} ms",
            f"{percent(two.predicted, one.predicted, one.predicted):.0f} %",
            f"{(times - 1) * 100:.0f} ± {half * 100:.0f} %",
            f"{times:.1f} x",
        ])  # fmt: skip
        progress(*cells[-1])
    steps = ["1 p3.16xlarge: step predicted / measured", "2 p3.8xlarge: step predicted / measured"]
    return table([*FACTS, *steps, "network, predicted", "network, measured", "slowdown, measured"], cells)


def sweep(model: str, batch: int, ratios: Iterable[float]) -> str:
    """One model over ever slower links: the same stall as a share of the step, and as a slowdown."""
    cells = []
    for ratio in ratios:
        case = Case(model, batch, two_ranks(model, batch, ratio))
        alone, step = case.emulation.compute_seconds, case.predicted
        found = measure(case)
        cells.append([
            f"{ratio:g}",
            f"{percent(step, alone, step):.1f} %",
            found.stall_percent,
            f"{step / alone:.2f} x",
            f"{found.step / found.alone:.2f} x",
        ])  # fmt: skip
        progress(model, *cells[-1])
    heads = ["ratio", "stall, predicted", "stall, measured", "slowdown, predicted", "slowdown, measured"]
    return table(heads, cells)


def thresholds(models: Iterable[tuple[str, int]]) -> str:
    """By the formula alone: the ratio at which each effect passes its mark, and the link rate that means."""
    cells = []
    for model, batch in models:
        bus, small = Case(model, batch, shared_bus()), Case(model, batch, pair())
        one = Case(model, batch, mesh()).predicted
        stall = partial(predicted_stall, bus.emulation)
        step = partial(predicted_step, small.emulation)
        cells.append([model, str(batch), mark(bus, stall, 50), mark(bus, stall, 90), mark(small, step, 5 * one)])
    at = ["p2.16xlarge: 50 % interconnect stall at", "… 90 % at", "2 p3.8xlarge: 5 times slower at"]
    return table(["model", "batch", *at], cells)


def mark(case: Case, effect: Callable[[float], float], goal: float) -> str:
    """``ratio (link rate)`` at which an effect of seconds per byte reaches its goal, all else as in the case."""
    slower = brentq(lambda times: effect(times * case.cluster.seconds_per_byte) - goal, 0, 1e4)
    rate = known(case.cluster.interconnect or case.cluster.network) / slower
    return f"{case.ratio * slower:.1f} ({format_bits(rate)})"


def headlines(only: str | None) -> None:
    """Print every table, or those rows that are of one model."""
    stalls = [row for row in INTERCONNECT if only in (None, row[0])]
    slow = [row for row in NETWORK if only in (None, row[0])]
    parts = []
    if stalls:
        parts += ["Interconnect, p2.16xlarge:", interconnect(stalls), floor(*stalls[0][:2])]
    if slow:
        parts += ["Network, 2 p3.8xlarge against 1 p3.16xlarge:", network(slow)]
    if only in (None, SWEPT[0]):
        parts += [f"Any links, {SWEPT[0]} at batch {SWEPT[1]} on 2 V100:", sweep(*SWEPT, RATIOS)]
    models = dict.fromkeys([*(row[:2] for row in stalls), *slow])
    parts += ["Where the marks are, by the formula: ratio (link rate)", thresholds(models)]
    report(*parts)


def train(description: str, bucket_bytes: float) -> None:
    """The profiled job: the testbed's own training, with DDP's buckets scaled as finely as the gradients."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    options = argparse.Namespace(
        data=None, batch=8, accumulate=1, workers=0, steps=None, bucket_mb=bucket_bytes / 2**20
    )
    emulated_training.train(load(description), options)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The paper's two headline effects in emulation; needs root.")
    parser.add_argument("--only", metavar="MODEL", choices=MODELS, help=f"rows of one model: {', '.join(MODELS)}")
    parser.add_argument("--train", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--bucket-bytes", type=float, default=float(BUCKET_BYTES), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        if options.train:
            train(options.train, options.bucket_bytes)
        else:
            headlines(options.only)
    except StashError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
