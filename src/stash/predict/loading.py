"""Loading, measured and forecast: what a sample costs, what storage delivered, and prep and fetch set up otherwise.

Where a fact is missing, what needs it is ``None``, and ``why_no_loading`` says which command adds it. Where the
model says less than was measured, the rest belongs to fresh batches as such (copies, pinning, cold caches): it is
kept, and grows with the samples of a step, no matter who makes them. Where it says more, it counts in the same
proportion. So a forecast of the measured set-up is the measurement, draw by draw. Error: ``docs/how-we-know.md``.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stash.analysis.breakdown import Breakdown, ranks_per_node
from stash.analysis.step_times import count_readers, rank_values
from stash.core.intervals import Interval, median_interval
from stash.core.ladder import DATA_STALLS
from stash.core.measured import Block
from stash.core.records.host import Host
from stash.core.records.profile import Profile
from stash.predict.cluster_sources import usable_threads
from stash.predict.draws import Array, Draws, Quantity, Used, measured_quantity
from stash.predict.pipeline import (
    MAX_VARIATION,
    SMT_GAIN,
    HandOver,
    Pipeline,
    Work,
    core_capacity,
    sending_seconds,
    step_seconds,
)

DEFAULT_PREFETCH = 2
"""``prefetch_factor`` of PyTorch's loader."""
_MIN_BLOCKS = 3
BATCH_HAND_OVER, TENSOR_HAND_OVER, BYTE_HAND_OVER = 0.3e-3, 0.25e-3, 1e-9
"""Seconds of either side to hand over a batch, and each of its tensors; of the worker, each of its bytes."""
_USUAL_TENSORS = 2.0
"""In a batch: inputs and what they are."""
HAND_OVER_FACTORS = (0.4, 2.5)
"""… times what they may be off by: ends of a 95 % interval."""


@dataclass(frozen=True, eq=False)
class Loading:
    """A profile's data pipeline: set up as it was, and what its work was measured to cost."""

    pipeline: Pipeline
    work: Work
    make: Quantity
    """Seconds of one worker per sample, for reports."""
    rate: Quantity | None
    """Bytes per second that a node's storage delivered to this job; ``None``: never read from storage, or hidden."""
    dataset_bytes: float | None

    @cached_property
    def fact(self) -> Used:
        """What its forecasts rest on."""
        return Used(about="one worker's seconds per sample", unit="seconds", quantity=self.make)


def why_no_loading(profile: Profile, breakdown: Breakdown) -> str | None:
    """Why nothing can be told of this profile's pipeline, and what to do; ``None`` if something can."""
    if not profile.workload.loaders:
        return "no data loader was seen; wrap yours, `for batch in stash.loader(loader):`, and profile again"
    if breakdown.stall("prep") is None:
        return "the rung warm was not measured; profile again without --rungs"
    if breakdown.samples_per_step is None:
        return "samples per step are unknown; profile again with --batch N"
    if profile.workload.loaders[0].workers is None and breakdown.rates.prep is None:
        return "neither workers nor the loaders' own rate are known; profile again"
    return None


def loading_of(profile: Profile, breakdown: Breakdown, draws: Draws) -> Loading | None:
    """The pipeline of ``profile``; ``None`` where ``why_no_loading`` says why."""
    if why_no_loading(profile, breakdown) is not None:
        return None
    loader = profile.workload.loaders[0]
    batches = max(1, loader.batches_per_step)
    samples = (breakdown.samples_per_step or 0.0) / count_readers(profile) / batches
    workers = loader.workers if loader.workers is not None else 1
    make = _make_seconds(profile, breakdown, workers, samples * batches)
    if make is None:
        return None
    node, ranks = max(ranks_per_node(profile).items(), key=lambda item: item[1])
    host = profile.hosts[node] if node < len(profile.hosts) else None
    training, making = _core_seconds(profile, breakdown, host, ranks)
    made = draws.draw("making a sample", make)
    work = Work(
        make_seconds=made,
        core_seconds=made if making is None else np.minimum(made, making / (samples * batches)),
        train_core_seconds=np.full(draws.count, training),
        disk_bytes=profile.workload.sample_disk_bytes,
        variation=_variation(profile),
        hand_over=_hand_over(profile, draws),
    )
    pipeline = Pipeline(
        ranks=ranks,
        workers=workers,
        prefetch=loader.prefetch_factor or DEFAULT_PREFETCH,
        samples=samples,
        batches=batches,
        cores=None
        if host is None
        else cores_worth(is_rented(host), usable_threads(host), ranks * (workers + 1), draws),
    )
    work = _fit_work_to_steps(pipeline, work, breakdown)
    if pipeline.workers:
        work = replace(work, hand_over=_fit_hand_over(pipeline, work, breakdown, draws))
    rate = _storage_rate(profile, breakdown, pipeline, work)
    if rate is not None:
        pipeline = pipeline.replace_cache(1.0, draws.draw("storage", rate))
    return Loading(pipeline, work, make, rate, dataset_bytes(profile))


