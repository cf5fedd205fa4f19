"""What would make the exchange stalls smaller, interconnect and network: fewer exchanges, fewer bytes, faster links.

One step's exchange takes alpha + beta * bytes: a latency that fewer bytes do not shorten, and time that the bytes
take. Both are known from runs of the exchange by itself. Gains are upper bounds, none above what the whole exchange
takes by itself; what the job is known to do already is not advised.
"""

from __future__ import annotations

from stash.base.words.units import format_bits, format_bytes
from stash.derive.advise.case import LARGER_BATCH, Case, Remedy

ACCUMULATED = 4
"""Batches of the step that is advised instead of exchanging after each."""


def for_interconnect(case: Case) -> list[Remedy]:
    found = _fewer_exchanges(case, "interconnect") + _fewer_bytes(case, "interconnect")
    if case.on_cpu:
        found.append(Remedy("Run fewer ranks on a node, each with more threads: less to exchange"))
    else:
        links = case.profile.hosts[0].topology if case.profile.hosts else None
        seen = f" (seen here: {links})" if links and len(links) < 40 else ""
        found.append(
            Remedy(f"Check with `nvidia-smi topo -m` that the devices are linked by NVLink, not across sockets{seen}")
        )
    return [*found, _larger_batch(case, "interconnect")]


def for_network(case: Case) -> list[Remedy]:
    exchange = case.breakdown.communication
    found = _fewer_exchanges(case, "network") + _fewer_bytes(case, "network")
    if exchange.wire_bytes_per_second:
        twice = format_bits(2 * exchange.wire_bytes_per_second)
        rented = f"Rent a network that carries twice as much ({twice} as all-reduce sees it)"
        found.append(Remedy(rented, _at_twice_the_rate(case, "network"), name="faster-network"))
    return [*found, _larger_batch(case, "network")]


def _at_most(case: Case, stall: str, exchanges: float) -> float:
    """Seconds a step saved by ``exchanges`` fewer of them: not more than those take alone, nor than steps wait."""
    total, waited = case.exchange_seconds, case.seconds(stall)
    return waited if total is None else min(waited, exchanges * total)


def _fewer_exchanges(case: Case, stall: str) -> list[Remedy]:
    """One exchange for several batches; a job that leaves exchanges out already has had that gain."""
    work, waited = case.profile.workload, case.seconds(stall)
    batches = max((loader.batches_per_step for loader in work.loaders), default=1)
    if work.skips_exchanges or (batches > 1 and work.skips_exchanges is None):
        return []
    if batches > 1:
        left_out = batches - 1
        return [
            Remedy(
                f"Exchange gradients once for the {batches} batches of a step: `with ddp.no_sync():` around all its "
                "backward passes but the last",
                min(waited * left_out / batches, _at_most(case, stall, left_out)),
                name="no-sync",
            )
        ]
    share = (ACCUMULATED - 1) / ACCUMULATED
    return [
        Remedy(
            f"Accumulate gradients over {ACCUMULATED} batches and exchange them once: `with ddp.no_sync():` around "
            f"the first {ACCUMULATED - 1} backward passes",
            min(waited * share, _at_most(case, stall, share)),
            cost=LARGER_BATCH,
            per_sample=True,
            name="accumulate",
        )
    ]


def _fewer_bytes(case: Case, stall: str) -> list[Remedy]:
    return [*_half_precision(case, stall), *_buckets(case)]


def _half_precision(case: Case, stall: str) -> list[Remedy]:
    """Gradients in 16 bits; not on CPUs, where converting them takes longer than gloo saves (tried).

    DDP takes one communication hook: a job that registered its own decides there what travels.
    """
    exchange, work = case.breakdown.communication, case.profile.workload
    if case.on_cpu or work.precision not in (None, "float32") or work.exchange_hook:
        return []
    size = f"the {format_bytes(exchange.bytes)} of gradients" if exchange.bytes else "the gradients"
    return [
        Remedy(
            f"Halve {size}: `from torch.distributed.algorithms.ddp_comm_hooks import default_hooks`, then "
            "`ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)`",
            _at_twice_the_rate(case, stall),
            cost="gradients are rounded to 16 bits on the way",
            name="half-precision",
        )
    ]


def _at_twice_the_rate(case: Case, stall: str) -> float:
    """Half the bytes, or links twice as fast, halve beta * bytes of alpha + beta * bytes; the latency stays.

    Where the latency was not measured it counts as bytes too, which is still an upper bound.
    """
    total, waited = case.exchange_seconds, case.seconds(stall)
    latency = case.breakdown.communication.latency_seconds or 0.0
    return waited / 2 if total is None else min(waited, max(0.0, total - latency) / 2)


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


def _larger_batch(case: Case, stall: str) -> Remedy:
    """One exchange serves two of today's steps, and a backward pass twice as long hides more of it.

    Steps wait for max over buckets of (exchange from that bucket on - backward left when it is ready): convex in the
    backward pass's length, and the whole exchange T where that is 0. So of the E exposed now at least 2E - T stays
    exposed when the pass is twice as long. For as many samples as before, at most E - (2E - T)/2 = T/2 is saved.
    """
    batch = case.profile.workload.batch
    change = f" ({batch} to {2 * batch})" if batch else ""
    return Remedy(
        f"Double the batch per device{change}, if its memory allows: the same bytes for twice the samples",
        _at_most(case, stall, 1 / 2),
        cost=LARGER_BATCH,
        per_sample=True,
        name="larger-batch",
    )
