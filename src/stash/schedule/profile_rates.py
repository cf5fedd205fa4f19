"""The throughput matrix of profiles: measured where the job ran, forecast elsewhere, packed and spread.

A job on n nodes is the forecast for n nodes, so the difference to packed is the network stall. What cannot be
forecast is left out and named. Knows profiles and forecasts, and nothing of jobs that wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.api import Alteration, Base, forecast_base, missing_stalls, named_gpu, what_if
from stash.core.errors import StashError, UserError
from stash.core.intervals import Interval
from stash.core.records.profile import Profile
from stash.schedule.matrix import PACKED, RateKey, RateMatrix, RateOrigin, StepRate
from stash.schedule.records import LabCluster


@dataclass(frozen=True)
class FoundRates:
    """The matrix, and cells that stayed empty with the reason."""

    matrix: RateMatrix
    unknown: tuple[tuple[RateKey, str], ...]


def rates_of(profiles: Sequence[tuple[Profile, str]], cluster: LabCluster) -> FoundRates:
    """Rates of each profile's job on every type: as many GPUs as were profiled, packed and over more nodes.

    Several profiles of one job and size: the last one that was measured on a type says its rate. Raises UserError
    where nothing can be told.
    """
    found: dict[RateKey, StepRate] = {}
    unknown: dict[RateKey, str] = {}
    restart: dict[str, float] = {}
    for profile, source in profiles:
        try:
            base = forecast_base(profile)
        except StashError as error:
            raise UserError(f"{source}: {error}") from None
        model = profile.workload.name
        gpus = profile.world_size
        for kind in cluster.types:
            few = cluster.fewest_nodes(kind, gpus)
            if not few:
                unknown[model, gpus, kind, PACKED] = f"the cluster has fewer than {gpus}"
                continue
            most = min(gpus, sum(node.gpu == kind for node in cluster.nodes))
            for nodes in [each for each in range(few, most + 1) if gpus % each == 0]:
                key = (model, gpus, kind, nodes if nodes > few else PACKED)
                cell = _cell(base, cluster, kind, nodes, gpus // nodes)
                if isinstance(cell, str):
                    unknown.setdefault(key, cell)
                elif cell.origin == "measured" or found.get(key, cell).origin != "measured":
                    found[key] = cell
        if (takes := _restart(base)) is not None:
            restart[model] = takes
    if not found:
        why = next(iter(unknown.values()), "there is no profile")
        raise UserError(f"no rate on {cluster.name} follows from these profiles: {why}")
    left = tuple((key, why) for key, why in unknown.items() if key not in found)
    return FoundRates(RateMatrix(found, restart), left)


def _cell(base: Base, cluster: LabCluster, kind: str, nodes: int, gpus: int) -> StepRate | str:
    """Steps per second there, or why it is unknown; on machines as the first of the type that say what they have."""
    if _is_profiled_there(base, kind) and (base.target.nodes, base.target.devices) == (nodes, gpus):
        return _invert_step(base.breakdown.step, "measured")
    wanted = Alteration(gpu=kind, nodes=nodes, gpus=gpus)
    own = [node for node in cluster.nodes if node.gpu == kind]
    cores = next((node.cores for node in own if node.cores is not None), None)
    network = next((node.network for node in own if node.network is not None), None)
    if cores is not None:
        wanted = wanted.replace_facts(cpus=max(1, round(cores)))
    if nodes > 1 and network is not None:
        wanted = wanted.replace_facts(network=network)
    try:
        forecast = what_if(base, wanted)
    except StashError as error:
        return str(error)
    missing = missing_stalls(base, forecast)
    if missing:
        return f"its {missing[0].name} stall is unknown: {missing[0].why}"
    return _invert_step(
        forecast.breakdown.step, "data sheet" if forecast.origin == "data sheet" else "forecast"
    )


def _is_profiled_there(base: Base, kind: str) -> bool:
    """Whether the job was profiled on this GPU, by the model's name that the catalog has for both."""
    if base.target.device is None:
        return False
    known = base.catalog()
    try:
        return named_gpu(kind, known).model == known.gpu(base.target.device).model
    except UserError:
        return kind.lower() in base.target.device.lower()


def _invert_step(step: Interval, origin: RateOrigin) -> StepRate:
    """Its inverse: the least rate is that of the longest step. Without both ends there is no interval."""
    if step.low is None or step.high is None or step.low <= 0:
        return StepRate(1 / step.value, origin=origin)
    return StepRate(1 / step.value, 1 / step.high, 1 / step.low, origin)


def _restart(base: Base) -> float | None:
    """Start-up until the first measured step, and where storage is known, its state written and read once.

    ``None`` where the profile does not tell the start-up.
    """
    profile = base.profile
    storage = base.target.storage
    if profile.seconds_before_blocks is None:
        return None
    state = (profile.workload.parameter_bytes or 0) + (profile.workload.optimizer_bytes or 0)
    rate = (
        None
        if storage is None or storage.bytes_per_second is None
        else storage.bytes_per_second.value
    )
    return profile.seconds_before_blocks + (2 * state / rate if rate else 0.0)
