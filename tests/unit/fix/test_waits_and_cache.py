"""Waits left out and samples kept: what is proposed, what a trial does, and what a patch makes of a script."""

from __future__ import annotations

import ast
import errno
import os
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from test_space import LOADER, facts

from stash.fix.loader_changes import cached_samples
from stash.fix.patch import Patch
from stash.fix.script_changes import Facts, ScriptChange, Site
from stash.fix.source import Edit, SourceText, edited
from stash.fix.space import propose
from stash.measure.agent.wraps.sample_cache import CachedSamples, facts_of, sweep
from stash.measure.agent.wraps.trial_changes import printed
from stash.measure.agent.wraps.trial_settings import Late
from stash.measure.linux.cores import numa_cores


class Samples:
    """Four samples; how often each was made is counted."""

    def __init__(self, noise: float = 0.0, transform: Any = None) -> None:
        self.noise, self.transform, self.made = noise, transform, 0

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.made += 1
        sample = torch.full((3,), float(index)) + (self.noise * torch.randn(3) if self.noise else 0)
        return (self.transform(sample) if self.transform else sample), index


def jitter(sample: torch.Tensor) -> torch.Tensor:
    return sample + torch.randn(3)


def with_(of: Facts, *sites: Site, steps: int = 100) -> Facts:
    return Facts(of.case, (*of.sites, *sites), of.trains, of.threads, steps=steps)


# Samples


def test_samples_that_are_the_same_twice_may_be_kept_and_others_not():
    known = facts_of(Samples(), printed)
    assert (known["samples"], known["transform"]) == (4, False)
    assert known["bytes"] > 12  # three floats, and what pickle adds
    assert known["made_seconds"] > 0
    assert known["read_seconds"] > 0
    # AND what only a transform at the end makes different is kept before it
    assert facts_of(Samples(transform=jitter), printed)["transform"]
    # AND others not: random themselves, or of an epoch, or not to be read
    assert facts_of(Samples(noise=1.0), printed)["why"].startswith("the same sample is another one each time")
    of_epoch = Samples()
    of_epoch.epoch = 3  # type: ignore[attr-defined]
    assert "epoch" in facts_of(of_epoch, printed)["why"]
    assert facts_of(iter(()), printed)["why"] == "its samples have no numbers"


def of_numpy(sample: torch.Tensor) -> torch.Tensor:
    return -sample if np.random.random() < 1e-9 else sample


def of_python(sample: torch.Tensor) -> torch.Tensor:
    return -sample if random.random() < 1e-9 else sample


def of_torch(sample: torch.Tensor) -> torch.Tensor:
    return -sample if torch.rand(()) < 1e-9 else sample


@pytest.mark.parametrize("rarely", [of_numpy, of_python, of_torch])
def test_samples_that_are_seldom_changed_are_kept_before_that_only(rarely: Any):
    assert facts_of(Samples(transform=rarely), printed)["transform"]
    inside = Samples()
    inside.__class__ = type(
        "Inside", (Samples,), {"__getitem__": lambda self, at: rarely(torch.full((3,), at * 1.0))}
    )
    assert "random numbers are drawn" in facts_of(inside, printed)["why"]


def test_reading_twice_leaves_the_scripts_random_numbers_as_they_were():
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    facts_of(Samples(noise=1.0), printed)
    assert torch.equal(torch.randn(3), expected)


def test_a_kept_sample_is_made_once_and_its_transform_each_time(tmp_path: Path):
    data = Samples(transform=jitter)
    kept = CachedSamples(data, tmp_path / "kept", transform=True)
    torch.manual_seed(7)
    first = [kept[2], kept[2]]
    # THEN what the transform draws is what it would have drawn
    torch.manual_seed(7)
    assert torch.equal(first[0][0], data[2][0])
    assert torch.equal(first[1][0], data[2][0])
    assert [path.name for path in (tmp_path / "kept").glob("*/*")] == ["2"]
    assert data.transform is jitter
    assert len(kept) == 4
    # AND others of the same data find it
    again = CachedSamples(Samples(transform=jitter), tmp_path / "kept", transform=True)
    before = again._data.made
    assert again[2][1] == data[2][1]
    assert again._data.made == before
    assert again.noise == 0.0


