"""What makes the exchange between ranks shorter: fewer exchanges, fewer bytes, another network or mesh."""

from __future__ import annotations

from collections.abc import Iterator

from stash.advice.case import LARGER_BATCH, Case, Remedy
from stash.advice.loader_remedies import one_rank_sends
from stash.advice.run_remedies import own_collective_remedies
from stash.advice.run_words import written_place
from stash.analysis.breakdown import SMALL_SHARE
from stash.analysis.bubble import Seen
from stash.analysis.seen import HANDED_ON
from stash.analysis.step_times import UNEQUAL
from stash.core.errors import UserError
from stash.core.units import format_bits, format_bytes
from stash.predict.changes import Alteration, Times
from stash.predict.mesh_shapes import division_of, iter_meshes

_WORTH_A_MESH = 0.05
"""The share of a step that another mesh must save to be suggested."""
_BUFFERS = 0.25
"""Of the gradients' bytes, from which buffers are worth a sentence."""
_FEW_BUCKETS = 8
_SMALL_BUCKET = 1e6
"""Bytes of a bucket of gradients, on average, below which its latency is most of its exchange; DDP's default is 25 MB."""
_ACCUMULATED = 4
"""Batches of the step that is advised instead of exchanging after each."""


def interconnect_remedies(case: Case) -> Iterator[Remedy]:
    if case.breakdown.seen is not None:
        yield from _group_remedies(case, case.breakdown.seen, "interconnect")
        return
    yield from _gradient_remedies(case, "interconnect")
    if case.is_on_cpu:
        yield Remedy("Run fewer ranks on a node, each with more threads: less to exchange")
    else:
        links = case.profile.hosts[0].topology if case.profile.hosts else None
        seen = f" (seen here: {links})" if links and len(links) < 40 else ""
        yield Remedy(
            f"Check with `nvidia-smi topo -m` that the devices are linked by NVLink, not across sockets{seen}"
        )
    yield _larger_batch(case)


def network_remedies(case: Case) -> Iterator[Remedy]:
    if case.breakdown.seen is not None:
        yield from _group_remedies(case, case.breakdown.seen, "network")
        return
    yield from _gradient_remedies(case, "network")
    speed = case.breakdown.communication.wire_bytes_per_second
    if speed:
        rented = f"Rent a network that carries twice as much ({format_bits(2 * speed)} as all-reduce sees it)"
        yield case.forecast_remedy(rented, Alteration(network=Times(2.0)), "faster-network")
    yield _larger_batch(case)


def _group_remedies(case: Case, seen: Seen, stall: str) -> Iterator[Remedy]:
    """Of a job whose ranks share its model: what it exchanges is not only gradients, once a step."""
    yield from _other_mesh(case)
    most = seen.longest_wait(stall)
    if most is not None and most.kind in HANDED_ON and case.profile.workload.pipeline is None:
        own = case.epoch.lines.own_collectives
        where = f" at {written_place(own[0])}" if own else ""
        yield Remedy(
            f"Let ranks that wait for each other's messages{where} compute at the same time: by equal work between "
            "messages (mirrored or striped parts of a sequence), by more micro-batches through a pipeline, or by `isend` "
            "and `irecv` ahead of what does not depend on them"
        )
    elif most is not None:
        yield Remedy(
            f"Hide more of {most.kind} of the group {most.name}: larger units or buckets, prefetched"
        )


def _other_mesh(case: Case) -> Iterator[Remedy]:
    """The fastest of the meshes of a job that shares its model, where it is worth a try."""
    try:
        known = division_of(case.profile)
    except UserError:
        return
    options = (
        case.forecast_remedy(
            f"Share the model as {mesh} instead of {known.mesh}", Alteration(mesh=mesh), "mesh"
        )
        for mesh in iter_meshes(known)
        if mesh != known.mesh
    )
    best = max(options, key=lambda remedy: remedy.saves or 0.0, default=None)
    if best and (best.saves or 0.0) > _WORTH_A_MESH * case.breakdown.step_seconds:
        yield best


def _gradient_remedies(case: Case, stall: str) -> Iterator[Remedy]:
    """Against what an exchange stall contains that is no exchange of gradients, then against that itself."""
    alone = case.breakdown.communication.total_seconds
    yield from _ddp_remedies(case)
    yield from one_rank_sends(case)
    yield from own_collective_remedies(case, stall)
    yield from unequal_batch_remedies(
        case, case.seconds(stall) - alone if alone is not None else 0.0
    )
    yield from _fewer_exchanges(case)
    yield from _bucket_remedies(case)


