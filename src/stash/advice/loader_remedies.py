"""What makes batches late beside too few workers: slow ones, their order, their tensors, threads, shares of ranks.

Each remedy follows from something that was counted in the loader's own processes.
"""

from __future__ import annotations

from dataclasses import dataclass

from stash.advice.case import Case, Remedy
from stash.advice.run_words import written_place
from stash.analysis.batch_times import BatchTimes, batch_times
from stash.core.ledger_rows import INPUT
from stash.core.records.profile import Loader
from stash.core.units import format_seconds

MANY_TENSORS = 32
"""In a batch, from which handing them over one by one is worth a sentence."""
_RARE = 0.25
"""Of all batches: if more are slow, slow is what they are."""
_OWN_PART = 0.25
"""Of the time that the training process is in its loader, from which what it runs there is worth a sentence."""
_FEW_LOOKS = 0.05
_DEFAULT_PREFETCH = 2
_SENDS = ("scatter_object_list", "broadcast_object_list", "scatter", "broadcast")
_EACH_STEP = 0.5
"""Calls a step, from which they carry the steps' batches and no setting."""


@dataclass(frozen=True)
class SlowBatches:
    """Rare batches that take many times as long as others."""

    times: BatchTimes
    saved_share: float | None
    """Of what steps wait, if batches were handed out as they are ready; ``None`` where that is so, or unknown."""

    @property
    def text(self) -> str:
        """``"one batch in 10 takes 123 ms, 60 times the median"``"""
        ratio = self.times.slow_seconds / self.times.median
        return (
            f"one batch in {1 / self.times.slow:.0f} takes about {format_seconds(self.times.slow_seconds)}, "
            f"{ratio:.0f} times the median"
        )


def slow_batches(case: Case) -> SlowBatches | None:
    """``None`` where batches take about equally long, or where slow ones do not take most of the time."""
    times = batch_times(case.profile)
    if times is None or not 0 < times.slow < _RARE:
        return None
    others = times.median * (1 - times.slow)
    if times.slow * times.slow_seconds < others:
        return None
    return SlowBatches(times, saved_out_of_order(case))


def saved_out_of_order(case: Case) -> float | None:
    """Of what steps wait, the share saved if batches were handed out as they are ready; ``None`` if unknown."""
    times, loader = batch_times(case.profile), case.loader
    if times is None or loader is None or not loader.in_order or (loader.workers or 0) < 2:
        return None
    ahead, train_seconds = (
        loader.prefetch_factor or _DEFAULT_PREFETCH,
        case.breakdown.seconds("compute"),
    )
    now, then = (
        times.mean_wait_seconds(loader.workers or 1, ahead, train_seconds, in_order)
        for in_order in (True, False)
    )
    return 1 - then / now if now else None


def threads_of_workers(case: Case) -> float | None:
    """That one operation in a loader's worker may use; ``None`` if unknown."""
    return max((row.threads for row in case.profile.workers if row.threads), default=None)


def loader_remedies(case: Case) -> list[Remedy]:
    """Of the loader that the job trains from."""
    loader = case.loader
    if loader is None:
        return one_rank_sends(case)
    return [
        *one_rank_sends(case),
        *_sampler_remedies(case, loader),
        *_order_remedies(case),
        *_thread_remedies(case, loader),
        *_tensor_remedies(case, loader),
        *_share_remedies(case, loader),
    ]


def one_rank_sends(case: Case) -> list[Remedy]:
    """Batches that one rank prepares for all, while the others wait."""
    calls = case.profile.workload.collectives_per_step
    names = [name for name in _SENDS if calls.get(name, 0.0) >= _EACH_STEP]
    if not names:
        return []
    place = (
        None if case.breakdown.run is None else next(iter(case.breakdown.run.own_collectives), None)
    )
    where = "" if place is None else f" at {place.where}"
    text = (
        "Let every rank read its own batches: now one rank prepares those of all and sends them "
        f"(`{names[0]}`{where}), while the others wait"
    )
    return [Remedy(text, name="own-batches", first=True)]


