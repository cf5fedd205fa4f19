"""A probe's verdict on a rental: keep it, give it back, or fine for this job though below its type; in money.

Each finding is somebody's: the machine's, which a renter can only give back, or of whoever uses it, who can change a
limit or end a program and probe again. What was compared with nothing proves nothing, and the verdict says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from stash.analysis.findings.machine import Finding
from stash.analysis.findings.probe_reading import Reading
from stash.analysis.findings.standings import ERROR_RATE
from stash.catalog.facts import Offer
from stash.core.formatting import format_dollars, format_fact, format_quantity, join_names
from stash.core.printable import shorten_text
from stash.core.records.base import Record
from stash.core.records.host import Probe
from stash.predict.shortfalls import JobLoss

RentalAnswer = Literal["keep", "give back", "fine for this job", "probe again", "cannot tell"]
YOURS = frozenset(
    {
        "cpu-limit",
        "memory-limit",
        "quota-used-up",
        "busy-cores",
        "busy-memory",
        "gpu-in-use",
        "far-numa",
    }
)
"""Findings that are the doing of whoever uses the machine."""
NOTES = frozenset(
    {
        "shared-uplink",
        "one-flow",
        "nic-claim",
        "disk-burst",
        "slow-disk",
        "no-rdma",
        "vcpu-count",
        "gpu-count",
        "memory",
        "gpu-memory",
        "below-sheet",
        "uneven-pairs",
        "steal",
        "link-errors",
        "slow-when-warm",
    }
)
"""What every machine of a type may have, or what may pass: alone no reason to give one back. All others are."""
_CROWDED = {"busy-cores", "busy-memory", "quota-used-up"}
"""Figures of what these leave say nothing of the machine."""
_GRAVE = {"lost-gpu", "memory-errors", "repair-due", "lost-nvlinks", "gpu-model"}
"""Faults that a machine is given back for whatever a job loses by them today."""
WORTH = 0.02
"""Of the step: what a job loses below this is no reason to change machines."""
REFUSED = 3
"""The exit code, for schedulers, where a machine should be given back."""
_BRIEF_TEXT, _BRIEF_TEXTS = 220, 2


class RentalVerdict(Record):
    """What to do with the machines of a probe, and why."""

    answer: RentalAnswer
    text: str
    reasons: tuple[str, ...]
    """What is wrong with the machine."""
    yours: tuple[str, ...] = ()
    """What is wrong and not its fault."""
    fine: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    instance: str | None = None
    dollars_per_hour: float | None = None
    """Of all its nodes."""
    price_source: str = ""
    losses: tuple[JobLoss, ...] = ()
    lost_seconds: float | None = None
    lost_share: float | None = None
    dollars_per_day: float | None = None
    error_rate: float = ERROR_RATE
    compared: int = 0
    """Figures that had peers to be held against."""

    @property
    def brief(self) -> dict[str, Any]:
        """What an agent or a scheduler needs of it: JSON of 2 KB at most."""
        long = {"fine", "unknown", "losses", "price_source", "text", "reasons", "yours"}
        texts = {
            name: [shorten_text(text, _BRIEF_TEXT) for text in getattr(self, name)[:_BRIEF_TEXTS]]
            for name in ("reasons", "yours")
        }
        lost = {
            each.part: None if each.seconds is None else each.seconds.value for each in self.losses
        }
        return {
            "answer": self.answer,
            "text": shorten_text(self.text, 2 * _BRIEF_TEXT),
            **texts,
            "losses": lost,
            "unknown": len(self.unknown),
            **self.model_dump(exclude=long | {"answer"}),
        }


def judge_rental(
    probe: Probe,
    reading: Reading,
    losses: Sequence[JobLoss] | None = None,
    offer: Offer | None = None,
) -> RentalVerdict:
    """The verdict; ``losses`` are of a job's profile, ``None`` without one, ``offer`` is the price of one machine."""
    is_crowded = any(finding.name in _CROWDED for finding in reading.findings)
    excused = YOURS | {"slow-part"} if is_crowded else YOURS
    yours = [finding for finding in reading.findings if finding.name in excused]
    notes = [finding for finding in reading.findings if finding.name in NOTES]
    theirs = [finding for finding in reading.findings if finding.name not in excused | NOTES]
    # of all parts together; where that is unknown, the largest part that is known: so much at least
    known = {loss.part: loss for loss in losses or () if loss.seconds is not None}
    largest = max(known.values(), key=lambda loss: loss.share or 0.0, default=None)
    whole = known.get("all", largest)
    share = None if whole is None else whole.share
    compared = sum(1 for each in reading.standings if each.peers)
    answer: RentalAnswer = "keep"
    if theirs and (
        share is None or share >= WORTH or any(finding.name in _GRAVE for finding in theirs)
    ):
        answer = "give back"
    elif theirs:
        answer = "fine for this job"
    elif yours:
        answer = "probe again"
    elif not compared and not reading.comparisons:
        answer = "cannot tell"
    price = None if offer is None else offer.dollars_per_hour * len(probe.hosts)
    daily = None if price is None or share is None else 24 * price * share
    return RentalVerdict(
        answer=answer,
        text=_text(answer, (theirs or yours)[:1], whole, daily),
        reasons=tuple(finding.text for finding in [*theirs, *notes]),
        yours=tuple(finding.text for finding in yours),
        fine=_usual_figures(reading),
        unknown=_unknown_figures(probe, reading),
        instance=None if offer is None else offer.instance.name,
        dollars_per_hour=price,
        price_source="" if offer is None else f"{offer.source}, {offer.as_of or 'undated'}",
        losses=tuple(losses or ()),
        lost_seconds=None if whole is None or whole.seconds is None else whole.seconds.value,
        lost_share=share,
        dollars_per_day=daily,
        compared=compared,
    )


