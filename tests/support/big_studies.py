"""Studies with results, without measuring: every cell of a grid with a breakdown that a formula makes.

The numbers mean nothing beyond being of the right kind and size: an exchange takes as long as gradients over a link.
"""

from profile_builder import build
from studies import study

from stash.analysis.attribution import attribute
from stash.core.records.host import Gpu
from stash.study.results import make_results
from stash.study.status import read_standings
from stash.study.study_folder import StudyEvent
from stash.study.study_run import cells_of

PAPER = (
    "alexnet",
    "resnet18",
    "shufflenet_v2_x0_5",
    "mobilenet_v2",
    "squeezenet1_0",
    "resnet50",
    "vgg11",
    "bert_large_qa",
)
_LINK = {"p2": 8e9, "p3": 60e9}
_SPEED = {"p2": 1.0, "p3": 6.0}
ROUNDS = 4


def grid(workloads=PAPER, batches=(32, 64, 128)):
    """A study file of the paper's places."""
    named = "\n".join(f"- {{zoo: {name}}}" for name in workloads)
    one = "\n".join(
        f"- {{engine: sky, instance: {name}}}"
        for name in ("p2.xlarge", "p2.16xlarge", "p3.2xlarge", "p3.16xlarge")
    )
    two = "\n".join(
        f"- {{engine: sky, instance: {name}, nodes: [1, 2]}}"
        for name in ("p2.8xlarge", "p3.8xlarge")
    )
    return (
        f"workloads:\n{named}\nbatches: [{', '.join(map(str, batches))}]\ntargets:\n{one}\n{two}\n"
    )


def many(text, folder, failed=(), waiting=()):
    """The study read, its results, its file; cells that have a word of ``failed`` or ``waiting`` have no result."""
    file = study(text, folder)
    every = cells_of(file)
    events = [event for cell in every if (event := _event(cell, failed, waiting)) is not None]
    done = {event.cell for event in events if event.ending == "done"}
    profiles = {cell.id: profile_of(cell) for cell in every if cell.id in done}
    measured = {id: attribute(profile) for id, profile in profiles.items()}
    return read_standings(file.name, every, events), make_results(every, measured), file


def _event(cell, failed, waiting):
    if any(word in cell.title for word in waiting):
        return None
    if any(word in cell.title for word in failed):
        return StudyEvent(
            at=1.0,
            what="ended",
            cell=cell.id,
            ending="failed",
            why="the device has too little memory",
        )
    return StudyEvent(
        at=1.0,
        what="ended",
        cell=cell.id,
        ending="done",
        seconds=60.0,
        artefact=f"{cell.id}.stash.json",
    )


def profile_of(cell):
    """A few rounds whose steps follow the cell's batch, gradients and place."""
    kind = cell.place.name[:2]
    instance, bed = cell.place.instance, cell.emulated
    per_node, batch = 1 if instance is None else instance.devices, cell.batch or 1
    time, devices = (1.0, 1.0) if bed is None else (bed.time_scale, bed.devices / bed.ranks)
    ranks = per_node * cell.nodes
    compute = 1e-4 * batch * (cell.size / 1e7) ** 0.5 / _SPEED.get(kind, 3.0)
    inside = cell.size / _LINK.get(kind, 30e9) * (per_node - 1) * (2.0 if per_node > 8 else 1.0)
    between = cell.size / 1.25e9 if cell.nodes > 1 else 0.0
    step = {
        "resident": compute,
        "solo": 1.02 * compute,
        "crowd": 1.04 * compute,
        "node": 1.04 * compute + inside,
    }
    step["cluster"] = step["node"] + between
    top = step["cluster"]
    step["warm"] = top + max(0.0, 8e-4 * batch * per_node / 8 - 0.3 * top)
    step["cold"] = step["warm"] + 2e-4 * batch * per_node
    names = [
        name
        for name in step
        if (ranks > 1 or name not in ("crowd", "node")) and (cell.nodes > 1 or name != "cluster")
    ]
    return build(
        {name: [time * step[name] * (1 + 0.002 * n) for n in range(ROUNDS)] for name in names},
        ranks=round(ranks / devices),
        nodes=cell.nodes,
        device="cuda",
        batch=batch,
        workload={"name": cell.workload},
        host={"gpus": tuple(Gpu(index=j, name="GPU") for j in range(per_node))},
    )
