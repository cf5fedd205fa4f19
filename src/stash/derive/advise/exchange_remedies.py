"""What would make the exchange stalls smaller, interconnect and network: fewer exchanges, fewer bytes, faster links.

What each saves is the answer of ``stash whatif`` to the same question. What the job is known to do already is not
advised.
"""

from __future__ import annotations

from stash.base.words.units import format_bits, format_bytes
from stash.derive.advise.case import LARGER_BATCH, Case, Remedy
from stash.derive.predict.whatif.changes import Alteration

ACCUMULATED = 4
"""Batches of the step that is advised instead of exchanging after each."""


def for_interconnect(case: Case) -> list[Remedy]:
    found = _fewer_exchanges(case) + _fewer_bytes(case)
    if case.on_cpu:
        found.append(Remedy("Run fewer ranks on a node, each with more threads: less to exchange"))
    else:
        links = case.profile.hosts[0].topology if case.profile.hosts else None
        seen = f" (seen here: {links})" if links and len(links) < 40 else ""
        found.append(
            Remedy(f"Check with `nvidia-smi topo -m` that the devices are linked by NVLink, not across sockets{seen}")
        )
    return [*found, _larger_batch(case)]


def for_network(case: Case) -> list[Remedy]:
    exchange = case.breakdown.communication
    found = _fewer_exchanges(case) + _fewer_bytes(case)
    if exchange.wire_bytes_per_second:
        twice = format_bits(2 * exchange.wire_bytes_per_second)
        rented = f"Rent a network that carries twice as much ({twice} as all-reduce sees it)"
        found.append(_asking(case, rented, Alteration(network_times=2.0), name="faster-network"))
    return [*found, _larger_batch(case)]


def _asking(case: Case, text: str, wanted: Alteration, name: str, cost: str | None = None) -> Remedy:
    """A remedy that saves what ``stash whatif`` says of ``wanted``."""
    per_sample = cost == LARGER_BATCH
    return Remedy(text, case.saves(wanted), cost=cost, per_sample=per_sample, name=name, asks=wanted)


def _fewer_exchanges(case: Case) -> list[Remedy]:
    """One exchange for several batches; a job that leaves exchanges out already has had that gain."""
    work = case.profile.workload
    batches = max((loader.batches_per_step for loader in work.loaders), default=1)
    if work.skips_exchanges or (batches > 1 and work.skips_exchanges is None):
        return []
    if batches > 1:
        once = (
            f"Exchange gradients once for the {batches} batches of a step: `with ddp.no_sync():` around all its "
            "backward passes but the last"
        )
        return [_asking(case, once, Alteration(accumulate=batches), name="no-sync")]
    accumulate = (
        f"Accumulate gradients over {ACCUMULATED} batches and exchange them once: `with ddp.no_sync():` around "
        f"the first {ACCUMULATED - 1} backward passes"
    )
    return [_asking(case, accumulate, Alteration(accumulate=ACCUMULATED), name="accumulate", cost=LARGER_BATCH)]


def _fewer_bytes(case: Case) -> list[Remedy]:
    return [*_half_precision(case), *_buckets(case)]


def _half_precision(case: Case) -> list[Remedy]:
    """Gradients in 16 bits; not on CPUs, where converting them takes longer than gloo saves (tried).

    DDP takes one communication hook: a job that registered its own decides there what travels.
    """
    exchange, work = case.breakdown.communication, case.profile.workload
    if case.on_cpu or work.precision not in (None, "float32") or work.exchange_hook:
        return []
    size = f"the {format_bytes(exchange.bytes)} of gradients" if exchange.bytes else "the gradients"
    halve = (
        f"Halve {size}: `from torch.distributed.algorithms.ddp_comm_hooks import default_hooks`, then "
        "`ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)`"
    )
    rounded = "gradients are rounded to 16 bits on the way"
    return [_asking(case, halve, Alteration(compress=2.0), name="half-precision", cost=rounded)]


def _buckets(case: Case) -> list[Remedy]:
    """The last bucket is exchanged after the backward pass ended: nothing is left to hide it behind."""
    buckets = case.profile.workload.bucket_bytes
    total = sum(buckets)
    if total < 4e6:
        return []
    cap = max(1, round(total / 8e6))
    if len(buckets) == 1:
        return [
            Remedy(
                f"Let the exchange overlap with backward: pass bucket_cap_mb={cap} to DistributedDataParallel; "
                "all gradients travel in one bucket now"
            )
        ]
    if buckets[-1] < 0.3 * total:
        return []
    share = buckets[-1] / total
    return [
        Remedy(
            f"Pass bucket_cap_mb={cap} to DistributedDataParallel: the last bucket "
            f"({format_bytes(buckets[-1])}, {share:.0%} of the gradients) is exchanged when nothing is left to "
            "hide it behind"
        )
    ]


def _larger_batch(case: Case) -> Remedy:
    """One exchange serves two of today's steps, and a backward pass twice as long hides more of it."""
    batch, passes = case.profile.workload.batch, case.base.passes
    change = f" ({batch} to {2 * batch})" if batch else ""
    double = f"Double the batch per device{change}, if its memory allows: the same bytes for twice the samples"
    if passes is None:
        return Remedy(double, cost=LARGER_BATCH, per_sample=True, name="larger-batch")
    return _asking(case, double, Alteration(batch=2 * passes.batch), name="larger-batch", cost=LARGER_BATCH)
