"""Rules that look at peak FLOP/s on data sheets, and take jobs to reach as much of it everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from stash.derive.plan.rules.offered import Offered, Picked, RuleFacts

_UNKNOWN = "no offer's GPU has a peak on its data sheet"


def fastest_gpu(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The GPU of most peak FLOP/s, in the machine that has it for the least money an hour."""
    known = _known(offers, facts)
    if not known:
        return _UNKNOWN
    most = max(known.values())
    fastest = [offers[number] for number, peak in known.items() if peak == most]
    return Picked(min(fastest, key=lambda offer: (offer.dollars_per_hour, -offer.devices, offer.key)), 1)


def flops_per_dollar(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """One machine of most peak FLOP/s of all its GPUs for a dollar an hour.

    More machines have no better ratio, so one is rented; of machines alike in it the smallest.
    """
    known = _known(offers, facts)
    if not known:
        return _UNKNOWN

    def dearness(number: int) -> tuple[float, int, str]:
        offer = offers[number]
        return offer.dollars_per_hour / (offer.devices * known[number]), offer.devices, offer.key

    return Picked(offers[min(known, key=dearness)], 1)


def _known(offers: Sequence[Offered], facts: RuleFacts) -> dict[int, float]:
    """Peaks of one GPU by the number of the offer, of those that have one."""
    peaks = {number: offer.peak(facts.precision) for number, offer in enumerate(offers)}
    return {number: peak for number, peak in peaks.items() if peak}
