"""Boxes: words that fit, and what pointing at one tells."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from stash.ui.charts.chart import Tile
from stash.ui.charts.tiles import length_of, tile

EVERYWHERE = ((0.0, 1.0), (0.0, 1.0))
sizes = st.floats(12, 400)


def drawn(mark, width=80.0, height=34.0):
    return ElementTree.fromstring(
        f"<svg>{tile(mark, 10.0, 20.0, 10.0 + width, 20.0 + height)}</svg>"
    )


@given(sizes, st.lists(st.text("0123456789%ms", min_size=1, max_size=30), min_size=1, max_size=4))
def test_the_longest_words_that_fit_are_written_and_none_that_do_not(width, texts):
    written = [
        text.text or "" for text in drawn(Tile(*EVERYWHERE, tuple(texts)), width).iter("text")
    ]
    fitting = [text for text in texts if length_of(len(text)) <= width - 7]
    assert written == fitting[:1]


def test_a_box_says_what_it_is_only_to_those_who_can_point():
    mark = Tile(*EVERYWHERE, ("12%",), "resnet18: 12%")
    assert [title.text for title in drawn(mark).iter("title")] == ["resnet18: 12%"]
    assert "title" not in tile(mark, 0, 0, 80, 30, pointed_at=False)
