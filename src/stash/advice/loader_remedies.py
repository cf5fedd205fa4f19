"""What makes waiting for data shorter: how batches are prepared and handed over, and how files are read.

Each remedy follows from something that was counted in the loader's own processes, or from what suffices by ``stash
whatif``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from stash.advice.case import Case, Remedy
from stash.advice.run_words import written_place
from stash.analysis.batch_times import WORKING, batch_times, worked_share
from stash.core.ledger_rows import INPUT
from stash.core.records.profile import Loader
from stash.core.units import format_bytes, format_rate, format_seconds
from stash.predict.changes import Alteration
from stash.predict.cluster_sources import usable_memory
from stash.predict.loading import dataset_bytes
from stash.predict.pipeline import USABLE

MANY_TENSORS = 32
"""In a batch, from which handing them over one by one is worth a sentence."""
MANY_ARRAY_BYTES = 4e6
"""In a batch, from which pickling them is worth a sentence."""
SMALL_FILE = 256e3
_RARE = 0.25
"""Of all batches: if more are slow, slow is what they are."""
_OWN_PART = 0.25
"""Of the time that the training process is in its loader, from which what it runs there is worth a sentence."""
_FEW_LOOKS = 0.05
_DEFAULT_PREFETCH = 2
_SENDS = ("scatter_object_list", "broadcast_object_list", "scatter", "broadcast")
_EACH_STEP = 0.5
"""Calls a step, from which they carry the steps' batches and no setting."""
_OPENS = re.compile(r"\b(open|connect|File|imopen|load_dataset|memmap)\(")
"""What a line does that opens a file or a database."""
_AHEAD = 2.0
"""Times the bytes of a sample that are fetched for it, from which reading ahead is no help."""
CROWDED = 2.0
"""Workers, or threads of a rank, for each core: where there are more, fewer are better."""
_MOST_CORES = 64
"""Per device, that can be rented."""
_CACHED = Alteration(cache=1.0)
"""All data in memory."""


def prep_remedies(case: Case) -> Iterator[Remedy]:
    loader = case.loader
    yield from one_rank_sends(case)
    if loader is not None:
        yield from _sampler_remedies(case, loader)
        yield from _order_remedies(case)
        yield from _thread_remedies(case, loader)
        yield from _array_remedies(loader)
        yield from _tensor_remedies(case, loader)
        yield from _share_remedies(case, loader)
        yield from _worker_remedies(case, loader)
    line = _line_of_samples(case)
    how = "decode and resize them once and store that, or augment on the device"
    if _OPENS.search(line):
        how = "open it once in each process, keep it open, and not again for each sample"
    worked, waits = worked_share(case.profile), ""
    if case.awaits_requests("prep"):
        waits = "most of the time it waits for answers to requests"
    elif worked is not None and worked < WORKING:
        waits = f"{1 - worked:.0%} of the time it waits instead of computing (for requests, a lock, another process)"
    if waits:
        how = (
            f"{waits}: ask for many samples at once or in parallel, or keep a copy on a local disk"
        )
    where = f" ({line})" if line else ""
    saves = case.saved_seconds(less={"prep": case.seconds("prep")})
    yield Remedy(f"Make samples cheaper to prepare{where}: {how}", saves)
    startup = case.breakdown.startup_seconds
    if loader is not None and loader.workers and not loader.persistent_workers and startup:
        yield Remedy(
            "Keep the workers with persistent_workers=True: starting them takes "
            f"{format_seconds(startup)} an epoch"
        )


def one_rank_sends(case: Case) -> Iterator[Remedy]:
    """Batches that one rank prepares for all, while the others wait."""
    own, calls = case.epoch.lines.own_collectives, case.profile.workload.collectives_per_step
    names = [name for name in _SENDS if calls.get(name, 0.0) >= _EACH_STEP]
    if names:
        where = f" at {own[0].where}" if own else ""
        text = (
            "Let every rank read its own batches: now one rank prepares those of all and sends them "
            f"(`{names[0]}`{where}), while the others wait"
        )
        yield Remedy(text, name="own-batches", first=True)


def _sampler_remedies(case: Case, loader: Loader) -> Iterator[Remedy]:
    """Lines of the script that the training process runs for each batch although workers prepare it.

    Few looks see a line that keeps Python's interpreter: where workers would suffice, it need not be most of them.
    """
    drawn, waited = loader.batches_per_step * (loader.draw_seconds or 0.0), case.seconds("prep")
    if drawn > waited / 2 > 0:
        took = format_seconds(drawn / loader.batches_per_step)
        draw = (
            "Draw the indices of many batches at once with vectorised code (`torch.multinomial`, `torch.randperm`): the "
            f"sampler takes {took} a batch, in the training process, whatever the number of workers"
        )
        yield Remedy(draw, min(drawn, waited), name="sampler-draws", first=True)
        return
    places = [place for place in case.epoch.places if place.row == INPUT]
    own = [place for place in places if place.caller] if loader.workers else []
    part = _FEW_LOOKS if _workers_suffice(case, loader) else _OWN_PART
    if own and sum(place.seconds for place in own) >= part * sum(p.seconds for p in places):
        text = (
            f"Make {written_place(own[0])} cheaper: the training process itself runs it for each batch, as it does "
            "samplers, whatever the number of workers; draw indices of many batches at once with vectorised code "
            "(`torch.multinomial`, `torch.randperm`)"
        )
        yield Remedy(text, name="sampler-line", first=True)


