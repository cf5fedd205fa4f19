"""What a testbed would do to a machine, read without being root: shapes, names, commands, limits, links."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from stash.base.errors import UserError
from stash.cli import testbed as cli
from stash.lab.testbed import cgroups, verify, wiring
from stash.lab.testbed.cgroups import Cgroups, Controller, Device
from stash.lab.testbed.execute import Executor, Portal, _explain
from stash.lab.testbed.names import Owner, abandoned, next_owner, owner_of
from stash.lab.testbed.step import Step
from stash.lab.testbed.topology import HostSpec, parse_override, topology

OWNER = Owner(77, 0xABC, 0)
V1 = Cgroups(Controller(1, "/cg/cpu"), Controller(1, "/cg/blkio"))
V2 = Cgroups(Controller(2, "/cg", enabled=False), Controller(2, "/cg"))


def lines(*args: object, **options: object) -> list[str]:
    return [step.describe() for step in wiring.set_up(*args, **options)]  # type: ignore[arg-type]


def test_hosts_are_alike_but_for_their_overrides() -> None:
    made = topology(3, network="1gbit", cpus=2.0, overrides={1: {"network": "100mbit", "disk": "50MB/s"}})
    assert made.hosts[0] == made.hosts[2] == HostSpec(network=125e6, cpus=2.0)
    assert made.hosts[1] == HostSpec(network=12.5e6, disk=50e6, cpus=2.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nodes": 0}, "1 to 64"),
        ({"nodes": 2, "devices": 0}, "at least one"),
        ({"nodes": 2, "network": "10 gbots"}, "gbots"),
        ({"nodes": 2, "network": "0bit"}, "more than 0"),
        ({"nodes": 2, "cpus": "many"}, "many"),
        ({"nodes": 2, "overrides": {2: {"network": "1gbit"}}}, "0 to 1"),
        ({"nodes": 2, "overrides": {1: {"netwrok": "1gbit"}}}, "network, interconnect, disk, cpus"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_in_words(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        topology(**arguments)  # type: ignore[arg-type]


def test_an_override_is_read_from_the_command_line() -> None:
    assert parse_override("1:network=100mbit,cpus=0.5") == (1, {"network": "100mbit", "cpus": "0.5"})
    for wrong in ("network=1gbit", "1:", "1:network", "x:network=1gbit", "1:network="):
        with pytest.raises(UserError, match="--node"):
            parse_override(wrong)


def test_a_name_tells_its_owner_and_nothing_else_is_taken_for_ours() -> None:
    assert owner_of(OWNER.host(3)) == OWNER
    assert owner_of(OWNER.switch) == OWNER
    for foreign in ("stash-tb-", "stash-tb-mine", "x-" + OWNER.host(0), OWNER.host(0) + "x", "stash-tb-1-2-3-n"):
        assert owner_of(foreign) is None
        assert not abandoned(foreign)


def test_what_a_living_process_owns_is_not_abandoned_and_what_a_dead_one_owned_is() -> None:
    mine = next_owner()
    assert not abandoned(mine.host(0))
    assert abandoned(Owner(mine.pid, mine.start + 1, 0).host(0))  # another process had our number
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    name = Owner(child.pid, start, 0).host(0)
    assert not abandoned(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert abandoned(name)  # a zombie owns nothing
    child.communicate()
    assert abandoned(name)


def test_each_link_is_shaped_in_both_directions_and_loopback_as_the_interconnect() -> None:
    steps = lines(topology(2, network="1gbit", interconnect="4gbit", overrides={1: {"network": "100mbit"}}), OWNER)
    shaped = [line.split(" latency")[0] for line in steps if " tbf " in line]
    head = "tc -n stash-tb-77-abc-0"
    assert shaped == [
        f"{head}-n0 qdisc replace dev stash-tb0 root tbf rate 1000000000bit burst 262500",
        f"{head}-sw qdisc replace dev stash-tbp0 root tbf rate 1000000000bit burst 262500",
        f"{head}-n0 qdisc replace dev lo root tbf rate 4000000000bit burst 1050000",
        f"{head}-n1 qdisc replace dev stash-tb1 root tbf rate 100000000bit burst 65536",
        f"{head}-sw qdisc replace dev stash-tbp1 root tbf rate 100000000bit burst 65536",
        f"{head}-n1 qdisc replace dev lo root tbf rate 4000000000bit burst 1050000",
    ]


def test_every_command_stays_inside_namespaces_of_our_own() -> None:
    for step in wiring.set_up(topology(3, network="1gbit", interconnect="1gbit"), OWNER):
        program, first, second, *_ = step.argv
        assert (program, first) in (("ip", "netns"), ("ip", "-n"), ("tc", "-n"))
        name = step.argv[3] if first == "netns" else second
        assert owner_of(name) == OWNER
        assert (step.undo is not None) == (first == "netns")


def test_interface_names_fit_the_kernels_fifteen_characters() -> None:
    assert max(len(name) for name in (wiring.interface(63), "stash-tbp63", wiring.BRIDGE)) <= 15


def test_limits_in_control_groups_of_version_1() -> None:
    steps = wiring.set_up(topology(1, cpus=0.5, disk="100MB/s"), OWNER, V1, Device(254, 0))
    made = [step for step in steps if step.argv[0] == "mkdir"]
    assert [step.undo for step in made] == [
        ("rmdir", "/cg/cpu/stash-tb-77-abc-0-n0"),
        ("rmdir", "/cg/blkio/stash-tb-77-abc-0-n0"),
    ]
    assert [step.argv[-2:] for step in steps if step.argv[0] == "sh"] == [
        ("20000", "/cg/cpu/stash-tb-77-abc-0-n0/cpu.cfs_period_us"),
        ("10000", "/cg/cpu/stash-tb-77-abc-0-n0/cpu.cfs_quota_us"),
        ("254:0 100000000", "/cg/blkio/stash-tb-77-abc-0-n0/blkio.throttle.read_bps_device"),
    ]


def test_limits_in_control_groups_of_version_2_pass_the_missing_controller_on_and_take_it_back() -> None:
    steps = wiring.set_up(topology(1, cpus=1, disk="100MB/s"), OWNER, V2, Device(8, 0))
    writes = [(step.argv[-2:], step.undo and step.undo[-2:]) for step in steps if step.argv[0] == "sh"]
    assert writes == [
        (("+cpu", "/cg/cgroup.subtree_control"), ("/cg/cgroup.subtree_control", "/cg")),
        (("20000 20000", "/cg/stash-tb-77-abc-0-n0/cpu.max"), None),
        (("8:0 rbps=100000000", "/cg/stash-tb-77-abc-0-n0/io.max"), None),
    ]
    assert sum(step.argv[0] == "mkdir" for step in steps) == 1


def test_controllers_are_found_in_the_mount_table() -> None:
    files = {"/u/cgroup.controllers": "cpu io memory", "/u/cgroup.subtree_control": "cpu"}
    both = "cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /u cgroup2 rw 0 0\n"
    assert cgroups.find(both, files.__getitem__) == Cgroups(
        Controller(1, "/c/cpu,cpuacct"), Controller(2, "/u", False)
    )
    assert cgroups.find("tmpfs /run tmpfs rw 0 0", files.__getitem__) == Cgroups()


def test_a_limit_the_machine_cannot_set_is_refused() -> None:
    for wish, words in (({"cpus": 1}, "CPU time"), ({"disk": "1MB/s"}, "block I/O")):
        with pytest.raises(UserError, match=words):
            wiring.set_up(topology(1, **wish), OWNER, Cgroups(), Device(8, 0))  # type: ignore[arg-type]


def test_a_folder_on_no_block_device_is_refused() -> None:
    with pytest.raises(UserError, match="no block device"):
        cgroups.device_of(Path("/proc"))


def test_a_link_is_right_within_five_percent_and_is_measured_long_enough() -> None:
    found = verify.transfers(topology(1, network="1mbit", interconnect="1gbit"), OWNER)
    assert [(link.name, link.direction) for link, _ in found] == [
        ("network", "up"), ("network", "down"), ("interconnect", "both"),
    ]  # fmt: skip
    slow, fast = found[0][1].seconds, found[2][1].seconds
    assert slow == 10
    assert fast == pytest.approx(0.3)
    link = verify.ShapedLink(0, "network", "up", 100.0, 95.1, 0)
    assert link.right
    assert not verify.ShapedLink(0, "network", "up", 100.0, 94.9, 0).right


def test_steps_done_are_undone_in_reverse_when_a_later_one_fails(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    executor = Executor(Portal())
    steps = [Step(("mkdir", str(f)), ("rmdir", str(f))) for f in (outer, inner)]
    with pytest.raises(UserError, match="failed"):
        executor.do([*steps, Step(("false",), ("rmdir", str(tmp_path)))])
    assert inner.exists()
    executor.undo()
    assert not outer.exists()
    assert tmp_path.exists()  # what failed is not undone


def test_a_clash_of_names_is_explained() -> None:
    said = _explain(Step(("ip", "netns", "add", "stash-tb-x")), 'Cannot create namespace file "x": File exists')
    assert "stash-tb-x exists already" in said


def test_a_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(UserError, match="no-such-program"):
        Executor(Portal()).do([Step(("no-such-program",))])


def test_placeholders_are_filled_in_for_each_node() -> None:
    made = cli.words(["work", "--rank={node}/{nodes}", "{address}", "{head}"], 1, 3, 1, wiring.address)
    assert made == ["work", "--rank=1/3", "10.77.0.2", "10.77.0.1"]


def test_stash_profile_is_told_its_place_unless_it_says_so_itself() -> None:
    made = cli.words(["/bin/stash", "profile", "--budget", "5", "train.py"], 1, 2, 2, wiring.address)
    assert made == [
        "/bin/stash", "profile", "--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "10.77.0.1:29500",
        "--nproc-per-node", "2", "--budget", "5", "train.py",
    ]  # fmt: skip
    own = ["python", "-m", "stash", "profile", "--nnodes=2", "--node-rank", "{node}", "--rdzv-endpoint", "{head}:1"]
    assert cli.words(own, 0, 2, 1, wiring.address)[4:6] == ["--nproc-per-node", "1"]


def test_stash_probe_is_told_its_place_too() -> None:
    made = cli.words(["stash", "probe", "/data"], 0, 2, 1, wiring.address)
    assert made[2:] == [
        "--nnodes", "2", "--node-rank", "0", "--rdzv-endpoint", "10.77.0.1:29500", "--nproc-per-node", "1", "/data",
    ]  # fmt: skip


def test_a_dry_run_prints_the_commands_and_runs_none() -> None:
    app = typer.Typer()
    app.add_typer(cli.app, name="testbed")
    result = CliRunner().invoke(app, ["testbed", "run", "--network", "1gbit", "--dry-run", "--", "echo", "{node}"])
    assert result.exit_code == 0, result.output
    assert "ip netns add stash-tb-" in result.output
    assert result.output.splitlines()[-1].endswith("-n1 -- echo 1")
