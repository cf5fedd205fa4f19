"""What this machine can emulate, found out by trying it in unnamed namespaces that vanish at once.

Each check says what was tried, what came of it and what it is needed for. Changes nothing.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from stash.core.errors import StashError
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
    return (*_necessary(), *_limits())


def obstacle() -> str | None:
    """Why there can be no testbed here, in one sentence; None if there can."""
    failed = [check for check in _necessary() if not check.ok]
    return f"no testbed on this machine: {failed[0].name}: {failed[0].detail}" if failed else None


def _necessary() -> list[Check]:
    checks = [_program(name, package) for name, package in (("ip", "iproute2"), ("tc", "iproute2"))]
    checks += [_program(name, "util-linux") for name in ("unshare", "nsenter")]
    if not all(check.ok for check in checks):
        return checks
    refused = _quietly((*_unshared(), "true"))
    how = "as root" if os.geteuid() == 0 else "without root, through a user namespace"
    words = f"refused ({refused}); run with sudo" if refused else how
    checks.append(Check("namespaces", not refused, words, True))
    if not refused:
        checks += [
            _try("links", "ip link add name a0 type veth peer name b0", "veth pairs"),
            _try("switch", "ip link add name b0 type bridge", "a bridge"),
            _try("shaping", f"ip link set lo up && tc qdisc add dev lo root tbf {_TBF}", "token buckets (tbf)"),
        ]
    return checks


def _limits() -> list[Check]:
    found, root, checks = wiring.find(), os.geteuid() == 0, []
    for name, controller, option in (("cpu limits", found.cpu, "cpus"), ("disk limits", found.io, "disk")):
        where = f"cgroup v{controller.version} at {controller.root}" if controller else "no cgroup controller for it"
        why = where if root or controller is None else f"{where}, for root only"
        checks.append(Check(name, controller is not None and root, f"{why} (for `{option}`)", False))
    return checks


def _program(name: str, package: str) -> Check:
    path = shutil.which(name, path=_SYSTEM)
    return Check(name, path is not None, path or f"not found; install {package}", True)


def _unshared() -> tuple[str, ...]:
    return ("unshare", "--net") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--net")


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
