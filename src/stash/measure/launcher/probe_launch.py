"""``stash probe``'s launch: one worker a device through torchrun, watched, ended in time, its ``Probe`` read.

Nothing it started or wrote outlives it, whether it ends well, fails, or is interrupted. What the workers
measure is their business.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stash.core.errors import JobError, UserError
from stash.core.interrupts import follow_requests
from stash.core.jsonl import Tail
from stash.core.records.host import Probe
from stash.core.version import __version__
from stash.measure.host.gpus import count_gpus
from stash.measure.launcher.bystanders import Bystanders
from stash.measure.launcher.diagnose import Evidence, diagnose
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.guarded import killed_run_sentences
from stash.measure.launcher.job import Job
from stash.measure.launcher.neighbours import TemporaryFolder
from stash.measure.launcher.peers import number_nodes
from stash.measure.launcher.process import Process, Request, make_request
from stash.measure.probe.probe_orders import MEETING, PARTS, ProbeOrders, Product
from stash.measure.protocol.folder import RunFolder

_TICK, _LOOK_SECONDS = 0.1, 1.0
_ONE_NODE_SECONDS, _NODES_SECONDS = 60.0, 120.0
"""Seconds for the ranks to start: on one node, and where somebody has to start the others."""
_GRACE = 90.0
"""Seconds above the budget after which the workers are ended."""
_SHUTDOWN_SECONDS = 5.0
"""Seconds for torchrun to end after the workers have: it would wait minutes for nodes that are gone."""

Say = Callable[[str], None]


def run_probe(
    cluster: Cluster,
    *,
    budget: float,
    data: Path | None,
    instance: str | None,
    what: frozenset[str] | None = None,
    say: Say = lambda part: None,
    ask_metadata: bool = False,
    products: tuple[Product, ...] = (),
    force: bool = False,
) -> Probe | None:
    """Measure the links of this machine, and between the nodes of ``cluster``; ``None`` on nodes other than 0.

    ``what`` names the parts (default all of them), ``say`` is called with each part as it begins. Raises UserError
    for a wish that makes no sense or nodes that do not meet, JobError if the workers fail before anything was
    measured.
    """
    unknown = sorted((what or frozenset()) - set(PARTS))
    choose = f"choose from {', '.join(PARTS)}"
    if unknown:
        raise UserError(f"no part of a probe is called {unknown[0]!r}; {choose}")
    if what is not None and not what:
        raise UserError(f"nothing is left to measure; {choose}")
    here, wait = Path.cwd(), _ONE_NODE_SECONDS if cluster.nnodes == 1 else _NODES_SECONDS
    scratch = here if os.access(here, os.W_OK) else Path(tempfile.gettempdir())
    with TemporaryFolder() as folder:
        for sentence in killed_run_sentences(folder.swept):
            say(sentence)
        orders = ProbeOrders(
            folder=str(folder.path),
            scratch=str(scratch / f".stash-probe-{uuid.uuid4().hex[:12]}"),
            budget=budget,
            parts=tuple(part for part in PARTS if what is None or part in what),
            data=str(data.resolve()) if data is not None else None,
            instance=instance,
            ask_metadata=ask_metadata,
            products=products,
            force=force,
            version=__version__,
        )
        path = folder.path / "orders.json"
        try:
            cluster = number_nodes(cluster, patience=wait)
            orders = replace(orders, secret=cluster.rdzv_id)
            orders.write(path)
            process = Process(_make_request(cluster, path, wait), RunFolder(path.parent))
            return _follow_workers(process, orders, cluster, wait, say)
        finally:
            shutil.rmtree(orders.scratch, ignore_errors=True)


def _make_request(cluster: Cluster, path: Path, wait: float) -> Request:
    """torchrun starting the workers, as it starts a profiled job, but without the agent in them."""
    job = Job("module", "stash.measure.probe.probe_worker", (str(path),), name="the probe")
    threads = None if count_gpus() else max(1, len(os.sched_getaffinity(0)) // cluster.nproc)
    launch = make_request(
        job, cluster if cluster.is_inherited else replace(cluster, engine="torchrun"), path, threads
    )
    variables = {name: value for name, value in launch.variables.items() if name != "PYTHONPATH"}
    # torchrun reads its options from the environment too; its own limit is ten minutes.
    limits = f"timeout={wait:.0f},join_timeout={wait:.0f}"
    return replace(launch, variables={**variables, MEETING: f"{wait:.0f}", "PET_RDZV_CONF": limits})


def _follow_workers(
    process: Process, orders: ProbeOrders, cluster: Cluster, wait: float, say: Say
) -> Probe | None:
    """Follow the workers to their end, or to the end of their time."""
    tail, bystanders, looked = Tail(orders.progress), Bystanders(), 0.0
    reached: list[str] = []
    """What the workers have begun: parts, ``met`` and ``done``."""
    deadline = time.monotonic() + wait
    try:
        while (status := process.poll()) is None and time.monotonic() < deadline:
            follow_requests()
            for row in tail.read_new_rows():
                reached.append(row["what"])
                if row["what"] in PARTS:
                    say(row["what"])
                else:
                    left = _SHUTDOWN_SECONDS if row["what"] == "done" else orders.budget + _GRACE
                    deadline = time.monotonic() + left
            if reached[-1:] == ["compute"] and time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                bystanders.sample_programs()
            time.sleep(_TICK)
    finally:
        process.stop()
    reached += [row["what"] for row in tail.read_new_rows()]
    status = 0 if "done" in reached else status
    if not orders.result.exists() and not reached and (status is None or cluster.nnodes > 1):
        raise _not_met(cluster, wait)
    found = _read_result(process, orders.result, status)
    if found is None:
        return None
    first = found.hosts[0].model_copy(update={"programs": bystanders.list_programs()})
    return found.model_copy(update={"hosts": (first, *found.hosts[1:])})


def _not_met(cluster: Cluster, wait: float) -> UserError | JobError:
    if cluster.nnodes == 1:
        return JobError(
            f"the probe's processes did not start within {wait:.0f} s; is the machine very busy?"
        )
    return UserError(
        f"the {cluster.nnodes} nodes did not meet at {cluster.rdzv_endpoint} within {wait:.0f} s; start the same "
        "command on every node, with --rdzv-endpoint naming an address and port of the first the others can reach"
    )


def _read_result(process: Process, result: Path, status: int | None) -> Probe | None:
    """What rank 0 saved, with a note if it ended early; None on other nodes, JobError where nothing was measured."""
    if status is None:
        why = f"it did not end {_GRACE:.0f} s after its budget"
    else:
        found = diagnose(Evidence(status, process.crashes(), process.output(), {}, "the probe"))
        why = found.sentence.replace(" before its first training step", "")
    if not result.exists() and status == 0:
        return None
    if not result.exists():
        raise JobError(why)
    saved = Probe.model_validate_json(result.read_text())
    if status == 0:
        return saved
    return saved.model_copy(update={"notes": (f"the probe ended early: {why}",)})
