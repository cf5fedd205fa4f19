"""A profile's file while it is measured: finished rounds are in it, whatever becomes of who writes it."""

import errno
import json
import os

import pytest
from profile_builder import build

from stash.core.artefact import load, save
from stash.core.columns import pack_blocks
from stash.core.errors import ArtefactError
from stash.measure.growing_file import GrowingFile

pytestmark = pytest.mark.usefixtures("home")

ROUNDS = 4


def after(rounds):
    """The same measurement, so many rounds old."""
    return PROFILE.model_copy(
        update={
            "blocks": tuple(block for block in BLOCKS if block.round < rounds),
            "elapsed_seconds": float(rounds),
            "ended": "measuring",
            "notes": tuple(
                f"note {number}\u2028with a separator of lines" for number in range(rounds)
            ),
        }
    )


PROFILE = build({"solo": [0.1] * ROUNDS, "crowd": [0.11] * ROUNDS})
BLOCKS = sorted(PROFILE.blocks, key=lambda block: block.round)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "a.stash.json"


def grown(target, rounds=ROUNDS):
    growing = GrowingFile(target)
    for number in range(1, rounds + 1):
        growing.save_rounds(after(number))
    return growing


def append_rounds(target):
    """A file as earlier versions left it: a line for each further round."""
    save(after(1), target)
    with target.open("a") as file:
        for number in range(2, ROUNDS + 1):
            news = [block for block in BLOCKS if block.round == number - 1]
            file.write(json.dumps({"blocks": pack_blocks(news)}) + "\n")


def test_every_round_is_in_the_file_at_once(target):
    growing = GrowingFile(target)
    assert not growing.has_file
    for number in range(1, ROUNDS + 1):
        growing.save_rounds(after(number))
        assert load(target) == after(number).model_copy(update={"ended": "interrupted"})


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_line_that_was_cut_short_is_left_out(target, cut):
    append_rounds(target)
    os.truncate(target, target.stat().st_size - cut)
    assert load(target).blocks == after(ROUNDS - 1).blocks


def test_what_follows_and_is_no_round_is_refused(target):
    for more in (
        "[]\n",
        "5\n",
        "{}\n",
        '{"blocks": 5}\n',
        '{"blocks": {"round": 5}}\n',
        "nonsense\n",
    ):
        append_rounds(target)
        with target.open("a") as file:
            file.write(more)
        with pytest.raises(ArtefactError):
            load(target)


def test_who_takes_the_name_gets_no_round_of_ours(target):
    growing = grown(target, 2)
    save(PROFILE, target)
    growing.save_rounds(after(3))
    assert load(target) == PROFILE


@pytest.mark.parametrize("taken", ["overwritten", "replaced", "removed"])
def test_a_default_name_that_somebody_takes_is_theirs_and_another_one_is_found(target, taken):
    growing = GrowingFile(target, new=True)
    growing.save_rounds(after(1))
    growing.save_rounds(after(2))
    if taken == "overwritten":
        target.write_text("theirs")
    else:
        target.unlink()
    if taken == "replaced":
        target.symlink_to("/dev/null")
    assert growing.needs_free_name
    growing.save_rounds(after(3))
    assert not growing.needs_free_name
    assert growing.target.name == ("a.stash.json" if taken == "removed" else "a-2.stash.json")
    assert load(growing.target).blocks == after(3).blocks
    assert taken != "overwritten" or target.read_text() == "theirs"


def test_nothing_is_left_of_a_measurement_of_which_nothing_is_kept(target):
    growing = grown(target)
    growing.discard()
    assert not target.exists()
    GrowingFile(target).discard()  # never begun


def test_a_disk_that_is_full_does_not_end_the_measurement(target, monkeypatch):
    growing = grown(target, 2)

    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    growing.save_rounds(after(3))
    monkeypatch.undo()
    growing.save_rounds(after(4))
    assert load(target).blocks == after(2).blocks
    GrowingFile(target.parent / "nowhere" / "a.stash.json").save_rounds(after(1))
