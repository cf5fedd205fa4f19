"""The script that rents a plan's machines with SkyPilot, and what is wrong with a plan before it is written."""

import json
import os
import re
import subprocess
import sys
import time
from datetime import date
from importlib.util import find_spec

import pytest
import yaml
from fleet_pools import JOB, TODAY, dated_plan

from stash import catalog
from stash.core.errors import UserError
from stash.core.version import __version__
from stash.spot.commands.run_fleet import RunOptions, run
from stash.spot.sky_tasks import check_prices, job_in, rent_script, rented_place, seconds_bought

if find_spec("ray") is None:  # to import it takes seconds
    pytest.skip("could not import 'ray'", allow_module_level=True)


def script(
    folder,
    of=None,
    infra="aws/us-east-1",
    bucket=None,
    max_dollars=None,
):
    (folder / "job.py").write_text(JOB)
    of = of or dated_plan()
    check_prices(of, TODAY)
    place = rented_place(of, infra, bucket, catalog.load())
    return rent_script(
        of, place, job_in(folder.resolve(), f"{folder}/job.py:job"), folder.resolve(), max_dollars
    ).text


def tasks(text):
    """By what they are of."""
    found = re.findall(
        r"cat > stash-[0-9a-f]{6}-(\S+)\.yaml <<'TASK'\n(.*?)TASK\n", text, re.DOTALL
    )
    return {what: yaml.safe_load(task) for what, task in found}


def with_server(**fields):
    return dated_plan(server=dated_plan().pool.server.model_copy(update=fields))


def test_the_server_is_on_demand_and_takes_itself_down(tmp_path):
    task = tasks(script(tmp_path))["server"]
    assert task["resources"] == {
        "infra": "aws/us-east-1",
        "cpus": "1+",
        "use_spot": False,
        "max_hourly_cost": 0.22,
        "autostop": {"idle_minutes": 10, "down": True},
    }
    assert task["num_nodes"] == 1


@pytest.mark.parametrize(
    ("infra", "instance", "wanted"),
    [
        ("aws/us-east-1", "r5.xlarge", {"instance_type": "r5.xlarge"}),
        ("aws/us-east-1", None, {"cpus": "1+", "memory": "20+"}),
        ("kubernetes", "r5.xlarge", {"cpus": "1+", "memory": "20+"}),
    ],
)
def test_the_server_is_the_planned_one_or_has_the_memory_that_it_needs(
    tmp_path, infra, instance, wanted
):
    of = with_server(instance=instance, needs_bytes=19.5 * 2**30)
    found = tasks(script(tmp_path, of, infra))["server"]["resources"]
    assert {
        name: found[name] for name in ("instance_type", "cpus", "memory") if name in found
    } == wanted


def test_a_worker_is_one_node_of_the_server_s_region_and_joins_its_private_address(
    tmp_path,
):
    text = script(tmp_path)
    task = tasks(text)["p3.2xlarge"]
    assert "num_nodes" not in task
    assert task["resources"] == {
        "infra": "aws/us-east-1",
        "instance_type": "p3.2xlarge",
        "use_spot": True,
        "max_hourly_cost": 1.0098,
    }
    assert task["envs"] == {
        "RAY_AUTH_MODE": "token",
        "STASH_END": "",
        "STASH_HEAD": None,
        "STASH_WORKER": None,
    }
    assert (
        f"stash-ddl[fleet] @ git+https://github.com/stash-ddl/stash@v{__version__}' ray=="
        in task["setup"]
    )
    shown = subprocess.run(
        ["bash", "-c", task["run"].replace("ray start", "printf '%s\\n'", 1)],
        text=True,
        check=True,
        capture_output=True,
        env={"STASH_HEAD": "10.0.0.5", "STASH_WORKER": "worker7"},
    ).stdout.splitlines()
    assert shown[:3] == ["--address=10.0.0.5:6379", "--resources", '{"worker7": 1}']
    launched = re.findall(r"--env STASH_WORKER=(\w+) stash-[0-9a-f]{6}-(\S+)\.yaml", text)
    chosen = dated_plan().chosen
    kinds = [name for name, count in chosen.workers.items() for _ in range(count)]
    assert launched == [(f"worker{number}", kind) for number, kind in enumerate(kinds, start=1)]


