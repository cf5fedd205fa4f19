"""What a machine cannot give is refused in one sentence that says what to do, and nothing is left behind."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from stash.core.errors import StashError, UserError
from stash.lab.testbed import bed as bed_module
from stash.lab.testbed import execute
from stash.lab.testbed.bed import Testbed

NAMESPACES = Path("/run/netns")


def refused(bed, words):
    """The sentence a start ends in; nothing of that testbed is there afterwards."""
    with pytest.raises(UserError, match=words) as caught:
        bed.start()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert not list(NAMESPACES.glob(f"{bed.owner.token}-*"))
    return sentence


needs_ip = pytest.mark.skipif(shutil.which("ip") is None, reason="no program ip; install iproute2")


def test_a_user_without_rights_is_told_to_use_sudo(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    refused(Testbed(2), "a testbed needs root; run it with sudo")


def test_a_testbed_is_removed_though_its_processes_cannot_be_listed(
    monkeypatch,
):
    done = []

    def run(argv, patience=0.0):
        done.append(argv)
        if argv[:3] == ("ip", "netns", "pids"):
            raise StashError("`ip netns pids` did not end within 30 s")
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(execute, "run_command", run)
    monkeypatch.setattr(bed_module, "run_command", run)
    bed = Testbed(2)
    bed._executor.do(bed.steps)
    with pytest.raises(StashError, match="did not end"):
        bed.close()
    made = {argv[3] for argv in done if argv[:3] == ("ip", "netns", "add")}
    assert {argv[3] for argv in done if argv[:3] == ("ip", "netns", "del")} == made
    assert len(made) == 3


def test_what_a_testbed_would_run_can_be_read_by_anybody(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(execute, "run_command", None)
    bed = Testbed(2, network="1gbit")
    steps = [step.describe() for step in bed.steps]
    assert steps[0] == f"ip netns add {bed.owner.switch}"
    assert [line for line in steps if line.startswith("ip netns add")][1:] == [
        f"ip netns add {bed.owner.host(node)}" for node in (0, 1)
    ]
    assert sum(" tbf rate 1000000000bit " in line for line in steps) == 4


@pytest.mark.parametrize(
    ("program", "package"), [("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux")]
)
def test_a_missing_program_is_named_with_its_package_before_anything_is_done(
    monkeypatch, tmp_path, program, package
):
    for name in {"ip", "tc", "nsenter", "unshare"} - {program}:
        (tmp_path / name).touch(mode=0o755)  # there, but never to be run
    monkeypatch.setattr(execute, "_path", lambda: str(tmp_path))
    refused(Testbed(2), f"needs the program `{program}`; install {package}")


@needs_ip
def test_more_ranks_than_memory_are_refused_with_how_many_fit(
    monkeypatch,
):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1e9))
    refused(
        Testbed(4, 2), "8 ranks need about 2.40 GB of memory and 1.00 GB are free; use 3 or fewer"
    )
