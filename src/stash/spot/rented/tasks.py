"""The machines of a fleet plan as SkyPilot tasks: what is rented, installed and run on each, and the run's secrets.

The first machine, or machines, are one on-demand cluster, which takes itself down when it is idle; each worker is a
managed job of one node, on spot or on demand, as one of several restarts whole (skypilot #3907). Workers join by the
head's private address. Knows SkyPilot's keys (docs.skypilot.co, YAML spec); starts nothing.

Without its secrets no machine joins a run. They lie in its folder, for its owner alone, as a file of variables that
SkyPilot reads (``--secret-file``): so they are in no command, task or journal. A later controller finds them there;
they go once nothing is rented.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shlex
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stash.catalog.facts import Instance
from stash.catalog.machines import resources, where
from stash.core.errors import UserError
from stash.plan.launch import AUTOSTOP
from stash.spot.records.fleets import FleetPlan, WorkerType
from stash.study.backend import ProgramWords, Submission
from stash.study.programs import JSON
from stash.study.study_folder import StudyFolder
from stash.study.wheel import own_wheel

HERE = "stash-spot"
"""The folder of a training, in the home of every machine."""
TASK = "task.yaml"
HEAD, TYPE = "STASH_HEAD", "STASH_TYPE"
"""Variables of a worker: the head's private address, and the type of its machine."""
_MOUNTED = "stash-spot-checkpoints"
_SECRETS = "secrets.env"
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
_SSH = (
    *("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"),  # a path that breaks off silently ends it
)


@dataclass(frozen=True, kw_only=True)
class RentRequest(ABC):
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

    @property
    @abstractmethod
    def secret_variables(self) -> tuple[str, ...]:
        """What its secrets are called on the machines."""

    @abstractmethod
    def server_task(self) -> Submission:
        """What is rented first, and stays."""

    @abstractmethod
    def worker_task(self, number: int, kind: WorkerType, head: str, on_demand: bool = False) -> Submission:
        """One machine that comes to ``head``, the private address of the first server."""

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
        return self.folder.path / _SECRETS

    @property
    def servers(self) -> int:
        return self.plan.pool.server.count

    @property
    def server_dollars(self) -> float:
        """Per hour, all of them, at most."""
        return at_most(self.plan.pool.server.dollars_per_hour) * self.servers

    @property
    def server_bytes(self) -> float | None:
        """Memory that a server's machine has to have; ``None`` if that is unknown."""
        return self.plan.pool.server.needs_bytes

    @property
    def setup(self) -> str:
        """The line of shell that installs what every machine needs, the job's ``requirements.txt`` included."""
        return own_wheel().install(self.folder.work)

    def server_submission(
        self, what: str, run: str, envs: Mapping[str, str], bucket: str | None = None, nodes: int | None = None
    ) -> Submission:
        """A cluster on demand, which takes itself down when it is idle."""
        pool = self.plan.pool.server
        if pool.instance is not None and self.region is not None:
            machine = {"instance_type": pool.instance.partition("+")[0]}
        else:
            memory = {} if self.server_bytes is None else {"memory": f"{math.ceil(self.server_bytes / 2**30)}+"}
            machine = {"cpus": f"{pool.cores}+", **memory}
        rented = {
            **where(self.cloud, self.region),
            **machine,
            "use_spot": False,
            "max_hourly_cost": at_most(pool.dollars_per_hour),
            "autostop": AUTOSTOP,
        }
        task = {"name": self.server} | ({} if nodes is None else {"num_nodes": nodes})
        return Submission(
            files={TASK: self._yaml(what, {**task, **self._common(rented, envs, bucket), "run": run})},
            command=(
                "sky", "launch", "--yes", "--detach-run", "--cluster", self.server, *self._last_words("server"),
            ),
            lane="server",
            lease=self.server,
            release=(("sky", "down", "--yes", self.server),),
            check=("sky", "status", "--refresh", *JSON, self.server),
            lost=_LOST,
            shared=own_wheel().shared,
        )  # fmt: skip

    def worker_submission(
        self, role: str, number: int, kind: WorkerType, on_demand: bool, run: str, envs: Mapping[str, str],
        bucket: str | None = None,
    ) -> Submission:  # fmt: skip
        """A managed job of one machine."""
        known, most = self.instances.get(kind.name), dollars_at_most(kind, on_demand)
        if known is not None:
            rented = resources(known, self.cloud, self.region, spot=not on_demand)
        else:
            named = "accelerators" if self.region is None else "instance_type"
            rented = {**where(self.cloud, self.region), named: kind.name, "use_spot": not on_demand}
        name, lane = self.worker(number), f"worker{number}"
        task = {"name": name, **self._common({**rented, "max_hourly_cost": most}, envs, bucket), "run": run}
        what = f"{role} {number}: {kind.name}{' on demand' if on_demand else ''}"
        return Submission(
            files={TASK: self._yaml(what, task)},
            command=("sky", "jobs", "launch", "--yes", "--detach-run", "--name", name, *self._last_words(lane)),
            lane=lane,
            lease=name,
            release=(("sky", "jobs", "cancel", "--yes", "--name", name),),
            check=jobs(),
            lost=_LOST,
            shared=own_wheel().shared,
        )

    def _common(self, rented: dict[str, Any], envs: Mapping[str, str], bucket: str | None) -> dict[str, Any]:
        # MOUNT: a file is in the bucket when it is closed (MOUNT_CACHED uploads later).
        mounts = {} if bucket is None else {f"~/{_MOUNTED}": {"source": _bucket(bucket)[0], "mode": "MOUNT"}}
        return {
            "workdir": str(self.folder.work),
            "resources": rented,
            "envs": dict(envs),
            "secrets": dict.fromkeys(self.secret_variables),  # their values are in the file that the command names
            "file_mounts": {**own_wheel().mount(self.folder.path), **mounts},
            "setup": self.setup,
        }

    def _last_words(self, lane: str) -> ProgramWords:
        return ("--secret-file", str(self.secret), str(self.folder.cell(lane).path / TASK))

    @staticmethod
    def _yaml(what: str, task: dict[str, Any]) -> str:
        return f"# {what}\n{yaml.dump(task, Dumper=_Readable, sort_keys=False, width=4096)}"