def test_a_type_that_is_rented_on_demand_is_asked_for_so(tmp_path):
    types = tuple(k.model_copy(update={"market": "on-demand"}) for k in dated_plan().pool.types)
    text = script(tmp_path, dated_plan(types=types))
    assert tasks(text)["p3.2xlarge"]["resources"]["use_spot"] is False
    assert re.match(r"# stash-[0-9a-f]{6}: 1 server, 7 workers, \$", text)


def test_the_secrets_are_named_in_tasks_and_their_values_in_a_file_for_the_owner(
    tmp_path,
):
    text = script(tmp_path)
    for task in tasks(text).values():
        assert task["secrets"] == {"RAY_AUTH_TOKEN": None, "STASH_RUN_TOKEN": None}
    line = next(each for each in text.splitlines() if "openssl" in each)
    subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
    (written,) = tmp_path.glob("*.env")
    assert re.fullmatch(
        "RAY_AUTH_TOKEN=[0-9a-f]{64}\nSTASH_RUN_TOKEN=[0-9a-f]{64}\n", written.read_text()
    )
    assert written.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("infra", ["aws/us-east-1", "kubernetes"])
def test_every_script_is_one_that_a_shell_reads(tmp_path, infra):
    text = script(tmp_path, infra=infra)
    of_tasks = [each for task in tasks(text).values() for each in (task["setup"], task["run"])]
    for each in (text, *of_tasks):
        assert subprocess.run(["bash", "-n"], input=each, text=True, check=False).returncode == 0


def test_the_head_gets_orders_with_its_own_address_in_them(tmp_path):
    run = tasks(script(tmp_path))["server"]["run"]
    began = next(line for line in run.splitlines() if line.startswith("sed "))
    shell = run[run.index(began) :].split("\nORDERS\n")[0] + "\nORDERS\n"
    subprocess.run(
        ["bash", "-c", shell.replace("~/stash-spot", str(tmp_path))],
        check=True,
        env={"HEAD": "10.0.0.5", "HOME": "/home/me", "PATH": "/usr/bin:/bin"},
    )
    orders = json.loads((tmp_path / "orders.json").read_text())
    assert (orders["address"], orders["interface"]) == ("10.0.0.5:6379", "10.0.0.5")
    assert orders["model"] == "/home/me/stash-spot/model.pt"
    assert orders["checkpoints"] == "/home/me/stash-spot/checkpoints"
    assert orders["job"] == "job.py:job"
    assert orders["workers"][0] == {
        "name": "worker1",
        "type": "p3.2xlarge",
        "samples": 1024,
        "gpus": 1,
    }
    assert orders["at_once"] == 9  # workers use 142 MB/s of its 1,200
    assert orders["replace"] is False


@pytest.mark.parametrize(("spare", "senders"), [(0.0, 1), (50e6, 3), (1e9, 9)])
def test_as_many_workers_send_as_fill_the_server_and_its_memory_has_buffers_for(
    tmp_path, spare, senders
):
    task = tasks(script(tmp_path, with_server(needs_bytes=8e9, memory_bytes=8e9 + spare)))["server"]
    assert f'"at_once": {senders},' in task["run"]  # each more takes two buffers of 11.5 MB


def test_a_bucket_is_mounted_for_the_checkpoints(tmp_path):
    two = with_server(count=2)
    task = tasks(script(tmp_path, two, "gcp/us-central1", "s3://mine/run1"))["server"]
    assert task["file_mounts"] == {
        "~/stash-spot-checkpoints": {"source": "s3://mine", "mode": "MOUNT"}
    }
    assert "HOME_FOLDER/stash-spot-checkpoints/run1/checkpoints" in task["run"]
    assert task["num_nodes"] == 2
    with pytest.raises(
        UserError, match=r"2 servers keep their checkpoints.*--checkpoint-url s3://"
    ):
        script(tmp_path, two, "gcp/us-central1")
    with pytest.raises(
        UserError, match=r"--checkpoint-url 'mine': write it like s3://my-bucket/run1"
    ):
        script(tmp_path, None, "gcp/us-central1", "mine")


