"""The data pipeline of a node: workers that prefetch, page cache, storage, and the step that trains on it.

PyTorch's DataLoader gives batch i to worker i mod W, keeps W · f batches under way and hands them out in order, so
one slow batch holds up those behind it. DS-Analyzer (VLDB 2021) takes min(F, P, G); here P depends on workers and on
what cores they find, F on the page cache and on what storage and network deliver. Times are draws, ``[draws]``; knows
nothing of profiles or of how facts were measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from stash.core.units import format_rate
from stash.predict.cluster import Storage
from stash.predict.draws import Array, Draws, Quantity, Used

_LOADS = np.geomspace(0.4, 2.5, 13)
"""w / (W · t) at which the slow-down is tabulated; beyond them it no longer depends on the load."""
_LANES = 4
_MIN_BATCHES = 600
_MAX_RANKS = 16
_CV_STEP = 0.05
MAX_VARIATION = 1.0


def hand_outs(made_in: Array, trained_in: Array, workers: int, prefetch: int) -> Array:
    """When each batch is handed out, in seconds, of workers and a device that start together: ``[batch, lane]``.

    ``made_in[batch, rank, lane]`` is what making each batch takes a worker, ``trained_in[lane]`` what a step takes
    the devices, which all wait for the slowest rank's batch. The rules are those of ``torch.utils.data`` (PyTorch 2,
    ``_MultiProcessingDataLoaderIter``): a worker begins its next batch when it is done with the one before and that
    one was asked for, which happens when the batch W · f places earlier is handed out. Exact for given times, as a
    max-plus recursion: one pass over the batches.
    """
    batches, under_way = len(made_in), workers * prefetch
    done = np.zeros_like(made_in)
    out = np.zeros((batches, made_in.shape[-1]))
    for number in range(batches):
        begun = done[number - workers] if number >= workers else 0.0
        if number >= under_way:
            begun = np.maximum(begun, out[number - under_way])
        np.add(begun, made_in[number], out=done[number])
        ready = done[number].max(axis=0)
        out[number] = np.maximum(ready, out[number - 1] + trained_in) if number else ready
    return out


@lru_cache(maxsize=256)
def _slow_downs(workers: int, prefetch: int, ranks: int, variation: float) -> Array:
    """A step's mean time over max(t, w / W), at each of ``_LOADS``, for gamma-distributed times of making a batch.

    By simulation with a fixed seed, the same draws at every load. The first tenth, in which queues fill, is left out.
    """
    batches = max(_MIN_BATCHES, 12 * workers * prefetch)
    shape = variation**-2
    drawn = np.random.default_rng(20231114).gamma(shape, 1 / shape, (batches, ranks, _LANES))
    made_in = np.concatenate([load * workers * drawn / drawn.mean() for load in _LOADS], axis=-1)
    out = hand_outs(made_in, np.ones(made_in.shape[-1]), workers, prefetch)
    warm_up = batches // 10
    step = (out[-1] - out[warm_up]) / (batches - 1 - warm_up)
    longer: Array = step.reshape(len(_LOADS), _LANES).mean(axis=1) / np.maximum(1.0, _LOADS)
    return np.maximum(1.0, longer)


def step_with_loader(
    trained_in: Array,
    supplied_in: Array,
    workers: int,
    prefetch: int,
    ranks: int = 1,
    variation: float = 0.0,
) -> Array:
    """Seconds of a step that trains for ``trained_in`` on batches that the workers could supply every
    ``supplied_in``.

    max(t, s), which is DS-Analyzer's min(F, P, G) in seconds, times the slow-down by batches that take unlike times
    (``variation``: standard deviation over mean, at most 1) while ``ranks`` wait for each other. Without workers
    nothing overlaps: t + s. Against the recursion it stands on, interpolation errs by 1 % at most; the recursion
    against PyTorch's own loader is in ``docs/how-we-know.md``.
    """
    trained_in, supplied_in = (
        np.asarray(trained_in, np.float64),
        np.asarray(supplied_in, np.float64),
    )
    if workers == 0:
        return trained_in + supplied_in
    longer = np.maximum(trained_in, supplied_in)
    rounded = round(min(variation, MAX_VARIATION) / _CV_STEP) * _CV_STEP
    if not rounded:
        return longer
    table = _slow_downs(workers, max(1, prefetch), min(ranks, _MAX_RANKS), rounded)
    # A draw of a noisy measurement may train for less than nothing: workers are the limit then, whatever they take.
    with np.errstate(divide="ignore", invalid="ignore"):
        load = np.where(trained_in > 0, np.log(np.maximum(0.0, supplied_in) / trained_in), np.inf)
    return longer * np.interp(load, np.log(_LOADS), table)


# The page cache

USABLE = 0.7
"""Of a machine's memory: what the page cache may take, as training and its workers need the rest."""


def ideal_hits(cached: Array) -> Array:
    """Share of reads served by a cache that keeps what it has: the part of the data set that fits.

    Of an epoch that reads each sample once, in a new order, and is not the first.
    """
    return np.minimum(1.0, np.asarray(cached, np.float64))


