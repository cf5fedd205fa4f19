"""The machines of a fleet plan as SkyPilot tasks, and the secret without which nobody joins them."""

from __future__ import annotations

import json
import math
import os
import secrets
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stash.catalog.facts import Instance
from stash.catalog.machines import resources, where
from stash.core.errors import UserError
from stash.core.membership import TOKEN
from stash.spot.records.fleets import FleetPlan, WorkerType
from stash.spot.train.run_orders import RAY_HEAD
from stash.study.backend import ProgramWords, Submission
from stash.study.programs import JSON
from stash.study.study_folder import StudyFolder
from stash.study.wheel import own_wheel

# Admission -------------------------------------------------------------------------------------------------
# The secrets of one run: without them nobody joins the Ray on its machines, or asks anything of its servers.
#
# They lie in the run's folder, for its owner alone, as a file of variables that SkyPilot reads (``--secret-file``):
# so they are in no command, task or journal. A later controller finds them there; they go once nothing is rented.

MODE = {"RAY_AUTH_MODE": "token"}
"""What has Ray ask for it (docs.ray.io, token authentication)."""
VARIABLES = ("RAY_AUTH_TOKEN", TOKEN)
"""Ray's token, which Ray sends in the clear, and the secret that servers and workers prove to know."""
FILE = "secrets.env"


def renew(file: Path, variables: Sequence[str]) -> None:
    """Write new ones, whole or not at all, readable by their owner only."""
    handle, fresh = tempfile.mkstemp(dir=file.parent)  # mode 600
    with os.fdopen(handle, "w") as opened:
        opened.writelines(f"{variable}={secrets.token_hex(32)}\n" for variable in variables)
    Path(fresh).replace(file)


# Tasks -----------------------------------------------------------------------------------------------------
# The machines of a fleet plan as SkyPilot tasks: what is rented, installed and run on each, before any of it is.
#
# The servers are one on-demand cluster, which takes itself down when it is idle; each worker is a managed job of
# one node, on spot or on demand, as one of several restarts whole (skypilot #3907). Workers join the head's Ray by
# its private address. Knows SkyPilot's keys (docs.skypilot.co, YAML spec) and what ``stash.spot.train`` runs; starts
# nothing.

HERE = "stash-spot"
"""The folder of a training, in the home of every machine."""
MOUNTED = "stash-spot-checkpoints"
TASK = "task.yaml"
HEAD, TYPE = "STASH_HEAD", "STASH_TYPE"
"""Variables of a worker: the head's private address, and the type of its machine."""
PORT = 6379
"""Of the head's Ray; SkyPilot's own has another (sky_templates/ray/start_cluster)."""
_SPARE = 8
"""Servers that one machine may start one after the other: each has a name of its own."""
_MARGIN = 1.1
"""Prices move between plan and launch by about that: what is dearer is refused."""
_FAILED = json.dumps(
    {
        "what": "failed",
        "why": "the head ended with exit status STATUS; what it printed is in output.log, in the folder that was "
        "fetched",
        "exit_code": 1,
    }
)
FAILED = f"[ $CODE = 0 ] || echo '{_FAILED}' | sed \"s/STATUS/$CODE/\" >> ~/{HERE}/events.jsonl"
"""The line of shell that writes what stands behind the head's own last event, if it could not write one."""
_LOST = r"(?i)preempted|has been terminated|cluster .{1,80} is not up|connection (closed|reset|timed out)"
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
_BESIDE = ("--disable-usage-stats", "--dashboard-agent-listen-port=52366")
"""Nothing is told to Ray's makers, and SkyPilot's own Ray keeps its port (sky_templates/ray/start_cluster)."""