def _workers_suffice(case: Case, loader: Loader) -> bool:
    """Whether workers make batches as fast as they are trained, so that waits have another reason."""
    return case.supply is not None and (case.supply.workers or 0) <= (loader.workers or 0)


def _order_remedies(case: Case) -> Iterator[Remedy]:
    """Rare batches that take many times as long as others, and most of the time together."""
    times = batch_times(case.profile)
    if times is None or not 0 < times.slow < _RARE:
        return
    if times.slow * times.slow_seconds < times.median * (1 - times.slow):
        return
    why = (
        f"one batch in {1 / times.slow:.0f} takes about {format_seconds(times.slow_seconds)}, "
        f"{times.slow_seconds / times.median:.0f} times the median"
    )
    share = saved_out_of_order(case) or 0.0
    if share > 0:
        yield Remedy(
            f"Hand batches out as they are ready, with in_order=False of the DataLoader: {why}",
            share * case.seconds("prep"),
            cost="samples come in another order",
            name="in-order",
            knob="in_order",
            first=True,
        )
    yield Remedy(f"Make the slow samples cheaper, or leave them out: {why}", name="slow-samples")


def saved_out_of_order(case: Case) -> float | None:
    """Of what steps wait, the share saved if batches were handed out as they are ready; ``None`` if unknown."""
    times, loader = batch_times(case.profile), case.loader
    workers = loader.workers or 0 if loader is not None else 0
    if times is None or loader is None or not loader.in_order or workers < 2:
        return None
    ahead = loader.prefetch_factor or _DEFAULT_PREFETCH
    now, then = (
        times.mean_wait_seconds(workers, ahead, case.seconds("compute"), in_order)
        for in_order in (True, False)
    )
    return 1 - then / now if now else None


def threads_of_workers(case: Case) -> float | None:
    """That one operation in a loader's worker may use; ``None`` if unknown."""
    return max((row.threads for row in case.profile.workers if row.threads), default=None)


def _thread_remedies(case: Case, loader: Loader) -> Iterator[Remedy]:
    """Libraries in workers that use as many threads as they like."""
    threads, cores = threads_of_workers(case), case.cores_per_rank
    if threads is None or threads < 2 or not loader.workers or cores is None:
        return
    if threads * loader.workers > cores:
        text = (
            "Let each worker use one thread, `torch.set_num_threads(1)` and `cv2.setNumThreads(0)` in worker_init_fn: "
            f"{loader.workers} workers with {threads:.0f} threads each share {cores:g} cores with training"
        )
        yield Remedy(text, name="worker-threads", knob="worker_threads", first=True)


def _array_remedies(loader: Loader) -> Iterator[Remedy]:
    size = loader.array_bytes_per_batch or 0.0
    if loader.workers and size >= MANY_ARRAY_BYTES:
        text = (
            "Return tensors from collate_fn (`torch.from_numpy`), which go over in shared memory: now workers pickle "
            f"{format_bytes(size)} of arrays a batch, and the training process reads them through a pipe and unpickles them"
        )
        yield Remedy(text, name="arrays", first=True)


def _tensor_remedies(case: Case, loader: Loader) -> Iterator[Remedy]:
    count = loader.tensors_per_batch or 0
    if not loader.workers or count < MANY_TENSORS:
        return
    text = (
        f"Pack each field of a batch into one tensor in collate_fn: a batch has {count:.0f} tensors, and each is "
        "handed over from its worker by a descriptor of its own"
    )
    yield Remedy(text, name="fewer-tensors", first=_workers_suffice(case, loader))
    made, waited = case.supply.made_seconds if case.supply else 0.0, case.seconds("prep")
    if 0 < made < waited / 2:
        none = (
            f"Or make them in the training process, with num_workers=0: preparing a step takes {format_seconds(made)}, "
            "and nothing is handed over"
        )
        yield Remedy(none, waited - made, name="no-workers", knob="workers")


def _share_remedies(case: Case, loader: Loader) -> Iterator[Remedy]:
    ranks = len(case.profile.ranks)
    if loader.kind == "iterable" and ranks > 1:
        text = (
            "Let the stream give each rank a share of its own before samples are prepared "
            f"(`torch.distributed.get_rank()`): {ranks} ranks that prepare everything and skip the others' samples "
            "afterwards do the work of all"
        )
        yield Remedy(text, name="rank-shares", first=True)


