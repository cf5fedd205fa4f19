"""Standard output and standard error whose reader may leave: a closed terminal, a pipe into ``head``.

What was to be read there is lost, and nothing else: a measurement goes on, and its profile is saved. So it is with
letters that the terminal's encoding does not have, which are written as escapes.
"""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NOBODY_READS = (errno.EPIPE, errno.EIO)


@contextmanager
def readers_may_leave() -> Iterator[None]:
    """Within the block, writing to nobody is no error; streams that are no files (a test's) are left as they are."""
    before = {"stdout": sys.stdout, "stderr": sys.stderr}
    for name, stream in before.items():
        try:
            file = _Unread(stream.fileno(), "wb", closefd=False)
        except (OSError, ValueError, AttributeError):
            continue
        stream.flush()
        # In the C locale bytes of names that are no text go out as they came in; all else that fails is escaped.
        as_it_is = (stream.encoding, stream.errors) == ("utf-8", "surrogateescape")
        errors = stream.errors if as_it_is else "backslashreplace"
        patient = io.TextIOWrapper(io.BufferedWriter(file), stream.encoding, errors, line_buffering=True)
        setattr(sys, name, patient)
    try:
        yield
    finally:
        for name, stream in before.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)


class _Unread(io.FileIO):
    """A file that takes what nobody reads."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in _NOBODY_READS:
                raise
            return memoryview(data).nbytes