@dataclass(frozen=True, kw_only=True)
class RentRequest:
    """One run of a plan: what does not change while machines come and go."""

    name: str
    """Begins the name of everything that is rented."""
    plan: FleetPlan
    folder: StudyFolder
    """Of the run; what is copied to every machine is the folder ``work`` of it."""
    cloud: str
    region: str | None
    """Of all machines: they talk by private addresses. ``None`` on Kubernetes."""
    instances: dict[str, Instance]
    """Of the types that the catalog knows."""
    checkpoints: str | None = None
    """A bucket; ``None``: the servers' own disk."""
    idle_minutes: int = 10

    @property
    def server(self) -> str:
        return f"{self.name}-server"

    def worker(self, number: int) -> str:
        return f"{self.name}-worker{number}"

    def kind(self, name: str) -> WorkerType:
        return next(kind for kind in self.plan.pool.types if kind.name == name)

    @property
    def secret(self) -> Path:
        """The file with what machines prove to each other that they are of this run."""
        return self.folder.path / FILE

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """What its secrets are called on the machines."""
        raise NotImplementedError

    @property
    def server_dollars(self) -> float:
        """Per hour, all of them, at most."""
        return at_most(self.plan.pool.server.dollars_per_hour) * self.servers

    @property
    def servers(self) -> int:
        return self.plan.pool.server.count

    @property
    def setup(self) -> str:
        """The line of shell that installs what every machine needs, the job's ``requirements.txt`` included."""
        return own_wheel().install(self.folder.work)

    def server_task(self) -> Submission:
        """What is rented first, and stays."""
        raise NotImplementedError

    def worker_task(self, number: int, kind: WorkerType, head: str, on_demand: bool = False) -> Submission:
        """One machine that comes to ``head``, the private address of the first server."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class FleetRequest(RentRequest):
    """Of an asynchronous job."""

    job: str
    """``file.py:name``, from the folder ``work``."""
    ray: str
    """Its version, the same everywhere."""

    @property
    def secret_variables(self) -> tuple[str, ...]:
        return VARIABLES

    @property
    def setup(self) -> str:
        return own_wheel().install(self.folder.work, f"ray=={self.ray}", extra="spot")

    def server_task(self) -> Submission:
        return server(self)

    def worker_task(self, number: int, kind: WorkerType, head: str, on_demand: bool = False) -> Submission:
        return worker(self, number, kind, head, on_demand)


def dollars_at_most(kind: WorkerType, on_demand: bool = False) -> float:
    """Per hour; raises UserError for a type whose price on demand nobody says."""
    price = kind.on_demand_price if on_demand else kind.dollars_per_hour
    if price is None:
        raise UserError(f"what {kind.name} costs on demand is not known")
    return at_most(price)


def server(request: FleetRequest) -> Submission:
    """The servers, the head of the training on the first of them."""
    pool = request.plan.pool.server
    bucket = {} if request.checkpoints is None else mounted(request.checkpoints)
    task = common(request, server_resources(request), MODE, bucket)
    task = {"num_nodes": pool.count, **task, "run": _server_run(request)}
    return server_submission(request, task, "servers, and the head of the training")


def worker(request: FleetRequest, number: int, kind: WorkerType, head: str, on_demand: bool = False) -> Submission:
    """One worker that joins ``head``, the private address of the first server."""
    rented = worker_resources(request, kind, on_demand)
    task = common(request, rented, {**MODE, HEAD: head, TYPE: kind.name})
    what = f"worker {number}: {kind.name}{' on demand' if on_demand else ''}"
    return worker_submission(request, number, {**task, "run": _worker_run(f"worker{number}", kind)}, what)


def server_resources(request: RentRequest) -> dict[str, Any]:
    """On demand; takes itself down when it is idle."""
    pool = request.plan.pool.server
    return {
        **where(request.cloud, request.region),
        "cpus": f"{pool.cores}+",
        "use_spot": False,
        "max_hourly_cost": at_most(pool.dollars_per_hour),
        "autostop": {"idle_minutes": request.idle_minutes, "down": True},
    }


def worker_resources(request: RentRequest, kind: WorkerType, on_demand: bool) -> dict[str, Any]:
    known = request.instances.get(kind.name)
    if known is not None:
        rented = resources(known, request.cloud, request.region, spot=not on_demand)
    else:
        named = "accelerators" if request.region is None else "instance_type"
        rented = {**where(request.cloud, request.region), named: kind.name, "use_spot": not on_demand}
    return {**rented, "max_hourly_cost": dollars_at_most(kind, on_demand)}


def mounted(url: str) -> dict[str, Any]:
    """The bucket where checkpoints go. MOUNT: a file is in it when it is closed (MOUNT_CACHED uploads later)."""
    return {f"~/{MOUNTED}": {"source": _bucket(url)[0], "mode": "MOUNT"}}


def kept(url: str) -> str:
    """The folder of a machine's home that is where ``url`` is, below the mounted bucket."""
    folder = _bucket(url)[1]
    return f"{MOUNTED}/{folder}" if folder else MOUNTED


