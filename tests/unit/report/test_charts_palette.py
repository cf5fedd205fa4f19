"""The colours of stalls: each has one by day, by night and in a terminal."""

from stash.core.ladder import STALLS
from stash.ui.charts.chart import DARK, LIGHT
from stash.ui.stall_lines import LOOKS


def test_every_stall_has_a_colour_by_day_by_night_and_in_the_terminal():
    assert set(STALLS) <= LOOKS.keys() - {"disturbed"} <= LIGHT.keys() == DARK.keys()
