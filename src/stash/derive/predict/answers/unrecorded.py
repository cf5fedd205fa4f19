"""Which questions a profile cannot answer for want of a fact, why the fact is missing, and what command adds it.

Profiles of schemas 1 and 2 were made before these facts were recorded; a newer one says itself why it lacks one. How
the questions are answered is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stash.base.records import Profile
from stash.derive.predict.whatif.refusing import command

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
