"""What holds of every forecast, draw by draw: more bandwidth is never slower, and half a GPU never faster."""

from dataclasses import replace

import numpy as np
from forecast_profiles import cpu_job, gpu_job
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.predict.changes import Alteration
from stash.predict.cluster import Network, NodeLinks
from stash.predict.draws import Draws, Quantity
from stash.predict.forecasting import base_of, stall_draws

DRAWS = Draws(32)
BASES = [base_of(each, draws=DRAWS) for each in (gpu_job(), gpu_job(nodes=1, ranks=2), cpu_job())]
"""Of two nodes of two GPUs, of one node of two, and of one node of two CPU ranks."""
FEW = settings(max_examples=40, deadline=None)
JOBS = st.sampled_from(BASES)
RATES = st.floats(1e7, 2e11)
TIMES = st.floats(1.0, 50.0)
NODES = st.integers(2, 16)
ROUNDING = 1e-9


def steps(base, **wanted):
    """Seconds, ``[draws]``."""
    return stall_draws(base, Alteration(**wanted)).step  # type: ignore[arg-type]


def never_slower(fast, slow):
    assert np.all(fast <= slow * (1 + ROUNDING)), float(np.max(fast / slow))


@FEW
@given(JOBS, RATES, TIMES, NODES, st.sampled_from(["sockets", "ib"]))
def test_a_faster_line_between_nodes_is_never_slower(base, rate, times, nodes, transport):
    slow, fast = (
        steps(base, network=each, nodes=nodes, transport=transport) for each in (rate, rate * times)
    )
    assert fast.mean() <= slow.mean() * (1 + ROUNDING)


@FEW
@given(JOBS, RATES, TIMES, st.integers(2, 8))
def test_faster_links_inside_a_node_are_never_slower(base, rate, times, devices):
    def on(inside):
        rates = [
            Quantity(value=each, low=each / 1.5, high=each * 1.5, origin="measured", source="x")
            for each in (inside, 1e9)
        ]
        target = base.target.model_copy(
            update={
                "nodes": 2,
                "devices": devices,
                "inside": NodeLinks(bytes_per_second=rates[0]),
                "network": Network(bytes_per_second=rates[1]),
                "machine": None,
                "name": "described",
            }
        )
        described = replace(base, clusters=lambda name: target)
        return steps(described, cluster="described.yaml")

    assert on(rate * times).mean() <= on(rate).mean() * (1 + ROUNDING)


@FEW
@given(RATES, TIMES)
def test_a_faster_disk_is_never_slower(rate, times):
    never_slower(steps(BASES[0], disk=rate * times), steps(BASES[0], disk=rate))
