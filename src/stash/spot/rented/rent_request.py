"""A plan, a job and a place as one request: what is wrong with it shows before anything is rented.

Knows prices, dates, names and versions; asks no service, and takes all that the plan says of training as given.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stash.catalog.facts import OLD_DAYS, Instance, age
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.units import counted
from stash.spot.choose.fleet_costs import MAX_FLEETS, FleetWish
from stash.spot.records.fleets import FleetPlan
from stash.spot.rented.job_tasks import FleetRequest, GangRequest
from stash.spot.rented.rent_controller import ending_dollars
from stash.spot.rented.tasks import RentRequest, at_most, dollars_at_most, first_workers
from stash.spot.train.elastic_job import EXAMPLE, check_optimizer, load_job
from stash.study.study_folder import StudyFolder

KUBERNETES = ("kubernetes", "k8s")
_BUCKET = re.compile(r"(s3|gs|https|r2|cos|oci|nebius|cw|vastdata)://[\w.-]+(/[\w.=+-]+)*/?")
"""What SkyPilot 0.14.1 mounts (``sky.data.storage``), and a folder in it that a shell reads as it is."""


def run_folder(plan: Path, work: Path) -> StudyFolder:
    """The run's folder: ``job.run`` for ``job.plan.json``, in the same folder."""
    whole = plan.resolve()
    name = whole.name.removesuffix(".json").removesuffix(".plan")
    return StudyFolder(whole.with_name(f"{name}.run"), work, "stash spot run")


def request(
    plan: FleetPlan,
    job: str,
    infra: str,
    folder: StudyFolder,
    catalog: Catalog,
    today: date,
    checkpoints: str | None = None,
) -> FleetRequest:
    """All that does not change while machines come and go; raises UserError."""
    common = _common(plan, infra, folder, catalog, today, checkpoints)
    if plan.pool.server.count > 1 and checkpoints is None:
        raise UserError(
            f"{plan.pool.server.count} servers keep their checkpoints where each of them finds those of all; name a "
            "bucket, like --checkpoint-url s3://my-bucket"
        )
    if (count := FleetWish.of(plan).fleet_count) > MAX_FLEETS:
        raise UserError(
            f"the plan's quotas allow {count:,} fleets, of which none can be chosen again; plan with fewer"
        )
    check_optimizer(load_job(job))  # it has to be importable here, too
    path, _, name = job.rpartition(":")
    try:
        ray = version("ray")  # which every machine then gets: Ray refuses to work with unlike ones
    except PackageNotFoundError:
        raise UserError(
            "Ray is not installed here, and all machines get the version that is; install it with: pip install ray"
        ) from None
    inside = _inside(path, folder.work, EXAMPLE)
    return FleetRequest(**common, job=f"{inside}:{name}", ray=ray)


def gang(
    plan: FleetPlan,
    script: Sequence[str],
    infra: str,
    folder: StudyFolder,
    catalog: Catalog,
    today: date,
    checkpoints: str | None,
    least: int,
    every: float,
) -> GangRequest:
    """The same of a synchronous script, ``every`` seconds between its checkpoints; raises UserError."""
    common = _common(plan, infra, folder, catalog, today, checkpoints)
    if checkpoints is None:
        raise UserError(
            "with --sync every node has to find the checkpoints that another has saved; name a bucket for them, like "
            "--checkpoint-url s3://my-bucket/run1"
        )
    if not Path(script[0]).is_file():
        raise UserError(f"there is no script {script[0]}; after --sync comes a Python file, then its arguments")
    inside = _inside(script[0], folder.work, f"--sync {Path(script[0]).name} …")
    request = GangRequest(**common, script=(str(inside), *script[1:]), least=least, every=every)
    if least > request.most:
        raise UserError(
            f"--min-nodes {least}: the plan has {counted(request.most, 'worker')}; ask for no more than that"
        )
    return request


def _common(
    plan: FleetPlan, infra: str, folder: StudyFolder, catalog: Catalog, today: date, checkpoints: str | None
) -> dict[str, Any]:
    """What the requests of all kinds of jobs have in common."""
    if checkpoints is not None and not _BUCKET.fullmatch(checkpoints):
        raise UserError(
            f"--checkpoint-url {checkpoints!r}: write it like s3://my-bucket/run1, gs://… or https://… (Azure)"
        )
    cloud, _, named = infra.partition("/")
    region: str | None = named
    if cloud in KUBERNETES:
        cloud, region = infra, None
    elif not cloud or not region:
        raise UserError(
            f"--infra {infra!r}: workers reach the server by its private address, so all machines are rented in one "
            "region; name it, like --infra aws/us-east-1 (or --infra kubernetes)"
        )
    _priced(plan, today)
    instances: dict[str, Instance] = {}
    for kind in plan.pool.types:
        with suppress(UserError):  # SkyPilot may know it all the same
            instances[kind.name] = catalog.instance(f"{cloud}/{kind.name}")
    own = hashlib.sha256(str(folder.path).encode()).hexdigest()[:6]
    return {
        "name": f"stash-{own}",
        "plan": plan,
        "folder": folder,
        "cloud": cloud,
        "region": region,
        "instances": instances,
        "checkpoints": checkpoints,
    }


def within_cap(request: RentRequest, cap: float) -> None:
    """Raise UserError for a cap that ends the training before it has well begun."""
    chosen = request.plan.chosen
    assert chosen is not None
    hour = request.server_dollars + sum(dollars_at_most(kind) for kind in first_workers(request))
    whole = at_most(chosen.dollars)
    needed = min(hour, whole) + ending_dollars(hour, request.server_dollars)
    if cap < needed:
        raise UserError(
            f"--max-dollars {cap:g} does not last for the {'first hour' if hour < whole else 'training'} and for "
            f"ending it, which cost ${needed:.2f} at most; allow that, or plan a smaller fleet with "
            f"`stash spot plan … --max-dollars {cap:g}`"
        )


def _priced(plan: FleetPlan, today: date) -> None:
    again = "put today's prices into the pool (with as_of) and run `stash spot plan` again"
    if plan.chosen is None:
        raise UserError("the plan holds no fleet: nothing in its pool was feasible; plan again with a looser wish")
    since = age(plan.pool.as_of, today)
    if since is None or since.is_old:
        raise UserError(
            f"the plan's prices are of {plan.pool.as_of}, and after {OLD_DAYS} days they say little about what a "
            f"machine costs now; {again}"
        )
    unknown = [
        kind.name for kind in plan.pool.types if plan.chosen.workers.get(kind.name) and not kind.dollars_per_hour
    ]
    if not plan.pool.server.dollars_per_hour:
        unknown.append("the server")
    if unknown:
        raise UserError(f"the price of {unknown[0]} is not known (dollars_per_hour of the plan's pool is 0); {again}")


def _inside(file: str, work: Path, example: str) -> Path:
    """Its name from the folder ``work``."""
    inside = Path(file).resolve()
    if not inside.is_relative_to(work):
        raise UserError(
            f"{file} lies outside {work}, the folder that is copied to the machines; start from the job's own, "
            f"like: cd {inside.parent} && stash spot run … {example}"
        )
    return inside.relative_to(work)
