"""``stash lab testbed``: each node's own words, dry runs, and models of GPUs."""

import typer
import yaml
from typer.testing import CliRunner

from stash import catalog
from stash.core.errors import UserError
from stash.lab import command as cli
from stash.lab.testbed import wiring
from stash.lab.testbed.emulation import Emulation


def test_placeholders_are_filled_in_for_each_node():
    made = cli.words(
        ["work", "--rank={node}/{nodes}", "{address}", "{head}"], 1, 3, 1, wiring.address
    )
    assert made == ["work", "--rank=1/3", "10.77.0.2", "10.77.0.1"]


def test_stash_profile_is_told_its_place_unless_it_says_so_itself():
    made = cli.words(
        ["/bin/stash", "profile", "--budget", "5", "train.py"], 1, 2, 2, wiring.address
    )
    assert made == [
        "/bin/stash",
        "profile",
        "--nnodes",
        "2",
        "--node-rank",
        "1",
        "--rdzv-endpoint",
        "10.77.0.1:29500",
        "--nproc-per-node",
        "2",
        "--budget",
        "5",
        "train.py",
    ]
    own = [
        "python",
        "-m",
        "stash",
        "profile",
        "--nnodes=2",
        "--node-rank",
        "{node}",
        "--rdzv-endpoint",
        "{head}:1",
    ]
    assert cli.words(own, 0, 2, 1, wiring.address)[4:6] == ["--nproc-per-node", "1"]


def test_a_dry_run_prints_the_commands_and_runs_none():
    app = typer.Typer()
    app.add_typer(cli.testbed_app, name="testbed")
    result = CliRunner().invoke(
        app, ["testbed", "run", "--network", "1gbit", "--dry-run", "--", "echo", "{node}"]
    )
    assert result.exit_code == 0, result.output
    assert "ip netns add stash-tb-" in result.output
    assert result.output.splitlines()[-1].endswith("-n1 -- echo 1")


def made(*arguments):
    app = typer.Typer()
    app.add_typer(cli.testbed_app, name="testbed")
    return CliRunner().invoke(app, ["testbed", "model", *arguments])


def test_the_command_prints_yaml_with_the_facts_it_rests_on():
    result = made("alexnet", "--gpu", "V100-SXM2-16GB")
    assert result.exit_code == 0, result.output
    facts = catalog.gpu("V100-SXM2-16GB")
    assert f"V100-SXM2-16GB, fp32: {facts.fp32_flops_per_second / 1e12:g} TFLOP/s" in result.output
    assert facts.as_of in result.output
    fast = Emulation.model_validate(yaml.safe_load(made("alexnet", "--gpu", "H100").output))
    slow = Emulation.model_validate(yaml.safe_load(made("alexnet").output))
    assert fast.compute_seconds < slow.compute_seconds


def test_an_unknown_gpu_is_refused_in_one_sentence():
    result = made("alexnet", "--gpu", "Z9000")
    assert isinstance(result.exception, UserError)
    assert "unknown GPU 'Z9000'" in str(result.exception)
