"""Waits left out and samples kept: what is proposed, what a trial does, and what a patch makes of a script."""

import ast
import copy
import errno
import itertools
import os
import random
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from profile_builder import ledger
from test_space import LOADER, facts
from torch.utils.data import DataLoader, Subset

from stash.advice.case import Case
from stash.analysis.attribution import attribute
from stash.fix.loader_changes import cached_samples
from stash.fix.script_changes import Facts, ScriptChange, Site
from stash.fix.source import Edit, SourceText, apply_edits
from stash.fix.space import propose_changes
from stash.measure.agent.wraps import sample_cache
from stash.measure.agent.wraps.sample_cache import CachedSamples, facts_of
from stash.measure.agent.wraps.trial_changes import fingerprint_batch
from stash.measure.agent.wraps.trial_settings import LaterValues


class Samples:
    """Four samples; how often each was made is counted."""

    def __init__(self, noise=0.0, transform=None):
        self.noise = noise
        self.transform = transform
        self.made = []

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.made.append(index)
        sample = torch.full((3,), float(index)) + (self.noise * torch.randn(3) if self.noise else 0)
        return (self.transform(sample) if self.transform else sample), index


def jitter(sample):
    return sample + torch.randn(3)


def with_(of, *sites, steps=100):
    return Facts(of.case, (*of.sites, *sites), of.trains, of.threads, steps=steps)


# Samples


def test_samples_that_are_the_same_twice_may_be_kept_and_others_not():
    known = facts_of(Samples(), fingerprint_batch)
    assert (known["samples"], known["transform"]) == (4, False)
    assert known["bytes"] > 12  # three floats, and what pickle adds
    assert known["made_seconds"] > 0
    assert known["read_seconds"] > 0
    # AND what only a transform at the end makes different is kept before it
    assert facts_of(Samples(transform=jitter), fingerprint_batch)["transform"]
    # AND others not: random themselves, or of an epoch, or not to be read
    assert facts_of(Samples(noise=1.0), fingerprint_batch)["why"].startswith(
        "the same sample is another one each time"
    )
    of_epoch = Samples()
    of_epoch.epoch = 3
    assert "epoch" in facts_of(of_epoch, fingerprint_batch)["why"]
    assert facts_of(iter(()), fingerprint_batch)["why"] == "its samples have no numbers"


def of_numpy(sample):
    return -sample if np.random.random() < 1e-9 else sample


def of_python(sample):
    return -sample if random.random() < 1e-9 else sample


def of_torch(sample):
    return -sample if torch.rand(()) < 1e-9 else sample


@pytest.mark.parametrize("rarely", [of_numpy, of_python, of_torch])
def test_samples_that_are_seldom_changed_are_kept_before_that_only(rarely):
    assert facts_of(Samples(transform=rarely), fingerprint_batch)["transform"]
    inside = Samples()
    inside.__class__ = type(
        "Inside", (Samples,), {"__getitem__": lambda self, at: rarely(torch.full((3,), at * 1.0))}
    )
    assert "random numbers are drawn" in facts_of(inside, fingerprint_batch)["why"]


def test_reading_twice_leaves_the_scripts_random_numbers_as_they_were():
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    facts_of(Samples(noise=1.0), fingerprint_batch)
    assert torch.equal(torch.randn(3), expected)


def test_a_kept_sample_is_made_once_and_its_transform_each_time(tmp_path):
    data = Samples(transform=jitter)
    kept = CachedSamples(data, tmp_path, transform=True)
    torch.manual_seed(7)
    first = [kept[2], kept[2]]
    assert data.made == [2]
    # THEN what the transform draws is what it would have drawn
    torch.manual_seed(7)
    assert torch.equal(first[0][0], data[2][0])
    assert torch.equal(first[1][0], data[2][0])
    assert data.transform is jitter
    assert len(kept) == 4
    assert kept.noise == 0.0
    # AND nothing is left in the folder, even while it is used
    assert list(tmp_path.iterdir()) == []


class Pictures(Samples):
    """As torchvision's folder of pictures has them: an image and its class."""

    def __init__(self, shade):
        super().__init__()
        self.shade = shade

    def __getitem__(self, index):
        self.made.append(index)
        return Image.new("RGB", (8, 8), (self.shade + index,) * 3), index


def shades(kept):
    return [kept[index][0].getpixel((0, 0))[0] for index in range(len(kept))]


def test_pictures_are_kept_and_replaced_ones_are_not_taken_for_them(tmp_path):
    old = Pictures(10)
    new = Pictures(200)
    for data, expected in ((old, [10, 11, 12, 13]), (new, [200, 201, 202, 203])):
        kept = CachedSamples(data, tmp_path)
        assert shades(kept) == shades(kept) == expected
        assert data.made == [0, 1, 2, 3]


def test_tensors_that_print_alike_are_not_taken_for_one_another(tmp_path):
    for ink in (1.0, 0.25):  # black borders, and more numbers than are printed
        sample = torch.zeros(1, 40, 40)
        sample[:, 8:32, 8:32] = ink
        assert CachedSamples([sample] * 4, tmp_path)[3].max() == ink


