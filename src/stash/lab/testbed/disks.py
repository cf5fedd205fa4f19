"""Proves that each host of a testbed reads from disk at the rate that was asked, by reading past the page cache.

Each host is measured by itself, inside its own control group. A file just written may still be in a
hypervisor's or a storage server's cache: what is proven is that the limit holds, not what lies beneath it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from stash.base.errors import UserError
from stash.base.words.units import format_rate
from stash.lab.testbed import reading
from stash.lab.testbed.execute import python, run
from stash.lab.testbed.topology import Topology
from stash.lab.testbed.verify import TRIES, ShapedLink

_SECONDS, _CHUNKS, _LONGEST = 1.0, 40, 10.0

Command = Callable[[Sequence[str], int], tuple[str, ...]]
"""What runs words on a node, as ``Testbed.command``."""


def wanted(topology: Topology) -> tuple[ShapedLink, ...]:
    """The limited disks of a testbed, nothing measured yet."""
    limited = [(node, host.disk) for node, host in enumerate(topology.hosts) if host.disk is not None]
    return tuple(ShapedLink(node, "disk", "read", rate, 0.0, 0) for node, rate in limited)


def seconds(rate: float) -> float:
    """How long to read: long enough for many requests, as a throttle works in slices of a tenth of a second."""
    return min(_LONGEST, max(_SECONDS, _CHUNKS * reading.chunk_bytes(rate) / rate))


def verify(topology: Topology, folder: Path, command: Command) -> tuple[ShapedLink, ...]:
    """Every limited disk measured; raises UserError where one is not within 5 % of what was asked.

    A disk that is off is measured again, up to five times: other work on it slows a reader.
    """
    found = []
    for disk in wanted(topology):
        nearest = disk
        for _ in range(TRIES):
            measured = replace(disk, measured=_measure(disk, folder, command))
            nearest = min(nearest, measured, key=lambda one: abs(one.measured - one.asked))
            if nearest.right:
                break
        else:
            raise UserError(sentence(nearest, folder))
        found.append(nearest)
    return tuple(found)


def _measure(disk: ShapedLink, folder: Path, command: Command) -> float:
    words = (python(), "-I", "-S", reading.__file__, str(folder), str(disk.asked), str(seconds(disk.asked)))
    done = run(command(words, disk.node))
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise UserError(
            f"--disk cannot be verified: reading a file of its own under {folder} failed ({reason}); "
            "name another folder with --disk-path"
        )
    return float(json.loads(done.stdout)["rate"])


def sentence(disk: ShapedLink, folder: Path) -> str:
    """Why a testbed with that disk is refused."""
    where, asked, measured = (
        f"under {folder} on node {disk.node}",
        format_rate(disk.asked),
        format_rate(disk.measured),
    )
    if disk.measured > disk.asked:
        return (
            f"--disk {asked}: reads {where} reach {measured} in spite of the limit, so this machine's block I/O "
            "controller does not hold it; name another disk with --disk-path, or leave --disk out"
        )
    return (
        f"this machine cannot read --disk {asked}: the highest rate verified {where} is {measured}; "
        "ask for less, or let other work on that disk end first"
    )
