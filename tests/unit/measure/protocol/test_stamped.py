"""The ring of stamped steps: what a rank writes, who listens reads; what was overwritten is counted."""

import pytest

from stash.measure.protocol import stamped
from stash.measure.protocol.stamped import FIELDS, ROWS, SIZE, RingReader, StepRing, StepStage


def row(number):
    numbers = [0.0] * FIELDS
    numbers[stamped.NUMBER], numbers[stamped.BEGAN], numbers[stamped.ENDED] = number, 1.0, 1.5
    numbers[StepStage.INPUT], numbers[StepStage.OPTIMIZER], numbers[stamped.INPUTS + 1] = (
        0.3,
        0.2,
        0.3,
    )
    return numbers


def test_a_listener_reads_every_step_once(tmp_path):
    ring = StepRing(tmp_path / "ring", rank=3, ranks=4, local=1, node=1)
    reader = RingReader(tmp_path / "ring")
    assert (reader.rank, reader.ranks, reader.local, reader.node) == (3, 4, 1, 1)
    ring.write(row(1))
    ring.write(row(2))
    first = reader.read_new()
    ring.write(row(3))
    assert [step.number for step in first + reader.read_new()] == [1, 2, 3]
    assert reader.read_new() == []
    assert first[0].seconds_in(StepStage.INPUT) == 0.3
    assert first[0].inputs == (0, 0.3, 0, 0)
    assert sum(first[0].stages) == pytest.approx(first[0].ended - first[0].began)


def test_what_was_overwritten_is_counted_and_never_read(tmp_path):
    ring = StepRing(tmp_path / "ring")
    reader = RingReader(tmp_path / "ring")
    for number in range(ROWS + 10):
        ring.write(row(number))
    numbers = [step.number for step in reader.read_new()]
    # the oldest that is left may be under way to be overwritten
    assert numbers == list(range(11, ROWS + 10))


def test_the_ring_says_what_a_rank_does_and_what_it_is(tmp_path):
    ring = StepRing(tmp_path / "ring")
    ring.live[0], ring.live[1] = StepStage.EXCHANGE, 1
    ring.name_loaders(["train", "extra"])
    ring.name_device("cpu")
    ring.note("x" * 2000)
    reader = RingReader(tmp_path / "ring")
    assert reader.read_state() == (StepStage.EXCHANGE, True)
    assert (reader.loaders, reader.device, len(reader.note)) == (["train", "extra"], "cpu", 511)


def test_a_ring_is_small_and_another_file_is_none(tmp_path):
    assert SIZE <= 256 * 1024
    (tmp_path / "short").write_bytes(b"no")
    (tmp_path / "other").write_bytes(bytes(SIZE))
    for name in ("short", "other"):
        with pytest.raises(ValueError, match="no ring of steps"):
            RingReader(tmp_path / name)
