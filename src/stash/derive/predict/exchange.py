"""The exchange stalls of a forecast, interconnect and network: a model of the target's links, held to a measurement.

A profile says how long steps waited for their exchange, and a model what they should have. What the model misses on
the profile's own links (copies, bookkeeping, waiting for each other) is carried over to the target, by an amount that
is as uncertain as the target is far away. So the forecast of what was measured is the measurement. Known error:
``docs/validation.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stash.base.ladder import EXCHANGE_STALLS, Situation, why_no_stall
from stash.base.records import Profile
from stash.derive.predict import stragglers
from stash.derive.predict.collectives import Fabric
from stash.derive.predict.draws import Array, Draws
from stash.derive.predict.exchanged import AS_MEASURED, ExchangeChanges, Exchanged, alone, exchanged, exposed
from stash.derive.predict.fabric import UnknownFactError, fabric_of, facts_of
from stash.derive.predict.forecast import Predicted, PredictedStalls
from stash.derive.predict.quantity import worst
from stash.derive.predict.target import Backend, Target
from stash.derive.stalls.breakdown import Breakdown, Missing

FAR = 4.0
"""Times slower, faster or more ranks than measured, beyond which a forecast is said to be an extrapolation: the
testbed's validation goes that far."""
MODEL_SPREAD = 0.22
"""Standard deviation of the logarithm of an exposed exchange over what the model says, where no measurement on such
links holds it: of four published jobs (``bench.predict.published.model_spread``), which validate nothing."""
HELD_SPREAD = 0.04
"""The same where a measurement holds it: the root mean square of the first two configurations of
``bench.predict.testbed`` (``FITTED`` there), which validate nothing either."""
_PLACES = {"interconnect": "inside a node", "network": "between nodes"}


@dataclass(frozen=True, eq=False)
class _Seen:
    """One scope of the profile: what steps waited, and what the model says of it, ``[draws]`` each."""

    waited: Array
    modelled: Array
    alone: Array
    hidden: Array