def test_samples_of_a_data_set_whose_fields_were_set_since_are_made_again(tmp_path):
    def half(sample):
        return sample / 2

    inner = Samples()
    for data, owner in (
        (CachedSamples(inner, tmp_path), inner),
        (CachedSamples(Subset(inner, range(4)), tmp_path), inner),
        (each := CachedSamples(Samples(), tmp_path), each),
    ):
        assert data[2][0].tolist() == [2, 2, 2]
        owner.transform = None  # as it was: what is kept stays
        assert data[2][0].tolist() == [2, 2, 2]
        owner.transform = half
        assert data[2][0].tolist() == [1, 1, 1]
        inner.transform = None


@pytest.mark.parametrize(
    ("start", "workers", "epochs"),
    [("fork", 2, 2), pytest.param("spawn", 1, 1, marks=pytest.mark.slow)],
)
def test_what_one_process_made_is_there_for_those_of_later_epochs(tmp_path, start, workers, epochs):
    data = Logged(tmp_path / "made")
    (tmp_path / "kept").mkdir()
    kept = CachedSamples(data, tmp_path / "kept")
    assert kept[3] == 3
    loader = DataLoader(kept, 2, shuffle=True, num_workers=workers, multiprocessing_context=start)
    for _ in range(epochs):
        assert sorted(int(number) for batch in loader for number in batch) == list(range(8))
    assert [kept[number] for number in range(8)] == list(range(8))
    assert sorted((tmp_path / "made").read_text().split()) == list("01234567")
    assert list((tmp_path / "kept").iterdir()) == []


