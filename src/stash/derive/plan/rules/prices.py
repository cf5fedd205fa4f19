"""Rules that look at the price of an hour and take every hour to be worth as much."""

from __future__ import annotations

from collections.abc import Sequence

from stash.derive.plan.rules.offered import Offered, Picked, RuleFacts

_NOTHING = "nothing is offered"


def cheapest_per_hour(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """One machine of the lowest hourly price; of equally cheap ones that with most devices."""
    cheapest = min(offers, key=lambda offer: (offer.dollars_per_hour, -offer.devices, offer.key), default=None)
    return _NOTHING if cheapest is None else Picked(cheapest, 1)


def skypilot(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """SkyPilot's optimizer: an hour's work on every machine, so the cheapest hour of what was asked for.

    The user names accelerators, how many a node has, and the number of nodes; several kinds may be named, and here
    all are. Run time is what the task's time estimator says, and one hour without one, whatever the resource; cost is
    nodes · price · run time, in which nodes that are reserved already are free. Source: ``sky/optimizer.py``,
    ``Optimizer._estimate_nodes_cost_or_time``, github.com/skypilot-org/skypilot at 005b1cb, read on 2026-11-22.
    """
    asked = [offer for offer in offers if offer.devices == facts.devices and offer.most_nodes >= facts.nodes]
    if not asked:
        return f"no offer has {facts.nodes} nodes of {facts.devices} devices, as the job was profiled on"
    best = min(asked, key=lambda offer: (_hour(offer), offer.key))
    return Picked(best, facts.nodes)


def _hour(offer: Offered) -> float:
    return 0.0 if offer.price.paid_as == "reserved" else offer.dollars_per_hour