class ExchangeModel:
    """The exchange of one profile's job, to be asked about any target; make it once and ask often.

    ``base`` is where the profile was taken (``sources.of_profile``).
    """

    def __init__(self, profile: Profile, breakdown: Breakdown, base: Target, draws: Draws) -> None:
        self._base, self._draws = base, draws
        self._stalls = {name: breakdown.stall(name) for name in EXCHANGE_STALLS}
        self._work = exchanged(profile)
        self._steps = stragglers.single_steps(profile)
        self._seen = {name: self._calibration(name) for name in EXCHANGE_STALLS}

    def on(self, target: Target, changes: ExchangeChanges = AS_MEASURED) -> PredictedStalls:
        """Interconnect and network stall on ``target``.

        All draw by draw: with E waited and the model X(·), where the model says too little, E − X(base) is added,
        times (T(target) / T(base))^u, T being the exchange by itself and u anything between 0 (what is missed is the
        same for any exchange) and 1 (it grows with it); where it says too much, X(target) counts in the same
        proportion. More ranks wait longer for their slowest besides (``stragglers``). The network stall is what the
        exchange of all ranks exposes beyond that of a node's, as on the ladder.
        """
        shape = Situation(target.ranks, target.nodes, target.devices, target.backend == "nccl", loader=True)
        below, parts, missing = np.zeros(self._draws.count), [], []
        for name in EXCHANGE_STALLS:
            why = why_no_stall(name, shape)
            if why is not None:
                missing.append(Missing(name=name, why=why))
                continue
            try:
                waits = self._waits(name, target, changes)
            except UnknownFactError as error:
                missing.append(Missing(name=name, why=str(error), possible=True))
                continue
            parts.append(self._part(name, waits - below, target, changes))
            below = waits
        predicted = {part.name for part in parts}
        if "network" in predicted and "interconnect" not in predicted:
            missing = [_within_network(each) if each.possible else each for each in missing]
        return PredictedStalls(tuple(parts), tuple(missing))

    def _waits(self, name: str, target: Target, changes: ExchangeChanges) -> Array:
        """What steps wait for, of the exchange up to this stall's scope, ``[draws]``; raises UnknownFactError."""
        work, seen = self._job(), self._calibrating(name, target)
        try:
            fabric = fabric_of(target, self._draws, only_inside=name == "interconnect")
        except UnknownFactError:
            if changes == AS_MEASURED and self._unchanged(name, target):
                return self._waited(name)
            raise
        slowest = stragglers.waiting(self._steps, _ranks(self._base, name), fabric.ranks)
        later = (slowest or 0.0) * changes.compute + changes.copy_seconds
        if seen is not None:
            same = changes == AS_MEASURED and self._unchanged(name, target)
            return self._held(seen, fabric, target.backend, changes, HELD_SPREAD * (not same)) + later
        if not work.ready:
            raise UnknownFactError(
                "the profile tells neither when gradients are ready nor what their exchange costs "
                f"{_PLACES[name]}; profile again with this Stash"
            )
        error = np.exp(MODEL_SPREAD * self._draws.normals("error of the exchange model"))
        return exposed(fabric, work, target.backend, changes) * error + later

    def _held(self, seen: _Seen, fabric: Fabric, backend: Backend, changes: ExchangeChanges, spread: float) -> Array:
        """The model on ``fabric``, held to what was waited on the profile's own, ``[draws]``; see ``on``."""
        work = self._job()
        # How much more a longer backward pass hides depends on readiness: without it, on anything up to its length.
        hidden = seen.hidden * changes.compute ** self._draws.uniforms("growth of what is hidden")
        predicted = exposed(fabric, work, backend, changes, hidden)
        ratio = alone(fabric, work, backend, changes) / seen.alone
        grown = ratio ** self._draws.uniforms("growth of what the exchange model misses")
        nothing = np.zeros_like(predicted)
        less = np.divide(seen.waited, seen.modelled, out=nothing, where=seen.modelled > 0).clip(0.0, 1.0)
        corrected = predicted * less + np.maximum(0.0, seen.waited - seen.modelled) * grown
        error = 1 + spread * self._draws.normals("error of the exchange model")
        # What is below zero is noise of the measurement: it stays as it is.
        waits: Array = corrected * error + np.minimum(0.0, seen.waited)
        return waits

    def _job(self) -> Exchanged:
        if self._work is None:
            raise UnknownFactError("the profile holds neither gradients nor buckets; profile again with this Stash")
        return self._work

    def _calibration(self, name: str) -> _Seen | None:
        """Of the profile's own scope; ``None`` where it exchanges nothing there, or its links are unknown."""
        if self._work is None or self._stalls[name] is None:
            return None
        try:
            fabric: Fabric = fabric_of(self._base, self._draws, only_inside=name == "interconnect")
        except UnknownFactError:
            return None
        waited, whole = self._waited(name), alone(fabric, self._work, self._base.backend, AS_MEASURED)
        hidden = np.maximum(0.0, whole - waited)
        modelled = exposed(fabric, self._work, self._base.backend, AS_MEASURED, hidden)
        return _Seen(waited, modelled, whole, hidden)

    def _waited(self, name: str) -> Array:
        """Measured, of this stall and those below it: a scope's whole exposed exchange, ``[draws]``."""
        upto = EXCHANGE_STALLS[: EXCHANGE_STALLS.index(name) + 1]
        found = [stall.time for each in upto if (stall := self._stalls[each]) is not None]
        drawn = [self._draws.around(f"measured {each}", time) for each, time in zip(upto, found, strict=False)]
        together: Array = np.sum(drawn, axis=0)
        return together

    def _calibrating(self, name: str, target: Target) -> _Seen | None:
        """The measured scope that holds a prediction; of a target on several nodes none but one on several."""
        return self._seen[name] if name == "interconnect" or self._base.nodes > 1 else None

    def _unchanged(self, name: str, target: Target) -> bool:
        same_node = (target.devices, target.inside) == (self._base.devices, self._base.inside)
        same_network = (target.nodes, target.network) == (self._base.nodes, self._base.network)
        return self._stalls[name] is not None and same_node and (name == "interconnect" or same_network)

    def _part(self, name: str, seconds: Array, target: Target, changes: ExchangeChanges) -> Predicted:
        facts = facts_of(target, only_inside=name == "interconnect")
        same = changes == AS_MEASURED and self._unchanged(name, target)
        return Predicted(
            name=name,
            seconds=seconds,
            origin=worst([*(fact.quantity.origin for fact in facts), "measured" if same else "scaled"]),
            facts=facts,
            beyond=tuple(self._beyond(name, target)),
            spread_known=all(fact.quantity.spread_known for fact in facts),
        )

    def _beyond(self, name: str, target: Target) -> Iterator[str]:
        """Sentences on how far the target is from what was measured."""
        seen = self._calibrating(name, target)
        if seen is None and not self._unchanged(name, target):
            yield f"the profile has no exchange {_PLACES[name]} to hold the prediction to"
        if self._work is not None and not self._work.ready:
            yield "the profile does not tell when gradients are ready: as much of their exchange hides as did"
        before, after = _ranks(self._base, name), _ranks(target, name)
        if after > before and len(self._steps) < stragglers.LEAST_STEPS:
            yield f"what {after} ranks wait for their slowest is not in it: too few single steps were measured"
        if after > FAR * before:
            yield f"{after} ranks are more than {FAR:g} times the {before} measured"
        old, new = _rate(self._base, name), _rate(target, name)
        if seen is not None and old and new and not 1 / FAR <= new / old <= FAR:
            yield f"links {_PLACES[name]} are {new / old:.2g} times as fast as those measured"


def _within_network(interconnect: Missing) -> Missing:
    """The exchange of all ranks holds that inside a node: of a stall that cannot be told apart nothing is lost."""
    why = f"{interconnect.why}; contained in network"
    return interconnect.model_copy(update={"why": why, "contained_in": "network"})


def _ranks(target: Target, name: str) -> int:
    """That the exchange of this stall's scope joins."""
    return target.devices if name == "interconnect" else target.ranks


def _rate(target: Target, name: str) -> float | None:
    links = target.inside if name == "interconnect" else target.network
    return None if links is None or links.bytes_per_second is None else links.bytes_per_second.value
