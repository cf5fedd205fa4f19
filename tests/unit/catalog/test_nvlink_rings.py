"""Rings of a mesh of NVLinks: those of a DGX-1V by hand, and that links are used once."""

from collections import Counter
from itertools import combinations

import pytest

from stash.catalog.nvlink_rings import NvlinkMesh, mesh_of
from stash.catalog.shipped import instances


def mesh():
    found = mesh_of("p3.8xlarge")
    assert found is not None
    return found


def test_every_gpu_has_six_links_to_four_others():
    links = mesh().links
    for gpu in range(8):
        own = [count for pair, count in links.items() if gpu in pair]
        assert (len(own), sum(own)) == (4, 6)


def test_of_seventy_choices_of_four_two_have_two_rings_and_six_have_one():
    rings = {gpus: mesh().rings(gpus) for gpus in combinations(range(8), 4)}
    assert Counter(rings.values()) == {2: 2, 1: 6, 0: 62}
    assert rings[0, 1, 2, 3] == rings[4, 5, 6, 7] == 2
    assert rings[0, 1, 4, 5] == 1


def test_all_eight_have_the_rate_that_the_catalog_claims():
    (whole,) = (each for each in instances() if each.name == "p3.16xlarge")
    assert mesh().ring_bytes_per_second(range(8)) == whole.interconnect_bytes_per_second


@pytest.mark.parametrize(("gpus", "rings"), [((0, 3), 2), ((0, 1), 1), ((0, 5), 0), ((0, 1, 2), 1)])
def test_rings_of_fewer(gpus, rings):
    assert mesh().rings(gpus) == rings


def test_a_link_is_used_by_one_ring():
    triangle = {(0, 1): 3, (1, 2): 2, (0, 2): 5}
    assert NvlinkMesh(triangle, 1e9, "", "").rings((0, 1, 2)) == 2


def test_nothing_is_known_of_other_machines():
    assert mesh_of("p4d.24xlarge") is None
