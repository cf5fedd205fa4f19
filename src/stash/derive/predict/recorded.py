"""Facts that profiles hold since they are recorded for prediction; older ones do without, and are told what adds
them.

One place to look for them. Knows no model of anything.
"""

from __future__ import annotations

import shlex

from stash.base.records import Profile


def command(profile: Profile) -> str:
    """What profiles this job again, as it was typed: a launcher's command stands behind ``--``."""
    words = profile.workload.command
    whole = words[:1] and not (words[0] == "-m" or words[0].endswith(".py"))
    return shlex.join(("stash", "profile", *(("--",) if whole else ()), *words))


def records(profile: Profile) -> str:
    """The end of a sentence about a fact that ``profile`` lacks."""
    return f"`{command(profile)}` records it"


def peak_bytes(profile: Profile) -> float | None:
    """The most that tensors held on one device, of the rank with most; ``None`` on CPUs, and if nobody looked."""
    held = [each.allocated_bytes for each in profile.memory if each.allocated_bytes]
    return max(held, default=None)


def batch_times(profile: Profile) -> list[tuple[float, int]]:
    """Mean seconds of a batch, and of how many, by worker and block, files in memory; empty if not recorded."""
    return [
        (seconds / batches, batches)
        for each in profile.workers
        if each.feed == "warm"
        for seconds, batches in zip(each.seconds, each.batches, strict=False)
        if batches > 0
    ]