@pytest.mark.parametrize(
    ("of", "infra", "sentence"),
    [
        (dated_plan(), "aws", r"one region; name it, like --infra aws/us-east-1"),
        (dated_plan(), "", "one region"),
        (
            dated_plan(as_of="2026-06-01"),
            "aws/us-east-1",
            r"prices are of 2026-06-01.*stash spot plan",
        ),
        (dated_plan(as_of="2026"), "aws/us-east-1", "prices are of 2026"),
        (
            dated_plan(
                types=tuple(
                    k.model_copy(update={"dollars_per_hour": 0.0}) for k in dated_plan().pool.types
                )
            ),
            "aws/us-east-1",
            "price of p3.2xlarge is not known",
        ),
        (with_server(dollars_per_hour=0.0), "aws/r", "of the server is"),
        (dated_plan().model_copy(update={"chosen": None}), "aws/us-east-1", "holds no fleet"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said_before_anything_is_printed(
    tmp_path, of, infra, sentence
):
    with pytest.raises(UserError, match=sentence):
        script(tmp_path, of, infra)


def test_a_job_has_to_be_importable_and_in_the_folder_that_is_copied(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "work/broken.py").write_text("import nothing_of_that_name")
    for job, sentence in (
        (f"{tmp_path}/job.py:job", "lies outside"),
        (f"{tmp_path}/work/broken.py:job", "imported"),
    ):
        with pytest.raises(UserError, match=sentence):
            job_in(tmp_path / "work", job)


def test_a_limit_in_dollars_is_a_moment_that_all_tasks_end_at(tmp_path):
    text = script(tmp_path, max_dollars=40)
    dear = {what: task["resources"]["max_hourly_cost"] for what, task in tasks(text).items()}
    hour = dear["server"] + sum(
        dear[kind] * count for kind, count in dated_plan().chosen.workers.items()
    )
    bought = seconds_bought(dated_plan(), 40)
    assert bought == pytest.approx(3600 * 40 / hour - 300 - 600)  # saving, and ten idle minutes
    assert f'STASH_END="$(($(date +%s) + {int(bought)}))"' in text
    assert text.count('--env STASH_END="$STASH_END"') == 8
    assert {task["envs"]["STASH_END"] for task in tasks(text).values()} == {None}
    assert "Nothing here limits" not in text
    with pytest.raises(
        UserError,
        match=r"--max-dollars 1 buys 10\.6 min of this fleet, at up to \$5\.65 an hour; give at least 2\.36",
    ):
        seconds_bought(dated_plan(), 1)


@pytest.mark.parametrize(
    ("left", "ray", "status", "began"),
    [
        (None, "exit 0", 0, True),
        (None, "exit 3", 1, True),  # a managed job that failed is not started again, and says so
        (100, "exit 3", 1, True),
        (-297, "exec sleep 60", 0, True),  # it is ended, which is no failure
        (-301, "exit 0", 0, False),  # started again too late
    ],
)
def test_a_worker_ends_itself(tmp_path, left, ray, status, began):
    program = tmp_path / "ray"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/began\n{ray}\n")
    program.chmod(0o755)
    end = "" if left is None else str(int(time.time()) + left)
    done = subprocess.run(
        ["bash", "-c", tasks(script(tmp_path))["p3.2xlarge"]["run"]],
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "STASH_END": end,
            "STASH_HEAD": "10.0.0.5",
            "STASH_WORKER": "w",
        },
        check=False,
    )
    assert (done.returncode, (tmp_path / "began").exists()) == (status, began)


def rent(folder, monkeypatch, answer, dollars="40"):
    """What is asked, and what a stand-in for SkyPilot is called with."""
    (folder / "job.py").write_text(JOB)
    (folder / "job.plan.json").write_text(dated_plan(as_of=f"{date.today()}").model_dump_json())
    for name, body in {"sky": 'echo "$@" >> calls', "ssh": "echo 10.0.0.5"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or answer)
    run(
        RunOptions(
            plan="job.plan.json",
            job="job.py:job",
            infra="aws/us-east-1",
            rent=True,
            max_dollars=dollars,
        )
    )
    calls = folder / "calls"
    return asked[0], calls.read_text().splitlines() if calls.exists() else []


def test_machines_are_rented_once_the_user_agrees(tmp_path, monkeypatch):
    asked, calls = rent(tmp_path, monkeypatch, "y")
    assert asked == "Rent these machines, for $40 at most? [y/N] "
    assert [call.split(" --")[0] for call in calls] == ["launch", *["jobs launch"] * 7]
    assert len(set(re.findall(r"STASH_END=(\d+)", " ".join(calls)))) == 1


def test_nothing_is_rented_otherwise(tmp_path, monkeypatch):
    assert rent(tmp_path, monkeypatch, "")[1] == []
    with pytest.raises(UserError, match="--rent starts machines that cost money; limit it"):
        rent(tmp_path, monkeypatch, "y", None)