def _text(
    answer: RentalAnswer, worst: Sequence[Finding], loss: JobLoss | None, daily: float | None
) -> str:
    costs = ""
    if loss is not None and loss.seconds is not None:
        money = "" if daily is None else f", {format_dollars(daily)} a day"
        costs = f" Your step loses {format_quantity(loss.seconds, 'seconds')} ({loss.share or 0:.1%}){money}."
    found = re.split(r" \((?:catalog of|usual:)", worst[0].text)[0] if worst else ""
    return {
        "give back": f"Give it back: {found}.",
        "fine for this job": f"Fine for this job, though below its type: {found}.",
        "probe again": f"Not the machine's fault: {found}. Change that and probe again.",
        "keep": "Keep it: nothing is wrong that this probe can see.",
        "cannot tell": "Nothing looks broken, but there is nothing to compare it with: its type is unknown, and too "
        "few earlier probes are of one like it. Keep probes with --store; three make a comparison.",
    }[answer] + costs


def _usual_figures(reading: Reading) -> tuple[str, ...]:
    """Figures that are as usual, one for each group: the slowest."""
    found = {
        each.group: f"{each.group} {format_fact(each.rate.value, each.unit)}, {each.ratio:.0%} of usual"
        for each in sorted(reading.standings, key=lambda each: -each.ratio)
    }
    slow = {each.group for each in reading.standings if each.slow}
    return tuple(text for group, text in found.items() if group not in slow)


def _unknown_figures(probe: Probe, reading: Reading) -> tuple[str, ...]:
    """What was not measured, and what had no peers."""
    skipped = [
        each for host in probe.hosts if host.links is not None for each in host.links.skipped
    ]
    found = [f"{each.link}: {each.why}" for each in skipped]
    if any(host.allowed_nodes is None and host.links is not None for host in probe.hosts):
        found.append("NUMA nodes: /sys names none here, as in some containers")
    known = {each.group for each in reading.standings}
    alone = list(dict.fromkeys(link.group for link in reading.links if link.group not in known))
    return (
        *found,
        *([f"compared with nothing: {join_names(alone)}"] if alone else []),
        *reading.notes,
    )
