"""What a machine is seen to do by hand: heat, quotas, clocks; which of it is named beside a rank that is late."""

from types import SimpleNamespace as Some

import pytest
from watched_rings import Run

from stash.core.records.circumstances import GpuState
from stash.measure.launcher.gpu_looks import GpuLooks
from stash.measure.linux.counters import Activity
from stash.monitor.machine_state import (
    MachineLooks,
    error_counts,
    explain_lateness,
    most_telling,
    seconds_of_heat,
    slow_parts,
)
from stash.monitor.page import page
from stash.monitor.records import MachineState

QUIET = Activity(0.5, 0.0, 0, 4096)


class HotGpu:
    """An NVML with one GPU of process 7, whose clock is held down by heat from the second look on."""

    looks = 0

    def nvmlInit(self): ...  # noqa: N802

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        return [Some(pid=7)]

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        self.looks += 1
        return 1980 if self.looks == 1 else 1188

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):  # noqa: N802
        return 1980

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):  # noqa: N802
        return 0x0 if self.looks == 1 else 0x40


def test_each_look_is_of_the_time_since_the_one_before():
    quota = iter([(4, 90), (9, 190), (9, 190)])
    heat = iter([{"a": 100.0, "b": 2.0}, {"a": 100.0, "b": 5.0}, {"a": 101.0}])
    looks = MachineLooks(GpuLooks(HotGpu()), lambda: next(quota), lambda: next(heat))
    first = looks.sample_machine(1, 10.0, QUIET, 0.25, {7}.__contains__)
    assert (first.node, first.throttled, first.heat, first.others_cores) == (1, 0.05, 0.3, 0.25)
    assert first.gpus == (GpuState(index=0, clock=1.0),)
    second = looks.sample_machine(1, 10.0, QUIET, None, {7}.__contains__)
    assert (second.throttled, second.heat, second.disk_bytes) == (0.0, 0.1, 4096)
    assert second.gpus == (GpuState(index=0, clock=0.6, held_by={"heat": 1.0}),)


def test_what_the_kernel_does_not_count_is_unknown(tmp_path):
    looks = MachineLooks(quota=lambda: None, hot=lambda: seconds_of_heat(tmp_path))
    state = looks.sample_machine(
        0, 10.0, Activity(None, None, None, None), None, lambda number: True
    )
    assert state == MachineState(node=0)
    assert explain_lateness(state) == ""


def test_heat_is_read_of_every_core_and_package(tmp_path):
    for core, milliseconds in ((0, 1500), (1, 20)):
        folder = tmp_path / f"cpu{core}" / "thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_total_time_ms").write_text(f"{milliseconds}\n")
        (folder / "core_throttle_count").write_text("3\n")
    (tmp_path / "cpufreq").mkdir()
    assert sorted(seconds_of_heat(tmp_path).values()) == [0.02, 1.5]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (MachineState(node=0, heat=0.3), "its processor is slowed by heat 30% of the time"),
        (MachineState(node=0, throttled=0.5), "its quota of CPU time is used up 50% of the time"),
        (MachineState(node=0, steal=0.1), "its host takes 10% of the CPU time (steal)"),
        (MachineState(node=0, others_cores=1.5), "other programs use 1.5 cores"),
        (
            MachineState(node=0, gpus=(GpuState(index=2, clock=0.6, held_by={"power": 0.9}),)),
            "GPU 2 ran at 60% of its highest clock, held down by power",
        ),
        (MachineState(node=0, heat=0.01, throttled=0.01, steal=0.01, others_cores=0.2), ""),
    ],
)
def test_what_may_make_a_rank_late_is_named(state, words):
    assert explain_lateness(state) == words


def test_of_many_machines_the_late_ones_are_kept_then_the_busiest():
    states = [MachineState(node=node, others_cores=node / 10) for node in range(20)]
    assert [each.node for each in most_telling(states, {3})] == [3, 19, 18, 17, 16, 15, 14, 13]


@pytest.mark.usefixtures("unix_is_monotonic")
def test_a_late_rank_is_shown_beside_its_machine_and_the_alert_names_what_may_be_why(
    tmp_path,
):
    slowed = 0.0

    def hot():  # from the 40th second on 30 % of the time
        nonlocal slowed
        slowed += 3.0 if run is not None and run.now > 1e9 + 39 else 0.0
        return {"core": slowed}

    run = None
    run = Run(tmp_path, machine=MachineLooks(quota=lambda: None, hot=hot))
    run.train(50)
    run.train(30, late=lambda rank: 0.05 * rank)
    record = run.record()
    alerts = {each.what: each for each in record.alerts}
    assert alerts.keys() == {"slow part", "slower"}
    assert "its processor is slowed by heat" in alerts["slow part"].text
    alert = alerts["slower"]
    assert "look at that machine: its processor is slowed by heat" in alert.text
    (grid,) = [grid for grid in page(record).grids if grid.title == "Stragglers"]
    assert grid.rows[0][:2] == ("rank 1", "input")
    assert "slowed by heat" in grid.rows[0][-1]
    quiet = [window for window in record.windows if not window.stragglers]
    assert quiet[0].machines[0].heat == 0.0


def test_errors_that_are_new_make_a_part_slow_and_old_ones_do_not():
    before = MachineState(
        node=1, gpus=(GpuState(index=0, memory_errors=2, link_errors=50), GpuState(index=1))
    )
    after = MachineState(
        node=1, gpus=(GpuState(index=0, memory_errors=3, link_errors=90), GpuState(index=1))
    )
    assert slow_parts(before, error_counts([before])) == slow_parts(after) == []
    assert slow_parts(after, error_counts([before])) == [
        "GPU 0 has 1 new uncorrectable errors of memory",
        "the NVLinks of GPU 0 have 40 new errors",
    ]
    assert "40 new errors" in explain_lateness(after, error_counts([before]))
    assert slow_parts(MachineState(node=0, steal=0.1, throttled=0.5, others_cores=3.0)) == [
        "its host takes 10% of the CPU time (steal)"
    ]