def _bucket(url: str) -> tuple[str, str]:
    """A bucket, and the folder in it: SkyPilot mounts whole buckets alone (``Storage._validate_source``)."""
    scheme, _, path = url.partition("://")
    parts = [part for part in path.split("/") if part]
    own = 2 if scheme in ("https", "cos") else 1  # an account's container, a region's bucket
    return f"{scheme}://{'/'.join(parts[:own])}", "/".join(parts[own:])


def server_submission(request: RentRequest, task: dict[str, Any], what: str) -> Submission:
    return Submission(
        files={TASK: _yaml({"name": request.server, **task}, what)},
        command=("sky", "launch", "--yes", "--detach-run", "--cluster", request.server, *_task(request, "server")),
        lane="server",
        lease=request.server,
        release=(("sky", "down", "--yes", request.server),),
        check=("sky", "status", "--refresh", *JSON, request.server),
        lost=_LOST,
        shared=own_wheel().shared,
    )


def worker_submission(request: RentRequest, number: int, task: dict[str, Any], what: str) -> Submission:
    name, short = request.worker(number), f"worker{number}"
    return Submission(
        files={TASK: _yaml({"name": name, **task}, what)},
        command=("sky", "jobs", "launch", "--yes", "--detach-run", "--name", name, *_task(request, short)),
        lane=short,
        lease=name,
        release=(("sky", "jobs", "cancel", "--yes", "--name", name),),
        check=jobs(),
        lost=_LOST,
        shared=own_wheel().shared,
    )


def jobs() -> ProgramWords:
    """Lists all managed jobs."""
    return ("sky", "jobs", "queue", "--refresh", "--all", *JSON)


def logs(name: str) -> ProgramWords:
    """Prints what a managed job has printed so far."""
    return ("sky", "jobs", "logs", "--no-follow", "--name", name)


def follow(request: RentRequest) -> ProgramWords:
    """Prints what happens on the head, from the first line on, as it happens."""
    return (*_SSH, request.server, f"tail -n +1 -F {HERE}/events.jsonl")


def progress(request: RentRequest, last: int) -> ProgramWords:
    """Prints how many updates there are, and the last of them."""
    return (*_SSH, request.server, f"wc -l < {HERE}/updates.jsonl; tail -n {last} {HERE}/updates.jsonl")


def address(request: RentRequest) -> ProgramWords:
    """Prints the head's private address, once its Ray is up."""
    return (*_SSH, request.server, f"cat {HERE}/address")


def wish(request: RentRequest, **wished: Any) -> ProgramWords:
    """Tells the head something."""
    line = shlex.quote(json.dumps(wished))
    return (*_SSH, request.server, f"echo {line} >> {HERE}/wishes.jsonl")


def fetch(request: RentRequest, folder: str) -> ProgramWords:
    """Brings what the training has left: the model, checkpoints, and what happened."""
    return ("scp", "-q", "-r", f"{request.server}:{HERE}", folder)


