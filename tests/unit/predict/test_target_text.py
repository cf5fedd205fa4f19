"""Clusters that users describe: what is read, what stays unknown, and what each mistake is told."""

from __future__ import annotations

import pytest

from stash.core.errors import UserError
from stash.predict.cluster_file import EXAMPLE, target_of_text
from stash.predict.collective_times import UnknownFactError, fabric_of
from stash.predict.draws import Draws


def test_the_example_is_read_in_base_units() -> None:
    found = target_of_text(EXAMPLE, "lab.yaml")
    assert (found.name, found.nodes, found.devices, found.backend) == ("lab", 4, 8, "nccl")
    assert found.inside.bytes_per_second is not None
    rate = found.inside.bytes_per_second
    assert (rate.value, rate.low, rate.high) == (230e9, 225e9, 235e9)
    assert (rate.origin, rate.as_of, rate.source) == ("given", "2026-11-01", "nccl-tests of last week")
    assert found.network.latency_seconds.value == pytest.approx(12e-6)
    assert found.memory_bytes.value == 2**40
    assert found.storage.reads_per_second.value == 200_000
    assert fabric_of(found, Draws()).between == pytest.approx(4 * 22e9)


def test_what_is_left_out_stays_unknown() -> None:
    found = target_of_text("nodes: 2\n", "bare.yaml")
    assert (found.devices, found.backend, found.network, found.inside, found.cores) == (1, "gloo", None, None, None)
    with pytest.raises(UnknownFactError, match=r"the network between nodes is unknown \(machines described\)"):
        fabric_of(found, Draws())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nodes: 0\n", "bad.yaml:1: nodes: should be greater than or equal to 1"),
        ("name: x\n", "nodes: is missing"),
        (
            "nodes: 2\nnetwork:\n  bandwith: 1GB/s\n",
            ":3: network.bandwith: there is no such field; did you mean bandwidth?",
        ),
        ("nodes: 2\nnetwork:\n  bandwidth: fast\n", ":3: network.bandwidth: cannot read the rate 'fast'"),
        ("nodes: 2\nnetwork:\n  bandwidth: {value: 1GB/s, low: 2GB/s, high: 3GB/s}\n", "value must lie between"),
        ("nodes: 2\nnetwork:\n  bandwidth: {value: 1GB/s, low: 0.5GB/s}\n", "give both low and high, or neither"),
        ("nodes: 2\nnetwork:\n  latency: 4\n", ":3: network.latency: 4 what? type 4us, 4ms or 4s"),
        ("nodes: 2\nmemory: 0\n", "memory"),
        ("nodes: [\n", "bad.yaml:2: it is not valid YAML"),
    ],
)
def test_mistakes_are_told_with_line_and_field(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as error:
        target_of_text(text, "bad.yaml")
    assert sentence in str(error.value)
