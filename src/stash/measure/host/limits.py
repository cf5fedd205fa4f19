"""What control groups allow this process, version 1 and version 2: processor time, memory, reading from a disk.

A limit may be set on any group above one's own, so every group up to the top that is visible is asked and the
tightest answer counts. Sets no limits (the testbed does); knows nothing of CPU sets, which are the affinity's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from stash.base.records import Limits
from stash.measure.linux.files import Mount, holds, mounts, text

_UNLIMITED_BYTES = 2**62
"""Version 1 writes "no limit" as the largest page-aligned integer; the page's size differs between machines."""


def limits(root: Path, devices: Iterable[str] = ()) -> Limits | None:
    """The limits of this process; ``devices`` are the ``major:minor`` that its data lie on.

    ``None`` if no control group can be seen, which is not the same as no limit.
    """
    table, own = mounts(root), _memberships(root)
    numbers = frozenset(devices)
    version1 = {name: _folders(root, table, own, name) for name in ("cpu", "memory", "blkio")}
    version2 = _folders(root, table, own, "")
    if not version2 and not any(version1.values()):
        return None
    return Limits(
        cpus=_tightest((version1["cpu"], _quota), (version2, _cpu_max)),
        memory_bytes=_whole(_tightest((version1["memory"], _limit_in_bytes), (version2, _memory_max))),
        read_bytes_per_second=_tightest(
            (version1["blkio"], lambda folder: _throttle(folder, numbers)),
            (version2, lambda folder: _io_max(folder, numbers)),
        ),
    )


def _memberships(root: Path) -> dict[str, str]:
    """Controller to the path of this process's group; version 2 has the empty name."""
    own: dict[str, str] = {}
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        own |= dict.fromkeys(controllers.split(","), path)
    return own


def _folders(root: Path, table: list[Mount], own: dict[str, str], controller: str) -> list[Path]:
    """The folders of this process's group and of all above it, as far up as they are mounted."""
    kind = "cgroup" if controller else "cgroup2"
    mount = next((m for m in table if m.kind == kind and (not controller or controller in m.options)), None)
    if mount is None or controller not in own:
        return []
    path = own[controller]
    # a container may see the path of a group that lies outside what is mounted; the mount is then its own group
    inside = path[len(mount.root.rstrip("/")) :].strip("/") if holds(mount.root, path) else ""
    top = root / mount.point.strip("/")
    below = Path(inside).parts if ".." not in Path(inside).parts else ()
    return [top.joinpath(*below[:depth]) for depth in range(len(below), -1, -1)]


LimitOf = Callable[[Path], float | None]
"""What reads a group's limit from its folder; ``None`` where there is none."""


def _tightest(*asked: tuple[list[Path], LimitOf]) -> float | None:
    answers = [limit_of(folder) for folders, limit_of in asked for folder in folders]
    return min((answer for answer in answers if answer is not None), default=None)


def _quota(folder: Path) -> float | None:
    quota, period = (_count(text(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
    return quota / period if quota and period else None  # a quota of -1 is none


def _cpu_max(folder: Path) -> float | None:
    quota, period = ([*(text(folder / "cpu.max") or "").split(), "", ""])[:2]
    allowed, per = _count(quota), _count(period)
    return allowed / per if allowed and per else None


def _limit_in_bytes(folder: Path) -> float | None:
    limit = _count(text(folder / "memory.limit_in_bytes"))
    return None if limit is None or limit >= _UNLIMITED_BYTES else limit


def _memory_max(folder: Path) -> float | None:
    return _count(text(folder / "memory.max"))


def _throttle(folder: Path, devices: frozenset[str]) -> float | None:
    """Lines of ``254:0 52428800``."""
    fields = _rows(folder / "blkio.throttle.read_bps_device")
    return _least(row[1] for row in fields if row[0] in devices and len(row) == 2)


def _io_max(folder: Path, devices: frozenset[str]) -> float | None:
    """Lines of ``254:0 rbps=52428800 wbps=max riops=max wiops=max``."""
    settings = [setting for row in _rows(folder / "io.max") if row[0] in devices for setting in row[1:]]
    return _least(setting.removeprefix("rbps=") for setting in settings if setting.startswith("rbps="))


def _rows(file: Path) -> list[list[str]]:
    return [row for line in (text(file) or "").splitlines() if (row := line.split())]


def _least(counts: Iterable[str]) -> float | None:
    return min((count for count in map(_count, counts) if count is not None), default=None)


def _count(content: str | None) -> int | None:
    """A number of units; ``max`` and ``-1`` are no limit, and so is what is not a number."""
    return int(content) if content is not None and content.isdigit() else None


def _whole(count: float | None) -> int | None:
    return None if count is None else int(count)