def dataset_bytes(profile: Profile) -> float | None:
    """Bytes of the whole data set on disk, as far as the profile tells."""
    work = profile.workload
    samples = work.loaders[0].samples if work.loaders else None
    if (
        work.dataset_bytes is None and samples and work.sample_disk_bytes
    ):  # of several loaders, or an older profile
        return samples * work.sample_disk_bytes
    return work.dataset_bytes


def is_rented(host: Host | None) -> bool:
    """Whether a machine is known to be a cloud's."""
    return host is not None and (host.cloud or host.instance) is not None


def cores_worth(shared: bool, threads: float | None, busy: float, draws: Draws) -> Array | None:
    """What so many hardware threads are worth to ``busy`` threads, in cores; ``None`` if their number is unknown.

    Where cores are ``shared``, as on rented machines, a vCPU is one of two threads of a core; elsewhere it is not
    known, and each counts whole.
    """
    if not threads:
        return None
    low, high = SMT_GAIN
    gain = low + (high - low) * draws.uniforms("second thread of a core")
    return core_capacity(threads, busy, 2 if shared else 1, gain) * np.ones(draws.count)


def _make_seconds(
    profile: Profile, breakdown: Breakdown, workers: int, samples: float
) -> Quantity | None:
    """Of one worker per sample: as the workers were timed, or waited for if there are none, or from P."""
    if not samples:
        return None
    if workers:
        values, source = (
            rank_values(profile, lambda block: block.fetch_seconds),
            "what workers took in the warm blocks",
        )
    else:
        values = rank_values(profile, lambda block: block.wait_seconds)
        source = "what steps waited for the loader in the warm blocks"
    # Per step, of the rank with most in each round.
    warm = [
        max(ranks.values())
        for (_, rung), ranks in sorted(values.items())
        if rung == "warm" and ranks
    ]
    times = [value / samples for value in warm if value > 0]
    if times:
        return measured_quantity(median_interval(times), profile.created[:10], source)
    if not breakdown.rates.prep:
        return None
    alone = max(1, workers) * count_readers(profile) / breakdown.rates.prep
    return measured_quantity(Interval(value=alone), profile.created[:10], "the loaders' own rate P")


def _core_seconds(
    profile: Profile, breakdown: Breakdown, host: Host | None, ranks: int
) -> tuple[float, float | None]:
    """Seconds of processor time that one rank's step takes to train, and to make its batches.

    Of the job's own processes; profiles of before these were counted tell only how busy the whole host was, and what
    others did there counts as the job's. ``None``: unknown how much of making a batch is waiting.
    """
    replay = next(
        (name for name in ("cluster", "node", "crowd", "solo") if name in breakdown.rungs), None
    )
    if replay is None:
        return 0.0, None
    training = _median_step(profile, replay, lambda block: block.cpu_seconds)
    making = _median_step(profile, "warm", lambda block: block.fetch_cpu_seconds)
    threads = host.cores if host is not None else None
    # A step's time times the busy fraction of the host's cores, whoever kept them busy.
    busy, with_loading = (
        _median_step(
            profile, rung, lambda block: None if block.cpu is None else block.cpu * block.seconds
        )
        for rung in (replay, "warm")
    )
    if threads and busy is not None:
        training = busy * threads / ranks if training is None else training
        if making is None and with_loading is not None:
            making = max(0.0, with_loading - busy) * threads / ranks
    return training or 0.0, making


def _fit_work_to_steps(pipeline: Pipeline, work: Work, breakdown: Breakdown) -> Work:
    """Work that fits into the steps that were measured with it: no worker and no core is busy for longer than they
    take.

    Workers' times hold waiting for cores, and may hold batches of a neighbouring block. Where batches vary by so much
    that the queue would have made steps longer than they were, they are taken as equal.
    """
    warm = sum(stall.seconds for stall in breakdown.stalls if stall.name != "fetch")
    trains = warm - breakdown.seconds("prep")
    samples = pipeline.batches * pipeline.samples
    most = (warm if pipeline.workers else warm - trains) / samples * max(1, pipeline.workers)
    made = work.make_seconds if most <= 0 else np.minimum(work.make_seconds, most)
    on_cores = np.minimum(work.core_seconds, made)
    if pipeline.cores is not None:
        left = np.maximum(0.0, pipeline.cores * warm / pipeline.ranks - work.train_core_seconds)
        on_cores = np.minimum(on_cores, left / samples)
    held = replace(work, make_seconds=made, core_seconds=on_cores)
    queued = float(np.mean(step_seconds(pipeline, held, np.full_like(made, trains))))
    return held if queued <= warm else replace(held, variation=0.0)