def least_recently_used_hits(cached: Array) -> Array:
    """Share of reads served by a cache that drops what was read longest ago, when ``cached`` of the data set fits.

    A sample at place v of one shuffled epoch and u of the next (shares of it) is still there if fewer than ``cached``
    other samples were read in between: 1 − v + u − u(1 − v) = 1 − v(1 − u) of them are distinct. With u and v
    uniform, P(v(1 − u) > 1 − c) = c + (1 − c) ln(1 − c): far less than c, which DS-Analyzer (VLDB 2021) calls
    thrashing. In a fixed order the share is 0 below full caching.
    """
    missing = 1.0 - ideal_hits(cached)
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(missing > 0, missing * np.log(missing), 0.0)
    return 1.0 - missing + lost


def page_cache_hits(cached: Array, keeps: Array) -> Array:
    """Between the two, as Linux is: its two lists protect what was read twice (``keeps`` 1: ideal, 0: least recent).

    Where Linux lies depends on its version and on other readers, and is not known here: a forecast draws ``keeps``
    over the whole range. Neither end depends on the other, so more cache never serves less.
    """
    worst = least_recently_used_hits(cached)
    return worst + keeps * (ideal_hits(cached) - worst)


def cached_share(memory_bytes: float, dataset_bytes: float) -> float:
    """The part of a data set that a node's page cache holds."""
    return min(1.0, USABLE * memory_bytes / dataset_bytes)


def warmed_share(nodes: int, epochs: int) -> float:
    """Of a data set that each node's memory holds, the part that a node has read after so many epochs.

    Each epoch gives every sample to one of the nodes by chance: 1 − (1 − 1/n)ᵏ of them have been there.
    """
    return 1.0 - (1.0 - 1.0 / nodes) ** epochs


# The pipeline of a node


@dataclass(frozen=True, eq=False)
class HandOver:
    """What it costs that workers are processes: seconds of a batch, ``[draws]``.

    A worker copies a batch's tensors into shared memory and sends a descriptor of each, which training asks for and
    maps one after the other (``torch.multiprocessing.reductions``), while it does nothing else.
    """

    batch_seconds: Array | float = 0.0
    """Of either side, for as many tensors as a batch has."""
    sample_seconds: Array | float = 0.0
    """Of the worker, for copying the bytes of a sample."""
    beside: bool = False
    """Whether a thread beside training takes batches over, as it does to pin them."""


@dataclass(frozen=True, eq=False)
class Work:
    """What samples cost, whoever makes them: draws, ``None`` where unknown."""

    make_seconds: Array
    """Of one worker for one sample, with its files in memory and a core of its own."""
    core_seconds: Array
    """Of those, on a core."""
    train_core_seconds: Array
    """That training itself takes of the node's cores, for one step of one rank."""
    disk_bytes: float | None = None
    """Fetched from storage for a sample that is not in memory."""
    variation: float = 0.0
    """Of the time to make a batch: standard deviation over mean."""
    hand_over: HandOver = HandOver()


@dataclass(frozen=True, eq=False)
class Pipeline:
    """How the loaders of one node are set up."""

    ranks: int
    """On the node: they share cores and storage."""
    workers: int
    """Of one rank."""
    prefetch: int
    """Batches that each worker prepares ahead."""
    samples: float
    """Of one batch of one rank."""
    batches: int
    """Of one step."""
    cores: Array | None = None
    """What the node's hardware threads are worth with all of them busy, in cores; ``None``: unknown, and no limit."""
    store: Array | None = None
    """Bytes per second of all readers of the node together; ``None``: nothing is read from storage."""
    cached: float | Array = 1.0
    """Share of the data set that fits into the node's page cache."""
    keeps: float | Array = 1.0
    """How well the page cache keeps it, see ``page_cache``."""
    training: float | Array = 1.0
    """Times what training took of the cores when that was measured."""

    def replace_cache(self, cached: float | Array, store: Array | None = None) -> Pipeline:
        """The same with another part of the data in memory."""
        return replace(self, cached=cached, store=self.store if store is None else store)

    @property
    def fully_cached(self) -> Pipeline:
        """The same with all data in memory: nothing is read from storage."""
        return replace(self, store=None)

    @cached_property
    def misses(self) -> Array:
        """Share of samples that are fetched from storage."""
        cached = np.asarray(self.cached, np.float64)
        return 1.0 - page_cache_hits(cached, np.asarray(self.keeps, np.float64))


