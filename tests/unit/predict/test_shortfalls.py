"""What a machine's shortfalls cost a job: shares of what it needs, hand-worked, and the forecast that follows."""

import pytest
from forecast_profiles import around, cpu_job, gpu_job
from probe_builder import host, links
from profile_builder import build

from stash.analysis.findings.standings import FigureStanding
from stash.core.intervals import Interval
from stash.core.records.host import Limits, PartFigure, PartState
from stash.core.records.profile import Operator, Workload
from stash.predict.forecasting import base_of
from stash.predict.shortfalls import Shares, compute_factor, losses, shares_of

CPU, GPU = base_of(cpu_job()), base_of(gpu_job())
WORK = Workload(command=("train.py",), name="train")


def standing(group, ratio, part="compute", member="", slow=True):
    rate = Interval(value=100 * ratio)
    return FigureStanding(
        hostname="a",
        node=0,
        part=part,
        group=group,
        member=member,
        unit="FLOP/s",
        rate=rate,
        usual=100.0,
        low=90.0,
        peers=5,
        about="",
        slow=slow,
    )


def test_compute_goes_by_the_slowest_device_in_the_types_of_the_job():
    halves = WORK.model_copy(
        update={
            "operators": (
                Operator(operator="aten.mm", shapes="", dtype="torch.bfloat16", calls=1, flops=1.0),
            )
        }
    )
    found = [
        *(
            standing("gemm bfloat16 8x8x8", ratio, member=f"GPU {n}")
            for n, ratio in enumerate((0.99, 0.8, 0.97))
        ),
        standing("gemm float16 8x8x8", 0.5, member="GPU 2"),
        standing("triad", 0.9, member="GPU 0"),
        standing("triad", 0.7, member="GPU 1", slow=False),
        standing("gemm float32 8x8x8", 0.1),
    ]
    shares = shares_of([host("a", links())], found, halves, on_gpu=True)
    assert (shares.products, shares.memory, shares.cores) == (0.8, 0.9, 1.0)
    assert shares.balance == 1.0  # 100 FLOP/s by 100 bytes/s are usual


def test_links_go_by_the_slowest_and_cores_by_what_quota_and_others_leave():
    found = [
        standing("all-reduce, gloo, 2 ranks on 1, 1024 bytes", 0.9, "exchanges"),
        standing("all-reduce, gloo, 4 ranks on 2, 1024 bytes", 0.5, "exchanges"),
        standing("TCP, 8 flows", 0.1, "streams"),
        standing("JPEG decoding, 1 core", 0.5),
    ]
    state = PartState(device="cpu", others_cores=2.0)
    limited = host("a", links(states=(state,)), cores=8, limits=Limits(cpus=4.0))
    shares = shares_of([limited], found, WORK, on_gpu=False)
    assert (shares.inside, shares.network) == (0.9, 0.5)
    # half of the cores, of which others took a quarter
    assert shares.products == pytest.approx(0.5 * 0.75)
    assert shares.cores == pytest.approx(0.5 * 0.75 * 0.5)
    assert (
        shares_of(
            [host("a", links())], [standing("TCP, 8 flows", 0.6, "streams")], WORK, False
        ).network
        == 0.6
    )
    assert shares_of([host("a", None)], [], WORK, False).is_whole


def test_beside_others_a_job_gets_what_figures_get_over_all_of_their_time():
    found = standing("gemm float32 8x8x8", 0.97, slow=False)
    found = found.model_copy(update={"sustained": 52.0, "usual_sustained": 96.0})
    busy = host("a", links(states=(PartState(device="cpu", others_cores=0.9),)))
    assert shares_of([busy], [found], WORK, on_gpu=False).products == pytest.approx(52 / 96)
    assert shares_of([host("a", links())], [found], WORK, on_gpu=False).products == 1.0


def test_under_a_quota_it_gets_the_quotas_share_less_what_threads_lose_by_waiting_for_one_that_was_stopped():
    """Four bursts: 40 ms of the cores each at best, 50 and 70 where one was stopped, so 160 of 200."""
    names = "gemm float32 64x64x64", "gemm bfloat16 8x8x8", "gemm float32 64x64x64, 1 core"
    figures = tuple(
        PartFigure(
            device="cpu",
            name=name,
            unit="FLOP/s",
            work=1.0,
            bursts=((0.01,) * 2,) * 4,
            cpu_seconds=(0.04, 0.04, 0.05, 0.07) if name == names[0] else (0.04,) * 4,
        )
        for name in names
    )
    measured = links(figures=figures, states=(PartState(device="cpu", throttled=0.9),))
    throttled = host("a", measured, cores=2, limits=Limits(cpus=1.2))
    shares = shares_of([throttled], [standing("gemm float32 8x8x8", 0.1)], WORK, on_gpu=False)
    assert (shares.products, shares.memory) == pytest.approx((0.6 * 160 / 200,) * 2)


def test_products_and_memory_are_weighed_by_the_operators():
    work = WORK.model_copy(
        update={
            "operators": (
                Operator(
                    operator="aten.mm", shapes="", dtype="float32", calls=1, flops=30.0, bytes=1000
                ),
                Operator(operator="aten.relu", shapes="", dtype="float32", calls=1, bytes=1),
            )
        }
    )
    assert compute_factor(work, Shares(products=0.5, memory=0.25)) == pytest.approx(
        30 / 40 * 2 + 10 / 40 * 4
    )
    assert compute_factor(work, Shares(products=0.5, balance=30.0)) == pytest.approx(0.5 * 2 + 0.5)
    assert compute_factor(WORK, Shares(products=0.5, memory=0.25)) == 2.0


def test_compute_at_four_fifths_costs_a_quarter_and_nothing_where_steps_wait_for_data_anyway():
    """Passes of 100 ms, four of contention, nothing exchanged: a quarter of 104 ms."""
    fed = base_of(build({"solo": around(0.100), "crowd": around(0.104)}, batch=16))
    (loss,) = losses(fed, Shares(products=0.8))
    assert loss.part == "compute"
    assert loss.seconds.value == pytest.approx(0.026, rel=0.02)
    assert loss.share == pytest.approx(0.25, rel=0.02)
    (hidden,) = losses(CPU, Shares(products=0.8))
    assert hidden.seconds.value < 0.1 * 0.25 / 2
    assert losses(CPU, Shares()) == ()


def test_each_part_has_its_loss_and_all_together_theirs():
    found = {loss.part: loss for loss in losses(GPU, Shares(products=0.9, network=0.5, cores=0.1))}
    assert list(found) == ["compute", "exchange", "prep", "all"]
    assert found["exchange"].seconds.value == pytest.approx(0.057, abs=0.02)  # 130 ms become 260
    assert found["prep"].seconds.value > 0.1  # three workers a rank on 1.6 cores of 16
    largest = max(loss.seconds.value for name, loss in found.items() if name != "all")
    assert found["all"].seconds.value >= largest - 1e-3


def test_one_rank_exchanges_nothing_whatever_the_links_do():
    alone = base_of(build({"solo": around(0.100)}, batch=16, ranks=1))
    assert losses(alone, Shares(inside=0.1, network=0.1)) == ()


def test_what_the_profile_cannot_tell_is_unknown_with_the_reason():
    (loss,) = losses(CPU, Shares(network=0.5))
    assert loss.seconds is None
    assert "rate of the network links" in loss.why
