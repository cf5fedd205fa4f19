"""Emulated accelerators: their description, their times, their gradients, and those made from zoo models."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from stash.base.errors import UserError
from stash.lab.testbed import train
from stash.lab.testbed.accelerator import DeviceQueue, EmulatedModel, EmulatedOptimizer, Pace
from stash.lab.testbed.emulation import Emulation, LayerSpec, dump, load, scaled_rate

TEXT = """\
name: two
layers:
- {name: a, bytes: 4kB, forward_seconds: 2ms, backward_seconds: 0.004}
- name: b
  bytes: 4000
  forward_seconds: 3 ms
  backward_seconds: 6 ms
optimizer_seconds: 1ms
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "model.yaml"
    path.write_text(text)
    return path


def test_a_description_is_read_with_units_and_written_back(tmp_path: Path) -> None:
    made = load(written(tmp_path, TEXT))
    assert made.bytes == 8000
    assert made.compute_seconds == pytest.approx(0.016)
    assert load(written(tmp_path, dump(made))) == made


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bytes: 4000", "bytes: 4000 bots", r"line 5: layers\[1\].bytes: unknown size unit 'bots'"),
        ("bytes: 4000", "bites: 4000", r"line \d: layers\[1\].bytes: this field is missing"),
        ("optimizer_seconds: 1ms", "optimiser: 1ms", "line 8: optimiser: there is no such field"),
        ("optimizer_seconds: 1ms", "optimizer_seconds: -1", "line 8: optimizer_seconds"),
        ("  forward_seconds: 3 ms", "  forward_seconds: {", "not YAML"),
        ("optimizer_seconds: 1ms", "slow_ranks: {1: 0}", r"line 8: slow_ranks.1"),
        ("optimizer_seconds: 1ms", "exchange: 3", "line 8: exchange: should be a valid dictionary$"),
    ],
)
def test_a_wrong_description_is_refused_with_file_line_and_field(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = written(tmp_path, TEXT.replace(old, new))
    with pytest.raises(UserError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_missing_empty_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="layers"):
        load(written(tmp_path, ""))
    (tmp_path / "model.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file"):
        load(tmp_path / "model.yaml")


def test_scaling_keeps_the_ratio_of_wire_time_to_compute() -> None:
    made = Emulation(layers=(LayerSpec(name="a", bytes=4_000_000, forward_seconds=0.1, backward_seconds=0.2),))
    small = made.scaled(size=0.1, time=0.5)
    before = made.bytes / 1e9 / made.compute_seconds
    after = small.bytes / scaled_rate(1e9, 0.1, 0.5) / small.compute_seconds
    assert after == pytest.approx(before)


class Clock:
    """Time that passes only in sleeps, each of which ends late."""

    def __init__(self, late: float) -> None:
        self.now, self.late = 100.0, late

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.late


def test_late_sleeps_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(late=0.001)
    monkeypatch.setattr("stash.lab.testbed.accelerator.time", clock)
    queue = DeviceQueue()
    queue.begin()
    for _ in range(50):
        queue.add(0.01)
        queue.wait()
    assert clock.now - 100 == pytest.approx(50 * 0.01 + 0.001)


def test_a_host_that_falls_far_behind_delays_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(late=0.0)
    monkeypatch.setattr("stash.lab.testbed.accelerator.time", clock)
    queue = DeviceQueue()
    queue.begin()
    clock.now += 0.110  # 0.1 more than the queue covers
    queue.add(0.01)
    queue.wait()
    assert clock.now - 100 == pytest.approx(0.110)
    queue.add(0.01)
    queue.wait()
    assert clock.now - 100 == pytest.approx(0.120)


def test_a_step_takes_its_time_without_the_cpu_and_leaves_real_gradients() -> None:
    layers = [LayerSpec(name=n, bytes=40_000, forward_seconds=0.02, backward_seconds=0.03) for n in "ab"]
    free = LayerSpec(name="free", bytes=0, forward_seconds=0.0, backward_seconds=0.05)
    emulation = Emulation(layers=(*layers, free), optimizer_seconds=0.05)
    model = EmulatedModel(emulation)
    optimizer = EmulatedOptimizer(model.parameters(), model.queue, emulation.optimizer_seconds)
    model(torch.ones(4, 1)).sum().backward()
    began, busy = time.monotonic(), time.process_time()
    model(torch.ones(4, 1)).sum().backward()
    optimizer.step()
    wall, busy = time.monotonic() - began, time.process_time() - busy
    assert emulation.compute_seconds == pytest.approx(0.2)
    assert 0.2 <= wall < 0.25
    assert busy < 0.05
    gradients = [p.grad for p in model.parameters()]
    assert [g.numel() for g in gradients if g is not None] == [10_000, 10_000]
    assert all(float(g.abs().sum()) > 0 for g in gradients if g is not None)


def test_a_slow_rank_and_jitter_change_only_what_they_should() -> None:
    layer = LayerSpec(name="a", bytes=4, forward_seconds=1, backward_seconds=1)
    assert Pace(Emulation(layers=(layer,), slow_ranks={1: 1.5}), 0).factor == 1.0
    assert Pace(Emulation(layers=(layer,), slow_ranks={1: 1.5}), 1).factor == 1.5
    pace, seen = Pace(Emulation(layers=(layer,), jitter=0.1), 0), []
    for _ in range(500):
        pace.next_step()
        seen.append(pace.factor)
    values = torch.tensor(seen)
    assert float(values.mean()) == pytest.approx(1.0, abs=0.02)
    assert float(values.std()) == pytest.approx(0.1, abs=0.02)


def test_reading_what_is_not_cached_takes_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.write_bytes(b"x" * 5000)
    layer = LayerSpec(name="a", bytes=4, forward_seconds=0, backward_seconds=0)
    emulation = Emulation(layers=(layer,), prep_seconds=0.02, read_seconds=0.1)
    cold: set[str] = set()
    monkeypatch.setattr(train, "_read_cached", lambda path: path not in cold)
    samples = train.Samples(emulation, 4, 0, paths)
    began = time.monotonic()
    assert len(samples.__getitems__([0, 1, 2, 3])) == 4
    assert 0.02 <= time.monotonic() - began < 0.06
    cold.update(map(str, paths[:2]))
    began = time.monotonic()
    samples.__getitems__([0, 1, 2, 3])
    assert 0.07 <= time.monotonic() - began < 0.11


def test_the_training_script_runs_alone_and_refuses_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path, TEXT))
    assert train.main(["--model", path, "--steps", "2"]) == 0
    assert "step 2" in capsys.readouterr().out
    (tmp_path / "model.yaml").write_text(TEXT + "read_seconds: 5ms\n")
    assert train.main(["--model", path, "--steps", "2"]) == 2
    assert "--data" in capsys.readouterr().err


def test_a_zoo_model_on_a_gpu_has_its_bytes_and_its_operations() -> None:
    from stash.lab.testbed.generate import emulate
    from stash.lab.zoo.registry import workload

    made = emulate("resnet18", 10e12, 1e15, batch=32)
    assert made.bytes == workload("resnet18").gradient_bytes
    # 1.814e9 multiply-adds of a forward pass at 224 pixels (He et al. 2016: 1.8e9), two operations each, thrice.
    assert made.compute_seconds == pytest.approx(3 * 32 * 2 * 1.814e9 / 10e12, rel=0.01)
    slow_memory = emulate("resnet18", 10e12, 100e9, batch=32)
    assert slow_memory.compute_seconds > made.compute_seconds


def test_rates_that_are_not_positive_are_refused() -> None:
    from stash.lab.testbed.generate import emulate

    with pytest.raises(UserError, match="above 0"):
        emulate("resnet18", 0, 1e12)
