"""``stash watch``: what hurts the watcher never hurts the job; every signal ends what it should, nothing is left."""

import os
import signal

from tests.faults.case import Case, Expected
from tests.faults.cases.environments import NOT_OMNIPOTENT, is_root
from tests.faults.cases.saving import (
    CHECKPOINT,
    SCRIPT,
    STASH,
    hit_by,
    in_closed_folder,
    second_refused,
    starting,
    wait_until_saved,
    with_checkpoint,
)

WATCH = ("watch", "-o", "run.watch.jsonl")
REQUEST = "run.watch.request"
WRITES = ("*.watch.jsonl", CHECKPOINT)
CODES = {
    signal.SIGINT: (130,),
    signal.SIGTERM: (128 + signal.SIGTERM,),
    signal.SIGHUP: (128 + signal.SIGHUP,),
    signal.SIGQUIT: (128 + signal.SIGQUIT,),
}
"""The job's own exit statuses, as a shell has them: it is asked what the watcher is asked."""


def outlived_by_its_job(run, room):
    """The job goes on without its watcher, and ends as it would have."""
    hit_by(signal.SIGKILL)(run, room)
    for process in run.processes():
        process.wait(120)


def pipe_as_request(run, room):
    wait_until_saved(run, room)
    os.mkfifo(room.work / REQUEST)


def record_is_moved_away(run, room):
    """Whoever takes the name meanwhile is refused: the first goes on to write there."""
    wait_until_saved(run, room)
    (room.work / "run.watch.jsonl").rename(room.work / "mine.watch.jsonl")
    second_refused(*WATCH)(run, room)


def on_full_disk(room):
    disk = room.outside / "out"
    disk.mkdir()
    fill = (
        f'mount -t tmpfs -o size=4k none {disk} && head -c 4096 /dev/zero > {disk}/big && exec "$@"'
    )
    words = (*STASH, "watch", "-o", str(disk / "run.watch.jsonl"), SCRIPT)
    return ("unshare", "--mount", "bash", "-c", fill, "bash", *words)


def cases():
    start = starting(*WATCH, SCRIPT)
    for number, codes in CODES.items():
        yield Case(
            "watch",
            f"{number.name} to the watcher alone",
            prepare=with_checkpoint,
            program=start,
            act=hit_by(number),
            expected=Expected(codes, seconds=5.0, writes=WRITES),
            pace="fast",
        )
    yield Case(
        "watch",
        "SIGKILL to the watcher alone",
        prepare=with_checkpoint,
        program=start,
        act=outlived_by_its_job,
        expected=Expected((-signal.SIGKILL,), ("unwatched",), writes=WRITES),
    )
    yield Case(
        "watch",
        "a second one for its record",
        prepare=with_checkpoint,
        program=start,
        act=second_refused(*WATCH),
        expected=Expected(CODES[signal.SIGINT], writes=WRITES),
    )
    yield Case(
        "watch",
        "a second one for its record, which was moved away",
        prepare=with_checkpoint,
        program=start,
        act=record_is_moved_away,
        expected=Expected(CODES[signal.SIGINT], writes=WRITES),
    )
    yield Case(
        "watch",
        "a profile in its folder",
        prepare=with_checkpoint,
        program=start,
        act=second_refused("profile"),
        expected=Expected(CODES[signal.SIGINT], writes=WRITES),
        pace="fast",
    )
    yield Case(
        "watch",
        "a pipe as a request",
        prepare=with_checkpoint,
        program=start,
        act=pipe_as_request,
        expected=Expected(writes=(*WRITES, REQUEST)),
    )
    yield Case(
        "watch",
        "a folder that is read-only",
        prepare=in_closed_folder,
        needs=is_root,
        program=starting(*WATCH, SCRIPT, before=(*NOT_OMNIPOTENT, *STASH)),
        expected=Expected((2,), ("cannot write run.watch.jsonl|is not writable",)),
    )
    yield Case(
        "watch",
        "a record on a full disk",
        prepare=with_checkpoint,
        needs=is_root,
        program=on_full_disk,
        expected=Expected((0,), ("No space left on device",), writes=(CHECKPOINT,)),
    )


CASES = list(cases())
