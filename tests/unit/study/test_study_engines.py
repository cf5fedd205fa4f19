"""What engines describe: the very files and words, for cells of every kind of place."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from studies import cells_of, study

from stash.core.version import __version__, install_requirement
from stash.study.backend import Submission
from stash.study.cell_engines import describe
from stash.study.study_folder import of_study

OWN = """
workloads: [{name: mine, command: [train.py, --batch, "{batch}", --data, "{data}"]}]
batches: [16]
settings: {budget: 30s, rungs: [solo, crowd]}
targets:
- """


@pytest.fixture(autouse=True)
def script(tmp_path: Path) -> None:
    """The user's own."""
    (tmp_path / "train.py").touch()


def described(text: str, folder: Path) -> Submission:
    file = study(text, folder)
    return describe(cells_of(file)[0], of_study(file.path))


def test_here_it_is_stash_profile_with_the_studys_settings(tmp_path: Path) -> None:
    found = described(OWN + "{engine: local, devices: 2, data: /my data}", tmp_path)
    words = shlex.split(found.files["cell.sh"].splitlines()[-1])
    assert words[:5] == ["exec", sys.executable, "-m", "stash", "profile"]
    assert words[words.index("-o") + 1].startswith(f"{tmp_path}/grid.study/cells/")
    assert words[-9:] == [
        "--rungs",
        "solo,crowd",
        "--nproc-per-node",
        "2",
        "train.py",
        "--batch",
        "16",
        "--data",
        "/my data",
    ]
    assert (found.fetch, found.release, found.check) == ((), (), ())


def test_slurm_gets_a_batch_script_and_waits_for_it(tmp_path: Path) -> None:
    place = (
        "{engine: slurm, partition: gpu, constraint: a100, qos: long, account: me, gpus: 8, nodes: 2, data: /d,"
        " options: [--exclusive], setup: 'module load cuda'}"
    )
    found = described(OWN + place, tmp_path)
    lines = found.files["cell.sbatch"].splitlines()
    asked = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}
    assert asked >= {
        "--partition=gpu", "--constraint=a100", "--qos=long", "--account=me", "--nodes=2", "--ntasks-per-node=1",
        "--gpus-per-node=8", "--exclusive", "--requeue", f"--chdir={tmp_path}",
    }  # fmt: skip
    assert "--time=5" in asked  # three times the 90 s that the cell may take, in whole minutes
    assert lines[-2] == "module load cuda"
    assert lines[-1].startswith("srun --kill-on-bad-exit=1 stash profile -o ")
    assert found.command[:2] == ("sbatch", "--wait")
    assert found.release == (("scancel", f"--name={found.lease}"),)
    assert f"--job-name={found.lease}" in asked