def _worker_remedies(case: Case, loader: Loader) -> Iterator[Remedy]:
    """How many workers hide preparation, and the cores that they need, as ``stash whatif`` says what suffices."""
    workers, supply, cores = loader.workers, case.supply, case.cores_per_rank
    if workers is None or supply is None or supply.trained_seconds <= 0:
        return
    needed, use = supply.workers, supply.workers_to_use
    if workers == 0 and use is not None and not case.is_sure_to_save(Alteration(workers=use)):
        return  # to hand a batch over may take longer than to make it
    made, trained = format_seconds(supply.made_seconds), format_seconds(supply.trained_seconds)
    why = f"preparing a step takes {made} of one worker, training it {trained}"
    if loader.kind == "iterable" and workers < 2 and use is not None:
        shard = (
            "First let the stream give each worker a share of its own, by `torch.utils.data.get_worker_info()`: "
            "otherwise every worker reads all of it, and the data come several times over; then use "
            f"num_workers={use} ({why})"
        )
        yield Remedy(shard, name="shard")
        return
    if needed is not None and needed <= workers:
        yield Remedy(
            f"Keep num_workers={workers}, which would suffice ({why}), but give workers and training "
            "cores of their own, or raise prefetch_factor"
        )
        return
    if use is not None and use > workers:
        limited = use != needed and cores
        limit = f", all that {cores:g} cores per device allow" if limited else f" ({why})"
        more = case.forecast_remedy(
            f"Use num_workers={use} instead of {workers}{limit}", Alteration(workers=use), "workers"
        )
        # the setting is tried in a minute; cheaper samples are work, and nothing can save more than samples for free
        yield replace(more, first=workers == 0 and (more.saves or 0.0) > case.seconds("prep") / 2)
    if cores is not None and workers > CROWDED * cores:
        fewer = (
            f"Use num_workers={math.ceil(cores)} instead of {workers}: {cores:g} cores make no more samples with "
            "more workers, of which each takes memory, and cores from training"
        )
        yield Remedy(fewer, name="fewer-workers", knob="workers")
    if cores is None or needed is None or supply.cores_seconds is None or not supply.lacks_cores:
        return
    # as many as train and make samples in the time that training takes
    wanted = math.ceil(round(cores * supply.cores_seconds / supply.trained_seconds, 6))
    if wanted <= _MOST_CORES:
        rented = (
            f"Rent {wanted} cores per device instead of {cores:g}, for num_workers={needed} "
            f"(preparing a step takes {made} of one worker)"
        )
        asked = Alteration(cpus=wanted * case.base.target.devices, workers=needed)
        yield case.forecast_remedy(rented, asked, "cores")


def _line_of_samples(case: Case) -> str:
    """Where samples are made: of a loader without workers, the line of it that the training thread was seen at."""
    loader, place = case.loader, case.place(INPUT)
    if loader is None:
        return ""
    if not loader.workers and place is not None and place.caller:
        return written_place(place)
    return loader.samples_at or ""


def fetch_remedies(case: Case) -> Iterator[Remedy]:
    remedies = list(_reading_remedies(case))
    yield from remedies or [
        case.forecast_remedy("Move the data to a faster disk, or keep it in memory", _CACHED)
    ]


def _reading_remedies(case: Case) -> Iterator[Remedy]:
    work, rates, loader = case.profile.workload, case.breakdown.rates, case.loader
    size = dataset_bytes(case.profile)
    memory = min(filter(None, map(usable_memory, case.profile.hosts)), default=None)
    if size and memory:
        cache = (
            f"Choose nodes with {format_bytes(size / USABLE)} of memory to cache the data set "
            f"({format_bytes(size)}; {format_bytes(memory)} now)"
        )
        if size <= USABLE * memory:
            cache = (
                f"Read the data set once before training: its {format_bytes(size)} fit into a node's memory "
                f"({format_bytes(memory)}), and only the first epoch pays for fetching"
            )
        yield case.forecast_remedy(cache, _CACHED)
    if work.sample_disk_bytes and rates.device:
        per_node = work.sample_disk_bytes / case.profile.nodes
        measured = f" ({format_rate(per_node * rates.fetch)} measured)" if rates.fetch else ""
        text = f"Use a disk that delivers {format_rate(per_node * rates.device)} to each node{measured}"
        yield case.forecast_remedy(text, Alteration(disk=per_node * rates.device), "faster-disk")
    cold = [b for b in case.profile.blocks if b.rung == "cold" and b.files and b.file_bytes]
    files = sum(block.files or 0 for block in cold)
    average = sum(block.file_bytes or 0 for block in cold) / files if files else math.inf
    if average < SMALL_FILE:
        yield Remedy(
            f"Pack the small files ({format_bytes(average)} on average) into shards read in sequence"
        )
    elif (work.sample_disk_bytes or 0) >= _AHEAD * (work.sample_bytes or math.inf):
        yield Remedy(
            "Read the file in order once before training, into the page cache, or "
            "`mmap.madvise(MADV_RANDOM)`: samples lie at random places, and "
            f"{format_bytes(work.sample_disk_bytes or 0)} are read for each of "
            f"{format_bytes(work.sample_bytes or 0)}",
            name="random-reads",
            first=True,
        )
    if loader is not None and loader.workers is not None and not work.sample_disk_bytes:
        yield Remedy(
            f"Use more than num_workers={loader.workers}, so that more reads are under way at once"
        )
