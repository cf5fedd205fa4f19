"""The colours of stalls as people with each common colour blindness see them."""

import itertools

import numpy as np
import pytest

from stash.core.ladder import STALLS
from stash.ui.charts.chart import DARK, LIGHT
from stash.ui.stall_lines import LOOKS

# Machado, Oliveira and Fernandes (2009), "A Physiologically-based Model for Simulation of Color Vision Deficiency":
# what linear sRGB looks like where one kind of cone is missing.
SEEN_BY = {
    "anybody": np.eye(3),
    "protanopes": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopes": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopes": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
APART = 12.0
"""Distances in CIELAB, where about 2.3 is just seen: five times that, also of small marks."""


def linear(colour):
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(light):
    ratio = TO_XYZ @ np.clip(light, 0, 1) / WHITE
    root = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("who", SEEN_BY)
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_everybody_tells_any_two_stalls_apart(palette, who):
    seen = {name: lab(SEEN_BY[who] @ linear(palette[name])) for name in STALLS}
    distances = {
        pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]]))
        for pair in itertools.combinations(seen, 2)
    }
    assert min(distances.values()) > APART, min(distances, key=lambda pair: distances[pair])


def test_every_stall_has_a_colour_by_day_by_night_and_in_the_terminal():
    assert set(STALLS) <= LOOKS.keys() - {"disturbed"} <= LIGHT.keys() == DARK.keys()
