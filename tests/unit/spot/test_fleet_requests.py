"""What is asked of SkyPilot for a plan, and what is wrong with a plan before anything is."""

from __future__ import annotations

import json
import subprocess
from datetime import date
from pathlib import Path

import pytest
import yaml
from spot_fleets import JOB, TODAY, plan, request, with_on_demand

from stash import catalog
from stash.core.errors import UserError
from stash.measure.host.notices import Notice
from stash.spot.records.fleets import FleetPlan
from stash.spot.rented import rent_request
from stash.spot.rented.job_tasks import FleetRequest
from stash.spot.rented.replace_machines import FleetPolicy, TrainingProgress
from stash.spot.rented.worker_agent import wished
from stash.spot.train.run_orders import FollowedLog
from stash.study.programs import is_gone


def task_of(text: str) -> dict:  # type: ignore[type-arg]
    return yaml.safe_load(text)  # type: ignore[no-any-return]


def test_the_server_is_on_demand_and_takes_itself_down(tmp_path: Path) -> None:
    of = request(tmp_path)
    found = of.server_task()
    task = task_of(found.files["task.yaml"])
    assert task["resources"] == {
        "infra": "aws/us-east-1", "cpus": "1+", "use_spot": False, "max_hourly_cost": 0.22,
        "autostop": {"idle_minutes": 10, "down": True},
    }  # fmt: skip
    assert task["workdir"] == str(tmp_path)
    assert found.command[:4] == ("sky", "launch", "--yes", "--detach-run")
    assert found.release == (("sky", "down", "--yes", of.server),)


@pytest.mark.parametrize(
    ("infra", "instance", "wanted"),
    [
        ("aws/us-east-1", "r5.xlarge", {"instance_type": "r5.xlarge"}),
        ("aws/us-east-1", None, {"cpus": "1+", "memory": "20+"}),
        ("kubernetes", "r5.xlarge", {"cpus": "1+", "memory": "20+"}),
    ],
)
def test_the_server_is_the_planned_one_or_has_the_memory_that_it_needs(
    tmp_path: Path, infra: str, instance: str | None, wanted: dict[str, str]
) -> None:
    server = plan().pool.server.model_copy(update={"instance": instance, "needs_bytes": 19.5 * 2**30})
    of = request(tmp_path, plan(server=server), infra)
    found = task_of(of.server_task().files["task.yaml"])["resources"]
    assert {name: found[name] for name in ("instance_type", "cpus", "memory") if name in found} == wanted


def test_a_worker_is_one_node_of_the_server_s_region_and_joins_its_private_address(tmp_path: Path) -> None:
    of = request(tmp_path)
    found = of.worker_task(7, of.kind("p3.2xlarge"), "10.0.0.5")
    task = task_of(found.files["task.yaml"])
    assert "num_nodes" not in task
    assert task["resources"] == {
        "infra": "aws/us-east-1", "instance_type": "p3.2xlarge", "use_spot": True, "max_hourly_cost": 1.0098
    }  # fmt: skip
    assert task["envs"] == {"RAY_AUTH_MODE": "token", "STASH_HEAD": "10.0.0.5", "STASH_TYPE": "p3.2xlarge"}
    assert found.command[:3] == ("sky", "jobs", "launch")
    assert "any.whl[spot]' torch ray==" in task["setup"]
    ((there, here),) = task["file_mounts"].items()
    assert there.removeprefix("~/stash-wheel/") == Path(here).name
    assert here == str(of.folder.path / next(iter(found.shared)))


