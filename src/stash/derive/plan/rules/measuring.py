"""Rules that rent nothing but what was measured: the original Stash's table, and trying out everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stash.derive.plan.rules.offered import Offered, Picked, RuleFacts


def stash_table(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The original Stash: of the machines that the job was measured on, the cheapest that is within the time given.

    Its recommendation is measurement-based: every instance of its grid runs the job, cost is T · price, and users
    lower it "given a time budget" (arXiv 2208.14344; ICDCS 2023). What was not measured is never recommended. Without
    a time budget it is the cheapest, with a budget alone the soonest within it, and where nothing keeps what was
    asked the soonest of all.
    """
    table = list(_table(offers, facts))
    if not table:
        return "the job was profiled on none of the machines that are offered, and this rule knows no others"
    on_time = [row for row in table if facts.deadline_seconds is None or row[0] <= facts.deadline_seconds]
    kept = [row for row in on_time if facts.budget_dollars is None or row[1] <= facts.budget_dollars]
    soonest = not kept or (facts.deadline_seconds is None and facts.budget_dollars is not None)
    if soonest:
        return min(kept or table, key=lambda row: (row[0], row[1]))[2]
    return min(kept, key=lambda row: (row[1], row[0]))[2]


def _table(offers: Sequence[Offered], facts: RuleFacts) -> Iterator[tuple[float, float, Picked]]:
    """Seconds, dollars, and of what, for each measured machine that is offered."""
    for offer in offers:
        for (name, nodes), rate in facts.measured.items():
            if name == offer.instance.name and nodes <= offer.most_nodes:
                picked, seconds = Picked(offer, nodes), facts.samples / rate
                yield seconds, seconds / 3600 * picked.dollars_per_hour, picked


def trials_dollars(offers: Sequence[Offered], facts: RuleFacts) -> float | None:
    """What it costs to measure the job once on every machine at every number of nodes; ``None`` if a trial's length
    is unknown. The time that machines take to start comes on top and is not counted.
    """
    if facts.trial_seconds is None:
        return None
    per_hour = sum(
        offer.dollars_per_hour * offer.most_nodes * (offer.most_nodes + 1) / 2 for offer in _machines(offers)
    )
    return per_hour * facts.trial_seconds / 3600


def trials(offers: Sequence[Offered]) -> int:
    """How many measurements those are."""
    return sum(offer.most_nodes for offer in _machines(offers))


def _machines(offers: Sequence[Offered]) -> list[Offered]:
    """Each type once, at its lowest price: what one costs does not change how fast it is."""
    found: dict[str, Offered] = {}
    for offer in sorted(offers, key=lambda offer: offer.dollars_per_hour):
        found.setdefault(offer.key, offer)
    return list(found.values())
