"""The exchange stalls of a forecast, interconnect and network: a model of the target's links, held to a measurement.

A profile says how long steps waited for their exchange, and a model what they should have. What the model misses on
the profile's own links (copies, bookkeeping, waiting for each other) is carried over to the target, by an amount that
is as uncertain as the target is far away. So the forecast of what was measured is the measurement. The network stall
is what the exchange of all ranks exposes *beyond* that inside a node, in the model as on the ladder. Known error:
``docs/how-we-know.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from stash.analysis.breakdown import Breakdown, Missing
from stash.core.ladder import EXCHANGE_STALLS, Situation, why_no_stall
from stash.core.records.profile import Profile
from stash.predict.cluster import PAIR_SHARE, Backend, Target, shares_pair
from stash.predict.collective_times import Fabric, UnknownFactError, fabric_of, facts_of
from stash.predict.draws import Array, Draws, least_certain
from stash.predict.exposure import (
    AS_MEASURED,
    ExchangeChanges,
    StepExchange,
    exchange_of,
    exchange_seconds,
    exposed_seconds,
    payload_seconds,
    shown_seconds,
)
from stash.predict.forecast import PredictedStall, PredictedStalls
from stash.predict.stragglers import MoreRanks

FAR = 4.0
"""Times slower, faster or more ranks than measured, beyond which a forecast is said to be an extrapolation: the
testbed's validation goes that far."""
MODEL_SPREAD = 0.44
"""Standard deviation of the logarithm of an exposed exchange over what the model says, where no measurement on such
links holds it: of twelve published throughputs of several nodes (``bench.predict.published.model_spread``)."""
HELD_SPREAD = 0.04
"""The same where a measurement holds it: the root mean square of the first two configurations of
``bench.predict.testbed`` (``FITTED`` there), which validate nothing either."""
UNREADY_SPREAD = 0.80
"""The same where a measurement holds it and it is unknown when gradients are ready: of half of Gavel's published jobs
at other batches, widened as they are of two models (``bench.predict.gavel``, archived)."""
STEP_SPREAD = 0.09
"""Of a step at another batch, as a fraction of it: of the same half, too."""
_PLACES = {"interconnect": "inside a node", "network": "between nodes"}


@dataclass(frozen=True, eq=False)
class _Reach:
    """How far an exchange goes, and the part of it that a stall below already holds."""

    whole: Fabric
    within: Fabric | None = None
    """Inside a node, of a network stall where there is an interconnect stall."""


@dataclass(frozen=True, eq=False)
class _Seen:
    """One stall of the profile: what steps waited, and what the model says of it, ``[draws]`` each."""

    waited: Array
    modelled: Array
    alone: Array
    alone_within: Array
    payload: Array
    """Of all ranks, by the plain rule (``exposure.payload_seconds``)."""
    hidden: Array
    """Of the whole exchange."""
    hidden_within: Array


