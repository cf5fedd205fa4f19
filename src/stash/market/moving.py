"""A move as it is started: a SkyPilot task in one zone, and the command that launches it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

from stash.catalog.machines import resources
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.records.profile import Profile
from stash.market.jobs import MarketJob
from stash.market.market_trace import MarketOffer
from stash.plan.launch import CLOUDS, task_body, task_name


@dataclass(frozen=True)
class MoveTask:
    """YAML that ``sky`` takes, and what a person has to see to."""

    name: str
    yaml: str
    notes: tuple[str, ...]


def move_task(offer: MarketOffer, job: MarketJob, profile: Profile | None, catalog: Catalog) -> MoveTask:
    """The job on ``offer``; without a profile its command is to be written in. Raises UserError."""
    if offer.cloud not in CLOUDS:
        raise UserError(f"{offer.name} ({offer.cloud}) is nothing that SkyPilot rents; start the job there yourself")
    instance = catalog.instance(f"{offer.cloud}/{offer.instance}")
    region = None if offer.region in ("", "any") else "/".join(filter(None, (offer.region, offer.zone)))
    wanted = resources(instance, offer.cloud, region, offer.kind == "spot")
    resumes = "the job has to go on from its last checkpoint, and find data and checkpoint there"
    if profile is None:
        name = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-") or "job"
        body = yaml.safe_dump({"name": name, "num_nodes": job.machines, "resources": wanted}, sort_keys=False)
        return MoveTask(name, body, (resumes, "write the job's command into run: a job.yaml does not have it"))
    rate = job.rate(offer)
    ranks = instance.devices if rate is None else rate.gpus
    devices = '"$SKYPILOT_NUM_GPUS_PER_NODE"' if instance.gpu_count else str(ranks)
    body, started = task_body(profile, job.machines, ranks, devices, wanted)
    return MoveTask(task_name(profile), body, (resumes, *started.notes))


def start_command(offer: MarketOffer, name: str, file: Path) -> tuple[str, ...]:
    """What launches it: spot machines as a managed job, which SkyPilot starts again when they are taken away."""
    quoted = shlex.quote(str(file))
    if offer.kind == "spot":
        return ("sky", "jobs", "launch", "--yes", quoted)
    return ("sky", "launch", "--yes", "-c", name, quoted)
