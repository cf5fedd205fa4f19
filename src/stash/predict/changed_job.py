"""A profiled job with what is changed of it: every wish read once, against its profile and its machines.

What is typed ends here: forecasts of stalls, of memory and of what suffices ask this record, never the options.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stash.core.errors import UserError
from stash.core.units import format_bytes
from stash.predict.changes import AS_IT_IS, Alteration, Times, retarget
from stash.predict.cluster import Storage, Target
from stash.predict.exposure import AS_MEASURED, ExchangeChanges, shards_itself
from stash.predict.loading import cores_worth, is_rented, why_no_loading
from stash.predict.mesh_shapes import Mesh
from stash.predict.passes import (
    Base,
    ComputeScale,
    Passes,
    passes_of,
    recording_hint,
    why_replicas_split,
)
from stash.predict.pipeline import NodeStorage, Pipeline, cached_share, draw_storage, warmed_share

_OF_MACHINES = (
    "network",
    "nodes",
    "gpus",
    "gpu",
    "cpus",
    "disk",
    "memory",
    "instance",
    "cluster",
    "transport",
)


@dataclass(frozen=True, eq=False)
class ChangedJob:
    """What is asked about; make it with ``change_job``."""

    base: Base
    target: Target
    passes: Passes | None
    """Of a step; ``None`` where its samples were not counted."""
    compute: ComputeScale
    exchange: ExchangeChanges = AS_MEASURED
    workers: int | None = None
    """Of a rank's loader; ``None``: as many as it had."""
    cached: float | None = None
    """Share of the data set in memory; ``None``: none of it, as under cold."""
    keeps: float | None = None
    """How well the page cache keeps it; ``None`` where that is not known."""
    storage: NodeStorage | None = None
    unpublished: bool = False
    """Whether another machine's storage is described, and not how fast it is."""
    shared_cores: bool = False
    """Whether two threads of its machines share a core, as on rented ones."""
    mesh: Mesh | str | None = None
    microbatches: int | None = None
    split: str | None = None
    unchanged: bool = True
    only_cached: bool = True
    """Whether nothing but the cache is changed."""

    @property
    def more_passes(self) -> float:
        """Times as many passes a step as were profiled; 1 where they were not counted."""
        before, after = self.base.passes, self.passes
        return after.accumulated / before.accumulated if before and after else 1.0

    @property
    def more_samples(self) -> float:
        before, after = self.base.passes, self.passes
        return after.samples / before.samples if before and after else 1.0

    def after(self, epochs: int) -> ChangedJob | None:
        """The job after so many shuffled epochs on nodes that hold the data set; ``None`` where that is unknown."""
        memory = self.target.memory_bytes
        size = self.base.loading and self.base.loading.dataset_bytes
        if not size or memory is None or self.cached is not None:
            return None
        if cached_share(memory.value, size) < 1.0:
            return None
        share = warmed_share(self.target.nodes, epochs)
        return replace(self, cached=share, keeps=1.0, unchanged=False, only_cached=False)

    @cached_property
    def pipeline(self) -> Pipeline | None:
        """The data pipeline of a node; ``None`` where that of the profile is unknown."""
        base, target = self.base, self.target
        if base.loading is None:
            return None
        old = base.loading.pipeline
        workers = old.workers if self.workers is None else self.workers
        cores = old.cores
        names = ("machine", "cores", "devices")
        same_cores = all(getattr(target, name) == getattr(base.target, name) for name in names)
        if not same_cores or workers != old.workers:
            threads = None if target.cores is None else target.cores.value
            cores = cores_worth(
                self.shared_cores, threads, target.devices * (workers + 1), base.draws
            )
        # On CPUs it is passes that take cores, elsewhere launching them.
        busier = self.compute.factor if target.device is None else 1.0
        return Pipeline(
            ranks=target.devices,
            workers=workers,
            prefetch=old.prefetch,
            samples=old.samples if self.passes is None else self.passes.batch,
            batches=old.batches if self.passes is None else self.passes.accumulated,
            cores=cores,
            store=None if self.storage is None else self.storage.bytes_per_second,
            cached=self.cached or 0.0,
            keeps=base.draws.uniforms("page cache") if self.keeps is None else self.keeps,
            training=self.more_passes * busier,
        )