def test_a_sample_that_finds_no_room_is_made_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(sample: Any, file: Any, protocol: int) -> None:
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pickle.dump", full)
    kept = CachedSamples(data := Samples(), tmp_path)
    assert [kept[1][1], kept[1][1]] == [1, 1]
    assert data.made == 3 + 2  # by three samples it is known
    assert list(tmp_path.glob("*/*")) == []


def test_other_data_under_the_same_folder_are_other_samples(tmp_path: Path):
    # GIVEN samples kept of one data set, and the script started with another of the same length
    first, second = ([torch.full((2,), number + each) for each in range(4)] for number in (0.0, 10.0))
    assert [float(CachedSamples(first, tmp_path)[at][0]) for at in range(4)] == [0, 1, 2, 3]
    assert [float(CachedSamples(second, tmp_path)[at][0]) for at in range(4)] == [10, 11, 12, 13]
    assert len(CachedSamples([], tmp_path)) == 0


def test_what_killed_trials_left_in_memory_goes_after_a_day(tmp_path: Path):
    for name, age in (("stash-a-samples", 90_000), ("stash-b-samples", 3_600), ("mine-samples", 90_000)):
        (tmp_path / name).mkdir()
        then = time.time() - age
        os.utime(tmp_path / name, (then, then))
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine-samples", "stash-b-samples"]


def test_a_folder_of_somebody_else_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.getuid", lambda: 12345)
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        CachedSamples(Samples(), tmp_path)


def test_keeping_samples_is_tried_in_memory_else_on_disk_else_not_at_all():
    def tried(made: float = 1e-3, **free: int) -> Any:
        kept = {
            "samples": 1000, "transform": False, "bytes": 5904.0, "free": free, "made_seconds": made,
            "read_seconds": 5e-5,
        }  # fmt: skip
        return propose(facts(loader={**LOADER, "kept": kept}), ["cache"])

    (change,), _ = tried(memory=10_000_000, disk=10**9)  # 1,000 samples of 5,904 bytes in files: 10 MB
    assert (change.name, change.fills) == ("cache=memory", True)
    assert "10.0 MB in memory" in change.text
    assert tried(memory=9_999_999, disk=10**9)[0][0].name == "cache=disk"
    assert "more than half of what is free" in tried(memory=0, disk=0)[1][0].why
    cheap = tried(made=6e-5, memory=10**9, disk=10**9)[1][0]
    assert cheap.why == "a sample is made in 60.0 µs, and would be read back in 50.0 µs"
    assert propose(facts(loader={**LOADER, "kept": {"why": "random"}}), ["cache"])[1][0].why == "random"


def test_the_patch_that_keeps_samples_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # GIVEN a script
    monkeypatch.chdir(tmp_path)
    text = (
        "import torch\nfrom torch.utils.data import DataLoader\n\ndata = [torch.ones(2)] * 4\n"
        "loader = DataLoader(\n    data,\n    batch_size=2,\n    num_workers=0,\n)\n"
        "print(sum(len(b) for b in loader))\n"
    )
    (tmp_path / "train.py").write_text(text)
    call = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and getattr(n.func, "id", 0))
    assert call.end_lineno is not None
    assert call.end_col_offset is not None
    site = Site(
        "loader", "k", str(tmp_path / "train.py"), call.lineno, call.end_lineno, call.col_offset,
        call.end_col_offset, {},
    )  # fmt: skip
    keeps = ScriptChange(
        "cache=disk", "cache", "kept", site=site, line=cached_samples(), around=("CachedSamples(", ', "kept")')
    )
    workers = ScriptChange("workers=1", "workers", "one", site=site, writes={"num_workers": 1})
    # WHEN both changes are written
    patch = Patch()
    assert [patch.add(each, None, ()).way for each in (keeps, workers)] == ["patch", "patch"]
    (after,) = patch.after().values()
    # THEN the loader reads through the class, with its other argument changed as well
    assert 'CachedSamples(data, "kept"),\n    batch_size=2,\n    num_workers=1,' in after
    assert "type: ignore" not in after
    exec(compile(after.replace("num_workers=1", "num_workers=0"), "train.py", "exec"), {"__name__": "train"})
    assert sorted(path.name for path in (tmp_path / "kept").glob("*/*")) == ["0", "1", "2", "3"]