def test_a_worker_on_demand_differs_in_how_it_is_rented_and_paid_alone(tmp_path: Path) -> None:
    of = request(tmp_path, with_on_demand(plan()))
    kind = of.kind("p3.2xlarge")
    on_spot, found = (of.worker_task(7, kind, "10.0.0.5", how).files["task.yaml"] for how in (False, True))
    assert found.startswith("# worker 7: p3.2xlarge on demand\n")
    rented = {**task_of(on_spot)["resources"], "use_spot": False, "max_hourly_cost": 3.0294}  # a tenth over $2.754
    assert task_of(found) == {**task_of(on_spot), "resources": rented}
    with pytest.raises(UserError, match=r"what p3\.2xlarge costs on demand is not known"):
        request(tmp_path).worker_task(7, request(tmp_path).kind("p3.2xlarge"), "10.0.0.5", on_demand=True)


def test_the_secret_is_named_in_tasks_and_its_value_in_a_file(tmp_path: Path) -> None:
    of, secrets = request(tmp_path), {"RAY_AUTH_TOKEN": None, "STASH_RUN_TOKEN": None}
    for submission in (of.server_task(), of.worker_task(1, of.kind("p3.2xlarge"), "10.0.0.5")):
        task = task_of(submission.files["task.yaml"])
        assert (task["envs"]["RAY_AUTH_MODE"], task["secrets"]) == ("token", secrets)
        assert submission.command[-3:-1] == ("--secret-file", str(of.folder.path / "secrets.env"))


@pytest.mark.parametrize("infra", ["aws/us-east-1", "kubernetes"])
def test_every_script_is_one_that_a_shell_reads(tmp_path: Path, infra: str) -> None:
    of = request(tmp_path, infra=infra)
    for submission in (of.server_task(), of.worker_task(1, of.kind("p3.2xlarge"), "10.0.0.5")):
        task = task_of(submission.files["task.yaml"])
        for script in (task["setup"], task["run"]):
            assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_the_head_gets_orders_with_its_own_address_in_them(tmp_path: Path) -> None:
    of = request(tmp_path)
    script = task_of(of.server_task().files["task.yaml"])["run"]
    began = next(line for line in script.splitlines() if line.startswith("sed "))
    text = script[script.index(began) :].split("\nORDERS\n")[0] + "\nORDERS\n"
    shell = text.replace("~/stash-spot", str(tmp_path))
    subprocess.run(
        ["bash", "-c", shell], env={"HEAD": "10.0.0.5", "HOME": "/home/me", "PATH": "/usr/bin:/bin"}, check=True
    )
    orders = json.loads((tmp_path / "orders.json").read_text())
    assert (orders["address"], orders["interface"]) == ("10.0.0.5:6379", "10.0.0.5")
    assert orders["model"] == "/home/me/stash-spot/model.pt"
    assert orders["checkpoints"] == "/home/me/stash-spot/checkpoints"
    assert orders["job"] == "job.py:job"
    assert [worker["type"] for worker in orders["workers"]][:2] == ["p3.2xlarge", "p3.2xlarge"]
    assert orders["workers"][0] == {"name": "worker1", "type": "p3.2xlarge", "samples": 1024}
    assert orders["at_once"] == 9  # workers use 142 MB/s of its 1,200


@pytest.mark.parametrize(("spare", "senders"), [(0.0, 1), (50e6, 3), (1e9, 9)])
def test_as_many_workers_send_as_fill_the_server_and_its_memory_has_buffers_for(
    tmp_path: Path, spare: float, senders: int
) -> None:
    memory = {"needs_bytes": 8e9, "memory_bytes": 8e9 + spare}
    of = request(tmp_path, plan(server=plan().pool.server.model_copy(update=memory)))
    assert of.at_once == senders  # each more takes two buffers of 11.5 MB
    assert of.server_bytes is not None
    assert of.server_bytes <= 8e9 + spare