def _hand_over(profile: Profile, draws: Draws) -> HandOver:
    """As constants have it for a batch of that many tensors and bytes."""
    loader = profile.workload.loaders[0]
    low, high = HAND_OVER_FACTORS
    times = draws.draw("handing a batch over", Interval(value=1.0, low=low, high=high))
    on_devices = not profile.is_on_cpu
    return HandOver(
        batch_seconds=times
        * (BATCH_HAND_OVER + TENSOR_HAND_OVER * (loader.tensors_per_batch or _USUAL_TENSORS)),
        sample_seconds=times * (BYTE_HAND_OVER * (profile.workload.sample_bytes or 0.0)),
        beside=bool(loader.pin_memory) and on_devices,
    )


def _fit_hand_over(pipeline: Pipeline, work: Work, breakdown: Breakdown, draws: Draws) -> HandOver:
    """As steps with workers have it: what they wait although batches are made in time, and no more than they wait.

    Where workers are too slow, nothing of it shows, and the constants stand as far as they fit into the steps.
    """
    prep, batches, constant = breakdown.stall("prep"), pipeline.batches, work.hand_over
    assert prep is not None, "loading_of needs it"
    trains = sum(stall.seconds for stall in breakdown.stalls if stall.name not in DATA_STALLS)
    unloaded = replace(work, hand_over=HandOver())
    queued = step_seconds(pipeline, unloaded, np.full(draws.count, trains)) - trains
    waited = np.maximum(0.0, draws.draw_mean("measured prep", prep.time))
    unexplained = np.maximum(0.0, waited - queued) / batches
    most = float(np.mean(constant.batch_seconds)) * HAND_OVER_FACTORS[1]
    shown = np.minimum(np.maximum(constant.batch_seconds, unexplained), most)
    found = replace(constant, batch_seconds=np.minimum(shown, waited / batches))
    room = (
        trains + prep.seconds
    ) * pipeline.workers / batches - pipeline.samples * work.make_seconds
    sending = sending_seconds(pipeline, replace(work, hand_over=found))
    share = np.clip(room / np.maximum(sending, np.finfo(float).tiny), 0.0, 1.0)
    return replace(found, sample_seconds=found.sample_seconds * share)


def _median_step(
    profile: Profile, rung: str, field: Callable[[Block], float | None]
) -> float | None:
    """Of all blocks of a rung, by step."""
    blocks = [
        (block, field(block)) for block in profile.blocks if block.rung == rung and block.steps
    ]
    values = [value / block.steps for block, value in blocks if value is not None]
    return statistics.median(values) if values else None


def _variation(profile: Profile) -> float:
    """Of the time to make a batch, from how means of so many batches scatter: s = sd of means · √batches.

    Of each worker where they were recorded, else of all of them in each block. A machine that drifts makes this
    larger than it is. Zero, and so no slow-down, if there are too few blocks to tell.
    """
    times = batch_times(profile)
    if len(times) < _MIN_BLOCKS:
        blocks = [b for b in profile.blocks if b.rung == "warm" and b.fetch_seconds and b.steps]
        each = profile.workload.loaders[0].batches_per_step
        times = [((b.fetch_seconds or 0.0) / b.steps, b.steps * each) for b in blocks]
    times = [(mean, batches) for mean, batches in times if mean > 0 and batches > 0]
    if len(times) < _MIN_BLOCKS:
        return 0.0
    means, many = [mean for mean, _ in times], statistics.mean(batches for _, batches in times)
    return float(min(MAX_VARIATION, statistics.stdev(means) / statistics.mean(means) * many**0.5))


def _storage_rate(
    profile: Profile, breakdown: Breakdown, pipeline: Pipeline, work: Work
) -> Quantity | None:
    """Bytes per second that storage gave a node's loaders; ``None`` if it kept up: unknown what it could do."""
    size, fetch = profile.workload.sample_disk_bytes, breakdown.stall("fetch")
    if not size or fetch is None:
        return None
    reading, source = (
        _reading_in_steps(breakdown, pipeline, work),
        "steps under cold, which wait for it",
    )
    arm, middle = fetch.time.half_width, fetch.seconds
    if reading is None or reading <= 0:  # F is of a few batches, and steps are of many
        reading, source = (
            _reading_alone(breakdown, pipeline, count_readers(profile)),
            "the loaders' own rate F, files not in memory",
        )
        per_sample = [
            rate.seconds / rate.samples
            for rate in profile.rates
            if rate.feed == "cold" and rate.samples
        ]
        interval = median_interval(per_sample) if per_sample and min(per_sample) > 0 else None
        arm, middle = (None, 0.0) if interval is None else (interval.half_width, interval.value)
    if reading is None or reading <= 0:
        return None
    value = size / reading
    low, high = (
        (None, None) if arm is None else (value / (1 + arm / middle), value * (1 + arm / middle))
    )
    as_of = profile.created[:10]
    return Quantity(value=value, low=low, high=high, origin="measured", as_of=as_of, source=source)


