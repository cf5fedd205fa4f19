"""Reads one file within limits of time and memory, and says what is wrong with what came of it."""

import json
import resource
import signal
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from stash.core.errors import StashError

SECONDS = 2.0
"""Of the processor, so that a busy machine does not count."""
BYTES = 300 * 2**20
"""Of memory, beyond what the process had before."""
MAX_SAID = 20_000
"""Characters of an error."""

Reader = Callable[[Path], list[str]]
"""Reads a file as Stash does; what is returned is what it prints of it. JSON begins with a bracket."""


class TooLong(BaseException):
    """No Exception, so that no handler of a reader takes it for its own."""


def problem_with(read, path):
    """What is wrong with what comes of reading the file at ``path``; ``None`` if it is read or well refused."""
    try:
        with _limited():
            parsed = read(path)
    except StashError as error:
        return None if len(str(error)) <= MAX_SAID else f"an error of {len(str(error))} characters"
    except TooLong:
        return f"more than {SECONDS:.0f} s"
    except MemoryError:
        return f"more than {BYTES // 2**20} MB"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(place.filename).name}, line {place.lineno}: {str(error)[:200]}"
    return next((wrong for text in parsed if (wrong := _wrong(text)) is not None), None)


def _wrong(text):
    if (
        any(ord(character) < 32 and character != "\n" for character in text)
        or "\u202e" in text
        or "\x9b" in text
    ):
        return f"prints what acts on a terminal: {text[:100]!r}"
    if text.startswith(("{", "[")):
        try:
            json.loads(text, parse_constant=_refused)
        except ValueError as error:
            return f"prints JSON that is none: {error}"
    return None


def _refused(name):
    raise ValueError(f"{name} is no number of JSON")


@contextmanager
def _limited():
    """Within it the process may use so much more memory and processor time; then MemoryError or TooLong is raised."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    handler = signal.signal(signal.SIGPROF, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + BYTES, before[1]))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _too_long(number, frame):
    raise TooLong
