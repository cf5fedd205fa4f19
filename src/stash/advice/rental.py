"""A probe's verdict on a rental: keep it, give it back, or fine for this job though below its type; in money.

Each finding is somebody's: the machine's, which a renter can only give back, or of whoever uses it, who can change a
limit or end a program and probe again. What was compared with nothing proves nothing, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stash.analysis.findings.machine import Finding
from stash.analysis.findings.peers import ERROR_RATE
from stash.analysis.findings.probe_reading import Reading
from stash.catalog.facts import Offer
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.formatting import dollars, listed, plain, quantity
from stash.core.records.base import Record
from stash.core.records.host import Probe
from stash.predict.shortfalls import Loss

Answer = Literal["keep", "give back", "fine for this job", "probe again", "cannot tell"]
Blame = Literal["machine", "yours", "note"]

BLAME: dict[str, Blame] = {
    **dict.fromkeys(
        ("cpu-limit", "memory-limit", "quota-used-up", "busy-cores", "busy-memory", "gpu-in-use", "far-numa"), "yours"
    ),
    **dict.fromkeys(
        (
            *(
                "shared-uplink",
                "one-flow",
                "nic-claim",
                "disk-burst",
                "slow-disk",
                "no-rdma",
                "vcpu-count",
                "gpu-count",
            ),
            *("memory", "gpu-memory", "below-sheet", "uneven-pairs", "steal", "link-errors", "slow-when-warm"),
        ),
        "note",
    ),
}
"""Whose a finding is, if not the machine's. Notes are what every machine of a type may have, or what may pass: alone
they are no reason to give a machine back."""
_GRAVE = ("lost-gpu", "memory-errors", "repair-due", "lost-nvlinks", "gpu-model")
"""Faults that a machine is given back for whatever a job loses by them today."""
WORTH = 0.02
"""Of the step: what a job loses below this is no reason to change machines."""
_MOST = 4
_BRIEF_TEXT = 200


class RentalVerdict(Record):
    """What to do with the machines of a probe, and why."""

    answer: Answer
    text: str
    reasons: tuple[str, ...]
    """What is wrong with the machine, the most costly first."""
    yours: tuple[str, ...] = ()
    """What is wrong and not its fault."""
    fine: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    instance: str | None = None
    dollars_per_hour: float | None = None
    """Of all its nodes."""
    price_source: str = ""
    losses: tuple[Loss, ...] = ()
    lost_seconds: float | None = None
    lost_share: float | None = None
    dollars_per_day: float | None = None
    error_rate: float = ERROR_RATE
    compared: int = 0
    """Figures that had peers to be held against."""


def judge_rental(
    probe: Probe, reading: Reading, losses: Sequence[Loss] | None = None, offer: Offer | None = None
) -> RentalVerdict:
    """The verdict; ``losses`` are of a job's profile, ``None`` without one, ``offer`` is the price of one machine."""
    by_blame: dict[Blame, list[Finding]] = {"machine": [], "yours": [], "note": []}
    for finding in reading.findings:
        by_blame[BLAME.get(finding.name, "machine")].append(finding)
    theirs = by_blame["machine"]
    if any(finding.name in ("busy-cores", "busy-memory", "quota-used-up") for finding in by_blame["yours"]):
        # figures of what a quota or another program leaves say nothing of the machine
        by_blame["yours"] += [finding for finding in theirs if finding.name == "slow-part"]
        theirs = [finding for finding in theirs if finding.name != "slow-part"]
    whole = next((loss for loss in reversed(losses or ()) if loss.seconds is not None), None)
    share = None if whole is None else whole.share
    compared = sum(1 for each in reading.standings if each.peers)
    answer: Answer = "keep"
    if theirs and (losses is None or share is None or share >= WORTH or any(f.name in _GRAVE for f in theirs)):
        answer = "give back"
    elif theirs:
        answer = "fine for this job"
    elif by_blame["yours"] and not {f.name for f in by_blame["yours"]} <= {"memory-limit"}:
        answer = "probe again"
    elif not compared and not reading.comparisons and not by_blame["note"]:
        answer = "cannot tell"
    price = None if offer is None else offer.dollars_per_hour * len(probe.hosts)
    daily = None if price is None or share is None else 24 * price * share
    return RentalVerdict(
        answer=answer,
        text=_text(answer, theirs, by_blame["yours"], whole, daily),
        reasons=tuple(finding.text for finding in [*theirs, *by_blame["note"]]),
        yours=tuple(finding.text for finding in by_blame["yours"]),
        fine=_fine(reading),
        unknown=_unknown(probe, reading, losses),
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
    answer: Answer, theirs: Sequence[Finding], yours: Sequence[Finding], loss: Loss | None, daily: float | None
) -> str:
    costs = ""
    if loss is not None and loss.seconds is not None:
        money = "" if daily is None else f", {dollars(daily)} a day"
        costs = f" Your step loses {quantity(loss.seconds, 'seconds')} ({loss.share or 0:.1%}){money}."
    if answer == "give back":
        return f"Give it back: {theirs[0].text}.{costs}"
    if answer == "fine for this job":
        return f"Fine for this job, though below its type: {theirs[0].text}.{costs or ' Your step loses nothing.'}"
    if answer == "probe again":
        return f"Not the machine's fault: {yours[0].text}. Change that and probe again.{costs}"
    if answer == "cannot tell":
        return (
            "Nothing looks broken, but there is nothing to compare it with: its type is unknown and no earlier probe "
            "is of one like it. Keep probes with --store; three make a comparison."
        )
    return f"Keep it: nothing is wrong that this probe can see.{costs}"