def supply_seconds(pipeline: Pipeline, work: Work) -> Array:
    """Between two batches of one rank, as its loader supplies them while nothing else limits it.

    W workers that each take w for making a batch and sending it, and d for its bytes, finish one every (w + d)/W
    seconds; the node's storage serves all R ranks, R·d; its cores too, R·c/C for c core seconds a batch; a thread
    that takes them over does one after the other. Whichever is longest holds: the asymptotic bounds of a closed
    queueing network (Denning and Buzen 1978), which it nears from below.
    """
    sent_in = sending_seconds(pipeline, work)
    made_in = pipeline.samples * work.make_seconds + sent_in
    supplied = np.maximum(0.0, made_in / max(1, pipeline.workers))
    if pipeline.workers and work.hand_over.beside:
        supplied = np.maximum(supplied, work.hand_over.batch_seconds)
    if pipeline.store is not None and work.disk_bytes is not None:
        read = pipeline.misses * pipeline.samples * work.disk_bytes / pipeline.store
        supplied = np.maximum((made_in + read) / max(1, pipeline.workers), pipeline.ranks * read)
    if pipeline.cores is None:
        return supplied
    on_cores = pipeline.samples * work.core_seconds + sent_in
    return np.maximum(supplied, pipeline.ranks * on_cores / pipeline.cores)


def sending_seconds(pipeline: Pipeline, work: Work) -> Array | float:
    """Of a worker, to hand a batch over."""
    if not pipeline.workers:
        return 0.0
    return work.hand_over.batch_seconds + pipeline.samples * work.hand_over.sample_seconds


def take_over_seconds(pipeline: Pipeline, work: Work) -> Array | float:
    """Of the training thread, to take a step's batches over from workers."""
    exposed = pipeline.workers and not work.hand_over.beside
    return pipeline.batches * work.hand_over.batch_seconds if exposed else 0.0


def step_seconds(pipeline: Pipeline, work: Work, trained_in: Array) -> Array:
    """Of a step that takes ``trained_in`` when no data are waited for, or taken over from workers.

    Never less than what the node's cores need for training and making batches together: that is what slows a job
    whose workers take cores from its training, and no queue tells.
    """
    ranks, batches = pipeline.ranks, pipeline.batches
    taken_over = take_over_seconds(pipeline, work)
    queued = batches * step_with_loader(
        (trained_in + taken_over) / batches,
        supply_seconds(pipeline, work),
        pipeline.workers,
        pipeline.prefetch,
        ranks,
        work.variation,
    )
    if pipeline.cores is None:
        return queued
    made = batches * (pipeline.samples * work.core_seconds + sending_seconds(pipeline, work))
    trained = pipeline.training * work.train_core_seconds + taken_over
    return np.maximum(queued, ranks * (trained + made) / pipeline.cores)


SUPPLY_SPREAD = 0.10
"""Standard deviation of the logarithm of what workers supply with other workers or cores than measured, over what is
said: of half of Synergy's published models (``bench.predict.cpu_sensitivity``, archived), which
validate nothing."""


def widen_work(work: Work, draws: Draws) -> Work:
    """The same work, of a pipeline with other workers or cores than those on which it was measured."""
    error = np.exp(
        SUPPLY_SPREAD * draws.normals("error of the supply model") - SUPPLY_SPREAD**2 / 2
    )
    return replace(
        work, make_seconds=work.make_seconds * error, core_seconds=work.core_seconds * error
    )


SMT_GAIN = (0.16, 0.30)
"""What the second hardware thread of a busy core adds: 16 to 28 % on server programs, up to 30 % (D. Marr and others,
*Hyper-Threading Technology Architecture and Microarchitecture*, Intel Technology Journal 6(1), 2002)."""


def core_capacity(threads: float, busy: float, threads_per_core: int, gain: Array | float) -> Array:
    """What ``busy`` runnable threads get done on so many hardware threads, in cores' worth of work.

    One per core first; then second threads, each worth ``gain`` of a core; beyond all of them nothing is gained.
    """
    cores = threads / threads_per_core
    first = min(busy, cores)
    return np.asarray(first + np.asarray(gain) * max(0.0, min(busy, threads) - cores), np.float64)


# A target's storage


@dataclass(frozen=True, eq=False)
class NodeStorage:
    """A node's storage as loaders find it, and what that rests on."""

    bytes_per_second: Array
    fact: Used
    beyond: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def draw_storage(storage: Storage, draws: Draws) -> NodeStorage | None:
    """What ``storage`` serves to a training; ``None`` where no rate of it is known."""
    rate, beyond = _sustained_rate(storage)
    if rate is None:
        return None
    fact = Used(about="a node's storage", unit="bytes/s", quantity=rate)
    return NodeStorage(draws.draw("storage", rate), fact, beyond)


def _sustained_rate(storage: Storage) -> tuple[Quantity | None, tuple[str, ...]]:
    """What it sustains: a training outlasts the credit of a burst."""
    base, burst = storage.bytes_per_second, storage.burst_bytes_per_second
    if burst is None or (base is not None and burst.value <= base.value):
        return base, ()
    at_first = format_rate(burst.value)
    if base is None:
        return burst, (
            f"storage does {at_first} in bursts, which is taken; what it sustains is not published",
        )
    return base, (
        f"storage does {at_first} at first; what it sustains, {format_rate(base.value)}, is taken",
    )
