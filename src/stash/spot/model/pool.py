"""Pools from a profile, a learned curve and what may be rented: what each type does alone, with each server.

Computing comes from the profile's step without its exchange, brought to each type's GPUs by ``predict``; links are
what catalogs claim times what is reached of such claims; the curve is as learned. What a replay on one machine cannot
show, what a single worker reaches while it communicates, is its own link's reach here, never more than the server's.
Also what memory a server needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from stash.api import (
    Alteration,
    Array,
    Base,
    count_readers,
    job_footprint,
    reached_share,
    stall_draws,
)
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.ladder import EXCHANGE_STALLS
from stash.core.units import format_bits
from stash.spot.fleet_records import FleetPool, ParameterServers, Uncertainty, WorkerType
from stash.spot.model.market import FleetMarket, PricedWorker, is_old
from stash.spot.run_records import LearnedCurve

MAX_SPREAD = 2.0
"""Of ln T, that an uncertainty can have: beyond it a forecast says nothing."""
_NEGLIGIBLE = 0.1
"""Share of a step: how wrong a smaller part is, does not matter to how wrong the step is."""


@dataclass(frozen=True)
class _Single:
    """One type alone with the server, its exchange not counted yet."""

    priced: PricedWorker
    gpus: int
    batch: int
    computes: Array
    """Tcomp, ``[draws]``."""
    spread_known: bool
    network: float
    """bytes/s that it reaches."""
    pcie: float
    notes: tuple[str, ...]

    def add_server(self, size: float, server: ParameterServers) -> WorkerType:
        """The type with this server; (6), (7) with an update's work: Tcomp + 2 · S / Bw + 2 · g · S / Bpcie."""
        exchange = (
            2 * size / min(self.network, server.bytes_per_second) + 2 * self.gpus * size / self.pcie
        )
        seconds = float(self.computes.mean()) + exchange + server.apply_seconds / server.cores
        fixed = self.priced.on_demand
        return WorkerType(
            name=self.priced.instance.name,
            gpus=self.gpus,
            batch=self.batch,
            samples_per_second=self.gpus * self.batch / seconds,
            quota=self.priced.quota,
            dollars_per_hour=self.priced.spot.dollars_per_hour,
            on_demand_dollars_per_hour=None if fixed is None else fixed.dollars_per_hour,
        )


def pools_of(
    base: Base, source: str, curve: LearnedCurve, market: FleetMarket, loss: float, today: date
) -> tuple[FleetPool, ...]:
    """The pool of these offers for this job, with each server that could do, the cheapest first.

    Raises UserError where a number that is needed is not known.
    """
    _check_job(base, source, curve)
    singles = [_single_worker(base, each) for each in market.workers]
    dates = [each.spot.as_of for each in market.workers if each.spot.as_of is not None]
    size = float(base.profile.workload.parameter_bytes or curve.parameter_bytes)
    reached = max(each.network for each in singles)
    uncertainty = _uncertainty(singles, curve, loss)
    notes = tuple(_notes(base, curve, market, singles, today))

    def make_pool(offer: ParameterServers) -> FleetPool:
        count = "" if offer.count == 1 else f"{offer.count} x "
        where = "" if market.region is None else f" in {market.region}"
        note = (
            f"the server is {count}{offer.instance} on demand{where}, ${offer.dollars_per_hour:g}/h each, of which "
            f"{format_bits(offer.bytes_per_second)} are taken to be reached"
        )
        server = offer.model_copy(update={"apply_seconds": curve.apply_seconds})
        return FleetPool(
            as_of=min(dates, default="an unknown date"),
            source=f"{source}, {curve.job} and the catalog",
            exchange_bytes=size,
            worker_bytes_per_second=min(
                reached, offer.bytes_per_second
            ),  # it may be slower than what workers reach
            pcie_bytes_per_second=max(each.pcie for each in singles),
            server=server,
            loss=curve.fitted.curve,
            start_seconds=market.start_seconds,
            uncertainty=uncertainty,
            types=tuple(each.add_server(size, server) for each in singles),
            learned=curve.learned_range,
            notes=(note, *notes),
            cloud=market.workers[0].instance.cloud,
            region=market.region,
        )

    return tuple(make_pool(each) for each in market.servers)


def _check_job(base: Base, source: str, curve: LearnedCurve) -> None:
    """Raise UserError where profile and curve are of two jobs, or workers could not hold the model."""
    known = base.profile.workload.parameters
    if known is not None and known != curve.parameters:
        raise UserError(
            f"{source} is of a model with {known:,} parameters, and the curve of {curve.job} of one with "
            f"{curve.parameters:,}: profile and curve have to be of one job; learn a curve of this one with "
            "`stash spot learn FILE.py:JOB`"
        )
    if count_readers(base.profile, 1) < 1:
        raise UserError(
            f"ranks of {source} share a model, and each worker of a fleet holds all of it; profile it so"
        )