def _fine(reading: Reading) -> tuple[str, ...]:
    """Figures that are as usual, one for each group: the slowest."""
    slow = {(each.group, each.member) for each in reading.standings if each.slow}
    found = {}
    for each in sorted(reading.standings, key=lambda each: -each.ratio):
        if (each.group, each.member) not in slow:
            found[each.group] = f"{each.group} {plain(each.rate.value, each.unit)}, {each.ratio:.0%} of usual"
    return tuple(found.values())


def _unknown(probe: Probe, reading: Reading, losses: Sequence[Loss] | None) -> tuple[str, ...]:
    """What was not measured, what had no peers, and what the profile cannot tell."""
    found = [
        f"{each.link}: {each.why}" for host in probe.hosts if host.links is not None for each in host.links.skipped
    ]
    known = {each.group for each in reading.standings}
    alone = list(dict.fromkeys(link.group for link in reading.links if link.group not in known))
    if alone:
        found.append(f"compared with nothing: {listed(alone)}")
    return (*found, *reading.notes, *(f"what {loss.part} costs: {loss.why}" for loss in losses or () if loss.why))


def price_of(catalog: Catalog, instance: str | None) -> Offer | None:
    """The newest on-demand price of a machine's type; ``None`` where either is unknown."""
    if instance is None:
        return None
    try:
        return catalog.newest_on_demand(catalog.instance(instance))
    except UserError:
        return None


def brief(verdict: RentalVerdict) -> dict[str, object]:
    """What an agent or a scheduler needs of it: JSON of 2 KB at most."""

    def shortened(texts: Sequence[str]) -> list[str]:
        return [text if len(text) <= _BRIEF_TEXT else f"{text[: _BRIEF_TEXT - 1]}…" for text in texts[:_MOST]][:3]

    return {
        "answer": verdict.answer,
        "text": verdict.text if len(verdict.text) <= 2 * _BRIEF_TEXT else f"{verdict.text[: 2 * _BRIEF_TEXT - 1]}…",
        "reasons": shortened(verdict.reasons)[:2],
        "yours": shortened(verdict.yours)[:2],
        "unknown": len(verdict.unknown),
        "instance": verdict.instance,
        "dollars_per_hour": verdict.dollars_per_hour,
        "lost_seconds": verdict.lost_seconds,
        "lost_share": verdict.lost_share,
        "dollars_per_day": verdict.dollars_per_day,
        "losses": {loss.part: None if loss.seconds is None else loss.seconds.value for loss in verdict.losses},
        "compared": verdict.compared,
        "error_rate": verdict.error_rate,
    }


def loss_facts(verdict: RentalVerdict) -> tuple[tuple[str, str], ...]:
    """Part and what it costs a step, for a page."""
    return tuple(
        (
            loss.part,
            f"unknown: {loss.why}"
            if loss.seconds is None
            else f"{quantity(loss.seconds, 'seconds')} a step, {loss.share or 0:.1%} of it",
        )
        for loss in verdict.losses
    )


def exit_code(verdict: RentalVerdict) -> int:
    """For schedulers: 3 where the machine should be given back, else 0."""
    return 3 if verdict.answer == "give back" else 0
