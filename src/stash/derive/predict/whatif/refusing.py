"""Which changes a profile cannot be asked for, as it lacks a fact that they need: refused with what would add it.

How a change is told where the fact is there is not known here.
"""

from __future__ import annotations

import shlex

from stash.base.errors import UserError
from stash.base.records import Profile
from stash.derive.predict.exchange.traffic import shards_itself
from stash.derive.predict.loading.measured import Loading, lacks
from stash.derive.predict.whatif.changes import OPTIONS, Alteration
from stash.derive.stalls.breakdown import Breakdown


def refuse_unanswerable(
    profile: Profile, breakdown: Breakdown, found: Loading | None, wanted: Alteration, counted: bool
) -> None:
    """Raises UserError where the profile lacks what ``wanted`` needs; ``counted``: if samples of a step are known."""
    reads = [name for name in ("cache", "memory", "disk", "disk_times") if getattr(wanted, name) is not None]
    if reads and breakdown.stall("fetch") is None:
        why = next((item.why for item in breakdown.skipped if item.name == "fetch"), "it was not measured")
        raise UserError(f"--{OPTIONS[reads[0]]}: the profile does not tell what fetching costs ({why})")
    if wanted.workers is not None and found is None:
        raise UserError(f"--workers: {lacks(profile, breakdown) or records(profile)}")
    if wanted.memory is not None and found is not None and not found.dataset_bytes:
        raise UserError("--memory: the size of the data set is unknown; say what fits with --cache instead")
    if wanted.disk_times is not None and (found is None or found.rate is None):
        raise UserError(
            f"--disk {wanted.disk_times:g}x: storage kept up with the loaders, so what it can do is unknown; give a "
            "rate, like 500MB/s"
        )
    if wanted.disk is not None and not profile.workload.sample_disk_bytes:
        raise UserError(
            f"--disk: the profile does not hold how many bytes a sample takes on disk; {records(profile)}"
        )
    if not counted and (wanted.batch is not None or wanted.accumulate is not None):
        raise UserError("samples per step are unknown, so no other batch can be told; profile again with --batch N")
    _refuse_unanswerable_of_exchange(profile, wanted)


def _refuse_unanswerable_of_exchange(profile: Profile, wanted: Alteration) -> None:
    work = profile.workload
    if shards_itself(work) and (wanted.sharding is not None or wanted.bucket is not None):
        option = "sharding" if wanted.sharding is not None else "bucket"
        raise UserError(
            f"--{option}: the job shards its model already, and what its gradients would do otherwise is not in the "
            "profile; profile it with DistributedDataParallel"
        )
    if wanted.sharding not in (None, "none") and not any(each.ready_seconds is not None for each in work.gradients):
        raise UserError(f"--sharding: the profile does not hold when gradients are ready; {records(profile)}")
    if wanted.bucket_view is not None and work.bucket_view is None:
        raise UserError(
            f"--bucket-view: the profile does not hold whether gradients are views already; {records(profile)}"
        )
    if wanted.bucket_view is not None and all(rank.device == "cpu" for rank in profile.ranks):
        raise UserError("--bucket-view: how fast the memory of these CPUs is nobody measured; time both instead")
    if wanted.bucket is not None and not profile.workload.gradients:
        raise UserError(f"--bucket: the profile does not hold the gradients' sizes; {records(profile)}")


def command(profile: Profile) -> str:
    """What profiles this job again, as it was typed: a launcher's command stands behind ``--``."""
    words = profile.workload.command
    whole = words[:1] and not (words[0] == "-m" or words[0].endswith(".py"))
    return shlex.join(("stash", "profile", *(("--",) if whole else ()), *words))


def records(profile: Profile) -> str:
    """The end of a sentence about a fact that ``profile`` lacks."""
    return f"`{command(profile)}` records it"