class Logged:
    """Eight numbers; a file says which were made, by whatever process."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with self.path.open("a") as file:
            file.write(f"{index}\n")
        return index


def test_a_copy_of_the_data_set_keeps_nothing_and_gives_the_same(tmp_path):
    kept = CachedSamples(Pictures(0), tmp_path)
    assert shades(kept) == [0, 1, 2, 3]
    other = copy.deepcopy(kept)
    other.shade = 50
    assert shades(other) == [50, 51, 52, 53]
    assert shades(kept) == [0, 1, 2, 3]


@pytest.mark.parametrize("index", [-1, "a", (0, 1)])
def test_an_index_that_is_no_number_of_a_sample_goes_to_the_data_set(tmp_path, index):
    data = {-1: "last", "a": "b", (0, 1): "both"}
    assert CachedSamples(data, tmp_path)[index] == data[index]


def test_a_sample_that_finds_no_room_is_made_each_time(tmp_path, monkeypatch):
    def full(file, content, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    kept = CachedSamples(data := Samples(), tmp_path)
    assert [kept[1][1], kept[1][1]] == [1, 1]
    assert data.made == [1, 1]


def test_a_quarter_of_what_is_free_is_taken_at_most(tmp_path, monkeypatch):
    kept = CachedSamples(data := Samples(), tmp_path)
    free = iter([kept._spare, kept._spare + 1_000_000])
    monkeypatch.setattr(kept, "_free", lambda: next(free))
    assert [kept[at][1] for at in (0, 0, 0)] == [0, 0, 0]
    assert data.made == [0, 0]


def test_the_class_takes_no_name_from_a_script_but_those_of_its_modules():
    before = {"copy": copy.copy, "multiprocessing": torch.multiprocessing}
    exec(cached_samples(), found := dict(before))
    new = found.keys() - before.keys() - {"__builtins__"}
    assert new == {"CachedSamples", "fcntl", "os", "pickle", "struct", "sys", "tempfile"}
    assert {name: found[name] for name in before} == before
    assert found["CachedSamples"](Samples(transform=of_torch), None, True)[3][1] == 3


def test_what_cannot_be_kept_is_made_each_time(tmp_path):
    class Local:
        pass

    kept = CachedSamples(samples := [Local()], tmp_path)
    assert [kept[0], kept[0]] == 2 * samples


def test_a_script_goes_on_where_nothing_can_be_kept(tmp_path, capsys):
    kept = CachedSamples(Samples(), tmp_path / "none")
    assert [kept[at][1] for at in range(4)] == [0, 1, 2, 3]
    assert capsys.readouterr().err.startswith("samples are not kept: [Errno 2]")
    assert len(CachedSamples([], tmp_path)) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="plays another user")
def test_another_user_may_start_the_same_script(tmp_path):
    script = f"{cached_samples()}\nos.setuid(int(sys.argv[1]))\nprint(CachedSamples([5, 6], '/dev/shm')[1])\n"
    for user in ("0", "65534"):
        done = subprocess.run(
            [sys.executable, "-c", script, user], capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr) == ("6\n", "")


def test_trials_of_a_run_keep_samples_for_one_another(tmp_path, monkeypatch):
    # GIVEN a script that makes training's and validation's samples by one call
    def launch(rank):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setattr(sample_cache, "_numbers", itertools.count())
        made = []
        for shade in (0, 100):
            data = Pictures(shade + 50 * rank)
            kept = sample_cache.cache_samples(data, False, tmp_path)
            assert shades(kept) == [shade + 50 * rank + at for at in range(4)]
            made.append(data.made)
        return made

    # THEN each has its own, and so has each rank
    assert launch(0) == launch(1) == [[0, 1, 2, 3]] * 2
    assert launch(0) == launch(1) == [[], []]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("steps", "starts", "asks"), [(100, 1, ""), (1000, 1, "cache"), (1000, 2, "")]
)
def test_keeping_samples_asks_first_where_only_a_first_long_epoch_was_seen(steps, starts, asks):
    kept = {
        "samples": 1000,
        "transform": False,
        "bytes": 5904.0,
        "free": {"memory": 10**9, "disk": 10**9},
        "made_seconds": 1e-3,
        "read_seconds": 5e-5,
    }
    of = facts(loader={**LOADER, "kept": kept})
    begun = {"epoch start": dict.fromkeys(range(0, steps * starts, steps), 1.0)}
    ledgers = tuple(
        ledger(rank, epoch_steps=steps, a_step={"forward": 0.1}, now_and_then=begun)
        for rank in (0, 1)
    )
    profile = of.case.profile.model_copy(update={"ledgers": ledgers})
    case = Case(attribute(profile), profile)
    (change,), _ = propose_changes(replace(of, case=case), ["cache"])
    assert change.consent == asks
    assert change.consent_why.startswith("saves nothing in the first epoch") == bool(asks)


def test_keeping_samples_is_tried_in_memory_else_on_disk_else_not_at_all():
    def tried(made=1e-3, **free):
        kept = {
            "samples": 1000,
            "transform": False,
            "bytes": 5904.0,
            "free": free,
            "made_seconds": made,
            "read_seconds": 5e-5,
        }
        return propose_changes(facts(loader={**LOADER, "kept": kept}), ["cache"])

    # of two ranks, 1,000 samples of 5,904 bytes and a page
    (change,), _ = tried(memory=20_000_000, disk=10**9)
    assert (change.name, change.fills) == ("cache=memory", True)
    assert "20.0 MB in memory" in change.text
    assert tried(memory=19_999_999, disk=10**9)[0][0].name == "cache=disk"
    assert "more than a quarter of what is free" in tried(memory=0, disk=0)[1]["cache"]
    cheap = tried(made=6e-5, memory=10**9, disk=10**9)[1]
    assert cheap["cache"] == "a sample is made in 60.0 µs, and would be read back in 50.0 µs"
    assert (
        propose_changes(facts(loader={**LOADER, "kept": {"why": "random"}}), ["cache"])[1]["cache"]
        == "random"
    )


# Waits


def test_waits_of_every_step_go_together_and_rare_ones_stay():
    def wait(line, calls, file="/home/me/train.py"):
        return Site(
            "wait",
            f"w{line}",
            file,
            line,
            line,
            0,
            9,
            {"name": "barrier", "seconds": 0.002 * calls},
            calls,
        )

    found = with_(
        facts(), wait(5, 100), wait(9, 99), wait(2, 1), wait(3, 100, "/x/site-packages/lib.py")
    )
    (change,), _ = propose_changes(found, ["waits"])
    assert change.settings == {"skip": ["w5", "w9"]}
    assert change.text == "without barrier() in line 5 and barrier() in line 9"
    assert change.forecast == pytest.approx(0.002 * 1.99)  # no more than is waited there
    assert propose_changes(with_(facts(), wait(2, 1)), ["waits"])[1]["waits"].startswith(
        "no synchronize()"
    )


def test_item_is_free_on_cpus_and_late_on_gpus():
    item = Site("item", "i7", "/home/me/train.py", 7, 7, 0, 9, {}, 100)
    assert (
        propose_changes(with_(facts(), item), ["items"])[1]["items"]
        == "on CPUs .item() waits for nothing"
    )
    (change,), _ = propose_changes(with_(facts(device="cuda"), item), ["items"])
    assert change.settings == {"late": "i7"}
    assert "train.py:7" in change.text


def test_a_late_number_is_the_one_of_the_step_before():
    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    late = LaterValues(lambda: event)
    loss = torch.tensor([1.0])
    given = []
    for value in (1.0, 2.0, 3.0):
        given.append(late.read_late(torch.tensor(value), torch.Tensor.item))
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
def test_a_call_is_taken_out_of_its_block(text, after):
    source = SourceText(text)
    call = next(
        n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and n.func.id == "barrier"
    )
    found = source.remove_statement(call)
    assert (apply_edits(text, [found]) if isinstance(found, Edit) else found) == after


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num_workers 0 -> 1, threads per rank 2 -> 1", "1 loader worker, 1 thread per rank"),
        ("num_workers 2 -> 4", "4 loader workers"),
        ("threads per rank 1 -> 8", "8 threads per rank"),
    ],
)
def test_a_launch_is_described_by_what_it_has(text, says):
    assert ScriptChange("a", "workers", text).new_value == says
