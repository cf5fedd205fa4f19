"""The machines of a synchronous job as SkyPilot tasks: a head on demand, where torchrun's nodes meet, and the nodes.

The head keeps the store (``stash.spot.sync.rendezvous``), and takes itself down when it is idle.
Each node is a managed job of one machine that runs torchrun under ``stash spot guard``; the checkpoints are in a
bucket that all of them mount. Knows the words; starts nothing.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from stash.core.membership import TOKEN
from stash.spot.records.fleets import WorkerType
from stash.spot.rented import tasks
from stash.spot.rented.tasks import FAILED, HEAD, HERE, TYPE, RentRequest
from stash.spot.sync.agents import SETTINGS, SyncOrders, torchrun
from stash.spot.sync.checkpoint_request import EVERY
from stash.spot.sync.group_monitor import STARTS
from stash.spot.sync.rendezvous import PORT
from stash.study.backend import Submission


@dataclass(frozen=True, kw_only=True)
class GangRequest(RentRequest):
    """Of a synchronous job."""

    script: tuple[str, ...]
    """The file, from the folder ``work``, and its arguments."""
    least: int
    """Nodes that can train."""
    every: float
    """Seconds between checkpoints, where the script does not say."""

    @property
    def secret_variables(self) -> tuple[str, ...]:
        return (TOKEN,)

    @property
    def servers(self) -> int:
        """One head, however many servers an asynchronous job would have."""
        return 1

    @property
    def most(self) -> int:
        """Nodes of the plan."""
        return len(tasks.first_workers(self))

    def server_task(self) -> Submission:
        return _head(self)

    def worker_task(self, number: int, kind: WorkerType, head: str, on_demand: bool = False) -> Submission:
        return _node(self, number, kind, on_demand, head)


def processes(request: GangRequest, kind: WorkerType) -> int:
    """Of one node: one for each GPU that the catalog knows of its type, else of those that the plan does."""
    known = request.instances.get(kind.name)
    return max(1, kind.gpus) if known is None or known.gpu_count is None else known.devices


def _head(request: GangRequest) -> Submission:
    common = tasks.common(request, tasks.server_resources(request), {})
    keep = f'python -m stash.spot.sync.rendezvous "$HEAD" {PORT} ~/{HERE} {request.least} {request.most}'
    run = [
        'HEAD="$(echo "$SKYPILOT_NODE_IPS" | head -n1)"',
        f"mkdir -p ~/{HERE}",
        f"rm -f ~/{HERE}/address ~/{HERE}/*.jsonl",
        "set -o pipefail",
        f"{keep} 2>&1 | tee ~/{HERE}/output.log",
        "CODE=$?",
        FAILED,
        "exit $CODE",
    ]
    return tasks.server_submission(request, {**common, "run": "\n".join(run)}, "the head, where nodes meet")


def _node(request: GangRequest, number: int, kind: WorkerType, on_demand: bool, head: str) -> Submission:
    assert request.checkpoints is not None
    envs = {HEAD: head, TYPE: kind.name, EVERY: f"{request.every:g}", **SETTINGS}
    rented = tasks.worker_resources(request, kind, on_demand)
    common = tasks.common(request, rented, envs, tasks.mounted(request.checkpoints))
    what = f"node {number}: {kind.name}{' on demand' if on_demand else ''}"
    run = _node_run(request, f"worker{number}", processes(request, kind))
    return tasks.worker_submission(request, number, {**common, "run": run}, what)


def _node_run(request: GangRequest, name: str, count: int) -> str:
    nodes = tuple(f"worker{number}" for number in range(1, request.most + 1))
    assert request.checkpoints is not None
    kept = tasks.kept(request.checkpoints)
    orders = SyncOrders(request.script, nodes, request.least, STARTS, Path(kept), request.every)
    words = torchrun(orders, f"HEAD:{PORT}", None, count)
    agent = shlex.join(["torchrun", "--local-addr=ADDRESS", *words])
    for what, variable in (("ADDRESS", "SKYPILOT_NODE_IPS"), (f"HEAD:{PORT}", HEAD)):
        agent = agent.replace(f"={what}", f'="${variable}"' + (f":{PORT}" if variable == HEAD else ""), 1)
    guard = f'python -m stash spot guard ~/{kept} --head "${HEAD}":{PORT} --name {name}'
    return f"{guard} -- {agent}"
