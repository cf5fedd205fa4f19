"""What would make the data stalls smaller, prep and fetch: workers, cores, memory, disk.

What each saves is the answer of ``stash whatif`` to the same question; ``None`` means that nobody can tell.
"""

from __future__ import annotations

import math

from stash.base.words.units import format_bytes, format_rate, format_seconds
from stash.derive.advise.case import Case, Remedy
from stash.derive.predict.whatif.changes import Alteration

HEADROOM = 1.1
"""Workers are asked for with this margin, since their pace varies."""
_SHARD = (
    "First let the stream give each worker a share of its own, by `torch.utils.data.get_worker_info()`: otherwise "
    "every worker reads all of it, and the data come several times over; then use num_workers={needed} ({why})"
)
SMALL_FILE = 256e3
CACHED = Alteration(cache=1.0)
"""All data in memory."""


def for_prep(case: Case) -> list[Remedy]:
    found = _workers(case)
    found.append(
        Remedy(
            "Make samples cheaper to prepare: decode and resize them once and store that, or augment on the device",
            case.saves(less={"prep": case.seconds("prep")}),
        )
    )
    loader = case.loader
    if loader is not None and loader.workers and not loader.persistent_workers and case.breakdown.startup_seconds:
        found.append(
            Remedy(
                "Keep the workers with persistent_workers=True: starting them takes "
                f"{format_seconds(case.breakdown.startup_seconds)} an epoch"
            )
        )
    return found


def _workers(case: Case) -> list[Remedy]:
    """How many workers hide preparation: work per step and device over the step without data stalls.

    A device that trains for t seconds per step needs w/t workers if preparing its batch takes one worker w
    seconds. Where w was not measured, the rate P tells it: workers · (samples of a step) / P.
    """
    workers = case.loader.workers if case.loader is not None else None
    if workers is None:
        return []
    busy, alone = case.busy_seconds, case.loader_seconds
    # without workers a step waits for all of the work, and that was timed step by step
    work = case.breakdown.waits.warm if workers == 0 else case.block_mean("fetch_seconds", "warm")
    if work is None and alone is not None:
        work = max(1, workers) * alone
    if work is None or busy <= 0:
        return []
    needed = math.ceil(HEADROOM * work / busy)
    room = None if case.cores_per_rank is None else max(1, int(case.cores_per_rank) - 1)
    why = f"preparing a step takes {format_seconds(work)} of one worker, training it {format_seconds(busy)}"
    if case.loader is not None and case.loader.kind == "iterable" and workers < 2:
        return [Remedy(_SHARD.format(needed=min(needed, room or needed), why=why), name="shard")]
    if needed <= workers:
        return [
            Remedy(
                f"Keep num_workers={workers}, which would suffice ({why}), but give workers and training "
                "cores of their own, or raise prefetch_factor"
            )
        ]
    if room is None or needed <= room:
        return [_more_workers(case, f"Use num_workers={needed} instead of {workers} ({why})", needed)]
    return _too_few_cores(case, workers, room, needed, work)


def _more_workers(case: Case, text: str, workers: int) -> Remedy:
    wanted = Alteration(workers=workers)
    return Remedy(text, case.saves(wanted), name="workers", asks=wanted)


def _too_few_cores(case: Case, workers: int, room: int, needed: int, work: float) -> list[Remedy]:
    """More workers than cores: use all cores there are, and rent more."""
    cores = case.cores_per_rank
    found = []
    if room > workers:
        use = f"Use num_workers={room} instead of {workers}, all that {cores:g} cores per device allow"
        found.append(_more_workers(case, use, room))
    more = (
        f"Rent {needed + 1} cores per device instead of {cores:g}, for num_workers={needed} "
        f"(preparing a step takes {format_seconds(work)} of one worker)"
    )
    wanted = Alteration(cpus=(needed + 1) * case.base.target.devices, workers=needed)
    return [*found, Remedy(more, case.saves(wanted), name="cores", asks=wanted)]


def for_fetch(case: Case) -> list[Remedy]:
    work = case.profile.workload
    found = [*_cache(case), *_disk_rate(case)]
    cold = [block for block in case.profile.blocks if block.rung == "cold" and block.files and block.file_bytes]
    files = sum(block.files or 0 for block in cold)
    if files:
        size = sum(block.file_bytes or 0 for block in cold) / files
        if size < SMALL_FILE:
            found.append(
                Remedy(f"Pack the small files ({format_bytes(size)} on average) into shards read in sequence")
            )
    if case.loader is not None and case.loader.workers is not None and not work.sample_disk_bytes:
        found.append(
            Remedy(f"Use more than num_workers={case.loader.workers}, so that more reads are under way at once")
        )
    if not found:
        found.append(Remedy("Move the data to a faster disk, or keep it in memory", case.saves(CACHED), asks=CACHED))
    return found


def _cache(case: Case) -> list[Remedy]:
    work = case.profile.workload
    samples = case.loader.samples if case.loader is not None else None
    size = work.dataset_bytes
    if size is None and samples and work.sample_disk_bytes:  # of several loaders, or an older profile
        size = samples * work.sample_disk_bytes
    memory = min((host.memory_bytes for host in case.profile.hosts if host.memory_bytes), default=None)
    if not size or not memory:
        return []
    if size <= 0.7 * memory:
        return [
            Remedy(
                f"Read the data set once before training: its {format_bytes(size)} fit into a node's memory "
                f"({format_bytes(memory)}), and only the first epoch pays for fetching",
                case.saves(CACHED),
                asks=CACHED,
            )
        ]
    return [
        Remedy(
            f"Choose nodes with {format_bytes(size / 0.7)} of memory to cache the data set "
            f"({format_bytes(size)}; {format_bytes(memory)} now)",
            case.saves(CACHED),
            asks=CACHED,
        )
    ]


def _disk_rate(case: Case) -> list[Remedy]:
    work, rates = case.profile.workload, case.breakdown.rates
    if not work.sample_disk_bytes or not rates.device:
        return []
    per_node = work.sample_disk_bytes / case.profile.nodes
    measured = f" ({format_rate(per_node * rates.fetch)} measured)" if rates.fetch else ""
    wanted = Alteration(disk=per_node * rates.device)
    text = f"Use a disk that delivers {format_rate(per_node * rates.device)} to each node{measured}"
    return [Remedy(text, case.saves(wanted), name="faster-disk", asks=wanted)]
