"""A job that saves over the user's checkpoint, and what is done to the commands that start it."""

import os
import signal
import subprocess
import sys

STASH = (sys.executable, "-m", "stash")
SCRIPT, CHECKPOINT = "saves.py", "ckpt.txt"
USERS = "the user's"
_SAVES = """
import os, sys, time, torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for step in range(1000):
        time.sleep(0.02)
        optimizer.zero_grad()
        model(torch.ones(8, 8)).mean().backward()
        optimizer.step()
        if step == 10:
            with open("ckpt.new", "w") as file:
                file.write("the job's")
            os.replace("ckpt.new", "ckpt.txt")
except KeyboardInterrupt:
    sys.exit(130)
"""
"""It ends by itself within half a minute: that of a watcher that was killed goes on."""


def with_checkpoint(room):
    (room.work / SCRIPT).write_text(_SAVES)
    (room.work / CHECKPOINT).write_text(USERS)
    os.utime(room.work / CHECKPOINT, (1e9, 1e9))


def in_closed_folder(room):
    with_checkpoint(room)
    room.work.chmod(0o555)


def starting(*words, before=STASH):
    return lambda room: (*before, *words)


def wait_until_saved(run, room):
    run.wait_until(
        lambda: (room.work / CHECKPOINT).read_text() != USERS, what="its job's checkpoint"
    )


def hit_by(number, wait=wait_until_saved):
    """The signal goes to the command alone, once its job has saved."""

    def act(run, room):
        wait(run, room)
        run.popen.send_signal(number)

    return act


def second_refused(*words):
    """Another command in the folder ends with one sentence, which names the first; then that one is interrupted."""

    def act(run, room):
        wait_until_saved(run, room)
        late = stash_in(room, *words, SCRIPT)
        assert late.returncode == 2, late.stderr
        assert f"process {run.popen.pid}" in late.stderr, late.stderr
        run.popen.send_signal(signal.SIGINT)

    return act


def stash_in(room, *words):
    """Another command there, to its end."""
    variables = {**os.environ, "TMPDIR": str(room.temporary), "XDG_STATE_HOME": str(room.state)}
    return subprocess.run(
        (*STASH, *words),
        cwd=room.work,
        env=variables,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def checkpoint_is_back(outcome, room):
    return (
        None if (room.work / CHECKPOINT).read_text() == USERS else "the user's checkpoint is gone"
    )
