"""The default study: its truth by hand, like beside like, and a page that says what the tables say."""

from dataclasses import replace
from pathlib import Path

import pytest
from studies import cells_of, study

from bench.study import page, runs
from bench.study.truth import truth
from stash.lab.testbed.emulation import Emulation, LayerSpec

MODEL = Emulation(
    layers=tuple(
        LayerSpec(name=f"{number}", bytes=size, forward_seconds=0.01, backward_seconds=0.02)
        for number, size in enumerate((30_000_000, 10_000_000, 20_000_000))
    )
)


def cell(nodes):
    """Links of 1 GB/s of bus bandwidth inside and 0.1 GB/s between nodes, all times twice as long."""
    target = f"{{engine: emulated, instance: p3.8xlarge, nodes: {nodes}}}"
    (found,) = cells_of(study(f"workloads: [{{zoo: resnet50}}]\ntargets: [{target}]", Path()))
    assert found.emulated is not None
    network = None if nodes == 1 else 0.1e9 / 2
    bed = replace(found.emulated, interconnect=4e9 / 2, network=network, scale=1.0, time_scale=2.0)
    return replace(found, emulated=bed)


def test_the_truth_of_a_cell_by_hand():
    one = truth(cell(1), MODEL)
    # Twice as long: passes of 0.18 s; buckets are ready after 0.08 and 0.12 s. Four ranks share 4 GB/s, so 30 MB take
    # 2·3·30 MB / 2 GB/s = 0.09 s, the second follows the first.
    assert one == pytest.approx(
        {"compute": 0.18, "contention": 0.0, "interconnect": 0.08 + 0.09 + 0.09 - 0.12}
    )
    two = truth(cell(2), MODEL)
    across = 2 * 7 / 8 * 30e6 / 0.05e9
    assert two["network"] == pytest.approx(0.08 + 2 * across - 0.12 - one["interconnect"])


def test_the_page_is_what_the_kept_tables_say():
    text = page.page()
    worst = max(
        abs(100 * each.error(name))
        for each in runs.kept()
        for name in each.stalls
        if page.ALL not in each.where
    )
    assert f"{worst:.1f} |" in text
    assert all(f"{each.workload} |" in text for each in runs.kept())
    assert "nan" not in text
