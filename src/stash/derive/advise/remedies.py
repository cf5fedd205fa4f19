"""What would make each stall smaller, and by how much where that can be derived: one function per stall.

What each saves is a forecast's (``gains``), ``None`` where nobody can tell. Those of data and of the exchange have
modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stash.base.words.units import format_bytes, format_rate, format_seconds
from stash.derive.advise.case import LARGER_BATCH, Case, Remedy
from stash.derive.advise.data_remedies import for_fetch, for_prep
from stash.derive.advise.exchange_remedies import for_interconnect, for_network


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
    saves, found = case.saves(less={"transfer": seconds}), []
    if case.loader is not None and case.loader.pin_memory is False:
        found.append(
            Remedy(
                "Pass pin_memory=True to the DataLoader, and copy with batch.to(device, non_blocking=True)", saves
            ),
        )
    else:
        found.append(
            Remedy(
                "Copy with batch.to(device, non_blocking=True) and fetch the next batch one step ahead",
                saves,
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
                case.saves(less={"contention": slow.seconds - slow.others_seconds}),
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


REMEDIES: Mapping[str, Callable[[Case], list[Remedy]]] = {
    "compute": for_compute,
    "transfer": for_transfer,
    "contention": for_contention,
    "interconnect": for_interconnect,
    "network": for_network,
    "prep": for_prep,
    "fetch": for_fetch,
}
