"""A fleet plan's machines as SkyPilot tasks, in a shell script that rents them.

The servers are one on-demand cluster, which takes itself down when it is idle; each worker is a managed job of one
node, as one of several restarts whole (skypilot #3907), which SkyPilot starts again when it is taken away. All are
one Ray, which no process joins without its token; workers reach the head by its private address. A limit in dollars
becomes one moment, set when the script starts, after which every task ends itself: it holds although nobody watches,
and a machine that is started again does not begin a new count. Knows SkyPilot's keys (docs.skypilot.co, YAML spec).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stash.api import (
    AUTOSTOP,
    OLD_PRICE_DAYS,
    Catalog,
    Instance,
    price_age,
    sky_place,
    sky_resources,
    sky_task_yaml,
)
from stash.core.errors import UserError
from stash.core.membership import TOKEN
from stash.core.units import format_count, format_seconds
from stash.core.version import install_requirement
from stash.spot.fleet_records import FleetPlan, WorkerType
from stash.spot.train.elastic_job import EXAMPLE, check_optimizer, load_job
from stash.spot.train.run_orders import RAY_HEAD, WISHES, WorkerPlace

KUBERNETES = ("kubernetes", "k8s")
HERE = "stash-spot"
"""The folder of a training, in the home of every machine."""
_PORT = 6379
"""Of the head's Ray; SkyPilot's own has another (sky_templates/ray/start_cluster)."""
_SECRETS = ("RAY_AUTH_TOKEN", TOKEN)
"""Ray's, which it sends in the clear, and the one that servers and workers prove to know."""
_MOUNTED = "stash-spot-checkpoints"
_MARGIN = 1.1
"""Prices move between plan and launch by about that: what is dearer is refused."""
_SAVING_SECONDS = 300.0
"""From the end of training to that of the tasks, for what is being saved."""
_SHORTEST_SECONDS = 600.0
"""A limit that buys less training than this is refused."""
_SPARE = 8
"""Servers that one machine may start one after the other: each has a name of its own."""
_QUIET = ("--disable-usage-stats", "--dashboard-agent-listen-port=52366")
"""Ray reports nothing to its makers, and SkyPilot's own Ray keeps its port (sky_templates/ray/start_cluster)."""
_BUCKET = re.compile(r"(s3|gs|https|r2|cos|oci|nebius|cw|vastdata)://[\w.-]+(/[\w.=+-]+)*/?")
"""What SkyPilot 0.14.1 mounts (``sky.data.storage``), and a folder in it that a shell reads as it is."""


@dataclass(frozen=True, kw_only=True)
class RentedPlace:
    """Where a plan's machines are to be rented."""

    cloud: str
    region: str | None
    """Of all machines: they talk by private addresses. ``None`` on Kubernetes."""
    instances: Mapping[str, Instance]
    """Of the types that the catalog knows."""
    checkpoints: str | None
    """A bucket; ``None``: the servers' own disk."""


def rented_place(
    plan: FleetPlan, infra: str, checkpoints: str | None, catalog: Catalog
) -> RentedPlace:
    """Raises UserError for an ``infra`` or a bucket that SkyPilot would not take."""
    if checkpoints is not None and not _BUCKET.fullmatch(checkpoints):
        raise UserError(
            f"--checkpoint-url {checkpoints!r}: write it like s3://my-bucket/run1, gs://… or https://… (Azure)"
        )
    if plan.pool.server.count > 1 and checkpoints is None:
        raise UserError(
            f"{plan.pool.server.count} servers keep their checkpoints where each of them finds those of all; name a "
            "bucket, like --checkpoint-url s3://my-bucket"
        )
    cloud, _, named = infra.partition("/")
    region: str | None = named
    if cloud in KUBERNETES:
        cloud = infra
        region = None
    elif not cloud or not region:
        raise UserError(
            f"--infra {infra!r}: workers reach the server by its private address, so all machines are rented in one "
            "region; name it, like --infra aws/us-east-1 (or --infra kubernetes)"
        )
    instances: dict[str, Instance] = {}
    for kind in plan.pool.types:
        with suppress(UserError):  # SkyPilot may know it all the same
            instances[kind.name] = catalog.instance(f"{cloud}/{kind.name}")
    return RentedPlace(cloud=cloud, region=region, instances=instances, checkpoints=checkpoints)


