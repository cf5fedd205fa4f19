"""``stash.watching``: a run watched from inside its own script, by a watcher process that it starts beside itself.

Every rank enters the block; one of each node starts the node's watcher. In the training process nothing is added but
the agent's stamps, and, if there is a ``log``, a look at the record every ten seconds, by the training thread at the
end of a step.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from stash.core.errors import ArtefactError, UserError
from stash.core.jsonl import Tail
from stash.measure.protocol.folder import claim
from stash.measure.protocol.orders import VARIABLE, Orders, current
from stash.measure.protocol.watch_folder import PREFIX, memory_folder, own_folder, shared_places, user_folder

Log = Callable[[dict[str, float]], object]

_LOOKS_SECONDS = 10.0
_END, _OUTPUT = "end", "output"
_PATIENCE = 10.0
_COPIED = {"torch.distributed.distributed_c10d": "torch.distributed", "torch.serialization": "torch"}
"""Modules whose functions are known under another one's name as well."""


@contextmanager
def watching(
    *,
    output: str | None = None,
    baseline: str | None = None,
    metrics: int | None = None,
    log: Log | None = None,
    on_alert: str | None = None,
    instance: str | None = None,
    name: str | None = None,
) -> Iterator[None]:
    """Watch what trains within the block; the record is ``output``, else named after the script.

    ``log`` gets each window as a dictionary of numbers (``stash/input_seconds``); the other arguments are those of
    `stash watch`. Inside a profile, or a run that is watched already, it does nothing and says so. Raises UserError
    as the command does.
    """
    if current() is not None:
        print("stash: watching() does nothing here: the job is profiled or watched already", file=sys.stderr)
        yield
        return
    folder = _meeting()
    leads = _leads(folder)
    options = {"output": output, "baseline": baseline, "metrics": metrics, "on_alert": on_alert, "instance": instance}
    title = name or Path(sys.argv[0] or "python").name
    watcher = _start_watcher(folder, title, options) if leads else None
    listener = enter_process(folder)
    if log is not None and leads:
        listener.each_step = Looks(folder, log)
    try:
        yield
    finally:
        listener.exits(last=True)
        _listen_no_more()
        if watcher is not None:
            (folder / _END).touch()
            with suppress(subprocess.TimeoutExpired):
                watcher.wait(_PATIENCE)
            if log is not None:
                listener.each_step.look()
            shutil.rmtree(folder, ignore_errors=True)


def _meeting() -> Path:
    """A folder that the ranks of this node share, and nobody else may enter."""
    run = f"{os.environ.get('TORCHELASTIC_RUN_ID', '')}-{os.environ.get('MASTER_PORT', '')}"
    if run == "-":
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory_folder()))
    name = f"{PREFIX}{run.replace('/', '-')}-{os.getppid()}"
    made = (place for place in shared_places() if (user_folder(place) / name).exists())
    try:
        folder = own_folder(next(made, memory_folder())) / name  # where the first to come has made it
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UserError(f"{error}; or watch from outside with `stash watch`") from None
    return folder


def _leads(folder: Path) -> bool:
    """Whether this rank starts the node's watcher: local rank 0, or the first to come where no launcher numbers them.

    As under ``mp.spawn``, or ``srun`` by itself.
    """
    if "LOCAL_RANK" in os.environ:
        return os.environ["LOCAL_RANK"] == "0"
    first = os.open(folder / "first", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)  # for as long as this process lives
    except OSError:
        os.close(first)
        return False
    return True


def _start_watcher(folder: Path, title: str, options: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start the node's watcher; raises UserError with what it refuses."""
    given = json.dumps({"folder": str(folder), "title": title, "parent": os.getpid(), **options})
    words = (sys.executable, "-m", "stash.monitor.watching", given)
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (folder / _OUTPUT).exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise UserError("the watcher did not start; what it says stands above")
        time.sleep(0.02)
    return process


def enter_process(folder: Path | str, began: bool = False) -> Any:
    """Wrap what is imported already, and see to what is not; the value listens to this process from now on.

    ``began``: it has taken steps before that nobody counted.
    """
    from stash.measure.agent import boot, script
    from stash.measure.agent.runner.watched_run import WatchedRun

    os.environ[VARIABLE] = str(Orders(str(folder), (), 0.0, began=time.time(), watched=True).write())
    current.cache_clear()
    left = dict(boot.WATCHED)
    for module in [name for name in left if name in sys.modules and not _Wrapped.done]:
        home, _, function = left.pop(module).partition(":")
        getattr(import_module(f"stash.measure.agent.{home}"), function)(sys.modules[module])
        if module in _COPIED:  # its names were copied by then
            getattr(import_module(f"stash.measure.agent.{home}"), function)(sys.modules[_COPIED[module]])
    if left and not _Wrapped.done:
        sys.meta_path.insert(0, boot.PostImport(left))
    _Wrapped.done = True
    orders = current()
    assert orders is not None
    listener = WatchedRun(orders, counted_before=None if began else 0)
    script.subscribe(listener)
    return listener


class _Wrapped:
    """Whether this process's PyTorch is wrapped: it stays so."""

    done = False


def _listen_no_more() -> None:
    from stash.measure.agent import script

    script.unsubscribe()
    os.environ.pop(VARIABLE, None)
    current.cache_clear()


class Looks:
    """Hands new windows of the record to a function of the user's, which must not end the training."""

    def __init__(self, folder: Path, log: Log) -> None:
        self._folder, self._log = folder, log
        self._next = time.monotonic() + _LOOKS_SECONDS
        self._record: Tail | None = None
        self._failed = False

    def __call__(self) -> None:
        """A step ended."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LOOKS_SECONDS
            self.look()

    def look(self) -> None:
        """Hand over what is new."""
        from stash.monitor.records import Window, parsed
        from stash.monitor.trackers import STEP, figures

        with suppress(OSError, ArtefactError):
            if self._record is None:
                self._record = Tail(Path((self._folder / _OUTPUT).read_text()))
            for line in self._record.lines():
                window = parsed(line, "the record")
                if isinstance(window, Window) and not self._failed:
                    self._hand_over({STEP: float(window.last_step), **figures(window)})

    def _hand_over(self, numbers: dict[str, float]) -> None:
        try:
            self._log(numbers)
        except Exception as error:  # the user's function
            self._failed = True
            print(f"stash: log= failed and is not called again ({error})", file=sys.stderr)


def _watch(given: dict[str, Any]) -> None:
    """The watcher process: until the block is left, or its process is gone."""
    from stash.monitor.command import WatchCommandOptions, begun
    from stash.monitor.watcher import POLL_SECONDS

    folder, parent = Path(given["folder"]), given["parent"]
    output, baseline = (None if given[key] is None else Path(given[key]) for key in ("output", "baseline"))
    options = WatchCommandOptions(
        output=output, baseline=baseline, metrics=given["metrics"], on_alert=given["on_alert"],
        instance=given["instance"],
    )  # fmt: skip
    owner = claim(folder)
    watcher, target = begun(folder, given["title"], (), 1, options)
    (folder / "writing").write_text(str(target.resolve()))
    (folder / "writing").rename(folder / _OUTPUT)
    try:
        while not (folder / _END).exists() and os.path.exists(f"/proc/{parent}"):
            watcher.poll()
            time.sleep(POLL_SECONDS)
        watcher.finish(0 if (folder / _END).exists() else None)
    finally:
        os.close(owner)
        if not os.path.exists(f"/proc/{parent}"):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    from stash.core.errors import StashError

    try:
        _watch(json.loads(sys.argv[1]))
    except StashError as refused:
        sys.exit(f"stash: {refused}")
