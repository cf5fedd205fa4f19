"""What this machine can emulate, found out by trying it in unnamed namespaces that vanish at once.

Each check says what was tried, what came of it and what it is needed for. Changes nothing.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from stash.core.errors import StashError, UserError
from stash.core.units import format_bytes
from stash.lab.testbed import wiring
from stash.lab.testbed.execute import run

_SYSTEM = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
_TBF = "rate 1gbit burst 262144 latency 200ms"


@dataclass(frozen=True)
class Check:
    """One ability of this machine."""

    name: str
    ok: bool
    detail: str
    needed: bool
    """Whether there is no testbed at all without it."""


def examine() -> tuple[Check, ...]:
    """Every check, the necessary ones first."""
    return (*_necessary(), *_optional())


def obstacle() -> str | None:
    """Why there can be no testbed here, in one sentence; None if there can."""
    failed = [check for check in _necessary() if not check.ok]
    return f"no testbed on this machine: {failed[0].name}: {failed[0].detail}" if failed else None


def _necessary() -> list[Check]:
    checks = [_program(name, package) for name, package in (("ip", "iproute2"), ("tc", "iproute2"))]
    checks += [_program(name, "util-linux") for name in ("unshare", "nsenter")]
    if not all(check.ok for check in checks):
        return checks
    checks.append(_namespaces())
    if checks[-1].ok:
        checks += [
            _try("links", "ip link add name a0 type veth peer name b0", "veth pairs"),
            _try("switch", "ip link add name b0 type bridge", "a bridge"),
            _try("shaping", f"ip link set lo up && tc qdisc add dev lo root tbf {_TBF}", "token buckets (tbf)"),
        ]
    return checks


def _optional() -> list[Check]:
    found = wiring.find()
    root = os.geteuid() == 0
    checks = []
    for name, controller, option in (("cpu limits", found.cpu, "cpus"), ("disk limits", found.io, "disk")):
        where = f"cgroup v{controller.version} at {controller.root}" if controller else "no cgroup controller for it"
        why = where if root or controller is None else f"{where}, for root only"
        checks.append(Check(name, controller is not None and root, f"{why} (for `{option}`)", False))
    checks.append(_block_device())
    checks.append(_user_namespaces())
    checks.append(_cachestat())
    import psutil

    memory, cores = psutil.virtual_memory().available, len(os.sched_getaffinity(0))
    checks.append(Check("room", cores > 1, f"{cores} cores, {format_bytes(memory)} of free memory", False))
    return checks


def _block_device() -> Check:
    try:
        detail, ok = f"this folder lies on block device {wiring.device_of(Path())}", True
    except UserError:
        detail, ok = "this folder lies on none; say with --disk-path which disk to limit", False
    return Check("block device", ok, f"{detail} (for `disk`)", False)


def _program(name: str, package: str) -> Check:
    path = shutil.which(name, path=_SYSTEM)
    return Check(name, path is not None, path or f"not found; install {package}", True)


def _unshared() -> tuple[str, ...]:
    return ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--net")


def _namespaces() -> Check:
    done = _quietly((*_unshared(), "true"))
    how = "as root" if os.geteuid() == 0 else "without root, through a user namespace"
    words = f"refused ({done}); run with sudo" if done else how
    return Check("namespaces", not done, words, True)


def _user_namespaces() -> Check:
    done = _quietly(("unshare", "--user", "--map-root-user", "--net", "true"))
    words = f"refused ({done}); a testbed needs root here" if done else "allowed (for a testbed without root)"
    return Check("user namespaces", not done, words, False)


def _cachestat() -> Check:
    import ctypes

    number = {"x86_64": 451, "aarch64": 451}.get(platform.machine())
    missing = 38  # ENOSYS
    libc = ctypes.CDLL(None, use_errno=True)
    ok = number is not None and (libc.syscall(number, -1, None, None, 0) == 0 or ctypes.get_errno() != missing)
    return Check("cachestat", ok, f"Linux {platform.release()}" + ("" if ok else ": mincore is used instead"), False)


def _try(name: str, script: str, what: str) -> Check:
    done = _quietly((*_unshared(), "sh", "-c", script))
    return Check(name, not done, f"no {what}: {done}" if done else what, True)


def _quietly(argv: tuple[str, ...]) -> str:
    """What a command complained of, empty if it succeeded."""
    try:
        done = run(argv)
    except StashError as error:
        return str(error)
    words = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else (words[-1] if words else f"exit status {done.returncode}")