def check_prices(plan: FleetPlan, today: date) -> None:
    """Raise UserError where the plan rents nothing, or its prices are old or unknown."""
    again = "put today's prices into the pool (with as_of) and run `stash spot plan` again"
    if plan.chosen is None:
        raise UserError(
            "the plan holds no fleet: nothing in its pool was feasible; plan again with a looser wish"
        )
    since = price_age(plan.pool.as_of, today)
    if since is None or since.is_old:
        raise UserError(
            f"the plan's prices are of {plan.pool.as_of}, and after {OLD_PRICE_DAYS} days they say little about what "
            f"a machine costs now; {again}"
        )
    unknown = [kind.name for kind in plan.planned_types if not kind.dollars_per_hour]
    if not plan.pool.server.dollars_per_hour:
        unknown.append("the server")
    if unknown:
        raise UserError(
            f"the price of {unknown[0]} is not known (dollars_per_hour of the plan's pool is 0); {again}"
        )


def job_in(work: Path, job: str) -> str:
    """``file.py:name`` from the folder ``work``; raises UserError if it is not there, or cannot be imported."""
    check_optimizer(load_job(job))
    path, _, name = job.rpartition(":")
    inside = Path(path).resolve()
    if not inside.is_relative_to(work):
        raise UserError(
            f"{path} lies outside {work}, the folder that is copied to the machines; start from the job's own, "
            f"like: cd {inside.parent} && stash spot run … {EXAMPLE}"
        )
    return f"{inside.relative_to(work)}:{name}"


@dataclass(frozen=True)
class RentScript:
    """A shell script that rents a plan's machines, and what to type afterwards."""

    text: str
    follow: str
    fetch: str
    end: tuple[str, ...]
    """The commands that take everything down."""


def seconds_bought(plan: FleetPlan, max_dollars: float) -> float:
    """How long the plan's fleet may train for so much, at prices a tenth above the plan's.

    The minutes in which machines save, and in which an idle head waits, are paid for, too. Raises UserError for a sum
    that buys next to nothing.
    """
    hour = _hourly_dollars(plan)
    after = _SAVING_SECONDS + 60 * AUTOSTOP["idle_minutes"]
    seconds = 3600 * max_dollars / hour - after
    if seconds < _SHORTEST_SECONDS:
        least = math.ceil(100 * hour * (after + _SHORTEST_SECONDS) / 3600) / 100
        bought = format_seconds(3600 * max_dollars / hour)
        raise UserError(
            f"--max-dollars {max_dollars:g} buys {bought} of this fleet, at up to ${hour:.2f} an hour; give at least "
            f"{least:g}"
        )
    return seconds


def rent_script(
    plan: FleetPlan, place: RentedPlace, job: str, work: Path, max_dollars: float | None = None
) -> RentScript:
    """The shell script that rents the plan's machines and trains ``job``, a file in ``work``; raises UserError."""
    name = f"stash-{hashlib.sha256(f'{work}/{job}'.encode()).hexdigest()[:6]}"
    secrets = " ".join(_SECRETS)
    launch = "--yes --detach-run"
    limit = []
    if max_dollars is not None:
        bought = seconds_bought(plan, max_dollars)
        limit = [
            f"# Training ends {format_seconds(bought)} after the start, so that it costs ${max_dollars:g} at most.",
            f'STASH_END="$(($(date +%s) + {int(bought)}))"',
        ]
        launch += ' --env STASH_END="$STASH_END"'
    workers = []
    jobs = []
    for number, kind in enumerate(plan.planned_workers, start=1):
        workers.append(f"{name}-worker{number}")
        jobs.append(
            f'sky jobs launch {launch} --name {workers[-1]} --secret-file {name}.env --env STASH_HEAD="$HEAD" '
            f"--env STASH_WORKER=worker{number} {shlex.quote(f'{name}-{kind.name}.yaml')}"
        )
    follow = f"ssh {name} tail -n +1 -F {HERE}/events.jsonl"
    fetch = f"scp -r {name}:{HERE} ."
    end = (
        *(f"sky jobs cancel --yes --name {worker}" for worker in workers),
        f"sky down --yes {name}",
    )
    hint = " Nothing here limits what it costs (--max-dollars does): end it as the last lines say."
    lines = [
        f"# {name}: {_describe_price(plan)}",
        f"# Run it in the job's folder.{'' if limit else hint}",
        "set -e",
        *limit,
        *_task_files(name, plan, place, job, work, max_dollars is not None),
        f'(umask 077; for NAME in {secrets}; do echo "$NAME=$(openssl rand -hex 32)"; done > {name}.env)',
        f"sky launch {launch} --cluster {name} --secret-file {name}.env {name}-server.yaml",
        f"until HEAD=$(ssh {name} cat {HERE}/address); do sleep 5; done",
        *jobs,
        f"# What happens: {follow}",
        f"# What it left: {fetch}",
        "# The end of all:",
        *(f"#   {command}" for command in end),
    ]
    return RentScript("\n".join(lines) + "\n", follow, fetch, end)


