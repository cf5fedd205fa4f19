"""The journal and the other files by which ranks and launcher tell each other: whole lines, one small file a rank."""

import subprocess
import sys

from stash.core.jsonl import Tail
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.journal import Heart, Journal, JournalCopy, has_ended, new_messages
from stash.measure.protocol.messages import RoundDone
from stash.measure.protocol.orders import Invitation, Neighbours


def test_a_copy_of_the_leaders_journal_grows_with_it_on_the_rank_that_keeps_it(tmp_path):
    folders = [RunFolder(tmp_path / str(node)) for node in range(3)]
    for folder in folders:
        folder.path.mkdir()
    journal, leader = Journal(folders[0]), JournalCopy(folders[0], writes=False)
    keeper, other = JournalCopy(folders[1], writes=True), JournalCopy(folders[2], writes=False)
    assert leader.read_news() == b""  # nothing was told yet
    for number in range(3):
        journal.write(RoundDone(number, 1.0))
        news = leader.read_news()
        leader.append_news(news)
        keeper.append_news(news)
        other.append_news(news)
    assert leader.read_news() == b""
    assert folders[1].copy.read_bytes() == folders[0].journal.read_bytes()
    assert new_messages(Tail(folders[1].copy)) == [RoundDone(number, 1.0) for number in range(3)]
    assert not folders[0].copy.exists()
    assert not folders[2].copy.exists()


def test_a_meeting_is_written_once_and_read_only_when_whole(tmp_path):
    folder = RunFolder(tmp_path)
    meeting = Invitation("b", 1, "key")
    assert Invitation.load_meeting(folder) is None
    folder.meeting.write_text('{"host": "a", "po')
    assert Invitation.load_meeting(folder) is None
    assert not meeting.write_meeting(folder)
    folder.meeting.unlink()
    assert meeting.write_meeting(folder)
    assert Invitation.load_meeting(folder) == meeting
    assert Invitation.load(folder) is None  # its own launcher made none


def test_what_ranks_say_of_their_neighbours_is_written_by_the_first_of_them(tmp_path):
    folder = RunFolder(tmp_path)
    assert Neighbours.load(folder) is None
    assert [Neighbours(node, "10.0.0.1").write(folder) for node in (1, 2)] == [True, False]
    assert Neighbours.load(folder) == Neighbours(1, "10.0.0.1")


CLAIMS = """
import sys
from pathlib import Path
from stash.measure.protocol.folder import RunFolder
from stash.core.jsonl import Tail
from stash.measure.protocol.journal import Journal, new_messages
from stash.measure.protocol.messages import LadderEnded
journal = Journal(RunFolder(Path(sys.argv[1])))
print(journal.claim())
if sys.argv[2:]:
    journal.write(LadderEnded("stopped"))
"""


def claims(folder, *last_word):
    """Whether another process may write the journal."""
    program = [sys.executable, "-c", CLAIMS, str(folder), *last_word]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout.strip()


def test_a_journal_has_one_writer_and_none_after_its_last_word(tmp_path):
    assert claims(tmp_path) == "True"
    own = Journal(RunFolder(tmp_path))
    assert own.claim()  # the writer before it has died without a last word
    assert claims(tmp_path, "last word") == "False"
    assert has_ended(RunFolder(tmp_path))
    assert claims(tmp_path) == "False"


def test_ranks_that_are_gone_without_a_traceback_are_the_silent_ones(tmp_path):
    folder, gone = RunFolder(tmp_path), 2**22 + 1  # beyond the largest process number
    Heart(folder).beat(0, 5)
    for rank in (1, 2):
        (tmp_path / f"beat.{rank}.{gone + rank}").touch()
    (tmp_path / f"crash.1.1.{gone + 1}").write_text("its error")
    assert folder.list_silent_ranks() == [2]
    assert folder.has_beaten()
