"""What this machine can emulate, found out by setting up testbeds of one host, which are removed at once."""

from __future__ import annotations

from typing import NamedTuple

from stash.core.errors import StashError
from stash.lab.testbed.bed import Testbed
from stash.lab.testbed.topology import Wish


class Check(NamedTuple):
    """One ability of this machine."""

    name: str
    ok: bool
    detail: str
    needed: bool
    """Whether there is no testbed at all without it."""


_TRIED: tuple[tuple[str, bool, dict[str, Wish]], ...] = (
    ("hosts and links", True, {"network": "1gbit", "interconnect": "1gbit"}),
    ("disk limits (for --disk)", False, {"disk": "100MB/s"}),
)


def run_checks() -> tuple[Check, ...]:
    """Every check, the necessary one first."""
    return tuple(_check(name, needed, limits) for name, needed, limits in _TRIED)


def why_no_testbed() -> str | None:
    """Why there can be no testbed here, in one sentence; None if there can."""
    first = _check(*_TRIED[0])
    return None if first.ok else f"no testbed on this machine: {first.detail}"


def _check(name: str, needed: bool, limits: dict[str, Wish]) -> Check:
    try:
        with Testbed(1, verify=False, **limits):  # type: ignore[arg-type]
            return Check(name, True, "", needed)
    except StashError as error:
        return Check(name, False, str(error), needed)
