"""Which of a plan's choices a later profile is of: by instance type and nodes, else by GPUs and nodes.

A profile says its machine's type only where the firmware or a metadata service tells it, so what is known of it is
said with the answer. Knows what was rented and what was measured, and compares no times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stash.analysis.breakdown import ranks_per_node
from stash.analysis.findings.machine import model_of
from stash.catalog.machines import is_called
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.formatting import listed
from stash.core.records.profile import Profile
from stash.core.units import counted
from stash.plan.records import Choice, RentalPlan

_SAME = 0.005
"""Of the samples of a step: what counting them block by block may differ by."""


class MatchedChoice(NamedTuple):
    """One choice of a plan, and by what a profile is taken to be of it."""

    choice: Choice
    by: str


class _Seen(NamedTuple):
    """What a profile tells of the machines that it ran on."""

    nodes: int
    devices: int
    """Of a node."""
    cloud: str | None
    """As ``--instance`` names it."""
    instance: str | None
    on_cpus: bool
    gpus: tuple[str, ...]
    """Models; none where ranks ran on CPUs, and where no host is recorded."""

    @property
    def words(self) -> str:
        if self.instance is not None:
            return f"{self.nodes} × {self.instance}"
        on = f"{self.devices} × {listed(self.gpus)}" if self.gpus else f"{self.devices} ranks on CPUs"
        return f"{self.nodes} × (a machine of {on})"


def choice_of(
    plan: RentalPlan, profile: Profile, samples_per_step: float | None, catalog: Catalog, instance: str | None = None
) -> MatchedChoice:
    """The choice that ``profile`` is of, or is said to be of with ``instance``; UserError says what there is instead.

    Of several on the same machines, that with as many samples of a step; what differs besides (how it is paid for)
    is no matter to a step, and the plan's first is taken.
    """
    if plan.workload != profile.workload.name:
        raise UserError(f"the plan is for {plan.workload}, and this profile is of {profile.workload.name}")
    host = profile.hosts[0] if profile.hosts else None
    cloud, _, type_name = (instance or "").rpartition("/")
    if not type_name and host is not None:
        type_name = host.instance or ""
    on_cpus = all(rank.device == "cpu" for rank in profile.ranks)
    gpus = () if host is None or on_cpus else host.gpus
    seen = _Seen(
        nodes=profile.nodes,
        devices=max(ranks_per_node(profile).values(), default=1),
        cloud=cloud.lower() or None,
        instance=type_name.lower() or None,
        on_cpus=on_cpus,
        gpus=tuple(dict.fromkeys(model_of(gpu, catalog) or gpu.name for gpu in gpus)),
    )
    here = [choice for choice in plan.choices if not _unlike(choice, seen)]
    if not here:
        raise UserError(f"this profile is of {_lacks(plan, seen)}")
    alike = [
        choice
        for choice in here
        if samples_per_step is None or abs(choice.samples_per_step - samples_per_step) <= _SAME * samples_per_step
    ]
    if not alike:
        wanted = listed([f"{choice.samples_per_step:g}" for choice in here])
        raise UserError(
            f"this profile trains {samples_per_step:g} samples a step, and the plan's {here[0].name} {wanted}; "
            "profile with the plan's batch and accumulation"
        )
    return MatchedChoice(alike[0], _by(seen, alike, instance))


def _unlike(choice: Choice, seen: _Seen) -> dict[str, tuple[str, str]]:
    """By what the profile's machines are not those of the choice: what they have, and what the choice has."""
    rented = choice.rented
    differences: dict[str, tuple[str, str]] = {}
    if rented.nodes != seen.nodes:
        differences["nodes"] = f"{seen.nodes}", f"{rented.nodes}"
    if seen.instance is not None and not is_called(rented.instance, rented.cloud, seen.instance):
        differences["instance"] = seen.instance, rented.instance
    elif seen.instance is not None and seen.cloud is not None and rented.cloud.lower() != seen.cloud:
        differences["cloud"] = f"cloud {seen.cloud}", f"cloud {rented.cloud}"
    if rented.devices != seen.devices:
        differences["devices"] = f"{counted(seen.devices, 'device')} a node", f"{rented.devices}"
    device = (rented.device or "").lower()
    named = {device, device.partition("-")[0]}  # ``V100-SXM2-16GB`` is a ``V100``
    if (rented.device is None) is not seen.on_cpus or not all(model.lower() in named for model in seen.gpus):
        differences["device"] = listed(seen.gpus) if seen.gpus else "CPUs", rented.device or "CPUs"
    return differences


def _lacks(plan: RentalPlan, seen: _Seen) -> str:
    """The end of the sentence that says what the plan has instead, and by what that is another thing."""
    same = [each for each in plan.choices if is_called(each.rented.instance, each.rented.cloud, seen.instance or "")]
    alike = next((each for each in same if "nodes" not in _unlike(each, seen)), None)
    if alike is not None:
        pairs = _unlike(alike, seen).values()
        here, there = (listed([pair[side] for pair in pairs]) for side in (0, 1))
        return (
            f"{seen.words} with {here}, and the plan's {alike.name} has {there}; profile the job as the plan has it"
        )
    names = list(dict.fromkeys(each.name for each in same or plan.choices))
    hint = "; say which type it is with --instance NAME" if seen.instance is None else ""
    return f"{seen.words}, which the plan does not have; it has {listed(names)}{hint}"


def _by(seen: _Seen, alike: Sequence[Choice], instance: str | None) -> str:
    standing = f"{alike[0].name}, the plan's {alike[0].standing} choice"
    if instance is not None:
        return f"{standing}, as --instance says"
    if seen.instance is not None:
        return f"{standing}, by its instance type"
    types = list(dict.fromkeys(choice.rented.instance for choice in alike))
    others = f"; {listed(types[1:])} would fit as well (--instance NAME)" if len(types) > 1 else ""
    return f"{standing}, by its devices alone, as its instance type is not recorded{others}"
