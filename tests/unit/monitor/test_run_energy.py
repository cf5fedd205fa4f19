"""Joules of a watched run: machines' power as it was looked at, windows' seconds, a project's price."""

import pytest
from test_machine_state import QUIET, HotGpu
from watched_rings import Run

from stash.measure.host.energy_counters import EnergyCount
from stash.measure.launcher.gpu_looks import GpuLooks
from stash.monitor.machine_state import MachineLooks
from stash.monitor.page import document, page
from stash.monitor.records import Header, MachineState, RunRecord, Window
from stash.monitor.run_energy import energy_text, run_energy


def window(first, *watts):
    """Ten steps in ten seconds, of machines with this power."""
    machines = tuple(MachineState(node=node, watts=each) for node, each in enumerate(watts))
    return Window(
        began=float(first),
        seconds=10.0,
        first_step=first,
        last_step=first + 9,
        steps=10,
        step_seconds=1.0,
        stalls={"compute": 1.0},
        machines=machines,
    )


def run_of(*windows, nodes=1):
    header = Header(
        id="x", stash_version="1", began=0.0, job="t.py", nodes=nodes, dollars_per_kwh=0.36
    )
    return RunRecord(header, list(windows))


def test_power_times_seconds_of_all_machines_and_what_it_costs():
    both = {"packages": 100.0, "gpus": 1000.0}
    found = run_energy(run_of(window(1, both, both), window(11, both, both), nodes=2))
    assert found is not None
    assert found.parts == {"gpus": 40_000.0, "packages": 4_000.0}
    assert found.joules == 44_000.0
    assert found.steps == 20
    # 44 kJ are 0.01222 kWh
    assert found.dollars == pytest.approx(0.0044)
    assert energy_text(found).endswith(
        "2.20 kJ each: GPUs 40.0 kJ and processors 4.00 kJ, nothing else"
    )


def test_windows_that_lack_a_part_or_a_machine_are_not_taken_for_none():
    both = {"packages": 100.0, "gpus": 1000.0}
    found = run_energy(run_of(window(1, {"packages": 100.0}), window(11, both)))
    assert found is not None
    assert (found.joules, found.steps, found.seconds) == (11_000.0, 10, 10.0)
    assert run_energy(run_of(window(1, both), nodes=9)) is None
    assert run_energy(run_of(window(1, {}))) is None
    assert document(run_of(window(1, {})))["energy"] is None


def test_a_look_tells_the_power_since_the_one_before():
    class Counting(HotGpu):
        def nvmlDeviceGetTotalEnergyConsumption(self, handle):  # noqa: N802
            return 3_000_000 * self.looks

    looks = MachineLooks(
        GpuLooks(Counting()),
        lambda: None,
        dict,
        lambda seconds: EnergyCount(seconds, {"package-0": 80.0 * seconds}),
    )
    first = looks.sample_machine(0, 10.0, QUIET, None, {7}.__contains__)
    assert first.watts == {"packages": 80.0}  # the GPU was not looked at before
    second = looks.sample_machine(0, 10.0, QUIET, None, {7}.__contains__)
    assert second.watts == {"packages": 80.0, "gpus": 300.0}


def test_a_watched_run_keeps_it_and_shows_it(tmp_path):
    machine = MachineLooks(
        quota=lambda: None,
        hot=dict,
        packages=lambda seconds: EnergyCount(seconds, {"package-0": 50.0 * seconds}),
    )
    run = Run(tmp_path, machine=machine)
    run.train(60.0)
    run.watcher.finish(0)
    record = run.record()
    found = document(record)["energy"]
    # 100 ms a step
    assert found["joules"] / found["steps"] == pytest.approx(5.0, rel=0.05)
    assert [each.name for each in page(record).chapters].count("energy") == 1
