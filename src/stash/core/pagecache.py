"""The page cache, seen and emptied without privileges, one file at a time.

``evict`` asks the kernel to drop a file's clean pages; ``resident_pages`` says how many are cached, through
``cachestat`` (Linux 6.5) or ``mincore``, or that this process may not know. Pages that a process maps stay
(``mappings``), and evicting cannot empty a hypervisor's or a storage server's cache.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from functools import cache

PAGE = mmap.PAGESIZE
_CACHESTAT = {"x86_64": 451, "aarch64": 451}.get(platform.machine())


@cache
def _load_libc() -> ctypes.CDLL:
    """The C library, loaded once asked for: readers on other systems import this module for ``PAGE`` alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return libc


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Stat(ctypes.Structure):
    _fields_ = tuple(
        (n, ctypes.c_uint64)
        for n in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def resident_pages(descriptor: int, size: int, layered: bool = False) -> tuple[int, int] | None:
    """(cached, dirty) pages of an open file; dirty is 0 where only ``mincore`` exists; None if unstated.

    ``layered``: the file is another file system's in truth (overlay), whose pages only a mapping leads to.
    """
    if _CACHESTAT is not None and not layered:
        stat = _Stat()
        whole = _Range(0, 0)
        if (
            _load_libc().syscall(_CACHESTAT, descriptor, ctypes.byref(whole), ctypes.byref(stat), 0)
            == 0
        ):
            return int(stat.cached), int(stat.dirty + stat.writeback)
    # To all but owner and writers ``mincore`` calls every page resident (since Linux 5.2).
    owns = os.geteuid() in (0, os.fstat(descriptor).st_uid)
    if owns or os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True):
        return _mincore(descriptor, size)
    return None


def _mincore(descriptor: int, size: int) -> tuple[int, int] | None:
    if size == 0:
        return 0, 0
    address = _load_libc().mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    pages = -(-size // PAGE)
    vector = (ctypes.c_ubyte * pages)()
    failed = _load_libc().mincore(address, size, vector)
    _load_libc().munmap(address, size)
    return None if failed else (sum(byte & 1 for byte in vector), 0)


def evict(descriptor: int, dirty: bool) -> None:
    """Drop an open file's pages from the cache; dirty pages are written first, or they would stay."""
    if dirty:
        os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