def _task_files(
    name: str, plan: FleetPlan, place: RentedPlace, job: str, work: Path, is_limited: bool
) -> list[str]:
    """Lines that write the tasks of servers and of each type of worker, each into a file of its own."""
    common = _common(work, is_limited)
    tasks = {"server": _server_task(plan, place, job, common)}
    for kind in plan.planned_types:
        tasks[kind.name] = _worker_task(place, kind, common)
    return [
        f"cat > {name}-{what}.yaml <<'TASK'\n{sky_task_yaml(task)}TASK"
        for what, task in tasks.items()
    ]


def _hourly_dollars(plan: FleetPlan) -> float:
    """Of all machines, at prices a tenth above the plan's."""
    server = plan.pool.server
    return _dollars_at_most(server.dollars_per_hour) * server.count + sum(
        _dollars_at_most(kind.dollars_per_hour) for kind in plan.planned_workers
    )


def _describe_price(plan: FleetPlan) -> str:
    chosen = plan.chosen
    server = plan.pool.server
    assert chosen is not None
    servers = format_count(server.count, "server")
    workers = format_count(len(plan.planned_workers), "worker")
    return (
        f"{servers}, {workers}, ${_hourly_dollars(plan):.2f} an hour by prices of {plan.pool.as_of} and a tenth; "
        f"planned: {format_seconds(chosen.seconds)}, ${chosen.dollars:.2f}. SkyPilot's jobs controller comes on top."
    )


def _dollars_at_most(dollars: float) -> float:
    return math.ceil(round(dollars * _MARGIN * 1e4, 6)) / 1e4  # a rounding error is no cent


# Tasks


_TIME_LEFT = f"""if [ -z "$STASH_END" ]; then
  LEFT=0
else
  LEFT=$((STASH_END + {_SAVING_SECONDS:.0f} - $(date +%s)))
  [ "$LEFT" -gt 0 ] || exit 0
fi"""
"""Seconds until a task ends itself, its saving included; 0: never, as ``timeout`` reads it."""
_UNTIL_END = 'timeout "$LEFT"'
_ENDED = "[ $? = 124 ]"
"""Whether ``timeout`` ended it: that is how it should end, and nothing to start again for."""


def _common(work: Path, limited: bool) -> dict[str, Any]:
    """What all tasks share, ``limited`` to end at a moment.

    Raises UserError without Ray, whose version all machines get.
    """
    try:
        ray = version("ray")  # Ray refuses to work with unlike ones
    except PackageNotFoundError:
        raise UserError(
            "Ray is not installed here, and all machines get the version that is; install it with: pip install ray"
        ) from None
    needed = ["-r", "requirements.txt"] if (work / "requirements.txt").is_file() else []
    install = shlex.join(["pip", "install", install_requirement("fleet"), f"ray=={ray}", *needed])
    return {
        "workdir": ".",
        "envs": {"RAY_AUTH_MODE": "token", "STASH_END": None if limited else ""},
        "secrets": dict.fromkeys(_SECRETS),
        "setup": f"{_TIME_LEFT}\n{_UNTIL_END} {install}",
    }


def _server_task(
    plan: FleetPlan, place: RentedPlace, job: str, common: Mapping[str, Any]
) -> dict[str, Any]:
    """The servers, and the head of the training on the first one."""
    server = plan.pool.server
    if server.instance is not None and place.region is not None:
        machine = {"instance_type": server.instance.partition("+")[0]}
    else:
        machine = {"cpus": f"{server.cores}+"}
        if server.needs_bytes is not None:
            needs = server.needs_bytes + (_senders_at_once(plan) - 1) * _two_buffers(plan)
            machine["memory"] = f"{math.ceil(needs / 2**30)}+"
    rented = {
        **sky_place(place.cloud, place.region),
        **machine,
        "use_spot": False,
        "max_hourly_cost": _dollars_at_most(server.dollars_per_hour),
        "autostop": AUTOSTOP,
    }
    task = {"num_nodes": server.count, "resources": rented, **common}
    folder = HERE
    if place.checkpoints is not None:
        # MOUNT: a file is in the bucket when it is closed (MOUNT_CACHED uploads later)
        # A bucket, and the folder in it: SkyPilot mounts whole buckets alone
        # (``Storage._validate_source``).
        scheme, _, path = place.checkpoints.partition("://")
        parts = [part for part in path.split("/") if part]
        own = 2 if scheme in ("https", "cos") else 1  # an account's container, a region's bucket
        bucket, inside = f"{scheme}://{'/'.join(parts[:own])}", "/".join(parts[own:])
        task["file_mounts"] = {f"~/{_MOUNTED}": {"source": bucket, "mode": "MOUNT"}}
        folder = f"{_MOUNTED}/{inside}" if inside else _MOUNTED
    return {**task, "run": _server_run(plan, folder, job)}