def test_the_same_cell_of_another_study_is_another_job_of_slurms(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.py").touch()
    place = "{engine: slurm, partition: gpu, data: /d}"
    here, there = described(OWN + place, tmp_path), described(OWN + place, tmp_path / "other")
    assert here.lease.rpartition("-")[0] == there.lease.rpartition("-")[0]  # the cell's own id
    assert here.release != there.release  # what one study cancels is not the other's


PROBED = OWN.replace("budget: 30s", "budget: 30s, probe: true")
PYTHON = """#!/bin/bash
echo "$@" >>calls
[ "$3" = probe ] || exit 0
[ -z "$NO_PROBE" ] && touch "${@: -1}"
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_machine_is_probed_once_for_all_cells_there(tmp_path: Path, fails: bool) -> None:
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    script = described(PROBED + "{engine: local, data: /my data}", tmp_path).files["cell.sh"]
    script = script.replace(sys.executable, str(tmp_path / "python"))
    for _ in range(2):
        variables = {**os.environ, "NO_PROBE": "yes" if fails else ""}
        subprocess.run(["sh", "-c", script], cwd=tmp_path, env=variables, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    probes = [call for call in calls if call.startswith("-m stash probe")]
    profiles = [call for call in calls if call.startswith("-m stash profile")]
    assert (len(probes), len(profiles)) == (2 if fails else 1, 2)
    assert "--no-metadata --budget 45 /my data -o" in probes[0]
    assert all(("--probe" in call) != fails for call in profiles)


@pytest.mark.parametrize(
    "place", ["{engine: slurm, partition: gpu, nodes: 2, data: /d}", "{engine: local, data: /d}"]
)
def test_only_who_asks_for_probes_has_them(tmp_path: Path, place: str) -> None:
    plain, probed = described(OWN + place, tmp_path), described(PROBED + place, tmp_path)
    assert "stash probe" not in next(iter(plain.files.values()))
    assert '${probe:+--probe "$probe"}' in next(iter(probed.files.values()))
    assert plain.lease != probed.lease


def test_sky_gets_a_task_that_ends_by_itself(tmp_path: Path) -> None:
    place = "{engine: sky, instance: p3.8xlarge, region: us-east-1, spot: true, nodes: 2, price: $9/h, data: /d}"
    found = described(OWN + place, tmp_path)
    task = yaml.safe_load(found.files["task.yaml"])
    assert task["resources"] == {"infra": "aws/us-east-1", "instance_type": "p3.8xlarge", "use_spot": True}
    assert (task["num_nodes"], task["workdir"]) == (2, str(tmp_path))
    assert task["setup"] == f"pip install '{install_requirement()}' torch"
    assert '--nnodes 2 --node-rank "$SKYPILOT_NODE_RANK" --rdzv-endpoint "$(echo "$SKYPILOT_NODE_IPS"' in task["run"]
    assert task["run"].endswith("train.py --batch 16 --data /d")
    assert found.command[:4] == ("sky", "launch", "--yes", "--cluster")
    assert "--down" in found.command
    assert found.release == (("sky", "down", "--yes", found.lease),)


def test_kubernetes_is_asked_for_accelerators_and_gcps_are_attached(tmp_path: Path) -> None:
    pods = "{engine: sky, cloud: kubernetes, accelerators: 'A100:8', data: /d, idle: 20s}"
    found = described(OWN + pods, tmp_path)
    assert yaml.safe_load(found.files["task.yaml"])["resources"] == {
        "infra": "kubernetes", "accelerators": "A100:8", "use_spot": False,
    }  # fmt: skip
    assert found.command[found.command.index("--idle-minutes-to-autostop") + 1] == "1"
    attached = "{engine: sky, instance: n1-standard-8+1xV100, price: $3/h, data: /d}"
    asked = yaml.safe_load(described(OWN + attached, tmp_path).files["task.yaml"])["resources"]
    assert (asked["instance_type"], asked["accelerators"]) == ("n1-standard-8", "V100:1")


def test_an_emulated_instance_is_a_model_that_is_made_once_and_a_testbed_that_scales_it(tmp_path: Path) -> None:
    scales = "scale: 0.001, time_scale: 2"
    targets = (
        f"[{{engine: emulated, instance: p3.8xlarge, nodes: 2, interconnect: 30GB/s, network: 1GB/s, {scales}}}]"
    )
    found = described(f"workloads: [{{zoo: resnet50}}]\ntargets: {targets}", tmp_path)
    model, run = found.files["cell.sh"].splitlines()[-2:]
    made, ran = shlex.split(model[model.index("&& ") + 3 : model.index(" >")]), shlex.split(run)
    assert made[3:7] == ["lab", "testbed", "model", "resnet50"]
    assert float(made[made.index("--speed") + 1]) > 100
    assert "--size-scale" not in made  # cells of all scales share it
    assert ran[ran.index("--nodes") + 1 : ran.index("--nodes") + 4] == ["2", "--devices", "4"]
    assert ran[ran.index("--loopback") + 1] == "60000000B/s"  # four ranks share it, a thousandth, twice as long
    assert ran[ran.index("--network") + 1] == "500000B/s"
    assert ran[ran.index("--size-scale") : ran.index("--size-scale") + 4] == [
        "--size-scale",
        "0.001",
        "--time-scale",
        "2",
    ]
    assert float(ran[ran.index("--bucket-mb") + 1]) == 0.025
    assert ran.index("--loopback") < ran.index("--") < ran.index("profile")
    assert f"--model {tmp_path}" in run
    assert f"-{__version__}.yaml" in run  # another release of Stash makes its own
    assert model.startswith(f"[ -s {tmp_path}")


def test_a_loopback_that_cannot_be_that_fast_is_not_shaped(tmp_path: Path) -> None:
    target = "{engine: emulated, instance: p3.8xlarge, interconnect: 300GB/s, scale: 0.01, time_scale: 1}"
    run = (
        described(f"workloads: [{{zoo: resnet50}}]\ntargets: [{target}]", tmp_path).files["cell.sh"].splitlines()[-1]
    )
    assert "--loopback" not in run
