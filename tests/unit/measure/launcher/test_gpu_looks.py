"""GPUs that others use, and clocks that are held down, from an NVML that answers as it is told to."""

from types import SimpleNamespace as Some

import pytest
from breakdowns import flat
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.core.records.circumstances import GpuState
from stash.measure.launcher.gpu_looks import GpuLooks

OURS = {7}


class Nvml:
    """Two GPUs: the job is on the first, together with others; on the second are only others."""

    def __init__(self, **answers):
        self.answers, self.asked_since = answers, []

    def nvmlInit(self):  # noqa: N802
        if self.answers.get("broken"):
            raise OSError("no driver")

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle):  # noqa: N802
        return [Some(pid=7), Some(pid=8)] if handle == 0 else [Some(pid=8)]

    def nvmlDeviceGetProcessUtilization(self, handle, since):  # noqa: N802
        self.asked_since.append(since)
        if "use" not in self.answers:
            raise OSError("not supported")
        stamp = 1000 * len(self.asked_since)
        return [
            Some(pid=pid, smUtil=used, timeStamp=stamp) for pid, used in self.answers["use"].items()
        ]

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        return 1050

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):  # noqa: N802
        return 1500

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        return self.answers.get("reasons", 0)


def states(looks, **answers):
    found = GpuLooks(Nvml(**answers))
    for _ in range(looks):
        found.sample_gpus(OURS.__contains__)
    return found.list_states()


def test_only_gpus_of_the_job_count_and_only_what_others_use_of_them():
    assert states(3, use={7: 60, 8: 30, 9: 5}, reasons=0x20) == (
        GpuState(index=0, others=0.35, clock=0.7, held_by={"heat": 1.0}),
    )


def test_samples_are_read_once_and_the_first_ones_are_from_before():
    library = Nvml(use={8: 50})
    found = GpuLooks(library)
    found.sample_gpus(OURS.__contains__)
    assert found.list_states()[0].others is None
    found.sample_gpus(OURS.__contains__)
    assert library.asked_since == [0, 1000]
    assert found.list_states()[0].others == 0.5


def test_what_nvml_does_not_tell_is_unknown():
    assert states(2) == (GpuState(index=0, others=None, clock=0.7),)
    assert states(2, broken=True) == ()


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (GpuState(index=1, others=0.4), "Other processes took 40% of GPU 1's time"),
        (
            GpuState(index=0, clock=0.7, held_by={"heat": 0.5}),
            "GPU 0 ran at 70% of its highest clock, held down by heat",
        ),
        (GpuState(index=0, clock=0.7, held_by={"power": 0.5}), "held down by power"),
        (GpuState(index=0, clock=0.9, held_by={"power": 1.0}), None),
        (GpuState(index=0, others=0.01, clock=0.6), None),
    ],
)
def test_what_holds_a_gpu_back_is_a_warning(state, sentence):
    profile = build(flat(solo=0.1, crowd=0.2)).model_copy(update={"gpu_states": (state,)})
    warnings = " ".join(attribute(profile).stability.warnings)
    assert (sentence in warnings) if sentence else ("GPU" not in warnings)
