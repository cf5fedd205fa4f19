"""The ladder with launches of its own for every communication rung, for jobs that cannot be switched.

``solo`` is the job started with one process; ``crowd`` as many such jobs side by side; the full job gives
the top of the ladder, with its data rungs in the same launch. The launches are interleaved set by set, so
drift of the machine is shared by all rungs.
"""

from __future__ import annotations

import os
from dataclasses import replace

from stash.core.ladder import NOT_ASKED, Situation, rung, why_no_stall, why_not
from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.gathered import GatheredRun
from stash.measure.launcher.launches import Launches, Member
from stash.measure.launcher.measurement import Measurement
from stash.measure.protocol.orders import Orders

_BLOCKS = 3
_MAX_SETS = 10


def run_ladder(measurement: Measurement, launches: Launches) -> Diagnosis | None:
    """Measure set after set until precise or out of budget; the value says what failed, if something did."""
    gathered, wanted = measurement.gathered, measurement.approach.rungs
    obstacle = _find_obstacle(measurement)
    alone = () if obstacle else tuple(r for r in ("solo", "crowd") if r in wanted)
    for name in {"resident", "solo", "crowd", "node"} - set(alone):
        if name in wanted:
            unmeasured = "not measured with separate launches" if name == "resident" else NOT_ASKED
            gathered.skipped.setdefault(
                name, obstacle or why_not(name, _describe_situation(measurement)) or unmeasured
            )
    for number in range(_MAX_SETS):
        for name in list(alone):
            failure = _launch_alone(measurement, launches, name, number)
            if failure is None:
                continue
            if number > 0:
                return failure
            gathered.skipped[name] = f"the job does not run with one process: {failure.sentence}"
            alone = tuple(other for other in alone if other != name)
        failure = _launch_whole(measurement, launches, number)
        if failure is not None or gathered.end == "no process group":
            return failure
        if (
            number == 0
            and alone
            and (why := gathered.skipped.get(alone[0]) or _another_job(gathered)) is not None
        ):
            for name in alone:
                gathered.leave_out(name, why)
            alone = ()
        if measurement.is_enough():
            return None
    return None


def _another_job(gathered: GatheredRun) -> str | None:
    """Why a step of the job alone is no step of one of its ranks, if it is none.

    Scripts that divide a global batch by the number of ranks, or accumulate until they have it, do far more alone.
    """
    from stash.analysis.step_times import samples_differ

    by_ranks = {each.ranks: each for each in gathered.steps_of.values()}
    alone, whole = by_ranks.get(1), by_ranks.get(max(by_ranks, default=1))
    for field, what in (("batch", "samples"), ("batches_per_step", "batches")):
        by_itself, of_rank = getattr(alone, field, None), getattr(whole, field, None)
        if by_itself is None or of_rank is None:
            gathered.note(
                f"{what} of a step could not be counted: if one rank alone trains others, stalls are wrong"
            )
        elif samples_differ((by_itself, of_rank)):
            return (
                f"alone the script trains {by_itself} {what} in a step, and {of_rank} on each rank of the whole job: "
                "it divides its batch by the number of ranks; set what each rank trains instead"
            )
    return None


def _find_obstacle(measurement: Measurement) -> str | None:
    """Why the job cannot be started with other numbers of processes."""
    job, cluster = measurement.job, measurement.cluster
    if job.kind == "command":
        return f"the launcher {job.target} decides how many processes there are"
    if cluster.is_inherited or cluster.nnodes > 1:
        return "separate launches need all ranks on this machine"
    return why_no_stall("contention", _describe_situation(measurement))


def _describe_situation(measurement: Measurement) -> Situation:
    """The job's shape, as the launcher knows it."""
    cluster = measurement.cluster
    return Situation(
        world_size=cluster.nproc * cluster.nnodes,
        nodes=cluster.nnodes,
        ranks_per_node=cluster.nproc,
        accelerator=measurement.gpus > 0,
        loader=True,
    )


def _make_orders(launches: Launches, rungs: tuple[str, ...], number: int) -> Orders:
    return replace(
        launches.make_orders(),
        rungs=rungs,
        isolated=True,
        endless=True,
        first_round=number * _BLOCKS,
        rounds=_BLOCKS,
    )


def _launch_whole(measurement: Measurement, launches: Launches, number: int) -> Diagnosis | None:
    """The full job: the highest replay rung it has, and the data rungs."""
    skipped = measurement.gathered.skipped
    one_node = why_no_stall("network", _describe_situation(measurement))
    top = "node" if measurement.cluster.nproc > 1 else "solo"
    if one_node is None:
        top = "cluster"
    else:
        skipped.setdefault("cluster", one_node)
    skipped.pop(top, None)
    rungs = tuple(
        name for name in measurement.approach.rungs if name == top or rung(name).reads_data
    )
    return launches.run_launch(Member(_make_orders(launches, rungs, number)))


def _launch_alone(
    measurement: Measurement, launches: Launches, name: str, number: int
) -> Diagnosis | None:
    """The job with one process, once or on every device at the same time."""
    cluster, gpus = measurement.cluster, measurement.gpus
    count = cluster.nproc if name == "crowd" else 1
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus)))).split(",")
    members = []
    for index in range(count):
        orders = replace(
            _make_orders(launches, (name,), number), gang=(index, cluster.nproc), crowd=count
        )
        shared = devices[index % len(devices)]  # several ranks may have been given one device
        variables = {"CUDA_VISIBLE_DEVICES": shared} if gpus else {}
        members.append(Member(orders, replace(cluster, nproc=1), index, variables))
    return launches.run_launch(*members)
