"""Jobs in meshes and ZeRO on two emulated nodes: each group's stall beside bytes over rate, or beside a stopwatch."""

import pytest
from characterized import needs_testbed

from bench.truth.groups import WORK, measure_axes
from bench.truth.zero import WIDTH
from bench.truth.zero import measure as measure_zero

pytestmark = [pytest.mark.slow, needs_testbed]


@pytest.mark.parametrize(
    ("apart", "activations", "gradients"),
    [(False, 5_000_000, 2_000_000), (True, 1_000_000, 10_000_000)],
)
def test_each_group_s_stall_is_its_bytes_over_its_link_less_what_hides(
    tmp_path, apart, activations, gradients
):
    # GIVEN tensor groups in nodes and data groups across, or the other way around: one exchange of the tensor groups
    # is waited for, one goes on beside work, the data groups' is waited for
    links = ("network", "interconnect") if apart else ("interconnect", "network")
    # WHEN it is profiled as it stands, in one launch
    profile, breakdown, tensor, data = measure_axes(
        apart, activations, gradients, 30, tmp_path / "run"
    )
    step = breakdown.step_seconds
    waits = {wait.name: wait for wait in breakdown.seen.waits}
    # THEN each group's stall is within 2 points of the step, where it lies, and its bytes are exact
    assert [waits[name].stall for name in ("tp", "dp")] == list(links)
    assert waits["tp"].exchange == pytest.approx(tensor + max(0.0, tensor - WORK), abs=0.02 * step)
    assert waits["dp"].exchange == pytest.approx(data, abs=0.02 * step)
    # AND no rank is taken for slow beyond what a busy machine's cores are late: groups share a link unevenly, and
    # their ranks wait for each other afterwards
    contention, compute = breakdown.stall("contention"), breakdown.stall("compute")
    assert contention.seconds < 0.02 * step + max(0.0, compute.seconds - 2 * WORK)
    assert {use.name: use.bytes for use in profile.workload.groups} == {
        "tp": 2 * activations,
        "dp": gradients,
    }
    # AND so is what hides of the tensor groups' exchange
    assert waits["tp"].hidden == pytest.approx(min(WORK, tensor) / (2 * tensor), abs=0.06)
    assert waits["dp"].hidden == pytest.approx(0.0, abs=0.01)


PARAMETERS = 2 * 4.0 * WIDTH**2
"""Bytes of what ``zero.py`` trains; gradients are as large."""


@pytest.mark.parametrize(
    ("stage", "sent"),
    [
        (1, {"broadcast": PARAMETERS, "buckets": PARAMETERS}),
        (2, {"all_gather_single": PARAMETERS, "reduce_scatter_single": PARAMETERS}),
        (3, {"all_gather_single": 2 * PARAMETERS, "reduce_scatter_single": PARAMETERS}),
    ],
)
def test_what_the_stages_of_zero_exchange_is_what_a_stopwatch_finds(tmp_path, stage, sent):
    # GIVEN ranks that divide gradients, and parameters, too; their step by its own clock, together and alone
    found = measure_zero(stage, budget=40.0, folder=tmp_path)
    # THEN the difference is the exchange that one launch shows, within 2 points of the step, and bytes are exact
    assert found.points == pytest.approx(0.0, abs=2.0)
    assert found.sent == sent
