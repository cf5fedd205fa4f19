"""Devices that wait for their host to submit kernels: what is said of them, advised, and forecast."""

from __future__ import annotations

import pytest
from forecast_profiles import gpu_job
from profile_builder import STEPS, build

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.core.records.profile import Profile
from stash.predict.changes import Alteration
from stash.predict.forecasting import base_of, what_if
from stash.report.model_facts import facts

pytestmark = pytest.mark.usefixtures("home")


def ahead(seconds: float | None) -> Profile:
    """A job of one V100, whose host is ahead of it by so much, and which no stall keeps."""
    job = gpu_job()
    times = {"resident": [0.17] * 5, "solo": [0.1701] * 5, "warm": [0.1702] * 5, "cold": [0.1703] * 5}
    leads = {} if seconds is None else {"resident": {"host_leads": (seconds,) * STEPS}}
    profile = build(times, ranks=1, device="cuda", batch=64, block_extra=leads)
    return profile.model_copy(update={"workload": job.workload, "hosts": job.hosts[:1]})


def test_a_host_that_is_ahead_by_little_keeps_the_device_waiting():
    found = attribute(ahead(0.004))
    assert found.waits_for_host
    assert (
        "host ahead",
        "at most 4.00 ms of a step of 170 ms: the device waits for the host to submit its kernels",
    ) in (facts(found, ahead(0.004)))
    assert not attribute(ahead(0.15)).waits_for_host
    assert attribute(ahead(None)).host_lead is None


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
