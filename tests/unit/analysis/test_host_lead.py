"""Devices that wait for their host to submit kernels: what is said of them, advised, and forecast."""

from __future__ import annotations

import pytest
from breakdowns import change_blocks
from forecast_profiles import gpu_job
from profile_builder import STEPS, build

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.core.records.profile import Profile
from stash.predict.changes import Alteration
from stash.predict.forecasting import base_of, what_if
from stash.report.model_facts import model_facts

pytestmark = pytest.mark.usefixtures("home")


def ahead(seconds: float | None) -> Profile:
    """A job of one V100, whose host is ahead of it by so much, and which no stall keeps."""
    job = gpu_job()
    times = {
        "resident": [0.17] * 5,
        "solo": [0.1701] * 5,
        "warm": [0.1702] * 5,
        "cold": [0.1703] * 5,
    }
    busy = {"cpu_seconds": 1.7, "stage_seconds": {"between": 0.1, "forward": 1.6}}
    leads = {} if seconds is None else {"resident": {"host_leads": (seconds,) * STEPS, **busy}}
    profile = build(times, ranks=1, device="cuda", batch=64, block_extra=leads)
    return profile.model_copy(update={"workload": job.workload, "hosts": job.hosts[:1]})


def test_a_host_that_is_ahead_by_little_keeps_the_device_waiting():
    found = attribute(ahead(0.004))
    assert found.waits_for_host
    assert (
        "host ahead",
        "at most 4.00 ms of a step of 170 ms: the device waits for the host to submit its kernels",
    ) in (model_facts(found, ahead(0.004)))
    assert not attribute(ahead(0.15)).waits_for_host
    assert attribute(ahead(None)).host_lead is None


def test_a_step_of_many_passes_is_behind_by_one_of_them_at_most():
    job = ahead(0.02)
    (loader,) = job.workload.loaders
    accumulating = {
        "workload": job.workload.model_copy(
            update={"loaders": (loader.model_copy(update={"batches_per_step": 8}),)}
        )
    }
    assert not attribute(job.model_copy(update=accumulating)).waits_for_host


@pytest.mark.parametrize(
    "what",
    [
        {"cpu_seconds": 0.5},
        {"cpu_seconds": None},
        {"stage_seconds": {"between": 1.0, "forward": 0.7}},
        {"stage_seconds": {}},
    ],
)
def test_a_host_that_sleeps_or_works_between_steps_does_not_submit_kernels(what):
    job = ahead(0.004)
    assert attribute(job).host_lead is not None
    assert attribute(change_blocks(job, lambda _: what)).host_lead is None


def test_where_the_device_waits_no_faster_one_is_advised():
    texts = []
    for seconds in (0.004, 0.15):
        advice = verdict(attribute(ahead(seconds)), ahead(seconds))
        texts.append(" ".join([advice.text, *advice.next_steps]))
    assert "the devices wait for the host" in texts[0]
    assert "Submit fewer kernels" in texts[0]
    assert "Submit fewer kernels" not in texts[1]


def test_where_the_device_waits_a_faster_one_saves_nothing():
    steps = []
    for seconds in (0.15, 0.004):
        profile = ahead(seconds)
        forecast = what_if(base_of(profile, attribute(profile)), Alteration(gpu="H100-SXM5-80GB"))
        steps.append(forecast.breakdown.seconds("compute"))
    assert steps[0] < 0.1
    assert steps[1] == pytest.approx(0.17, rel=0.05)
