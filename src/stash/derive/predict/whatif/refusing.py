"""Which questions a profile cannot answer for want of a fact, why the fact is missing, and what command adds it.

Profiles of schemas 1 and 2 were made before these facts were recorded; a newer one says itself why it lacks one. How
the questions are answered is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stash.base.errors import UserError
from stash.base.records import Profile
from stash.derive.predict.exchange.traffic import shards_itself
from stash.derive.predict.loading.measured import Loading, lacks
from stash.derive.predict.recorded import command, records
from stash.derive.predict.whatif.changes import OPTIONS, Alteration
from stash.derive.predict.whatif.passes import Passes
from stash.derive.stalls.breakdown import Breakdown

_OLD = "it was made by a Stash that did not record this"
_UNSEEN = "none of its blocks showed this"


class Unanswered(NamedTuple):
    """One question, and what stands in its way."""

    question: str
    fact: str
    """The field of the artefact that is empty."""
    why: str
    command: str
    """What measures it."""

    @property
    def sentence(self) -> str:
        return f"this profile cannot tell {self.question}: {self.why}; `{self.command}` records it"


class _Fact(NamedTuple):
    """A field that a question needs."""

    name: str
    question: str
    recorded: Callable[[Profile], bool]
    concerns: Callable[[Profile], bool] = lambda profile: True
    """Whether a job like this one has such a fact at all."""


_FACTS = (
    _Fact(
        "operators",
        "what a step would take on another device or in another precision, by its operators",
        lambda profile: bool(profile.workload.operators),
    ),
    _Fact(
        "ready_steps",
        "how unevenly gradients become ready, and so how sure a forecast of their exchange is",
        lambda profile: any(len(gradient.ready_steps) > 1 for gradient in profile.workload.gradients),
        lambda profile: profile.world_size > 1,
    ),
    _Fact(
        "workers",
        "how evenly the loader's workers make batches, and so how many more would help",
        lambda profile: bool(profile.workers),
        lambda profile: bool(profile.workload.loaders),
    ),
    _Fact(
        "memory",
        "which batch fits into a device's memory",
        lambda profile: any(held.allocated_bytes is not None for held in profile.memory),
        lambda profile: any(rank.device.startswith("cuda") for rank in profile.ranks),
    ),
)


def unanswered(profile: Profile) -> tuple[Unanswered, ...]:
    """What this profile cannot tell; empty of one that has every fact that its job has."""
    return tuple(
        Unanswered(fact.question, fact.name, _why(profile, fact.name), command(profile))
        for fact in _FACTS
        if fact.concerns(profile) and not fact.recorded(profile)
    )


def _why(profile: Profile, name: str) -> str:
    said = profile.workload.unrecorded.get(name)
    if said is not None:
        return said
    newer = bool(profile.workload.unrecorded) or any(fact.recorded(profile) for fact in _FACTS)
    return _UNSEEN if newer else _OLD


def refuse_unanswerable(
    profile: Profile, breakdown: Breakdown, found: Loading | None, wanted: Alteration, after: Passes | None
) -> None:
    """Raises UserError where the profile lacks what ``wanted`` needs; ``after`` are the passes of a step then."""
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
    if after is None and (wanted.batch is not None or wanted.accumulate is not None):
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
