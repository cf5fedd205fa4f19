"""The script that trains an emulated model: what its samples take, and what it refuses."""

import os
from types import SimpleNamespace

import pytest
from data_folder import fill
from manual_clock import Clock

from stash.core import pagecache
from stash.lab.testbed import train_emulated
from stash.lab.testbed.emulation import Emulation, LayerSpec, dump


@pytest.fixture(autouse=True)
def _usual_scheduling(monkeypatch):
    """``main`` would put the whole test process before every other on its cores."""
    monkeypatch.setattr(train_emulated, "go_first", lambda: None)


def test_reading_what_is_not_cached_takes_longer(tmp_path, monkeypatch):
    paths = [tmp_path / str(number) for number in range(4)]
    for path in paths:
        path.write_bytes(b"x" * 5000)
    layer = LayerSpec(name="a", bytes=4, forward_seconds=0, backward_seconds=0)
    emulation = Emulation(layers=(layer,), prep_seconds=0.02, read_seconds=0.1)
    cold = set()
    monkeypatch.setattr(
        train_emulated, "_read_cached", lambda file: os.fstat(file).st_ino not in cold
    )
    samples = train_emulated.EmulatedSamples(emulation, 4, 0, paths)
    clock = Clock()
    monkeypatch.setattr(train_emulated, "time", SimpleNamespace(monotonic=clock, sleep=clock.act))
    assert len(samples.__getitems__([0, 1, 2, 3])) == 4
    assert clock.now == pytest.approx(0.02)
    cold.update(path.stat().st_ino for path in paths[:2])
    samples.__getitems__([0, 1, 2, 3])
    assert clock.now == pytest.approx(0.02 + 0.07)


def test_what_a_watch_on_opened_files_takes_is_not_made_up_for(tmp_path, monkeypatch):
    path = tmp_path / "sample"
    path.write_bytes(b"x" * 5000)
    layer = LayerSpec(name="a", bytes=4, forward_seconds=0, backward_seconds=0)
    samples = train_emulated.EmulatedSamples(
        Emulation(layers=(layer,), prep_seconds=0.02), 1, 0, [path]
    )
    clock = Clock()
    monkeypatch.setattr(train_emulated, "time", SimpleNamespace(monotonic=clock, sleep=clock.act))

    def open_slowly(*arguments, **settings):
        clock.act(0.005)
        return open(*arguments, **settings)

    monkeypatch.setattr(train_emulated, "open", open_slowly, raising=False)
    samples.__getitems__([0])
    assert clock.now == pytest.approx(0.025)


def test_what_a_fast_disk_reads_at_once_was_not_cached_before(tmp_path):
    # (a read that must not wait, of what is not cached, has it all the same where the disk is fast enough)
    fill(tmp_path / "data", files=100, pages=1)
    for path in [*map(str, (tmp_path / "data").iterdir())] * 5:
        with open(path, "rb") as file:
            pagecache.evict(file.fileno(), dirty=False)
            assert not train_emulated._read_cached(file.fileno())
            assert train_emulated._read_cached(file.fileno())


def _counting(seen, forward):
    def counted(model, inputs):
        seen.append(inputs)
        return forward(model, inputs)

    return counted


def test_the_training_script_runs_alone_and_refuses_what_it_cannot_do(
    tmp_path, capsys, monkeypatch
):
    path = tmp_path / "model.yaml"
    layer = LayerSpec(name="a", bytes=4000, forward_seconds=0.002, backward_seconds=0.004)
    path.write_text(dump(Emulation(layers=(layer,))))
    assert train_emulated.main(["--model", str(path), "--steps", "2"]) == 0
    assert "step 2" in capsys.readouterr().out
    steps = []
    ends = train_emulated.EmulatedOptimizer.step
    monkeypatch.setattr(
        train_emulated.EmulatedOptimizer,
        "step",
        lambda self: (steps.append(len(batches)), ends(self)),
    )
    batches = []
    monkeypatch.setattr(
        train_emulated.EmulatedModel,
        "forward",
        _counting(batches, train_emulated.EmulatedModel.forward),
    )
    assert train_emulated.main(["--model", str(path), "--steps", "2", "--accumulate", "3"]) == 0
    assert steps == [3, 6]  # batches seen when each step was taken
    path.write_text(dump(Emulation(layers=(layer,), read_seconds=0.005)))
    assert train_emulated.main(["--model", str(path), "--steps", "2"]) == 2
    assert "--data" in capsys.readouterr().err
