"""Names tell whose a thing is, and whether its owner still runs."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from stash.lab.testbed.topology import Owner, is_abandoned, next_owner, owner_of

OWNER = Owner(77, 0xABC, 0xD, 0)


def test_a_name_tells_its_owner_and_nothing_else_is_taken_for_ours():
    assert owner_of(OWNER.host(3)) == OWNER
    assert owner_of(OWNER.switch) == OWNER
    for foreign in (
        "stash-tb-",
        "stash-tb-mine",
        "x-" + OWNER.host(0),
        OWNER.host(0) + "x",
        "stash-tb-1-2-3-4-n",
    ):
        assert owner_of(foreign) is None
        assert not is_abandoned(foreign)


def test_what_a_living_process_owns_is_not_abandoned_and_what_a_dead_one_owned_is():
    mine = next_owner()
    assert not is_abandoned(mine.host(0))
    # another process had our number
    assert is_abandoned(replace(mine, start=mine.start + 1).host(0))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
    name = replace(mine, pid=child.pid, start=start).host(0)
    assert not is_abandoned(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_abandoned(name)  # a zombie owns nothing
    child.communicate()
    assert is_abandoned(name)


def test_whether_the_process_of_another_pid_namespace_lives_is_unknown():
    mine = next_owner()
    theirs = replace(mine, start=mine.start + 1, space=mine.space + 1).host(0)
    assert not is_abandoned(theirs)