def test_a_bucket_is_mounted_for_the_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    folder = rent_request.run_folder(tmp_path / "job.plan.json", tmp_path)
    job, shelves = f"{tmp_path}/job.py:job", catalog.load()
    of = rent_request.request(_with_servers(2), job, "gcp/us-central1", folder, shelves, TODAY, "s3://mine")
    task = task_of(of.server_task().files["task.yaml"])
    assert task["file_mounts"]["~/stash-spot-checkpoints"] == {"source": "s3://mine", "mode": "MOUNT"}
    assert task["num_nodes"] == 2
    with pytest.raises(UserError, match=r"2 servers keep their checkpoints.*--checkpoint-url s3://"):
        rent_request.request(_with_servers(2), job, "gcp/us-central1", folder, shelves, TODAY)
    with pytest.raises(UserError, match=r"--checkpoint-url 'mine': write it like s3://my-bucket/run1"):
        rent_request.request(plan(), job, "gcp/us-central1", folder, shelves, TODAY, "mine")


def _with_servers(count: int) -> FleetPlan:
    found = plan()
    server = found.pool.server.model_copy(update={"count": count})
    return found.model_copy(update={"pool": found.pool.model_copy(update={"server": server})})


def _changed(**fields: object) -> FleetPlan:
    found = plan()
    return found.model_copy(update={"pool": found.pool.model_copy(update=fields)})


