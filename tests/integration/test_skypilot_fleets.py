"""Every task and every command of a rented fleet is one that a real SkyPilot takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import real_skypilot
import yaml
from gang_fleets import gang, gang_plan
from spot_fleets import plan, request, with_on_demand

from stash.spot.rented import tasks
from stash.spot.rented.tasks import RentRequest
from stash.study.backend import Submission

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not real_skypilot.PYTHON, reason="SkyPilot is not installed: see tests/support/real_skypilot.py"
    ),
]


def lay(of: RentRequest, found: Sequence[Submission]) -> None:
    """The files that tasks and commands name."""
    with of.folder.held():
        tasks.renew(of.secret, of.secret_variables)
    for each in found:
        each.put(of.folder, of.folder.cell(each.lane))


def assert_taken(of: RentRequest, folder: Path, found: Sequence[Submission], *more: tuple[str, ...]) -> None:
    """SkyPilot takes every task, and every command that starts, asks or ends one."""
    (folder / "task.yaml").write_text("")
    lay(of, found)
    commands = [(*each.command[:-1], "task.yaml") for each in found]
    commands += [words for each in found for words in (*each.release, each.check)]
    asked = [yaml.safe_load(each.files["task.yaml"]) for each in found]
    done = real_skypilot.asked(folder, asked, [*commands, *more])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("infra", ["aws/us-east-1", "kubernetes"])
def test_servers_and_workers_of_every_type_are_taken(tmp_path: Path, infra: str) -> None:
    of = request(tmp_path, with_on_demand(plan()), infra)
    kinds = of.plan.pool.types
    workers = [of.worker_task(1, kind, "10.0.0.5", how) for kind in kinds for how in (False, True)]
    assert_taken(of, tmp_path, [of.server_task(), *workers], tasks.jobs(), tasks.logs(of.worker(1)))


@pytest.mark.parametrize("infra", ["aws/us-east-1", "kubernetes"])
def test_the_head_and_the_nodes_of_a_gang_are_taken(tmp_path: Path, infra: str) -> None:
    of = gang(tmp_path, gang_plan(dearer=3.0), infra)
    kinds = of.plan.pool.types
    nodes = [of.worker_task(1, kind, "10.0.0.5", how) for kind in kinds for how in (False, True)]
    assert_taken(of, tmp_path, [of.server_task(), *nodes])


def test_a_slip_would_be_seen(tmp_path: Path) -> None:
    of = request(tmp_path)
    right = of.server_task()
    lay(of, [right])
    task = yaml.safe_load(right.files["task.yaml"])
    assert real_skypilot.asked(tmp_path, [task], []).returncode == 0
    wrong = {**task, "resources": {**task["resources"], "max_hourly_cost": 0}}
    assert real_skypilot.asked(tmp_path, [wrong], []).returncode == 1
    folder = {**task, "file_mounts": {"~/kept": {"source": "s3://mine/run1", "mode": "MOUNT"}}}
    assert real_skypilot.asked(tmp_path, [folder], []).returncode == 1
    assert real_skypilot.asked(tmp_path, [], [("sky", "jobs", "cancel", "--named", "x")]).returncode == 1