def _ddp_remedies(case: Case) -> Iterator[Remedy]:
    """Arguments of DistributedDataParallel that make a step exchange more, or more often, than its gradients."""
    work = case.profile.workload
    gradients, buckets = sum(work.bucket_bytes), len(work.bucket_bytes)
    if work.buffer_bytes and work.buffer_bytes > _BUFFERS * gradients:
        text = (
            "Pass broadcast_buffers=False to DistributedDataParallel, if buffers need not be equal on all ranks in "
            f"each step: rank 0 sends {format_bytes(work.buffer_bytes)} of them to all before every forward pass, "
            f"beside {format_bytes(gradients)} of gradients"
        )
        cost = "running statistics, as of BatchNorm, are then each rank's own"
        yield Remedy(text, cost=cost, name="buffers", first=True)
    if work.finds_unused:
        text = (
            "Leave out find_unused_parameters=True of DistributedDataParallel, or pass static_graph=True: each step "
            "walks the whole graph, and exchanges which parameters it used"
        )
        yield Remedy(text, name="find-unused", knob="find_unused", first=True)
    if buckets >= _FEW_BUCKETS and gradients < buckets * _SMALL_BUCKET:
        text = (
            "Leave bucket_cap_mb of DistributedDataParallel at its 25 MB: gradients travel in "
            f"{buckets:,} messages of {format_bytes(gradients / buckets)} on average, each of which costs its latency"
        )
        yield Remedy(text, name="larger-buckets", knob="bucket", first=True)


def unequal_batch_remedies(case: Case, seconds: float) -> Iterator[Remedy]:
    """Ranks that get more to do than others, now one and now another, for which the others wait ``seconds``."""
    spread = (case.loader.batch_spread if case.loader is not None else None) or 0.0
    is_small = seconds < SMALL_SHARE * case.breakdown.step_seconds
    if case.breakdown.slow_rank is None and spread >= UNEQUAL and not is_small:
        text = (
            "Give all ranks batches of like lengths in a step (sorted or bucketed by length): sizes of batches vary by "
            f"{spread:.0%}, and each step waits for whoever has the longest; no rank is slow by itself"
        )
        yield Remedy(text, seconds, name="unequal-lengths", first=True)


def _fewer_exchanges(case: Case) -> Iterator[Remedy]:
    """One exchange for several batches, and fewer bytes.

    A job that leaves exchanges out already has had that gain. DDP takes one communication hook: a job that registered
    its own decides there what travels. Not on CPUs, where converting gradients takes longer than gloo saves (tried).
    """
    work = case.profile.workload
    batches = max((loader.batches_per_step for loader in work.loaders), default=1)
    if batches > 1 and work.skips_exchanges is False:
        once = (
            f"Exchange gradients once for the {batches} batches of a step: `with ddp.no_sync():` around all its "
            "backward passes but the last"
        )
        yield case.forecast_remedy(once, Alteration(accumulate=batches), "no-sync")
    elif batches <= 1 and not work.skips_exchanges:
        accumulate = (
            f"Accumulate gradients over {_ACCUMULATED} batches and exchange them once: `with ddp.no_sync():` around "
            f"the first {_ACCUMULATED - 1} backward passes"
        )
        wanted = Alteration(accumulate=_ACCUMULATED)
        yield case.forecast_remedy(accumulate, wanted, "accumulate", LARGER_BATCH)
    if not case.is_on_cpu and work.precision in (None, "float32") and not work.exchange_hook:
        exchanged = case.breakdown.communication.bytes
        size = f"the {format_bytes(exchanged)} of gradients" if exchanged else "the gradients"
        halve = (
            f"Halve {size}: `from torch.distributed.algorithms.ddp_comm_hooks import default_hooks`, then "
            "`ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)`"
        )
        rounded = "gradients are rounded to 16 bits on the way"
        yield case.forecast_remedy(halve, Alteration(compress=2.0), "half-precision", rounded)


def _bucket_remedies(case: Case) -> Iterator[Remedy]:
    """Buckets that can be hidden behind the backward pass."""
    buckets = case.profile.workload.bucket_bytes
    total = sum(buckets)
    if total < 4e6:
        return
    cap, last = round(total / 8e6) or 1, buckets[-1]
    if len(buckets) == 1:
        yield Remedy(
            f"Let the exchange overlap with backward: pass bucket_cap_mb={cap} to DistributedDataParallel; "
            "all gradients travel in one bucket now"
        )
    elif last >= 0.3 * total:
        yield Remedy(
            f"Pass bucket_cap_mb={cap} to DistributedDataParallel: the last bucket ({format_bytes(last)}, "
            f"{last / total:.0%} of the gradients) is exchanged when nothing is left to hide it behind"
        )


def _larger_batch(case: Case) -> Remedy:
    """One exchange serves two of today's steps, and a backward pass twice as long hides more of it."""
    batch, passes = case.profile.workload.batch, case.base.passes
    change = f" ({batch} to {2 * batch})" if batch else ""
    double = f"Double the batch per device{change}, if its memory allows: the same bytes for twice the samples"
    if passes is None:
        return Remedy(double, cost=LARGER_BATCH, name="larger-batch")
    wanted = Alteration(batch=2 * passes.batch)
    return case.forecast_remedy(double, wanted, "larger-batch", LARGER_BATCH)
