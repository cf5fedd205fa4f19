"""What a synchronous rehearsal came to, as text and as JSON."""

from __future__ import annotations

import pytest

from stash.spot.pages.run_report import document_of_setbacks, line, page_of_setbacks
from stash.spot.records.runs import NoticeCheckpoint, SpotEvent, SyncLog, SyncSetback
from stash.ui.terminal import render

LOG = SyncLog(
    stash_version="0", plan="job.plan.json", script=("train.py", "--x"), on="local", nodes=2, least=1,
    checkpoint_seconds=5, checkpoint_why="as --checkpoint-every says", reason="time is up", seconds=60.0, restarts=1,
    setbacks=(
        SyncSetback(
            gone="worker2", at=8.0, notice=12.0, lost_seconds=2.5, again_seconds=9.0, whole_seconds=15.1,
            successor="worker3", checkpoint=NoticeCheckpoint(seconds=0.83),
        ),
        SyncSetback(gone="worker1", at=38.0, notice=None, lost_seconds=2.0, again_seconds=6.43),
    ),
)  # fmt: skip


def test_each_setback_is_a_row_and_what_never_happened_is_said_so() -> None:
    text = render(page_of_setbacks(LOG), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "2 nodes under torchrun on this machine, 60.0 s: time is up" in text
    assert "2 nodes taken away: 4.50 s of training were done again" in " ".join(text.split())
    assert "All were started again 1 time" in text
    assert "worker2  8.00 s  12.0 s  2.50 s   9.00 s   15.1 s  worker3" in text
    assert "worker1  38.0 s    none  2.00 s   6.43 s  not yet  none" in text


@pytest.mark.parametrize("width", [80, 120])
def test_a_row_says_what_became_of_the_checkpoint_at_the_notice(width: int) -> None:
    text = render(page_of_setbacks(LOG), width)
    assert "a checkpoint in 830 ms" in " ".join(text.split())
    kept = NoticeCheckpoint(seconds=None, why="the last one took 12 s, and the notice leaves 10 s")
    refused = LOG.setbacks[0].model_copy(update={"checkpoint": kept})
    text = render(page_of_setbacks(LOG.model_copy(update={"setbacks": (refused,)})), width)
    assert max(map(len, text.splitlines())) <= width
    assert "no checkpoint: the last one took 12 s, and the notice leaves 10 s" in " ".join(text.split())


def test_a_rehearsal_without_a_group_has_no_length() -> None:
    text = render(page_of_setbacks(LOG.model_copy(update={"seconds": None, "setbacks": (), "restarts": 0})), 80)
    assert "never trained all together: time is up" in text
    assert "gone" not in text


def test_the_document_is_the_log() -> None:
    found = document_of_setbacks(LOG)
    assert found["schema"] == 1
    assert found["setbacks"][1]["whole_seconds"] is None
    assert found["setbacks"][0]["checkpoint"] == {"seconds": 0.83, "why": ""}
    old = LOG.model_dump()
    for each in old["setbacks"]:
        del each["checkpoint"]
    assert SyncLog.model_validate(old).setbacks[0].checkpoint is None


def test_its_events_are_told_like_any_other() -> None:
    assert line(SpotEvent(at=3.0, what="formed", who="worker1, worker3"), 0.0) == (
        "     3.0 s  the script is started on worker1, worker3"
    )
    assert line(SpotEvent(at=9.0, what="saved", who="worker2", seconds=0.83), 0.0) == (
        "     9.0 s  a checkpoint is whole, 0.8 s after worker2 had notice"
    )
    assert line(SpotEvent(at=9.0, what="not saved", who="worker2", told=("none was whole within 3 s",)), 0.0) == (
        "     9.0 s  worker2 ends without a checkpoint; none was whole within 3 s"
    )
    assert "in 50 s: all nodes" in str(line(SpotEvent(at=3.0, what="restarted", seconds=50.2), 0.0))