def change_job(base: Base, wanted: Alteration = AS_IT_IS) -> ChangedJob:
    """The profiled job as ``wanted``; raises UserError where it cannot be so, or the profile does not hold enough."""
    target = base.target
    if not wanted.facts.keys().isdisjoint(_OF_MACHINES):
        target = retarget(base.target, wanted, base.catalog(), base.clusters)
        if target == base.target:  # what was asked for is what was measured
            disk = wanted.disk if isinstance(wanted.disk, Times) else None
            wanted = wanted.replace_facts(**{**dict.fromkeys(_OF_MACHINES), "disk": disk})
        elif (why := why_replicas_split(base, target.nodes, target.devices)) is not None:
            raise UserError(f"{target.name}: {why}")
    scale, passes = ComputeScale(np.ones(base.draws.count)), base.passes
    if wanted.mesh is not None:
        return ChangedJob(
            base, target, passes, scale, mesh=wanted.mesh, unchanged=False, only_cached=False
        )
    if wanted.batch is not None or wanted.accumulate is not None:
        passes = passes_of(base.profile, base.breakdown, wanted.batch, wanted.accumulate)
    _refuse_unanswerable(base, wanted, counted=passes is not None)
    _refuse_too_large(base, target)
    moved = (target.device, target.device_share) != (base.target.device, base.target.device_share)
    if moved or wanted.batch is not None or wanted.dtype is not None:
        scale = base.compute_scale(target, passes, wanted.dtype, wanted.gpu)
    storage, unpublished = _storage(base, target, wanted)
    cached, size = wanted.cache, base.loading and base.loading.dataset_bytes
    if cached is None and wanted.memory is not None and size:
        cached = cached_share(wanted.memory, size)
    work = base.exchange.work
    exchanges_often = work is not None and work.times != 1.0
    return ChangedJob(
        base,
        target,
        passes,
        scale,
        exchange=ExchangeChanges(
            bucket_cap=wanted.bucket,
            compress=1 / (wanted.compress or 1.0),
            times=1.0 if wanted.accumulate is not None and exchanges_often else None,
            compute=scale.mean,
        ),
        workers=wanted.workers,
        cached=cached,
        storage=storage,
        unpublished=unpublished,
        shared_cores=wanted.instance is not None or is_rented(next(iter(base.profile.hosts), None)),
        microbatches=wanted.microbatches,
        split=wanted.split,
        unchanged=wanted == AS_IT_IS,
        only_cached=wanted.facts.keys() <= {"cache", "memory"},
    )


def _refuse_too_large(base: Base, target: Target) -> None:
    """Raises UserError where not even the parameters that a rank holds fit into a device there."""
    work, room = base.profile.workload, target.device_memory_bytes
    held = work.parameter_bytes
    if held is None or room is None or held <= room.value or target.device == base.target.device:
        return
    if not shards_itself(work):
        raise UserError(
            f"{target.device} has {format_bytes(room.value)}, and the model's parameters alone take {format_bytes(held)} "
            "on each device; ask for a larger one, or profile the job with FSDP, which divides them"
        )


def _storage(base: Base, target: Target, wanted: Alteration) -> tuple[NodeStorage | None, bool]:
    """What a node's storage delivers: as asked for, or of another machine's data sheet, else as it did.

    And whether that sheet does not say how fast it is.
    """
    as_it_did, unpublished = base.loading and base.loading.rate, False
    if isinstance(wanted.disk, Times):
        as_it_did = as_it_did and as_it_did.scale(wanted.disk, source=f"--disk {wanted.disk:g}x")
    elif target.storage is not None and target.storage != base.target.storage:
        there = draw_storage(target.storage, base.draws)
        if there is not None:
            return there, False
        unpublished = True
    if as_it_did is None:
        return None, unpublished
    return draw_storage(Storage(bytes_per_second=as_it_did), base.draws), unpublished


def _refuse_unanswerable(base: Base, wanted: Alteration, counted: bool) -> None:
    """Raises UserError where the profile lacks what ``wanted`` needs; ``counted``: if samples of a step are known."""
    profile, loading, work = base.profile, base.loading, base.profile.workload
    reads = [name for name in ("cache", "memory", "disk") if name in wanted.facts]
    if reads and base.breakdown.stall("fetch") is None:
        skipped = {item.name: item.why for item in base.breakdown.skipped}
        why = skipped.get("fetch", "it was not measured")
        raise UserError(f"--{reads[0]}: the profile does not tell what fetching costs ({why})")
    if wanted.workers is not None and loading is None:
        why = why_no_loading(profile, base.breakdown) or recording_hint(profile)
        raise UserError(f"--workers: {why}")
    if wanted.memory is not None and loading is not None and not loading.dataset_bytes:
        raise UserError(
            "--memory: the size of the data set is unknown; say what fits with --cache instead"
        )
    if isinstance(wanted.disk, Times):
        if loading is None or loading.rate is None:
            raise UserError(
                f"--disk {wanted.disk:g}x: storage kept up with the loaders, so what it can do is unknown; give a "
                "rate, like 500MB/s"
            )
    elif wanted.disk is not None and not work.sample_disk_bytes:
        raise UserError(
            f"--disk: the profile does not hold how many bytes a sample takes on disk; {recording_hint(profile)}"
        )
    if not counted and (wanted.batch is not None or wanted.accumulate is not None):
        raise UserError(
            "samples per step are unknown, so no other batch can be told; profile again with --batch N"
        )
    if wanted.bucket is not None and shards_itself(work):
        raise UserError(
            "--bucket: the job shards its model already, and what its gradients would do otherwise is not in the "
            "profile; profile it with DistributedDataParallel"
        )
    if wanted.bucket is not None and not work.gradients:
        raise UserError(
            f"--bucket: the profile does not hold the gradients' sizes; {recording_hint(profile)}"
        )
