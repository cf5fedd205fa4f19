"""What the driver says of a GPU, from an NVML that answers as it is told; what it does not say is unknown."""

from types import SimpleNamespace as Some

from bench.probe import ScriptedGpu
from stash.core.records.host import PartState
from stash.measure.host.gpu_readings import make_asker, read_errors, read_gpu, state_of, users_of


def test_a_look_says_what_holds_the_clock_down_and_a_missing_answer_is_none():
    held = read_gpu(
        make_asker(ScriptedGpu(ClockInfo=1185, CurrentClocksEventReasons=0x80 | 0x4), 0)
    )
    assert held.held_by == ("power cap", "power brake")
    assert (held.megahertz, round(held.clock or 0, 3), held.watts, held.celsius) == (
        1185,
        0.84,
        391.0,
        61,
    )
    assert read_gpu(make_asker(object(), 0)) == PartState(device="")
    assert {*read_errors(make_asker(object(), 0)).values()} == {None}
    assert users_of(make_asker(object(), 0)) == ()


def test_errors_of_all_lanes_and_kinds_count_together_and_a_failed_repair_is_due():
    found = read_errors(
        make_asker(
            ScriptedGpu(NvLinkErrorCounter=2, RemappedRows=(1, 2, 0, 1), TotalEccErrors=3), 0
        )
    )
    assert found == {"memory_errors": 3, "repair_due": True, "link_errors": 2 * 4 * 18}
    assert (
        read_errors(make_asker(ScriptedGpu(RemappedRows=None, RetiredPagesPendingStatus=0), 0))[
            "repair_due"
        ]
        is False
    )


def test_looks_become_one_state_with_the_usual_clock_and_all_that_held_it():
    library = [
        ScriptedGpu(ClockInfo=mhz, CurrentClocksEventReasons=bits, Temperature=heat)
        for mhz, bits, heat in ((1410, 0, 50), (1000, 0x40, 88), (1200, 0x4, 80))
    ]
    asks = [make_asker(each, 0) for each in library]
    state = state_of([read_gpu(ask, "cuda:1") for ask in asks], asks[0], ("train (8)",))
    assert (state.megahertz, state.celsius, state.held_by) == (1200, 88, ("power cap", "heat"))
    assert (state.device, state.users) == ("cuda:1", ("train (8)",))


def test_users_are_named():
    ask = make_asker(ScriptedGpu(ComputeRunningProcesses=[Some(pid=2**22 + 1)]), 0)
    assert users_of(ask) == (f"a process out of sight ({2**22 + 1})",)
