"""Files that are whole or not there: placed in one step, flushed before they take their name, read within bounds.

Whoever reads such a file at any moment sees the old content or the new, also after a power cut. Raises OSError;
what that means for a user, the caller knows.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Any, BinaryIO

MAX_VALUES = 8_000_000
"""Of one JSON document: a profile of 1,024 ranks and 30 rounds has three millions."""
_PART = 2**20
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def write_whole(
    path: Path,
    *content: str | bytes | memoryview,
    mode: int | None = 0o666,
    new: bool = False,
    lasting: bool = True,
) -> None:
    """Put ``content``, part after part (text as UTF-8), at ``path``, with ``mode`` less the umask; raises OSError.

    Without a mode it keeps that of the file there, and else is its owner's alone. A link at ``path`` is replaced,
    never followed. A ``new`` file replaces nothing: raises FileExistsError if the name is taken by then. One that
    need not be ``lasting`` (a cache) is not waited for until it is in storage.
    """
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    handle = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
        0o600 if mode is None else mode,
    )
    try:
        with os.fdopen(handle, "wb") as file:
            if mode is None:
                with contextlib.suppress(FileNotFoundError):
                    was = path.lstat().st_mode
                    if stat.S_ISREG(was):
                        os.fchmod(file.fileno(), stat.S_IMODE(was))
            for part in content:
                file.write(part.encode() if isinstance(part, str) else part)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        if new:
            _replace_whole(temporary, path)
        else:
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if not lasting:
        return
    with contextlib.suppress(
        OSError
    ):  # some file systems refuse; the new name is then as durable as they are
        flush(path.parent)


def read_up_to(path: Path, most: int) -> bytes:
    """A file's bytes, of a longer one ``most`` and one more; takes no more memory than there are.

    The one way to read a file that a user names: raises OSError, also for what is no regular file.
    """
    parts = []
    left = most + 1
    with opened_regular(path) as file:
        while left and (part := file.read(min(left, _PART))):
            parts.append(part)
            left -= len(part)
    return b"".join(parts)


def is_longer_unpacked(path: Path, most: int) -> bool:
    """Whether a gzip file stands for more than so many bytes; raises OSError, EOFError and zlib.error.

    A few kilobytes may stand for all of a disk: nothing more than that is unpacked, and nothing is kept.
    """
    left = most
    with opened_regular(path) as file, gzip.GzipFile(fileobj=file) as unpacked:
        while part := unpacked.read(min(left + 1, _PART)):
            left -= len(part)
            if left < 0:
                return True
    return False


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text that anybody may have written: the one way to read such a text.

    Raises json.JSONDecodeError for what is none, and ValueError for one that is nested too deep, has too many
    values, or a number of too many digits: read whole, they would take all memory or end Python.
    """
    marks = ",[{"
    if isinstance(text, str):
        values = sum(text.count(mark) for mark in marks)
    else:
        values = sum(text.count(mark.encode()) for mark in marks)
    if values > MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES:,} values")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None
    except ValueError:  # an integer of thousands of digits
        raise ValueError("a number is too long") from None


def opened_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, or one behind links, to read; raises OSError for a folder, a pipe, a socket and a device.

    Those are never opened, since opening a pipe waits for its writer, and opening a device may do anything.
    """
    _check_regular(os.stat(path), path)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _check_regular(os.fstat(handle), path)  # it may have been replaced meanwhile
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_regular(found: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    what = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
    why = f"it is {what}, not a regular file; save its content to a file first"
    raise OSError(errno.EINVAL, why, os.fspath(path))


def _replace_whole(file: Path, path: Path) -> None:
    """Give ``file`` a free name: taking it and having content is one step where there are hard links."""
    try:
        os.link(file, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: the name is taken first, and empty for a moment
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
        file.replace(path)
    else:
        file.unlink()


def is_half(name: str, of: str = "") -> bool:
    """Whether a file of that name is what ``write_whole`` leaves when it is killed, ``of`` that file or of any."""
    return re.fullmatch(rf"\.{re.escape(of) or '.+'}\.[0-9a-f]{{8}}\.tmp", name) is not None


def flush(path: Path) -> None:
    """Bring a file's bytes, or a folder's names, to storage; raises OSError."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
