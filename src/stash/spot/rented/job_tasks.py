"""What runs on rented machines: an asynchronous job's servers and workers, or a synchronous script's head and nodes.

Servers and workers are one Ray cluster, which no process joins without its token; the head of the training is on the
first server. Nodes of a script are each under ``stash spot guard``; their head keeps the store in which torchrun's
agents meet (``stash.spot.sync.rendezvous``), and their checkpoints are in a bucket that all of them mount.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from stash.core.membership import TOKEN
from stash.spot.records.fleets import WorkerType
from stash.spot.rented.tasks import FAILED, HEAD, HERE, TYPE, RentRequest, first_workers, kept
from stash.spot.sync.agents import SETTINGS, SyncOrders, torchrun
from stash.spot.sync.checkpoint_request import EVERY
from stash.spot.sync.group_monitor import STARTS
from stash.spot.sync.rendezvous import PORT as GANG_PORT
from stash.spot.train.run_orders import RAY_HEAD
from stash.study.backend import Submission
from stash.study.wheel import own_wheel

PORT = 6379
"""Of the head's Ray; SkyPilot's own has another (sky_templates/ray/start_cluster)."""
_TOKEN_MODE = {"RAY_AUTH_MODE": "token"}
"""What has Ray ask for its token (docs.ray.io, token authentication), which it sends in the clear."""
_SPARE = 8
"""Servers that one machine may start one after the other: each has a name of its own."""
_QUIET = ("--disable-usage-stats", "--dashboard-agent-listen-port=52366")
"""Ray reports nothing to its makers, and SkyPilot's own Ray keeps its port (sky_templates/ray/start_cluster)."""
_FIRST = 'HEAD="$(echo "$SKYPILOT_NODE_IPS" | head -n1)"'


def _ray_start(*words: str, resources: dict[str, int]) -> str:
    return shlex.join(["ray", "start", *words, "--resources", json.dumps(resources), *_QUIET, "--block"])


def _logged(program: str) -> list[str]:
    """Lines of shell that run the head, and log how it ended if it could not do so itself."""
    return ["set -o pipefail", f"{program} 2>&1 | tee ~/{HERE}/output.log", "CODE=$?", FAILED, "exit $CODE"]