class ExchangeModel:
    """The exchange of one profile's job, to be asked about any target; make it once and ask often.

    ``base`` is where the profile was taken (``target_of_profile``).
    """

    def __init__(self, profile: Profile, breakdown: Breakdown, base: Target, draws: Draws) -> None:
        self._base, self._draws = base, draws
        self._stalls = {name: breakdown.stall(name) for name in EXCHANGE_STALLS}
        self.work, self._step = exchange_of(profile), breakdown.step_seconds
        self.more_ranks = MoreRanks(profile, self._step, draws)
        self._one_node: dict[tuple[object, ...], Fabric] = {}
        self._of_a_node: dict[tuple[object, ...], Array] = {}
        self._last: dict[tuple[str, int], tuple[Target, ExchangeChanges, PredictedStalls]] = {}
        self._seen = {
            (name, apart): self._calibration(name, apart)
            for name, apart in (("interconnect", False), ("network", False), ("network", True))
        }

    def predict(self, target: Target, changes: ExchangeChanges = AS_MEASURED) -> PredictedStalls:
        """Interconnect and network stall on ``target``; what was asked of its name and nodes last is kept.

        All draw by draw: with E waited and the model X(·), where the model says too little, E − X(base) is added,
        times (T(target) / T(base))^u, T being the exchange by itself and u anything between 0 (what is missed is the
        same for any exchange) and 1 (it grows with it); where it says too much, X(target) counts in the same
        proportion. Of the network stall E and X are those of the exchange of all ranks less those inside a node: so
        what was measured inside a node says nothing about what lies beyond. More ranks wait longer for their
        slowest besides (``stragglers``).
        """
        last = self._last.get((target.name, target.nodes))
        if last is None or last[0] != target or last[1] != changes:
            last = self._last[target.name, target.nodes] = (
                target,
                changes,
                self._compute_stalls(target, changes),
            )
        return last[2]

    def _compute_stalls(self, target: Target, changes: ExchangeChanges) -> PredictedStalls:
        shape = Situation(
            target.ranks, target.nodes, target.devices, target.backend == "nccl", loader=True
        )
        parts: list[PredictedStall] = []
        missing = []
        for name in EXCHANGE_STALLS:
            why = why_no_stall(name, shape)
            if why is not None:
                missing.append(Missing(name=name, why=why))
                continue
            try:
                waits = self._wait_seconds(name, target, changes, apart=bool(parts))
            except UnknownFactError as error:
                missing.append(Missing(name=name, why=str(error), possible=True))
                continue
            facts = facts_of(target, only_inside=name == "interconnect")
            same = changes == AS_MEASURED and self._is_unchanged(name, target)
            part = PredictedStall(
                name=name,
                seconds=waits,
                origin="measured"
                if same
                else least_certain([*(fact.quantity.origin for fact in facts), "scaled"]),
                facts=facts,
                beyond=tuple(self._extrapolations(name, target, changes)),
                # What stays as it was has the interval that was measured, whatever is known of its links.
                spread_known=same or all(fact.quantity.has_spread for fact in facts),
            )
            parts.append(part)
        if [part.name for part in parts] == ["network"]:
            # The exchange of all ranks holds that inside a node: of a stall that cannot be separated nothing is lost.
            missing = [
                each.model_copy(
                    update={"why": f"{each.why}; contained in network", "contained_in": "network"}
                )
                if each.possible
                else each
                for each in missing
            ]
        return PredictedStalls(tuple(parts), tuple(missing))

    def _wait_seconds(
        self, name: str, target: Target, changes: ExchangeChanges, apart: bool
    ) -> Array:
        """What steps wait for, of the exchange up to this stall's scope, ``[draws]``; raises UnknownFactError.

        ``apart``: less what they wait for inside a node, as that is a stall of its own.
        """
        try:
            reach = self._reach(name, target, apart)
        except UnknownFactError:
            if changes == AS_MEASURED and self._is_unchanged(name, target):
                return self._measured_wait(name, apart)
            if apart:
                return self._network_stall(target, changes)
            raise
        seen = self._find_calibration(name, apart)
        if seen is None and apart:
            return self._network_stall(target, changes)
        work = self._job()
        later = self._straggler_seconds(name, target, changes) - (
            self._straggler_seconds("interconnect", target, changes) if apart else 0.0
        )
        if seen is not None:
            same = changes == AS_MEASURED and self._is_unchanged(name, target)
            spread = HELD_SPREAD if work.is_ready_known else UNREADY_SPREAD
            if same:
                spread = 0.0
            held = self._calibrated_stall(seen, reach, target.backend, changes, spread)
            if target.backend == "nccl" and name == "network" and not same:
                held = self._blend_payload_rule(held, seen, reach, changes)
            return held + later
        return self._unmeasured_wait(name, reach, target.backend, changes) + later

    def _unmeasured_wait(
        self, name: str, reach: _Reach, backend: Backend, changes: ExchangeChanges
    ) -> Array:
        """The same by the model alone, where no measurement on such links holds it; raises UnknownFactError."""
        work = self._job()
        shows = backend == "nccl" and not work.gathered  # then half to all of it does
        within = None if shows else self._find_calibration("interconnect", apart=False)
        if not work.is_ready_known and within is not None:
            # Between nodes nothing was measured: of their exchange hides what did inside a node.
            hidden = within.hidden * changes.compute ** self._draws.uniforms(
                "growth of what is hidden"
            )
            each = (
                self._hidden_seconds(hidden, within.alone, at, backend, changes)
                for at in (reach.whole, reach.within)
            )
            there = self._model_stall(reach, backend, changes, *each)
            return there * self._model_error(UNREADY_SPREAD)
        if not work.is_ready_known and not shows:
            raise UnknownFactError(
                "the profile tells neither when gradients are ready nor what their exchange costs "
                f"{_PLACES[name]}; profile again with this Stash"
            )
        if backend != "nccl":
            there = self._model_stall(reach, backend, changes)
        else:  # most of what could hide shows
            there = self._shown_seconds(reach.whole, backend, changes)
            if reach.within is not None:
                inside = self._shown_seconds(reach.within, backend, changes)
                there = np.maximum(0.0, there - inside)
        return there * self._model_error(MODEL_SPREAD)

    def _network_stall(self, target: Target, changes: ExchangeChanges) -> Array:
        """The network stall as a difference, where none like it was measured: all ranks' exchange less a node's.

        An exchange of all ranks holds that of each node's, whatever the two are thought to hide: so where neither was
        measured as a whole the two together are the longer of them, and shorten with every link that is faster.
        """
        inside = self._wait_seconds("interconnect", target, changes, apart=False)
        beyond = self._wait_seconds("network", target, changes, apart=False) - inside
        if self._find_calibration("network", apart=False) is not None:
            return beyond
        later = self._straggler_seconds("network", target, changes) - self._straggler_seconds(
            "interconnect", target, changes
        )
        return np.asarray(np.maximum(0.0, beyond - later) + later, np.float64)

    def _reach(self, name: str, target: Target, apart: bool) -> _Reach:
        """Raises UnknownFactError."""
        if name == "interconnect":
            whole = self._inside(target)
        else:
            whole = self._beyond_pair(fabric_of(target, self._draws), target)
        return _Reach(whole, self._inside(target) if apart else None)

    def _beyond_pair(self, fabric: Fabric, target: Target) -> Fabric:
        """More nodes than the pair that was measured: as fast as it, or as ``PAIR_SHARE`` has it, or between."""
        measured = self._base.nodes == 2 and target.network == self._base.network
        if target.nodes <= 2 or not (measured and shares_pair(self._base)):
            return fabric
        faster = self._draws.uniforms("more nodes than a pair") * (1 / PAIR_SHARE - 1)
        return replace(fabric, between=fabric.between * (1 + faster))

    def _inside(self, target: Target) -> Fabric:
        """Of one node; many targets share it."""
        latency = None if target.network is None else target.network.latency_seconds
        key = (target.devices, target.inside, latency)
        if key not in self._one_node:
            self._one_node[key] = fabric_of(target, self._draws, only_inside=True)
        return self._one_node[key]

    def _exposed_seconds(
        self, fabric: Fabric, backend: Backend, changes: ExchangeChanges, hidden: Array | float
    ) -> Array:
        """Of the job's exchange; of a node it is kept where what is hidden has no part in it."""
        work, key = self._job(), (fabric, backend, changes)
        if fabric.nodes > 1 or not work.is_ready_known:
            return exposed_seconds(fabric, work, backend, changes, hidden)
        if key not in self._of_a_node:
            self._of_a_node[key] = exposed_seconds(fabric, work, backend, changes, hidden)
        return self._of_a_node[key]

    def _straggler_seconds(
        self, name: str, target: Target, changes: ExchangeChanges
    ) -> Array | float:
        """Seconds that the ranks of this stall's scope wait longer for their slowest, and copy more, ``[draws]``."""
        before, after = _ranks(self._base, name), _ranks(target, name)
        waits = self.more_ranks.waiting(before, after)
        if target.backend == "nccl":
            waits = waits + self.more_ranks.doubt(before, after)
        if (
            changes.compute != 1.0
            and self.work is not None
            and not self.work.is_ready_known
            and before > 1
        ):
            waits = waits + STEP_SPREAD * self._draws.normals("step of another batch") * self._step
        return waits * changes.compute

    def _model_stall(
        self,
        reach: _Reach,
        backend: Backend,
        changes: ExchangeChanges,
        hidden: Array | float = 0.0,
        hidden_within: Array | float = 0.0,
    ) -> Array:
        """X of the whole exchange, less X inside a node where that is a stall of its own, ``[draws]``.

        Never below zero: an exchange of all ranks holds that of each node's, whatever the two are thought to hide.
        """
        found = self._exposed_seconds(reach.whole, backend, changes, hidden)
        if reach.within is None:
            return found
        return np.maximum(
            0.0, found - self._exposed_seconds(reach.within, backend, changes, hidden_within)
        )

    def _shown_seconds(self, fabric: Fabric, backend: Backend, changes: ExchangeChanges) -> Array:
        """Of a job that does not tell when gradients are ready, all but its last bucket could hide."""
        whole = exchange_seconds(fabric, self._job(), backend, changes)
        uniforms = self._draws.uniforms("share of the hidden exchange that shows")
        late = self._exposed_seconds(fabric, backend, changes, whole)
        return shown_seconds(late, whole, fabric.narrowest, uniforms)

    def _blend_payload_rule(
        self, held: Array, seen: _Seen, reach: _Reach, changes: ExchangeChanges
    ) -> Array:
        """The mean of the held model and of the plain rule: what was waited, and what the payload takes more; or
        less, no more than in proportion. Of what the payload takes inside a node nothing is taken off. The rule
        never falls where the payload takes longer, so faster links never make a step longer.
        """
        now = payload_seconds(reach.whole, self._job(), changes)
        # Noise below zero is in no proportion to anything.
        in_proportion = np.minimum(seen.waited, seen.waited * (now / seen.payload))
        by_rule = np.maximum(seen.waited + (now - seen.payload), in_proportion)
        blended: Array = (held + by_rule) / 2
        return blended

    def _calibrated_stall(
        self, seen: _Seen, reach: _Reach, backend: Backend, changes: ExchangeChanges, spread: float
    ) -> Array:
        """The model on ``reach``, held to what was waited on the profile's own, ``[draws]``; see ``predict``."""
        # Without readiness what is hidden stays so: a longer backward pass did not hide more in published steps.
        hidden = self._hidden_seconds(seen.hidden, seen.alone, reach.whole, backend, changes)
        within = self._hidden_seconds(
            seen.hidden_within, seen.alone_within, reach.within, backend, changes
        )
        there = self._model_stall(reach, backend, changes, hidden, within)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(seen.modelled > 0, np.clip(seen.waited / seen.modelled, 0.0, 1.0), 1.0)
            whole = exchange_seconds(reach.whole, self._job(), backend, changes)
            growth = np.where(seen.alone > 0, whole / seen.alone, 1.0)
        missed = np.maximum(0.0, seen.waited - seen.modelled)
        corrected = there * share + missed * growth ** self._draws.uniforms(
            "growth of what the model misses"
        )
        # What is below zero is noise of the measurement: it stays as it is.
        waits: Array = corrected * self._model_error(spread) + np.minimum(0.0, seen.waited)
        return waits

    def _hidden_seconds(
        self,
        hidden: Array,
        seen: Array,
        fabric: Fabric | None,
        backend: Backend,
        changes: ExchangeChanges,
    ) -> Array:
        """What hides of the exchange on ``fabric``, where ``hidden`` of the ``seen`` seconds by themselves did.

        As much; but NCCL gathers a sharded model's layers ahead of their passes, so of what that takes longer there
        anything from nothing to all shows, which nobody measured (evidence: ``bench.predict.sharded``, archived).
        """
        if fabric is None or backend != "nccl" or not self._job().gathered:
            return hidden
        longer = exchange_seconds(fabric, self._job(), backend, changes) - seen
        return np.maximum(
            0.0,
            hidden + (1 - self._draws.uniforms("share of a longer exchange that shows")) * longer,
        )

    def _model_error(self, spread: float) -> Array:
        """Of the exchange model, as factors whose mean is 1, ``[draws]``."""
        error = np.exp(spread * self._draws.normals("error of the exchange model"))
        return np.asarray(error / error.mean(), np.float64)

    def _job(self) -> StepExchange:
        if self.work is None:
            raise UnknownFactError(
                "the profile holds neither gradients nor buckets; profile again with this Stash"
            )
        return self.work

    def _calibration(self, name: str, apart: bool) -> _Seen | None:
        """Of the profile's own scope; ``None`` where it exchanges nothing there, or its links are unknown.

        ``apart`` is as of ``_wait_seconds``; of a profile without an interconnect stall the whole is all there is.
        """
        apart = apart and self._stalls["interconnect"] is not None
        if self.work is None or self._stalls[name] is None:
            return None
        try:
            reach = self._reach(name, self._base, apart)
        except UnknownFactError:
            return None
        backend, waited = self._base.backend, self._measured_wait(name, apart)
        whole = exchange_seconds(reach.whole, self.work, backend, AS_MEASURED)
        hidden, hidden_within = (
            np.maximum(0.0, whole - self._measured_wait(name, apart=False)),
            np.zeros_like(whole),
        )
        inside = hidden_within
        if reach.within is not None:
            inside = exchange_seconds(reach.within, self.work, backend, AS_MEASURED)
            hidden_within = np.maximum(
                0.0, inside - self._measured_wait("interconnect", apart=False)
            )
        modelled = self._model_stall(reach, backend, AS_MEASURED, hidden, hidden_within)
        sent = payload_seconds(reach.whole, self._job(), AS_MEASURED)
        return _Seen(waited, modelled, whole, inside, sent, hidden, hidden_within)

    def _measured_wait(self, name: str, apart: bool) -> Array:
        """Measured: this stall and, unless ``apart``, those below it: all that a scope's exchange exposes."""
        upto = (name,) if apart else EXCHANGE_STALLS[: EXCHANGE_STALLS.index(name) + 1]
        drawn = [
            self._draws.draw_mean(f"measured {each}", stall.time)
            for each in upto
            if (stall := self._stalls[each])
        ]
        together: Array = np.sum(drawn, axis=0)
        return together

    def _find_calibration(self, name: str, apart: bool) -> _Seen | None:
        """The measured stall that holds a prediction; of a target on several nodes none but one on several."""
        return self._seen[name, apart] if name == "interconnect" or self._base.nodes > 1 else None

    def _is_unchanged(self, name: str, target: Target) -> bool:
        same_node = (target.devices, target.inside) == (self._base.devices, self._base.inside)
        same_network = (target.nodes, target.network) == (self._base.nodes, self._base.network)
        return (
            self._stalls[name] is not None
            and same_node
            and (name == "interconnect" or same_network)
        )

    def _extrapolations(self, name: str, target: Target, changes: ExchangeChanges) -> Iterator[str]:
        """Sentences on how far the target is from what was measured."""
        seen = self._find_calibration(name, apart=False)
        if seen is None and not self._is_unchanged(name, target):
            yield f"the profile has no exchange {_PLACES[name]} to hold the prediction to"
        if self.work is not None and not self.work.is_ready_known:
            shows = (
                "half to all of their exchange shows"
                if seen is None
                else "as much of their exchange hides as did"
            )
            yield f"the profile does not tell when gradients are ready: {shows}"
        before, after = _ranks(self._base, name), _ranks(target, name)
        if after > before and not self.more_ranks.is_known:
            yield f"what {after} ranks wait for their slowest is not in it: too few single steps were measured"
        if after > FAR * before:
            yield f"{after} ranks are more than {FAR:g} times the {before} measured"
        old, new = _rate(self._base, name), _rate(target, name)
        if seen is not None and old and new and not 1 / FAR <= new / old <= FAR:
            yield f"links {_PLACES[name]} are {new / old:.2g} times as fast as those measured"


def _ranks(target: Target, name: str) -> int:
    """That the exchange of this stall's scope joins."""
    return target.devices if name == "interconnect" else target.ranks


def _rate(target: Target, name: str) -> float | None:
    inside, network = target.inside, target.network
    if name == "interconnect":
        rate = None if inside is None else inside.bytes_per_second
    else:
        rate = None if network is None else network.bytes_per_second
    return None if rate is None else rate.value