class _Readable(yaml.SafeDumper):
    """Scripts as blocks."""


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _block)


def renew(file: Path, variables: Sequence[str]) -> None:
    """Write new secrets, whole or not at all, readable by their owner only."""
    handle, fresh = tempfile.mkstemp(dir=file.parent)  # mode 600
    with os.fdopen(handle, "w") as opened:
        opened.writelines(f"{variable}={secrets.token_hex(32)}\n" for variable in variables)
    Path(fresh).replace(file)


def first_workers(request: RentRequest) -> list[WorkerType]:
    """The plan's workers, in its order."""
    chosen = request.plan.chosen
    workers = {} if chosen is None else chosen.workers
    return [request.kind(name) for name, count in workers.items() for _ in range(count)]


def at_most(dollars: float) -> float:
    return math.ceil(round(dollars * _MARGIN * 1e4, 6)) / 1e4  # a rounding error is no cent


def dollars_at_most(kind: WorkerType, on_demand: bool = False) -> float:
    """Per hour; raises UserError for a type whose price on demand is unknown."""
    price = kind.on_demand_price if on_demand else kind.dollars_per_hour
    if price is None:
        raise UserError(f"what {kind.name} costs on demand is not known")
    return at_most(price)


def kept(url: str) -> str:
    """The folder of a machine's home that is where ``url`` is, below the mounted bucket."""
    folder = _bucket(url)[1]
    return f"{_MOUNTED}/{folder}" if folder else _MOUNTED


def _bucket(url: str) -> tuple[str, str]:
    """A bucket, and the folder in it: SkyPilot mounts whole buckets alone (``Storage._validate_source``)."""
    scheme, _, path = url.partition("://")
    parts = [part for part in path.split("/") if part]
    own = 2 if scheme in ("https", "cos") else 1  # an account's container, a region's bucket
    return f"{scheme}://{'/'.join(parts[:own])}", "/".join(parts[own:])


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
    """Asks something of the head."""
    line = shlex.quote(json.dumps(wished))
    return (*_SSH, request.server, f"echo {line} >> {HERE}/wishes.jsonl")


def fetch(request: RentRequest, folder: str) -> ProgramWords:
    """Brings what the training has left: the model, checkpoints, and what happened."""
    return ("scp", "-q", "-r", f"{request.server}:{HERE}", folder)
