"""What would make each stall smaller, and by how much where that can be derived: one function per stall.

Gains are upper bounds from the model in the comment beside them, for a step of the same batch. ``None`` means
the gain cannot be derived from what was measured. Hardware prices and forecasts live elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stash.base.words.units import format_bits, format_bytes, format_rate, format_seconds
from stash.derive.advise.case import Case, Remedy
from stash.derive.advise.data_remedies import for_fetch, for_prep

LARGER_BATCH = "the effective batch grows, so tune the learning rate again"


def for_compute(case: Case) -> list[Remedy]:
    work = case.profile.workload
    found = []
    if case.on_cpu:
        found.append(Remedy("Rent devices that compute faster"))
    elif work.precision in (None, "float32"):
        found.append(
            Remedy('Compute the loss inside `with torch.autocast("cuda", torch.bfloat16):`, if not done yet')
        )
    found.append(Remedy("Try `model = torch.compile(model)`, which fuses small operations"))
    if not case.on_cpu:
        found.append(Remedy("Try a larger batch per device, or price a cheaper device", cost=LARGER_BATCH))
    return [*found, *_hidden_exchange(case)]


def _hidden_exchange(case: Case) -> list[Remedy]:
    hidden = case.breakdown.communication.hidden_seconds
    if hidden is None or hidden < 0.03 * case.breakdown.step_seconds:
        return []
    return [
        Remedy(
            f"Before renting faster devices, mind that {format_seconds(hidden)} of gradient exchange "
            "hide behind the backward pass now and would surface"
        )
    ]


def for_transfer(case: Case) -> list[Remedy]:
    work, seconds = case.profile.workload, case.seconds("transfer")
    found = []
    if case.loader is not None and case.loader.pin_memory is False:
        found.append(
            Remedy(
                "Pass pin_memory=True to the DataLoader, and copy with batch.to(device, non_blocking=True)", seconds
            ),
        )
    else:
        found.append(
            Remedy(
                "Copy with batch.to(device, non_blocking=True) and fetch the next batch one step ahead",
                seconds,
            )
        )
    if work.sample_bytes and work.batch and seconds > 0:
        size = work.sample_bytes * work.batch
        found.append(
            Remedy(
                f"Copy fewer bytes ({format_bytes(size)} a step at {format_rate(size / seconds)} now): "
                "send images as uint8 and normalise on the device"
            )
        )
    found.append(Remedy("Check the device's PCIe generation and width with `nvidia-smi -q`"))
    return found


def for_contention(case: Case) -> list[Remedy]:
    slow, found = case.breakdown.slow_rank, []
    if slow is not None:
        place = next(rank for rank in case.profile.ranks if rank.rank == slow.rank)
        found.append(
            Remedy(
                f"Look at rank {slow.rank} ({place.device} on node {place.node}): other processes, "
                "clocks, temperature, more data than the others",
                slow.seconds - slow.others_seconds,
                name="slow-rank",
            )
        )
    cores = case.cores_per_rank
    if cores is not None and not case.on_cpu:  # on CPUs Stash itself pins ranks and sets their threads
        threads = max(1, int(cores))
        found.append(
            Remedy(
                f"Give every rank cores of its own: OMP_NUM_THREADS={threads} and "
                f"`taskset` or `numactl` for each ({cores:g} cores per rank here)"
            )
        )
    if case.on_cpu:
        found.append(Remedy("Run fewer ranks on a node, each with more threads: they share its cores and memory"))
    else:
        found.append(Remedy("Check that devices do not share a PCIe switch or a power limit: `nvidia-smi topo -m`"))
    return found


def for_interconnect(case: Case) -> list[Remedy]:
    found = _smaller_exchange(case, "interconnect")
    if case.on_cpu:
        found.append(Remedy("Run fewer ranks on a node, each with more threads: less to exchange"))
    else:
        links = case.profile.hosts[0].topology if case.profile.hosts else None
        seen = f" (seen here: {links})" if links and len(links) < 40 else ""
        found.append(
            Remedy(f"Check with `nvidia-smi topo -m` that the devices are linked by NVLink, not across sockets{seen}")
        )
    found.append(_larger_batch(case, "interconnect"))
    return found


def for_network(case: Case) -> list[Remedy]:
    exchange, stall = case.breakdown.communication, case.seconds("network")
    found = _smaller_exchange(case, "network")
    if exchange.wire_bytes_per_second:
        # twice the rate halves the whole exchange, of which at most the stall was exposed
        saves = min(stall, (exchange.total_seconds or stall) / 2)
        twice = format_bits(2 * exchange.wire_bytes_per_second)
        rented = f"Rent a network that carries twice as much ({twice} as all-reduce sees it)"
        found.append(Remedy(rented, saves, name="faster-network"))
    found.append(_larger_batch(case, "network"))
    return found


def _smaller_exchange(case: Case, stall: str) -> list[Remedy]:
    seconds = case.seconds(stall)
    accumulate = Remedy(
        "Accumulate gradients over 4 batches and exchange them once: `with ddp.no_sync():` around the first 3 "
        "backward passes",
        seconds * 3 / 4,
        cost=LARGER_BATCH,
        per_sample=True,
        name="accumulate",
    )
    return [*_half_precision(case, seconds), accumulate, *_buckets(case)]


def _half_precision(case: Case, seconds: float) -> list[Remedy]:
    """Gradients in 16 bits; not on CPUs, where converting them takes longer than gloo saves (tried)."""
    exchange = case.breakdown.communication
    if case.on_cpu or case.profile.workload.precision not in (None, "float32"):
        return []
    size = f"the {format_bytes(exchange.bytes)} of gradients" if exchange.bytes else "the gradients"
    # half the bytes halve the whole exchange; without its total, the exposed part
    saves = min(seconds, exchange.total_seconds / 2) if exchange.total_seconds else seconds / 2
    return [
        Remedy(
            f"Halve {size}: `from torch.distributed.algorithms.ddp_comm_hooks import default_hooks`, then "
            "`ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)`",
            saves,
            cost="gradients are rounded to 16 bits on the way",
        )
    ]


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
    batch = case.profile.workload.batch
    change = f" ({batch} to {2 * batch})" if batch else ""
    return Remedy(
        f"Double the batch per device{change}, if its memory allows: the same bytes for twice the samples",
        _saved_by_doubling(case, stall),
        cost=LARGER_BATCH,
        per_sample=True,
        name="larger-batch",
    )


def _saved_by_doubling(case: Case, stall: str) -> float:
    """At most, for as many samples as a step has now: one exchange serves two of today's steps.

    A backward pass twice as long also hides twice as much of the exchange, if there is as much to hide: of its total
    T, of which h is hidden now, T - 2h stays exposed, shared by the steps.
    """
    exchange, seconds = case.breakdown.communication, case.seconds(stall)
    total, exposed, hidden = exchange.total_seconds, exchange.exposed_seconds, exchange.hidden_seconds
    if total is None or exposed is None or hidden is None or exposed <= 0 or hidden <= 0:
        return seconds / 2
    left = max(0.0, total - 2 * hidden) / 2
    return seconds * (1 - left / exposed)


REMEDIES: Mapping[str, Callable[[Case], list[Remedy]]] = {
    "compute": for_compute,
    "transfer": for_transfer,
    "contention": for_contention,
    "interconnect": for_interconnect,
    "network": for_network,
    "prep": for_prep,
    "fetch": for_fetch,
}
