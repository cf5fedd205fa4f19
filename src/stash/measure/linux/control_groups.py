"""Where this process's control groups are mounted, version 1 and version 2: its own and all above it.

A limit may be set on any of them. Reads no limit itself. Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from stash.measure.linux.procfs import is_below, read_mounts, read_text


class ControlGroups:
    """Of the process that makes this object, under the ``root`` of all files."""

    def __init__(self, root: Path) -> None:
        self._root, self._table = root, read_mounts(root)
        self._groups: dict[str, str] = {}
        """By controller; version 2 has the empty name."""
        for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            self._groups |= dict.fromkeys(controllers.split(","), path)

    def list_folders(self, controller: str) -> list[Path]:
        """The folders of this process's group and of all above it, as far up as they are mounted."""
        kind = "cgroup" if controller else "cgroup2"
        mount = next(
            (
                mount
                for mount in self._table
                if mount.kind == kind and (not controller or controller in mount.options)
            ),
            None,
        )
        if mount is None or controller not in self._groups:
            return []
        path = self._groups[controller]
        # a container may see the path of a group that lies outside what is mounted; the mount is then its own group
        inside = (
            path[len(mount.root.rstrip("/")) :].strip("/") if is_below(mount.root, path) else ""
        )
        top = self._root / mount.point.strip("/")
        below = Path(inside).parts if ".." not in Path(inside).parts else ()
        return [top.joinpath(*below[:depth]) for depth in range(len(below), -1, -1)]