def _single_worker(base: Base, priced: PricedWorker) -> _Single:
    """What the type does without exchange, at a batch that its GPUs have room for."""
    instance = priced.instance
    wanted = Alteration(instance=f"{instance.cloud}/{instance.name}", nodes=1)
    drawn = stall_draws(base, wanted)
    target, memory = drawn.target, drawn.target.device_memory_bytes
    if base.passes is None:
        raise UserError(
            "the profile does not say how many samples a step has; profile it again with --batch N"
        )
    batch = base.passes.samples
    smaller = _room(base, instance.name, None if memory is None else memory.value)
    if smaller is not None:
        batch = smaller * base.passes.accumulated
        drawn = stall_draws(base, wanted.replace_facts(batch=smaller))
    own = [part for part in drawn.parts if part.name not in EXCHANGE_STALLS]
    unknown = [each for each in drawn.unknown if each.name not in EXCHANGE_STALLS]
    if target.network is None or target.network.bytes_per_second is None:
        raise UserError(
            f"the network of {instance.cloud}/{instance.name} is unknown; drop it from --quota, or describe it in "
            "your instances file (docs/how-to/own-instances.md)"
        )
    notes = [sentence for part in own for sentence in part.beyond]
    notes += [f"the {each.name} stall is unknown and not counted: {each.why}" for each in unknown]
    if smaller is not None:
        notes.append(
            f"a GPU has no room for the profile's batch: {batch} samples are taken, by equation (10)"
        )
    seconds: Array = np.sum([part.seconds for part in own], axis=0)
    unsure = sum(float(part.seconds.mean()) for part in own if not part.spread_known)
    known = unsure <= _NEGLIGIBLE * float(seconds.mean())
    network = target.network.bytes_per_second.value
    # Bpcie: as measured, else the published rate's share that collectives reach
    pcie = instance.pcie_measured_bytes_per_second
    share = reached_share("pcie")
    if not pcie:
        if not instance.pcie_bytes_per_second or share is None:
            raise UserError(
                f"the PCIe of {instance.cloud}/{instance.name} is unknown; drop it from --quota, or describe it in "
                "your instances file (docs/how-to/own-instances.md)"
            )
        pcie = instance.pcie_bytes_per_second * share.value
    return _Single(priced, target.devices, batch, seconds, known, network, pcie, tuple(notes))


def _room(base: Base, name: str, memory: float | None) -> int | None:
    """Samples of a pass that a GPU has room for, by the profile's peak, as a power of two: equation (10). ``None`` if
    those that it had fit.
    """
    line = job_footprint(base, ranks=1)
    if (
        line is None
        or memory is None
        or base.passes is None
        or line.fits(line.bytes_at(base.passes.batch), memory)
    ):
        return None
    room = line.largest_batch(memory)
    if room < 1:
        raise UserError(f"not even one sample fits into a GPU of {name}; drop it from --quota")
    found: int = 2 ** math.floor(math.log2(room))
    return found


def _uncertainty(
    singles: Sequence[_Single], curve: LearnedCurve, loss: float
) -> Uncertainty | None:
    """Of speed the widest forecast's, of updates the curve's held-out error; ``None`` where one is not known."""
    seen = loss >= curve.learned_range.least_loss
    spread = curve.fitted.spread if seen else curve.fitted.beyond_spread
    if spread is None or not all(each.spread_known for each in singles):
        return None
    speed = max(float(np.std(np.log(np.maximum(each.computes, 1e-12)))) for each in singles)
    return Uncertainty(speed=min(speed, MAX_SPREAD), updates=min(spread, MAX_SPREAD))


def _notes(
    base: Base, curve: LearnedCurve, market: FleetMarket, singles: Sequence[_Single], today: date
) -> Iterator[str]:
    yield "what a single worker reaches while it communicates comes from catalogs: no replay on one machine can tell"
    stale = [each.instance.name for each in market.workers if is_old(each.spot, today)]
    if stale:
        dated = join_names(
            sorted({each.spot.as_of or "an unknown date" for each in market.workers})
        )
        yield (
            f"spot prices of {join_names(stale)} are of {dated}: renew them with `stash catalog refresh`, what "
            f"they are "
            "today is not known"
        )
    if base.profile.workload.parameters is None:
        yield "the profile does not say how many parameters it trains: that the curve is of its model is not checked"
    if not all(each.spread_known for each in singles):
        yield "how wrong the forecasts of some types are is not known, so nor is how likely the plan is in time"
    sentences: dict[str, list[str]] = {}
    for each in singles:
        for sentence in each.notes:
            sentences.setdefault(sentence, []).append(each.priced.instance.name)
    for sentence, names in sentences.items():
        yield f"{join_names(names)}: {sentence}"


# Memory of servers

BASE_BYTES = 0.4e9
"""Of a server's process with Python, PyTorch and Ray, before it has a model."""
HEAD_BYTES = 1.2e9
"""Of what else the first server's machine carries: the head, the coordinator and Ray's own programs."""
_TRAYS = 3
"""Buffers of one exchange each: ``trays_of(1)`` of ``spot/train/server``."""
_ASSEMBLED = 4
"""Times the whole model that the head holds at the end: what servers sent, the model, and the file's content."""


def server_bytes(curve: LearnedCurve, servers: int) -> float:
    """Memory of the server that needs most, the first, with the head.

    Shares are whole tensors, so none is smaller than the largest of them.
    """
    whole = curve.parameter_bytes
    buffers = curve.buffer_bytes
    share = max(whole / servers, curve.largest_bytes)
    state = curve.optimizer_bytes * share / whole
    kept = share + buffers + state
    exchange = _TRAYS * (share + buffers)
    # and a copy for the checkpoint, and what a step makes
    training = kept + exchange + kept + curve.largest_bytes
    starting = whole + buffers + kept
    ending = kept + exchange + share + buffers + _ASSEMBLED * (whole + buffers)
    return BASE_BYTES + HEAD_BYTES + max(training, starting, ending)
