"""What engines describe: the very files and words, for cells of every kind of place."""

import shlex
import sys

import pytest
import yaml
from studies import cells_of, study

from stash.core.version import __version__, install_requirement
from stash.lab.testbed.emulation import load
from stash.study import emulated_model
from stash.study.backend import release_command
from stash.study.cell_engines import describe
from stash.study.study_folder import folder_of_study

OWN = """
workloads: [{name: mine, command: [train.py, --batch, "{batch}", --data, "{data}"]}]
batches: [16]
settings: {budget: 30s, rungs: [solo, crowd]}
targets:
- """


@pytest.fixture(autouse=True)
def script(tmp_path):
    """The user's own."""
    (tmp_path / "train.py").touch()


def described(text, folder):
    file = study(text, folder)
    return describe(cells_of(file)[0], folder_of_study(file.path))


def test_here_it_is_stash_profile_with_the_studys_settings(tmp_path):
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
    assert (found.fetch, found.rented_from) == ((), "")


def test_slurm_gets_a_batch_script_and_waits_for_it(tmp_path):
    place = (
        "{engine: slurm, partition: gpu, nodes: 2, data: /d, options: [--exclusive, --gpus-per-node=8],"
        " setup: 'module load cuda'}"
    )
    found = described(OWN + place, tmp_path)
    lines = found.files["cell.sbatch"].splitlines()
    asked = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}
    assert asked >= {
        "--partition=gpu",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gpus-per-node=8",
        "--exclusive",
        "--requeue",
        f"--chdir={tmp_path}",
    }
    assert "--time=5" in asked  # three times the 90 s that the cell may take, in whole minutes
    assert lines[-2] == "module load cuda"
    assert lines[-1].startswith("srun --kill-on-bad-exit=1 stash profile -o ")
    assert found.command[:2] == ("sbatch", "--wait")
    longer = described(OWN + place.replace("nodes: 2", "nodes: 2, time: 1h"), tmp_path)
    assert "#SBATCH --time=60\n" in longer.files["cell.sbatch"]
    assert longer.lease == found.lease  # another limit is no other cell
    assert release_command("slurm", found.lease) == ("scancel", f"--name={found.lease}")
    assert f"--job-name={found.lease}" in asked


def test_sky_gets_a_task_that_ends_by_itself(tmp_path):
    place = "{engine: sky, instance: p3.8xlarge, region: us-east-1, spot: true, nodes: 2, price: $9/h, data: /d}"
    found = described(OWN + place, tmp_path)
    task = yaml.safe_load(found.files["task.yaml"])
    assert task["resources"] == {
        "infra": "aws/us-east-1",
        "instance_type": "p3.8xlarge",
        "use_spot": True,
    }
    assert (task["num_nodes"], task["workdir"]) == (2, str(tmp_path))
    assert task["setup"] == f"pip install '{install_requirement()}' torch"
    assert (
        '--nnodes 2 --node-rank "$SKYPILOT_NODE_RANK" --rdzv-endpoint "$(echo "$SKYPILOT_NODE_IPS"'
        in task["run"]
    )
    assert task["run"].endswith("train.py --batch 16 --data /d")
    assert found.command[:4] == ("sky", "launch", "--yes", "--cluster")
    assert "--down" in found.command
    assert release_command("sky", found.lease) == ("sky", "down", "--yes", found.lease)


def test_kubernetes_is_asked_for_accelerators_and_gcps_are_attached(tmp_path):
    pods = "{engine: sky, cloud: kubernetes, accelerators: 'A100:8', data: /d}"
    found = described(OWN + pods, tmp_path)
    assert yaml.safe_load(found.files["task.yaml"])["resources"] == {
        "infra": "kubernetes",
        "accelerators": "A100:8",
        "use_spot": False,
    }
    assert found.command[found.command.index("--idle-minutes-to-autostop") + 1] == "10"
    attached = "{engine: sky, instance: n1-standard-8+1xV100, price: $3/h, data: /d}"
    asked = yaml.safe_load(described(OWN + attached, tmp_path).files["task.yaml"])["resources"]
    assert (asked["instance_type"], asked["accelerators"]) == ("n1-standard-8", "V100:1")


def test_an_emulated_instance_is_a_model_that_is_made_once_and_a_testbed_that_scales_it(
    tmp_path,
):
    target = (
        "{engine: emulated, instance: p3.8xlarge, nodes: 2, interconnect: 1GB/s, network: 1GB/s}"
    )
    file = study(f"workloads: [{{zoo: resnet50}}]\ntargets: [{target}]", tmp_path)
    (cell,) = cells_of(file)
    found = describe(cell, folder_of_study(file.path))
    bed = cell.emulated
    model, run = found.files["cell.sh"].splitlines()[-2:]
    made = shlex.split(model.removesuffix(" || exit"))
    ran = shlex.split(run)
    assert made[1:3] == ["-m", "stash.study.emulated_model"]
    assert made[3].startswith(f"{tmp_path}/grid.study/models/")
    assert __version__ in made[3]  # another release of Stash makes its own
    assert made[4:8] == ["resnet50", "32", "V100-SXM2-16GB", "fp32"]
    assert float(made[8]) > 100
    assert ran[ran.index("--nodes") + 1 : ran.index("--nodes") + 4] == ["2", "--devices", "4"]
    scales = [
        float(ran[ran.index(f"--{name}") + 1]) for name in ("size-scale", "time-scale", "bucket-mb")
    ]
    assert scales == pytest.approx([bed.scale, bed.time_scale, 25 * bed.scale], rel=1e-4)
    rates = [
        float(ran[ran.index(f"--{name}") + 1].removesuffix("B/s"))
        for name in ("loopback", "network")
    ]
    real = 1e9 * bed.scale / bed.time_scale
    assert rates == pytest.approx([4 * real, real], rel=1e-4)  # four ranks share the loopback
    assert ran.index("--loopback") < ran.index("--") < ran.index("profile")
    assert ran[ran.index("--model") + 1] == made[3]


def test_the_model_of_emulated_cells_is_made_once_and_as_fast_as_asked_for(tmp_path, monkeypatch):
    file = tmp_path / "models" / "a.yaml"
    monkeypatch.setattr("sys.argv", ["", str(file), "squeezenet1_0", "4", "V100", "fp16", "50"])
    emulated_model.main()
    assert load(file).compute_seconds == pytest.approx(4 / 50)
    file.write_text("kept")
    emulated_model.main()
    assert file.read_text() == "kept"
