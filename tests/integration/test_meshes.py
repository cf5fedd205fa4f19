"""A job in three meshes on two emulated nodes: what of a step is exchange, bytes, and which mesh is forecast."""

from __future__ import annotations

from pathlib import Path

import pytest
from characterized import needs_testbed

from bench.predict.meshes import CLUSTERS, MESHES, SLEEPS, forecast, measure, payloads
from stash.analysis.attribution import attribute

pytestmark = [pytest.mark.slow, needs_testbed]


def test_a_step_s_exchange_is_what_its_layers_do_not_sleep_and_the_fastest_mesh_is_forecast(tmp_path: Path) -> None:
    # GIVEN four ranks on two nodes of two that share layers, shards, or both
    cluster = CLUSTERS[1]
    found = measure(cluster, tuple(MESHES), 20, tmp_path)
    steps = {}
    for tensor, profile in found.items():
        breakdown = attribute(profile)
        steps[tensor] = breakdown.step_seconds
        # THEN compute is what layers sleep, within 2 points of the step, and so is all the rest
        compute = breakdown.stall("compute")
        assert compute is not None
        assert compute.seconds == pytest.approx(SLEEPS, abs=0.02 * breakdown.step_seconds), MESHES[tensor]
        # AND bytes are exact
        sent = payloads(tensor)
        kinds = {
            use.kind: next(kind for kind in sent if use.kind.startswith(kind)) for use in profile.workload.groups
        }
        assert {kinds[use.kind]: use.bytes for use in profile.workload.groups} == sent
    # AND of the two other meshes the one that is forecast to be faster is
    assert sorted((1, 4), key=lambda each: forecast(cluster, found[2], each)) == sorted((1, 4), key=steps.__getitem__)
