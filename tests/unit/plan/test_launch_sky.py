"""Choices as SkyPilot tasks: parsed back, key by key; and that a shell understands what they run."""

import subprocess

import pytest
import yaml
from forecast_profiles import gpu_job
from plan_builder import choice

from stash.catalog.sky import CLOUDS
from stash.core.errors import UserError
from stash.plan.bill import BillFacts
from stash.plan.launch import sky_task
from stash.predict.forecasting import shipped_catalog

CATALOG = shipped_catalog()
KEYS = {"name", "workdir", "num_nodes", "resources", "setup", "run"}
RESOURCES = {
    "infra",
    "instance_type",
    "accelerators",
    "use_spot",
    "network_tier",
    "disk_size",
    "autostop",
}
"""Those of SkyPilot's YAML specification that a task may have."""


def job(*command, **changes):
    profile = gpu_job(**changes)
    workload = profile.workload.model_copy(
        update={"command": command or ("train.py", "--epochs", "90")}
    )
    return profile.model_copy(update={"workload": workload})


def chosen(cloud="aws", instance="p3.8xlarge", nodes=2, **price):
    made = choice("p3.8xlarge", nodes, "chosen", "cheapest", {"compute": 170.0, "network": 60.0})
    asked = made.rented.price.model_copy(update=price)
    rented = made.rented.model_copy(update={"cloud": cloud, "instance": instance, "price": asked})
    return made.model_copy(update={"rented": rented})


def task(made=None, profile=None, **facts):
    """What YAML says, and the comments above it as one line."""
    text = sky_task(made or chosen(), profile or job(), CATALOG, BillFacts(**facts), "choice.yaml")
    comments = [line[1:].strip() for line in text.splitlines() if line.startswith("#")]
    return yaml.safe_load(text), " ".join(comments)


def test_a_choice_is_a_task_of_its_machines():
    found, above = task()
    assert set(found) == KEYS
    assert found["name"] == "resnet50"
    assert found["num_nodes"] == 2
    assert found["resources"] == {
        "infra": "aws/us-east-1",
        "instance_type": "p3.8xlarge",
        "use_spot": False,
        "autostop": {"idle_minutes": 10, "down": True},
    }
    assert above.startswith(
        "2 × p3.8xlarge, aws us-east-1, $12.24/h each (on-demand of 2026-07-20)."
    )
    assert "sky launch -c resnet50 choice.yaml" in above
    assert "nothing was started" in above


def test_what_is_run_meets_over_skypilots_variables():
    found, _ = task()
    fake = (
        'torchrun() { printf "%s " "$@"; }; '
        'SKYPILOT_NODE_IPS=$(printf "10.0.0.1\\n10.0.0.2"); '
        "SKYPILOT_NUM_NODES=2; SKYPILOT_NODE_RANK=1; SKYPILOT_NUM_GPUS_PER_NODE=4\n"
    )
    done = subprocess.run(
        ["bash", "-uc", fake + found["run"]], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        "--nnodes=2",
        "--nproc-per-node=4",
        "--node-rank=1",
        "--master-addr=10.0.0.1",
        "--master-port=29500",
        "--",
        "train.py",
        "--epochs",
        "90",
    ]
    assert subprocess.run(["bash", "-n", "-c", found["setup"]], check=False).returncode == 0


def test_spot_machines_are_a_managed_job_that_has_to_save():
    found, above = task(chosen(paid_as="spot"))
    assert found["resources"]["use_spot"] is True
    assert "autostop" not in found["resources"]
    assert "sky jobs launch choice.yaml" in above
    assert "save checkpoints" in above


@pytest.mark.parametrize(
    ("instance", "machine", "gpus"),
    [
        ("n1-standard-32+4xV100", "n1-standard-32", "V100:4"),
        ("a2-ultragpu-8g", "a2-ultragpu-8g", "A100-80GB:8"),
        ("g2-standard-48", "g2-standard-48", "L4:4"),
    ],
)
def test_on_gcp_gpus_are_named_beside_the_machine(instance, machine, gpus):
    found, _ = task(chosen("gcp", instance, region="us-central1"))
    assert found["resources"]["infra"] == "gcp/us-central1"
    assert (found["resources"]["instance_type"], found["resources"]["accelerators"]) == (
        machine,
        gpus,
    )


def test_every_instance_of_every_cloud_makes_a_task_with_known_keys():
    for instance in CATALOG.instances:
        found, _ = task(chosen(instance.cloud, instance.name, region=None))
        assert set(found["resources"]) <= RESOURCES
        assert found["resources"]["infra"] == instance.cloud
    assert {instance.cloud for instance in CATALOG.instances} == set(CLOUDS)


def test_the_best_network_is_asked_for_where_nodes_use_it():
    sockets = chosen(instance="p4d.24xlarge")
    many, _ = task(sockets.model_copy(update={"transport": "EFA"}))
    assert many["resources"]["network_tier"] == "best"
    for each in (
        sockets.model_copy(update={"transport": "sockets"}),
        chosen(instance="p4d.24xlarge", nodes=1),
    ):
        assert "network_tier" not in task(each)[0]["resources"]


@pytest.mark.parametrize(
    ("facts", "size"),
    [
        ({}, None),
        ({"dataset_bytes": 140e9}, None),  # beside 45 GiB of system it fits into the usual 256
        ({"dataset_bytes": 400e9, "image_bytes": 20e9}, 392 + 45),
    ],
)
def test_disks_hold_the_data(facts, size):
    found, _ = task(**facts)
    assert found["resources"].get("disk_size") == size


def test_a_job_of_one_device_is_told_to_train_on_many():
    alone = job(ranks=1, nodes=1)
    assert "has to train with DistributedDataParallel" in task(profile=alone)[1]
    assert "DistributedDataParallel" not in task()[1]


def test_own_machines_are_started_by_hand():
    with pytest.raises(
        UserError,
        match=r"^lab-box \(on-premise\) is nothing that SkyPilot rents; start the job yourself$",
    ):
        task(chosen("on-premise", "lab-box", nodes=1))


@pytest.mark.parametrize("word", ["a\nb: c", "#x", "\x1b[2J", "é\u202e", "'", "key: |\n  x"])
def test_hostile_words_stay_words(word):
    found, above = task(profile=job("train.py", word))
    assert set(found) == KEYS
    assert "\x1b" not in above
    done = subprocess.run(
        ["bash", "-c", 'torchrun() { printf "%s" "${@: -1}"; }\n' + found["run"]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == word