def _worker_task(place: RentedPlace, kind: WorkerType, common: Mapping[str, Any]) -> dict[str, Any]:
    """One machine of a type, which joins as ``$STASH_WORKER``."""
    known = place.instances.get(kind.name)
    if known is not None:
        rented = sky_resources(known, place.cloud, place.region, spot=not kind.is_on_demand)
    else:
        named = "accelerators" if place.region is None else "instance_type"
        rented = {
            **sky_place(place.cloud, place.region),
            named: kind.name,
            "use_spot": not kind.is_on_demand,
        }
    start = _ray_start('--address="$STASH_HEAD":' + str(_PORT), '{"\'"$STASH_WORKER"\'": 1}')
    return {
        "resources": {**rented, "max_hourly_cost": _dollars_at_most(kind.dollars_per_hour)},
        **common,
        "envs": {**common["envs"], "STASH_HEAD": None, "STASH_WORKER": None},
        "run": f"{_TIME_LEFT}\n{_UNTIL_END} {start} || {_ENDED}",
    }


def _ray_start(address: str, resources_text: str, *words: str) -> str:
    """``ray start``, with words that a shell still reads."""
    return " ".join(
        ["ray start", address, *words, f"--resources '{resources_text}'", *_QUIET, "--block"]
    )


def _server_run(plan: FleetPlan, folder: str, job: str) -> str:
    """On every server; the first one is the head, and gets the orders with its own address in them.

    ``folder``: that of the checkpoints, in the home.
    """
    count = plan.pool.server.count
    names = {f"server{number}": 1 for number in (1, *range(count + 1, count + 1 + _SPARE))}
    head = _ray_start(f"--head --port={_PORT}", json.dumps({"head": 1, **names}), *RAY_HEAD)
    other = _ray_start(f'--address="$HEAD":{_PORT}', '{"\'"$SERVER"\'": 1}')
    orders = {  # as ``spot/train/run_orders.py`` reads them
        "job": job,
        "checkpoints": f"HOME_FOLDER/{folder}/checkpoints",
        "servers": [f"server{number}" for number in range(1, count + 1)],
        "workers": [
            vars(WorkerPlace(f"worker{number}", kind.name, int(kind.samples), kind.gpus))
            for number, kind in enumerate(plan.planned_workers, start=1)
        ],
        "loss": plan.loss,
        "at_once": _senders_at_once(plan),
        "address": f"HEAD_ADDRESS:{_PORT}",
        "interface": "HEAD_ADDRESS",
        "model": f"HOME_FOLDER/{HERE}/model.pt",
        "replace": False,
    }
    return "\n".join(
        [
            _TIME_LEFT,
            'HEAD="$(echo "$SKYPILOT_NODE_IPS" | head -n1)"',
            'if [ "$SKYPILOT_NODE_RANK" != 0 ]; then',
            '  SERVER="server$((SKYPILOT_NODE_RANK + 1))"',
            f"  {_UNTIL_END} {other} || {_ENDED}",
            "  exit",
            "fi",
            f"mkdir -p ~/{HERE}/checkpoints",
            f"rm -f ~/{HERE}/address ~/{HERE}/*.jsonl",
            f'{head} --node-ip-address="$HEAD" &',
            "RAY=$!",
            "trap 'kill $RAY $STOP' EXIT",
            f'until ray health-check --address="$HEAD:{_PORT}"; do kill -0 $RAY && sleep 3 || exit 1; done',
            f"""sed -e "s/HEAD_ADDRESS/$HEAD/g" -e "s|HOME_FOLDER|$HOME|g" > ~/{HERE}/orders.json <<'ORDERS'""",
            json.dumps(orders),
            "ORDERS",
            f'echo "$HEAD" > ~/{HERE}/address',
            f"""[ "$LEFT" = 0 ] || (sleep "$((LEFT - {_SAVING_SECONDS:.0f}))";"""
            f""" echo '{{"do": "stop"}}' >> ~/{HERE}/{WISHES}) &""",
            "STOP=$!",
            f"{_UNTIL_END} python -m stash.spot.train.head ~/{HERE} || {_ENDED}",
        ]
    )


def _senders_at_once(plan: FleetPlan) -> int:
    """Workers that a server lets send at a time: as fill its link, as far as its memory has buffers for more."""
    pool, server = plan.pool, plan.pool.server
    if server.memory_bytes is None or server.needs_bytes is None:
        return pool.senders
    spare = (server.memory_bytes - server.needs_bytes) / _two_buffers(plan)
    return max(1, min(pool.senders, 1 + int(spare)))


def _two_buffers(plan: FleetPlan) -> float:
    """Bytes that one more sender takes: ``trays_of`` of ``spot/train/server``."""
    return 2 * plan.pool.exchange_bytes / plan.pool.server.count