def _reading_alone(breakdown: Breakdown, pipeline: Pipeline, loaders: float) -> float | None:
    """Seconds that storage is busy with one sample, from F and P, both of loaders while nothing trains.

    Supply takes s = max((w + d)/W, R·d) a sample (``pipeline``), d of it reading: so d = min(W·s − w, s/R).
    """
    rates, workers = breakdown.rates, max(1, pipeline.workers)
    if not rates.fetch or not rates.prep:
        return None
    with_reading, without = (workers * loaders / rate for rate in (rates.fetch, rates.prep))
    return min(with_reading - without, with_reading / workers / pipeline.ranks)


def _reading_in_steps(breakdown: Breakdown, pipeline: Pipeline, work: Work) -> float | None:
    """The same from the steps, where they certainly wait for storage."""
    fetch, samples = breakdown.stall("fetch"), pipeline.batches * pipeline.samples
    if fetch is None or not fetch.significant:
        return None
    if pipeline.workers == 0:
        return fetch.seconds / samples / pipeline.ranks
    supplied = breakdown.step_seconds / samples
    return min(
        pipeline.workers * supplied - float(np.mean(work.make_seconds)), supplied / pipeline.ranks
    )


def batch_times(profile: Profile) -> list[tuple[float, int]]:
    """Mean seconds of a batch, and of how many, by worker and block, files in memory; empty if not recorded."""
    return [
        (seconds / batches, batches)
        for each in profile.workers
        if each.feed == "warm"
        for seconds, batches in zip(each.seconds, each.batches, strict=False)
        if batches > 0
    ]


# Prep and fetch of a pipeline set up in another way


@dataclass(frozen=True, eq=False)
class StallCorrection:
    """How the model is held to one measured stall, ``[draws]``."""

    less: Array
    """What it says is taken in this proportion: below 1 where it said too much."""
    more: Array
    """Seconds per sample and rank that it did not say."""
    noise: Array
    """Seconds below zero that were measured: they stay as they are."""

    def correct(self, modelled: Array, samples: float, share: Array | float = 1.0) -> Array:
        """A stall of so many samples of a rank, ``share`` of which have the cost that the model does not know."""
        corrected: Array = modelled * self.less + samples * share * self.more + self.noise
        return corrected


@dataclass(frozen=True, eq=False)
class LoadingCorrection:
    """Both stalls; fetch is ``None`` where it was not measured."""

    prep: StallCorrection
    fetch: StallCorrection | None


def calibrate_loading(
    loading: Loading, breakdown: Breakdown, draws: Draws, trained_in: Array
) -> LoadingCorrection:
    """The model held to the measured stalls, for the measured step without data stalls ``trained_in``."""
    samples = loading.pipeline.batches * loading.pipeline.samples
    prep, fetch = breakdown.stall("prep"), breakdown.stall("fetch")
    assert prep is not None, "loading() needs it"
    making, reading = model_loading(loading.pipeline.replace_cache(0.0), loading.work, trained_in)
    held = _stall_correction(draws.draw_mean("measured prep", prep.time), making, samples)
    if fetch is None:
        return LoadingCorrection(held, None)
    return LoadingCorrection(
        held, _stall_correction(draws.draw_mean("measured fetch", fetch.time), reading, samples)
    )


def _stall_correction(seen: Array, modelled: Array, samples: float) -> StallCorrection:
    with np.errstate(divide="ignore", invalid="ignore"):
        less = np.where(modelled > 0, np.clip(seen / modelled, 0.0, 1.0), 1.0)
    more = np.maximum(0.0, seen - np.maximum(0.0, modelled)) / samples
    return StallCorrection(less, more, np.minimum(0.0, seen))


def model_loading(pipeline: Pipeline, work: Work, trained_in: Array) -> tuple[Array, Array]:
    """Seconds a step waits for batches to be made, and more for what is not in memory, by the model alone."""
    in_memory = step_seconds(pipeline.fully_cached, work, trained_in)
    return in_memory - trained_in, step_seconds(pipeline, work, trained_in) - in_memory


def predict_loading(
    pipeline: Pipeline, work: Work, held: LoadingCorrection, trained_in: Array
) -> tuple[Array, Array | None]:
    """Prep and fetch of a step on ``pipeline``, in seconds, ``[draws]``; fetch is ``None`` where it was not measured.

    What the model does not know of fetch is of the reads, so it shrinks with their share.
    """
    samples = pipeline.batches * pipeline.samples
    making, reading = model_loading(pipeline, work, trained_in)
    prep = held.prep.correct(making, samples)
    return prep, None if held.fetch is None else held.fetch.correct(
        reading, samples, pipeline.misses
    )