def _task(request: RentRequest, lane: str) -> ProgramWords:
    """The last words of a launch."""
    return ("--secret-file", str(request.secret), str(request.folder.cell(lane).path / TASK))


def at_most(dollars: float) -> float:
    return math.ceil(round(dollars * _MARGIN * 1e4, 6)) / 1e4  # a rounding error is no cent


def common(
    request: RentRequest, rented: dict[str, Any], envs: Mapping[str, str], mounts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Of every task."""
    return {
        "workdir": str(request.folder.work),
        "resources": rented,
        "envs": dict(envs),
        "secrets": dict.fromkeys(request.secret_variables),  # their values are in the file that the command names
        "file_mounts": {**own_wheel().mount(request.folder.path), **(mounts or {})},
        "setup": request.setup,
    }


def _yaml(task: dict[str, Any], what: str) -> str:
    return f"# {what}\n{yaml.dump(task, Dumper=_Readable, sort_keys=False, width=4096)}"


class _Readable(yaml.SafeDumper):
    """Scripts as blocks."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _block)


def _start(*words: str, resources: dict[str, int]) -> str:
    return shlex.join(["ray", "start", *words, "--resources", json.dumps(resources), *_BESIDE, "--block"])


def _server_run(request: FleetRequest) -> str:
    """On every server; the first one is the head, and gets the orders with its own address in them."""
    count = request.plan.pool.server.count
    names = {f"server{number}": 1 for number in (1, *range(count + 1, count + 1 + _SPARE))}
    head = _start("--head", f"--port={PORT}", *RAY_HEAD, resources={"head": 1, **names})
    other = _start(f"--address=HEAD:{PORT}", resources={"SERVER": 1}).replace("SERVER", "'\"$SERVER\"'")
    return "\n".join(
        [
            'HEAD="$(echo "$SKYPILOT_NODE_IPS" | head -n1)"',
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
            json.dumps(orders(request)),
            "ORDERS",
            f'echo "$HEAD" > ~/{HERE}/address',
            "set -o pipefail",
            f"python -m stash.spot.train.head ~/{HERE} 2>&1 | tee ~/{HERE}/output.log",
            "CODE=$?",
            FAILED,
            "exit $CODE",
        ]
    )


def orders(request: FleetRequest) -> dict[str, Any]:
    """What the head is asked to do, as ``spot/train/run_orders.py`` reads it; later workers announce themselves."""
    pool = request.plan.pool
    place = HERE if request.checkpoints is None else kept(request.checkpoints)
    return {
        "job": request.job,
        "checkpoints": f"HOME_FOLDER/{place}/checkpoints",
        "servers": [f"server{number}" for number in range(1, pool.server.count + 1)],
        "workers": [
            {"name": f"worker{number}", "type": kind.name, "samples": int(kind.samples)}
            for number, kind in enumerate(first_workers(request), start=1)
        ],
        "loss": request.plan.loss,
        "address": f"HEAD_ADDRESS:{PORT}",
        "interface": "HEAD_ADDRESS",
        "model": f"HOME_FOLDER/{HERE}/model.pt",
        "replace": False,
    }


def first_workers(request: RentRequest) -> list[WorkerType]:
    """Of the plan, in its order."""
    chosen = request.plan.chosen
    workers = {} if chosen is None else chosen.workers
    return [request.kind(name) for name, count in workers.items() for _ in range(count)]


def _worker_run(short: str, kind: WorkerType) -> str:
    outpost = ["python", "-m", "stash.spot.rented.worker_agent", short, kind.name, str(int(kind.samples))]
    start = _start(f"--address=HEAD:{PORT}", resources={short: 1})
    return "\n".join(
        [
            f"{start.replace('HEAD', chr(34) + '$STASH_HEAD' + chr(34))} &",
            "RAY=$!",
            f"{shlex.join(outpost)} $RAY &",
            "wait $RAY",
        ]
    )