@dataclass(frozen=True, kw_only=True)
class FleetRequest(RentRequest):
    """The request of an asynchronous job."""

    job: str
    """``file.py:name``, from the folder ``work``."""
    ray: str
    """Its version, the same everywhere."""

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """Ray's, and the one that servers and workers prove to know."""
        return ("RAY_AUTH_TOKEN", TOKEN)

    @property
    def setup(self) -> str:
        return own_wheel().install(self.folder.work, f"ray=={self.ray}", extra="spot")

    @property
    def at_once(self) -> int:
        """Workers that a server lets send at a time: as fill its link, as far as its memory has buffers for more."""
        pool, server = self.plan.pool, self.plan.pool.server
        if server.memory_bytes is None or server.needs_bytes is None:
            return pool.senders
        spare = (server.memory_bytes - server.needs_bytes) / self._two_buffers
        return max(1, min(pool.senders, 1 + int(spare)))

    @property
    def server_bytes(self) -> float | None:
        needs = super().server_bytes
        return None if needs is None else needs + (self.at_once - 1) * self._two_buffers

    @property
    def _two_buffers(self) -> float:
        """Bytes that one more sender takes: ``trays_of`` of ``spot/train/server``."""
        return 2 * self.plan.pool.exchange_bytes / self.servers

    def server_task(self) -> Submission:
        what = "servers, and the head of the training"
        return self.server_submission(what, self._server_run(), _TOKEN_MODE, self.checkpoints, self.servers)

    def _server_run(self) -> str:
        """On every server; the first one is the head, and gets the orders with its own address in them."""
        count, pool = self.servers, self.plan.pool
        names = {f"server{number}": 1 for number in (1, *range(count + 1, count + 1 + _SPARE))}
        head = _ray_start("--head", f"--port={PORT}", *RAY_HEAD, resources={"head": 1, **names})
        other = _ray_start(f"--address=HEAD:{PORT}", resources={"SERVER": 1}).replace("SERVER", "'\"$SERVER\"'")
        place = HERE if self.checkpoints is None else kept(self.checkpoints)
        orders = {  # as ``spot/train/run_orders.py`` reads them; later workers register themselves
            "job": self.job,
            "checkpoints": f"HOME_FOLDER/{place}/checkpoints",
            "servers": [f"server{number}" for number in range(1, pool.server.count + 1)],
            "workers": [
                {"name": f"worker{number}", "type": kind.name, "samples": int(kind.samples)}
                for number, kind in enumerate(first_workers(self), start=1)
            ],
            "loss": self.plan.loss,
            "at_once": self.at_once,
            "address": f"HEAD_ADDRESS:{PORT}",
            "interface": "HEAD_ADDRESS",
            "model": f"HOME_FOLDER/{HERE}/model.pt",
            "replace": False,
        }
        return "\n".join(
            [
                _FIRST,
                'if [ "$SKYPILOT_NODE_RANK" != 0 ]; then',
                '  SERVER="server$((SKYPILOT_NODE_RANK + 1))"',
                f"  exec {other.replace('HEAD', chr(34) + '$HEAD' + chr(34))}",
                "fi",
                f"mkdir -p ~/{HERE}/checkpoints",
                f"rm -f ~/{HERE}/address ~/{HERE}/*.jsonl",
                f'{head} --node-ip-address="$HEAD" &',
                "RAY=$!",
                "trap 'kill $RAY' EXIT",
                f'until ray health-check --address="$HEAD:{PORT}"; do kill -0 $RAY && sleep 3 || exit 1; done',
                f"""sed -e "s/HEAD_ADDRESS/$HEAD/g" -e "s|HOME_FOLDER|$HOME|g" > ~/{HERE}/orders.json <<'ORDERS'""",
                json.dumps(orders),
                "ORDERS",
                f'echo "$HEAD" > ~/{HERE}/address',
                *_logged(f"python -m stash.spot.train.head ~/{HERE}"),
            ]
        )

    def worker_task(self, number: int, kind: WorkerType, head: str, on_demand: bool = False) -> Submission:
        name = f"worker{number}"
        agent = ("python", "-m", "stash.spot.rented.worker_agent", name, kind.name, str(int(kind.samples)))
        start = _ray_start(f"--address=HEAD:{PORT}", resources={name: 1})
        run = [
            f"{start.replace('HEAD', chr(34) + '$STASH_HEAD' + chr(34))} &",
            "RAY=$!",
            f"{shlex.join(agent)} $RAY &",
            "wait $RAY",
        ]
        envs = {**_TOKEN_MODE, HEAD: head, TYPE: kind.name}
        return self.worker_submission("worker", number, kind, on_demand, "\n".join(run), envs)


@dataclass(frozen=True, kw_only=True)
class GangRequest(RentRequest):
    """The request of a synchronous job."""

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
        return len(first_workers(self))

    def server_task(self) -> Submission:
        keep = f'python -m stash.spot.sync.rendezvous "$HEAD" {GANG_PORT} ~/{HERE} {self.least} {self.most}'
        run = [_FIRST, f"mkdir -p ~/{HERE}", f"rm -f ~/{HERE}/address ~/{HERE}/*.jsonl", *_logged(keep)]
        return self.server_submission("the head, where nodes meet", "\n".join(run), {})

    def worker_task(self, number: int, kind: WorkerType, head: str, on_demand: bool = False) -> Submission:
        assert self.checkpoints is not None
        place, name = kept(self.checkpoints), f"worker{number}"
        nodes = tuple(f"worker{each}" for each in range(1, self.most + 1))
        orders = SyncOrders(self.script, nodes, self.least, STARTS, Path(place), self.every)
        words = torchrun(orders, f"HEAD:{GANG_PORT}", None, processes(self, kind))
        agent = shlex.join(["torchrun", "--local-addr=ADDRESS", *words])
        agent = agent.replace("=ADDRESS", '="$SKYPILOT_NODE_IPS"', 1)
        agent = agent.replace(f"=HEAD:{GANG_PORT}", f'="${HEAD}":{GANG_PORT}', 1)
        guard = f'python -m stash spot guard ~/{place} --head "${HEAD}":{GANG_PORT} --name {name}'
        envs = {HEAD: head, TYPE: kind.name, EVERY: f"{self.every:g}", **SETTINGS}
        return self.worker_submission("node", number, kind, on_demand, f"{guard} -- {agent}", envs, self.checkpoints)


def processes(request: GangRequest, kind: WorkerType) -> int:
    """Processes of one node: one for each GPU that the catalog knows of its type, else that the plan does."""
    known = request.instances.get(kind.name)
    return max(1, kind.gpus) if known is None or known.gpu_count is None else known.devices
