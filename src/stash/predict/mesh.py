"""A step of a profiled job whose ranks share its model in another shape: from what each group was seen to wait.

As many samples a step, in microbatches of as many; so the work is the same, and each rank's part of it. What an axis
exchanges grows with what its ranks hold and pass on: gradients with parameters on a rank, activations with samples of
a replica and layers of a rank. An exchange is what was seen times what its payload takes longer, over the links where
the group lies then, of a ring (``collective_times``); what a measured network does not explain of it stays. Of it
hides what did, as passes are as long, or the same share where it takes less. A bubble is played again
(``analysis/pipeline_changes``). Axes along which the profiled job had one rank were not seen, and stay so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stash.analysis.bubble import GroupWait, Seen
from stash.analysis.pipeline_changes import (
    divided_again,
    idle_changed,
    idle_of_stages,
    layers_of,
    stage_costs,
)
from stash.analysis.pipeline_schedule import EVEN
from stash.analysis.seen import BUCKETS, HANDED_ON, axis_of_data
from stash.core.errors import UserError
from stash.core.ladder import BUBBLE, DATA_STALLS
from stash.core.units import format_bytes
from stash.predict.cluster import Target
from stash.predict.collective_times import UnknownFactError, rate_between, rate_inside
from stash.predict.draws import Array
from stash.predict.exchange_stalls import MODEL_SPREAD
from stash.predict.forecast import PredictedStall, StallDraws
from stash.predict.memory import RESERVE, peak_bytes
from stash.predict.mesh_shapes import ALL, GroupPlace, Mesh, MeshDivision, division_of
from stash.predict.passes import Base, measured_stalls, recording_hint

_SAME_WORK = (
    "every rank computes as long as in the profiled mesh: that products cut otherwise may be more or less "
    "efficient is in the interval alone"
)
_AS_LONG = "as much of each exchange hides as did"
MESH_SPREAD = 0.07
"""Standard deviation of ln(what ranks compute and idle in another mesh, predicted over measured): 6.8 % over 26 pairs
of published steps (``bench.predict.pipelines``, archived)."""


def mesh_stalls(base: Base, target: Target, mesh: Mesh | str) -> StallDraws:
    """Stalls of the job in another ``mesh`` on its own machines; raises UserError where they cannot be told."""
    if isinstance(mesh, str):
        raise UserError(f"--mesh {ALL} asks for every mesh, and a forecast is of one; name it")
    known, seen, was = division_of(base.profile), base.breakdown.seen, base.target
    if seen is None:
        raise UserError(
            f"--mesh: what ranks wait in each group was not seen; {recording_hint(base.profile)}"
        )
    _refuse_mesh(base, known, mesh, seen)
    if (target.nodes, target.devices, target.device) != (was.nodes, was.devices, was.device):
        raise UserError(
            f"--mesh: {target.name} is not {was.nodes} nodes of {was.devices} devices as "
            "profiled; it can only say more of their links"
        )
    memory = _check_memory(base, target, known.mesh, mesh)
    names = [stall.name for stall in base.breakdown.stalls]
    parts = {part.name: part for part in measured_stalls(base, names)}
    if mesh != known.mesh:
        error = np.exp(MESH_SPREAD * base.draws.normals("work cut otherwise"))
        error /= error.mean()
        change = _bubble_change(base, known.mesh, mesh, seen) if BUBBLE in parts else None
        altered: dict[str, tuple[Array | float, tuple[str, ...]]] = {
            "compute": (error, (_SAME_WORK, *memory)),
            "transfer": (known.mesh.replicas / mesh.replicas, ()),
            **{name: (1.0, (f"{name} is taken over",)) for name in DATA_STALLS},
        }
        if change is not None:
            parts[BUBBLE] = replace(parts[BUBBLE], seconds=parts[BUBBLE].seconds + change[0])
            altered[BUBBLE] = error, change[1]
        for name in altered.keys() & parts.keys():
            times, beyond = altered[name]
            seconds = parts[name].seconds * times
            parts[name] = replace(parts[name], seconds=seconds, origin="scaled", beyond=beyond)
        if mesh.pipeline == 1:
            parts.pop(BUBBLE, None)
    _put_exchange(base, parts, known, mesh, target, seen)
    return StallDraws(
        target, tuple(parts.values()), base.breakdown.skipped, base.breakdown.samples_per_step
    )


def _refuse_mesh(base: Base, known: MeshDivision, mesh: Mesh, seen: Seen) -> None:
    if mesh.ranks != known.mesh.ranks:
        raise UserError(
            f"--mesh {mesh} has {mesh.ranks} ranks, and {known.mesh.ranks} were profiled"
        )
    new = [name for name in Mesh._fields if getattr(mesh, name) > 1 and name not in known.order]
    if new:
        raise UserError(
            f"--mesh {mesh}: the profiled job ({known.mesh}) shares nothing along {new[0]}, so what that exchanges "
            "is not in the profile; profile a mesh that has this axis"
        )
    if mesh == known.mesh or known.mesh.pipeline == 1:
        return
    schedule = base.profile.workload.pipeline
    if seen.bubble is None or schedule is None:
        raise UserError(
            f"--mesh: when passes of the pipeline ran is not in the profile; {recording_hint(base.profile)}"
        )
    if schedule.name not in EVEN:
        raise UserError(
            f"--mesh: in which order {schedule.name} works in other meshes is not known; it is of "
            f"{' and '.join(EVEN)}"
        )
    count = schedule.microbatches * known.mesh.replicas / mesh.replicas
    if count != int(count):
        raise UserError(
            f"--mesh {mesh}: {mesh.replicas} replicas would have {count:.3g} microbatches each, of as "
            "many samples as now; they must be whole"
        )
    layers = sum(layers_of(base.profile.passes))
    if 0 < layers < mesh.pipeline:
        raise UserError(f"--mesh {mesh}: the model has {layers} layers, fewer than that has stages")


def _check_memory(base: Base, target: Target, now: Mesh, mesh: Mesh) -> tuple[str, ...]:
    """What is to be said of memory; raises UserError where a device has too little.

    Parameters, gradients and the optimizer's state are divided by tensor, pipeline and shard; activations by tensor
    and pipeline, times the microbatches that the first stage holds (all, with GPipe; at most as many as stages).
    """
    work, peak, has = base.profile.workload, peak_bytes(base.profile), target.device_memory_bytes
    if peak is None or work.parameter_bytes is None or has is None:
        return (
            "whether it fits into memory is not known: the profile holds no peak of a device's",
        )
    copies = 3 if work.bucket_bytes and not work.bucket_view else 2
    state = copies * work.parameter_bytes + (work.optimizer_bytes or 0)
    more_held, schedule = 1.0, work.pipeline
    if schedule is not None:
        before, after = (
            schedule.microbatches * now.replicas / each.replicas for each in (now, mesh)
        )
        if schedule.name != "ScheduleGPipe":
            before, after = min(before, now.pipeline), min(after, mesh.pipeline)
        more_held = after / before
    whole = (now.tensor * now.pipeline) / (mesh.tensor * mesh.pipeline)
    needed = whole * (state * now.shard / mesh.shard + max(0.0, peak - state) * more_held)
    if mesh != now and needed > has.value * (1 - RESERVE):
        raise UserError(
            f"--mesh {mesh} needs about {format_bytes(needed)} of a device that has "
            f"{format_bytes(has.value)}"
        )
    return ()


def _bubble_change(
    base: Base, now: Mesh, mesh: Mesh, seen: Seen
) -> tuple[float, tuple[str, ...]] | None:
    """Seconds that the bubble is longer, and what that takes for granted; ``None`` where none was seen."""
    found, schedule = seen.bubble, base.profile.workload.pipeline
    if found is None or schedule is None or mesh.pipeline == 1:
        return None
    count = schedule.microbatches * now.replicas // mesh.replicas
    layers, stages = layers_of(base.profile.passes), found.stage_seconds
    if mesh.pipeline == now.pipeline:
        rows = [row for row in base.profile.passes if row.rung == base.breakdown.rungs[0]]
        played = idle_changed(rows, schedule, count)
        if played is None:
            raise UserError(
                f"--mesh {mesh}: the pipeline's passes cannot be played again; {recording_hint(base.profile)}"
            )
        return played, ()
    if len(layers) == len(stages) == now.pipeline and any(layers):
        times = now.replicas * now.tensor / (mesh.replicas * mesh.tensor)
        again = divided_again(stage_costs(stages, layers), sum(layers), mesh.pipeline)
        change = idle_of_stages([times * each for each in again], schedule.name, count)
        change -= idle_of_stages(stages, schedule.name, schedule.microbatches)
        return change, (
            "stages share layers evenly; what the first and the last compute besides stays with them",
        )
    # of the textbook (`pipeline_schedule`), of as much work of a rank
    change = sum(stages) / now.pipeline * (mesh.pipeline - 1) / count - found.schedule
    return change, ("what stages that are not equally long add to the bubble is taken over",)


def _put_exchange(
    base: Base,
    parts: dict[str, PredictedStall],
    known: MeshDivision,
    mesh: Mesh,
    target: Target,
    seen: Seen,
) -> None:
    """Put what groups wait into ``parts``, by where they lie then."""
    error = np.exp(MODEL_SPREAD * base.draws.normals("error of the exchange model"))
    error = error / error.mean()
    added: dict[str, Array | float] = {"interconnect": 0.0, "network": 0.0}
    waits = [wait for wait in seen.waits if wait.kind not in HANDED_ON]
    late = [wait for wait in seen.waits if wait.kind in HANDED_ON]
    if seen.bubble is not None and late:
        # Messages between stages, once; the rest of these waits is the bubble.
        stalls, took = {wait.stall for wait in late}, seen.bubble.late
        once = {"name": "pipeline", "kind": "send", "seconds": took, "least": took}
        once["stall"] = "network" if "network" in stalls else "interconnect"
        waits.append(late[0].model_copy(update=once))
    for wait in waits:
        name = axis_of_data(base.profile) if wait.kind == BUCKETS else wait.name
        axis = "pipeline" if name == "pipeline" else known.axes.get(name)
        if axis is None:
            continue  # of all ranks, whatever their mesh
        if getattr(mesh, axis) == 1:
            added[wait.stall] -= wait.exchange
            continue
        times, place = _wait_factor(base, known, mesh, target, axis, wait)
        if (times, place) != (1.0, wait.stall):
            added[wait.stall] -= wait.exchange
            before = known.group(known.mesh, axis, base.target.devices)
            moved = mesh != known.mesh
            added[place] += _group_wait_seconds(base, before, wait, times, moved) * error
    for name, change in added.items():
        if not isinstance(change, float) or change:
            part = parts.get(name, PredictedStall(name, np.zeros(base.draws.count), "scaled"))
            parts[name] = replace(
                part, seconds=part.seconds + change, origin="scaled", beyond=(_AS_LONG,)
            )


def _group_wait_seconds(
    base: Base, group: GroupPlace, wait: GroupWait, times: float, moved: bool
) -> float:
    """Seconds that the exchange is waited for where its bytes take so many ``times`` as long.

    What it takes beyond them, latencies and other groups on its link, stays; and so does what of it hides, or as a
    part where it takes less. In a mesh that is ``moved`` nothing hides behind waits for other groups. It ends apart
    by as much of itself as it did.
    """
    shows = 1.0 - (wait.hidden or 0.0)
    whole = wait.least / shows if shows > 0 else wait.least
    known = _payload_seconds(base, group, wait)
    bare = whole if known is None else known if moved else min(whole, known)
    least = bare * times + max(0.0, whole - bare) - (whole - wait.least) * min(1.0, times)
    return least * wait.exchange / wait.least if wait.least > 0 else wait.exchange * times


def _payload_seconds(base: Base, group: GroupPlace, wait: GroupWait) -> float | None:
    """Seconds that its bytes take over its links by themselves; None where these or their rate were not measured."""
    links = base.target.network if wait.stall == "network" else base.target.inside
    rate = None if links is None else links.bytes_per_second
    sent = [
        use.bytes
        for use in base.profile.workload.groups
        if (use.name, use.kind) == (wait.name, wait.kind)
    ]
    if rate is None or rate.origin == "data sheet" or not sent:
        return None
    # gloo reduces all of it everywhere, and hands on a part
    once = 2.0 if base.target.backend == "gloo" and "reduce_scatter" in wait.kind else 1.0
    part = group.together / base.target.devices if wait.stall == "network" else 1.0
    return once * _ring_share(wait.kind, group.ranks) * sum(sent) / (rate.value * part)


def _wait_factor(
    base: Base, known: MeshDivision, mesh: Mesh, target: Target, axis: str, wait: GroupWait
) -> tuple[float, str]:
    """How many times as long a wait takes, and the stall that it is then; raises UserError for unknown links."""
    now, devices = known.mesh, base.target.devices
    before, after = known.group(now, axis, devices), known.group(mesh, axis, devices)
    if (before.nodes > 1) != (wait.stall == "network"):
        raise UserError(
            f"--mesh: groups of the {axis} axis do not lie where the mesh ({now}) says, by rows of "
            f"neighbouring ranks on nodes of {devices}"
        )
    place = "network" if after.nodes > 1 else "interconnect"
    layers = now.pipeline / mesh.pipeline
    samples = now.replicas / mesh.replicas
    payload = (
        {
            "data": layers * now.tensor * now.shard / (mesh.tensor * mesh.shard),
            "shard": layers * now.tensor / mesh.tensor,
            "tensor": layers * samples,
            "pipeline": samples,
        }[axis]
        * _ring_share(wait.kind, after.ranks)
        / _ring_share(wait.kind, before.ranks)
    )
    try:
        return payload / _link_speedup(base.target, target, wait.stall, place, before, after), place
    except UnknownFactError as error:
        raise UserError(f"--mesh {mesh}: {error}") from None


def _ring_share(kind: str, ranks: int) -> float:
    """Of the payload, what a ring sends over each link: twice (p-1)/p of a reduction that all get, else once."""
    if kind in HANDED_ON or kind == "broadcast":
        return 1.0
    return (2.0 if "all_reduce" in kind or kind == BUCKETS else 1.0) * (ranks - 1) / ranks


def _link_speedup(
    was: Target, target: Target, stall: str, place: str, before: GroupPlace, after: GroupPlace
) -> float:
    """How many times the rate of the links that a group of its axis has; raises UnknownFactError.

    Groups side by side share what a node has between nodes: each has as much of it as of the node's ranks.
    """
    if stall == place == "interconnect":
        return 1.0
    if stall == place:
        more = after.together / before.together
        if was.network == target.network:
            return more
        if was.network is None or was.network.bytes_per_second is None:
            raise UnknownFactError(
                "how fast the profiled network is was not measured; run `stash probe` there"
            )
        return rate_between(target).value / rate_between(was).value * more
    inside = rate_inside(target).value
    if place == "network":
        return rate_between(target).value * after.together / was.devices / inside
    return inside / (rate_between(was).value * before.together / was.devices)