@pytest.mark.parametrize(
    ("of", "infra", "sentence"),
    [
        (plan(), "aws", r"one region; name it, like --infra aws/us-east-1"),
        (plan(), "", "one region"),
        (_changed(as_of="2026-06-01"), "aws/us-east-1", r"prices are of 2026-06-01.*stash spot plan"),
        (_changed(as_of="2026"), "aws/us-east-1", "prices are of 2026"),
        (
            _changed(types=tuple(k.model_copy(update={"dollars_per_hour": 0.0}) for k in plan().pool.types)),
            "aws/us-east-1",
            "price of p3.2xlarge is not known",
        ),
        (
            _changed(server=plan().pool.server.model_copy(update={"dollars_per_hour": 0.0})),
            "aws/r",
            "of the server is",
        ),
        (plan().model_copy(update={"chosen": None}), "aws/us-east-1", "holds no fleet"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said_before_anything_is_rented(
    tmp_path: Path, of: FleetPlan, infra: str, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        request(tmp_path, of, infra)


def test_a_job_has_to_be_importable_and_in_the_folder_that_is_copied(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "work/broken.py").write_text("import nothing_of_that_name")
    folder = rent_request.run_folder(tmp_path / "job.plan.json", tmp_path / "work")
    for job, sentence in ((f"{tmp_path}/job.py:job", "lies outside"), (f"{tmp_path}/work/broken.py:job", "imported")):
        with pytest.raises(UserError, match=sentence):
            rent_request.request(plan(), job, "aws/us-east-1", folder, catalog.load(), TODAY)


def test_a_cap_below_the_first_hour_is_refused_unless_the_whole_is_cheaper(tmp_path: Path) -> None:
    of = request(tmp_path)
    assert of.plan.chosen is not None
    rent_request.within_cap(of, 100.0)
    short = of.plan.model_copy(update={"chosen": of.plan.chosen.model_copy(update={"dollars": 0.4})})
    brief = FleetRequest(**{**vars(of), "plan": short})
    # 2 x 1.0098 + 0.3974 + 4 x 0.7524 + 0.22 = 5.647 an hour; ending takes 6 min of all, the server 15 more: 0.62.
    with pytest.raises(UserError, match=r"--max-dollars 1 does not last for the training and for ending .* \$1\.06"):
        rent_request.within_cap(brief, 1.0)
    rent_request.within_cap(brief, 1.07)


def test_plans_of_one_folder_have_runs_of_their_own(tmp_path: Path) -> None:
    names = ("job.plan.json", "job.v1.plan.json", "job.v2.plan.json", "p.json")
    folders = [rent_request.run_folder(tmp_path / name, tmp_path).path.name for name in names]
    assert folders == ["job.run", "job.v1.run", "job.v2.run", "p.run"]


def test_prices_of_today_are_not_old(tmp_path: Path) -> None:
    assert request(tmp_path).plan.pool.as_of == date(2026, 11, 22).isoformat()


def test_what_the_head_is_told_of_a_notice() -> None:
    notice = Notice("revoked", 100.0, 220.0, "aws")
    assert wished(notice, "worker3", 101.0) == {"do": "notice", "who": "worker3", "seconds": 119.0}
    assert wished(notice._replace(deadline=None), "worker3", 101.0) == {
        "do": "notice",
        "who": "worker3",
        "seconds": 0.0,
    }
    assert wished(notice._replace(kind="withdrawn"), "worker3", 101.0) == {"do": "withdrawn", "who": "worker3"}
    assert wished(notice._replace(kind="at risk"), "worker3", 101.0) is None


def test_a_tail_tells_each_line_once_even_if_it_begins_again(tmp_path: Path) -> None:
    tail = FollowedLog(tmp_path / "log")
    assert list(tail.news()) == []
    tail.path.write_text('Warning: Permanently added\n{"what": "joined"}\n{"wh')
    assert list(tail.news()) == [{"what": "joined"}]
    tail.path.write_text("")
    assert list(tail.news()) == []
    tail.path.write_text('{"what": "joined"}\n{"what": "lost"}\n[1]\n')
    assert list(tail.news()) == [{"what": "lost"}]


def test_how_far_a_training_is_by_its_last_updates() -> None:
    rows = [{"seconds": n / 2, "worker": "worker1", "samples": 10, "staleness": 0, "loss": 2.0} for n in range(40)]
    rows += [{"seconds": 20 + n, "worker": "worker2", "samples": 30, "staleness": 0, "loss": 1.0} for n in range(20)]
    found = TrainingProgress.of("\n".join(["1234", *map(json.dumps, rows), "{broken"]) + "\n")
    assert found is not None
    assert found.updates == 1234
    assert found.loss == pytest.approx((30 * 10 * 2 + 20 * 30 * 1) / (30 * 10 + 20 * 30))  # of the last 50
    assert found.speeds == pytest.approx({"worker1": 2.0, "worker2": 1.0})
    found = TrainingProgress(speeds={**found.speeds, "worker3": 3.0, "worker4": 9.0})
    assert found.speeds_by_type({"worker1": "a", "worker2": "b", "worker3": "a"}) == {"a": 2.5, "b": 1.0}
    assert TrainingProgress.of("ssh: connect to host: timed out") is None
    few = TrainingProgress.of("3\n" + json.dumps(rows[0]) + "\n")
    assert few is not None
    assert (few.loss, few.speeds) == (None, {})


def test_a_training_that_resumes_is_as_far_as_its_checkpoint_and_what_was_done_since(tmp_path: Path) -> None:
    policy = FleetPolicy(request(tmp_path))
    for version in (20_000, 20_600):  # a later server goes on from a checkpoint of this run
        policy.on_message({"what": "server joined", "who": "server1", "version": version})
    policy.on_look("progress", "1000\n")
    assert policy.progress.updates == 21_000
    policy.on_look("progress", "ssh: connect to host: timed out")
    assert policy.progress.updates == 21_000


def test_only_a_list_that_can_be_read_proves_that_something_is_gone() -> None:
    words, name = ("sky", "status", "--output", "json"), "stash-1-server"
    assert is_gone(words, "[]", name)
    assert is_gone(words, 'notice\n[\n {"name": "other", "status": "UP"}\n]\n', name)
    assert not is_gone(words, f'[\n {{"name": "{name}", "status": "INIT"}}\n]', name)
    assert is_gone(words, f'[\n {{"job_name": "{name}", "status": "CANCELLED"}}\n]', name)
    assert not is_gone(words, f'[\n {{"job_name": "{name}", "status": "RECOVERING"}}\n]', name)
    for unreadable in ("", "error", "[\n {", '{"name": "other"}'):
        assert not is_gone(words, unreadable, name)
