"""Small clusters, jobs and matrices for tests of schedules, and the traces that the examples hold."""

from pathlib import Path

import numpy as np

from stash.schedule.lab_files import read_cluster, read_jobs, read_matrix
from stash.schedule.matrix import PACKED, RateMatrix, StepRate
from stash.schedule.records import ClusterNode, JobDemand, LabCluster, QueuedJob

EXAMPLES = Path(__file__).parents[3] / "examples" / "schedule"


def demand(
    rates,
    counts,
    left=None,
    gpus=None,
    **arrays,
):
    """Jobs with these rates that just came; one GPU and one step each unless lines."""
    size = len(rates)

    def array(name, otherwise):
        return np.array(arrays.get(name, [otherwise] * size), dtype=float)

    return JobDemand(
        rates=np.array(rates, dtype=float),
        gpus=np.array(gpus or [1] * size),
        weight=array("weight", 1.0),
        left=np.array(left or [1.0] * size, dtype=float),
        counts=np.array(counts),
        running=array("running", -1).astype(int),
        deadline=array("deadline", np.inf),
        costs=np.array(arrays.get("costs", [1.0] * len(counts)), dtype=float),
        ids=np.arange(size),
    )


def cluster(**nodes):
    """``cluster(V=(4, 4))``: two nodes of four GPUs of type V."""
    return LabCluster(
        tuple(
            ClusterNode(f"{kind}{number}", kind, gpus)
            for kind, sizes in nodes.items()
            for number, gpus in enumerate(sizes)
        )
    )


def matrix(
    rates,
    spread=None,
    restart=0.0,
):
    """Packed rates by model, GPUs and type; spread ones with a number of nodes."""
    cells = {(*key, PACKED): StepRate(rate) for key, rate in rates.items()}
    cells |= {key: StepRate(rate) for key, rate in (spread or {}).items()}
    return RateMatrix(cells, {model: restart for model, _, _ in rates})


def job(name, steps, gpus=1, submit=0.0, model="m", **more):
    return QueuedJob(name, model, gpus, steps, submit, **more)


def example(name="jobs"):
    """Gavel's trace, cluster and throughputs."""
    lab = read_cluster(EXAMPLES / "cluster.yaml")
    rates = read_matrix(EXAMPLES / "matrix.csv")
    return read_jobs(EXAMPLES / f"{name}.csv", lab, rates).jobs, lab, rates