def _sampler_remedies(case: Case, loader: Loader) -> list[Remedy]:
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
        return [Remedy(draw, min(drawn, waited), name="sampler-draws", first=True)]
    run = case.breakdown.run
    places = [] if run is None else [place for place in run.places if place.row == INPUT]
    own = [place for place in places if place.caller]
    seen = sum(place.seconds for place in places)
    part = _FEW_LOOKS if _workers_suffice(case, loader) else _OWN_PART
    if not loader.workers or not own or sum(place.seconds for place in own) < part * seen:
        return []
    text = (
        f"Make {written_place(own[0])} cheaper: the training process itself runs it for each batch, as it does "
        "samplers, whatever the number of workers; draw indices of many batches at once with vectorised code "
        "(`torch.multinomial`, `torch.randperm`)"
    )
    return [Remedy(text, name="sampler-line", first=True)]


def _order_remedies(case: Case) -> list[Remedy]:
    slow = slow_batches(case)
    if slow is None:
        return []
    cheaper = Remedy(
        f"Make the slow samples cheaper, or leave them out: {slow.text}", name="slow-samples"
    )
    if slow.saved_share is None or slow.saved_share <= 0:
        return [cheaper]
    text = f"Hand batches out as they are ready, with in_order=False of the DataLoader: {slow.text}"
    saves = slow.saved_share * case.seconds("prep")
    order = Remedy(
        text,
        saves,
        cost="samples come in another order",
        name="in-order",
        knob="in_order",
        first=True,
    )
    return [order, cheaper]


def _thread_remedies(case: Case, loader: Loader) -> list[Remedy]:
    """Libraries in workers that use as many threads as they like."""
    threads, cores = threads_of_workers(case), case.cores_per_rank
    if threads is None or not loader.workers or cores is None:
        return []
    if threads < 2 or threads * loader.workers <= cores:
        return []
    text = (
        "Let each worker use one thread, `torch.set_num_threads(1)` and `cv2.setNumThreads(0)` in worker_init_fn: "
        f"{loader.workers} workers with {threads:.0f} threads each share {cores:g} cores with training"
    )
    return [Remedy(text, name="worker-threads", knob="worker_threads", first=True)]


def _tensor_remedies(case: Case, loader: Loader) -> list[Remedy]:
    count = loader.tensors_per_batch
    if not loader.workers or count is None or count < MANY_TENSORS:
        return []
    text = (
        f"Pack each field of a batch into one tensor in collate_fn: a batch has {count:.0f} tensors, and each is "
        "handed over from its worker by a descriptor of its own"
    )
    found = [Remedy(text, name="fewer-tensors", first=_workers_suffice(case, loader))]
    made, waited = case.supply.made_seconds if case.supply else 0.0, case.seconds("prep")
    if 0 < made < waited / 2:
        none = (
            f"Or make them in the training process, with num_workers=0: preparing a step takes {format_seconds(made)}, "
            "and nothing is handed over"
        )
        found.append(Remedy(none, waited - made, name="no-workers", knob="workers"))
    return found


def _workers_suffice(case: Case, loader: Loader) -> bool:
    """Whether workers make batches as fast as they are trained, so that waits have another reason."""
    needed = None if case.supply is None else case.supply.workers or 0
    return needed is not None and needed <= (loader.workers or 0)


def _share_remedies(case: Case, loader: Loader) -> list[Remedy]:
    ranks = len(case.profile.ranks)
    if loader.kind != "iterable" or ranks < 2:
        return []
    text = (
        "Let the stream give each rank a share of its own before samples are prepared "
        f"(`torch.distributed.get_rank()`): {ranks} ranks that prepare everything and skip the others' samples "
        "afterwards do the work of all"
    )
    return [Remedy(text, name="rank-shares", first=True)]