# Waits


def test_waits_of_every_step_go_together_and_rare_ones_stay():
    def wait(line: int, calls: int, file: str = "/home/me/train.py") -> Site:
        return Site("wait", f"w{line}", file, line, line, 0, 9, {"name": "barrier", "seconds": 0.002 * calls}, calls)

    found = with_(facts(), wait(5, 100), wait(9, 99), wait(2, 1), wait(3, 100, "/x/site-packages/lib.py"))
    (change,), _ = propose(found, ["waits"])
    assert change.settings == {"skip": ["w5", "w9"]}
    assert change.text == "without barrier() in line 5 and barrier() in line 9"
    assert change.forecast == pytest.approx(0.002 * 1.99)  # no more than is waited there
    assert propose(with_(facts(), wait(2, 1)), ["waits"])[1][0].why.startswith("no synchronize()")


def test_item_is_free_on_cpus_and_late_on_gpus():
    item = Site("item", "i7", "/home/me/train.py", 7, 7, 0, 9, {}, 100)
    assert propose(with_(facts(), item), ["items"])[1][0].why == "on CPUs .item() waits for nothing"
    (change,), _ = propose(with_(facts(device="cuda"), item), ["items"])
    assert change.settings == {"late": "i7"}
    assert "train.py:7" in change.text


def test_a_late_number_is_the_one_of_the_step_before():
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    late, loss = Late(lambda: event), torch.tensor([1.0])
    given = []
    for value in (1.0, 2.0, 3.0):
        given.append(late.of(torch.tensor(value), torch.Tensor.item))
    assert given == [1.0, 1.0, 2.0]
    assert loss.item() == 1.0


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("step()\nbarrier()  # all\nprint()\n", "step()\nprint()\n"),
        ("for a in b:\n    barrier()\n", "for a in b:\n    pass\n"),
        ("step(); barrier()\n", "step(); pass\n"),
        ("if a: barrier()\n", "if a: pass\n"),
        ("x = barrier()\n", "its value is used"),
    ],
)
def test_a_call_is_taken_out_of_its_block(text: str, after: str):
    source = SourceText(text)
    call = next(n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and n.func.id == "barrier")  # type: ignore[attr-defined]
    found = source.without(call)
    assert (edited(text, [found]) if isinstance(found, Edit) else found) == after


# What needs consent, and what machines have


def test_another_batch_is_tried_only_if_it_is_allowed():
    loader = {**LOADER, "batch_size": 8}
    assert propose(facts(loader=loader), ["batch"])[1][0].why.endswith("only with --allow batch")
    changes, _ = propose(facts(loader=loader), ["batch"], ["batch"])
    assert [(each.writes["batch_size"], each.samples) for each in changes] == [(16, 2.0), (32, 4.0)]


def test_ranks_get_the_cores_of_their_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for node, cores in ((1, "2-3"), (0, "0,1"), (10, "8-9")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(cores + "\n")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert numa_cores(str(tmp_path)) == [[0, 1], [2, 3]]
    assert numa_cores(str(tmp_path / "none")) == []
    built = facts()
    found = Facts(built.case, built.sites, "mine", 1, numa=((0, 1), (2, 3)))
    cores = next(each.cores for each in propose(found, ["cores"])[0] if each.name == "cores=numa")
    assert cores == {"ranks": [[0, 1], [2, 3]]}


def test_sockets_of_nccl_are_tried_only_where_it_goes_by_them(monkeypatch: pytest.MonkeyPatch):
    for name in ("NCCL_ALGO", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_MIN_NCHANNELS"):
        monkeypatch.delenv(name, raising=False)
    names = [each.name for each in propose(facts(device="cuda"), ["nccl"])[0]]
    assert names == ["nccl=Ring", "nccl=Tree", "nccl=channels"]
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    monkeypatch.setenv("NCCL_SHM_DISABLE", "1")
    monkeypatch.setenv("NCCL_ALGO", "Ring")  # the user's own
    names = [each.name for each in propose(facts(device="cuda"), ["nccl"])[0]]
    assert names == ["nccl=channels", "nccl=sockets"]
