"""What a test starts ends before it does: a thread that outlives its test writes into the next one's captured output.

Asks only for what this process has: threads that Python knows, sockets that listen, child processes. What libraries
keep for as long as the process lives is allowed by name. Also says how many examples property tests try, lets tests
and what they start be interrupted, however the whole run was started, and fails a run that leaves files in the
repository.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from session_end import describe_skips, list_strays

settings.register_profile("ci", deadline=None, max_examples=25)
settings.register_profile("nightly", deadline=None, max_examples=300)
settings.load_profile("ci")
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell's ``&`` has its commands ignore it, and so do children
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _ignored in (signal.SIGHUP, signal.SIGQUIT):  # ``nohup`` does that
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, signal.SIG_DFL)

LASTING_THREADS = re.compile(r"fsspecIO|Dummy-\d+|tqdm_monitor|asyncio_\d+|pydevd.*|ray_.*")
"""Of libraries: fsspec's event loop, native threads that called Python, progress bars."""
LASTING_PROCESSES = re.compile(rb"multiprocessing.(resource_tracker|forkserver)|torch_shm_manager")
_GRACE = 5.0
"""Seconds for what has been told to end."""

ROOT = Path(__file__).parent.parent
_STRAYS = pytest.StashKey[frozenset[str] | None]()
_LAST_LINES = pytest.StashKey[list[str]]()


def _is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for another, which says for all of them how they ended."""
    return hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    gc.disable()  # nothing that collecting tests imports goes again
    if not _is_worker(session.config):
        session.config.stash[_STRAYS] = list_strays(ROOT)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where tests left files in the repository; those that it had before are nobody's fault."""
    if _is_worker(session.config):
        return
    before, after = session.config.stash.get(_STRAYS, None), list_strays(ROOT)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter is not None else []
    lines = [describe_skips(str(report.longrepr[-1]) for report in skipped)]
    if before is not None and after is not None and (left := after - before):
        lines.append(f"error: tests left in the repository: {', '.join(sorted(left))}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    session.config.stash[_LAST_LINES] = [line for line in lines if line]


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last lines of all, below pytest's own; PyTorch's storages would complain of modules that are gone."""
    if (reductions := sys.modules.get("torch.multiprocessing.reductions")) is not None:
        reductions.shared_cache.clear()
    for line in config.stash.get(_LAST_LINES, []):
        print(line)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare collections of garbage, of which tests ask for thousands, the million objects that stay (0.7 s each)."""
    gc.freeze()
    gc.enable()


Left = dict[object, str]
_blamed: Left = {}
"""What made a test fail is not said again of its file."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By day no property test tries more examples than the profile says, whatever it asks for."""
    if settings.get_current_profile_name() != "ci":
        return
    for item in items:
        test = getattr(item, "obj", None)
        asked = getattr(test, "_hypothesis_internal_use_settings", None)
        if asked is not None and asked.max_examples > settings.default.max_examples:
            test._hypothesis_internal_use_settings = settings(
                asked, max_examples=settings.default.max_examples
            )


@pytest.fixture(scope="session", autouse=True)
def state_of_the_tests(tmp_path_factory):
    """What killed profiles of tests leave is found by tests only; by day, jobs of tests import no compiler."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        if settings.get_current_profile_name() == "ci":
            patched.setenv(
                "PYTHONPATH", str(Path(__file__).parent / "support" / "eager"), prepend=os.pathsep
            )
        yield


@pytest.fixture(autouse=True)
def nothing_outlives_its_test():
    """Of what the test itself and its own fixtures start."""
    before = _started()
    yield
    _ended_since(before)


@pytest.fixture(scope="module", autouse=True)
def nothing_outlives_its_module():
    """Of what fixtures of a whole file start; not sockets, which gloo closes with the last model that used them."""
    before = _started()
    yield
    _ended_since(
        {**before, **{key: what for key, what in _started().items() if isinstance(key, str)}}
    )


def _ended_since(before: Left) -> None:
    if not _left_since(before):
        return
    for generation in (
        1,
        2,
    ):  # a loader's iterator ends its workers when it goes, which an exception may hold on to
        gc.collect(generation)
        if not _left_since(before):
            return
    deadline = time.monotonic() + _GRACE
    while left := _left_since(before):
        if time.monotonic() > deadline:
            _blamed.update(left)
            pytest.fail(
                f"left when the test ended: {', '.join(sorted(left.values()))}", pytrace=False
            )
        time.sleep(0.01)


def _left_since(before: Left) -> Left:
    return {
        key: what
        for key, what in _started(before).items()
        if key not in before and key not in _blamed
    }


def _started(before: Left | None = None) -> Left:
    """Every thread, listening socket and child process of this one that is not allowed to last, described."""
    known = before or {}
    found: Left = {
        thread: f"thread {thread.name}"
        for thread in threading.enumerate()
        if not LASTING_THREADS.fullmatch(thread.name)
    }
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{name}")
            if link.startswith("socket:") and (link in known or _listens(int(name))):
                found[link] = f"socket that listens ({link})"
    for child in _children():
        if child in known or not LASTING_PROCESSES.search(command := _command(child)):
            found[child] = (
                known.get(child)
                or f"process {child} ({command.replace(bytes(1), b' ').decode()[:100]})"
            )
    return found


def _listens(descriptor: int) -> bool:
    copy = socket.socket(fileno=os.dup(descriptor))
    with copy:
        return bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def _command(process: int) -> bytes:
    with suppress(OSError):
        return Path("/proc", str(process), "cmdline").read_bytes()
    return b""
