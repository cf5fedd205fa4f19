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
    all are. Where nothing has as many in a node as the job was profiled on, as many in all are asked for. Run time is
    what the task's time estimator says, and one hour without one, whatever the resource; cost is nodes · price · run
    time, in which nodes that are reserved already are free. Source: ``sky/optimizer.py``,
    ``Optimizer._estimate_nodes_cost_or_time``, github.com/skypilot-org/skypilot at 005b1cb, read on 2026-11-22.
    """
    total = facts.nodes * facts.devices
    together = [Picked(offer, total // offer.devices) for offer in offers if total % offer.devices == 0]
    possible = [picked for picked in together if picked.nodes <= picked.offer.most_nodes]
    asked = [picked for picked in possible if picked.nodes == facts.nodes] or possible
    if not asked:
        return f"nothing that is offered has {total} devices in all, as the job was profiled on"
    return min(asked, key=lambda picked: (_hour(picked), picked.nodes, picked.offer.key))


def _hour(picked: Picked) -> float:
    return 0.0 if picked.offer.price.paid_as == "reserved" else picked.dollars_per_hour
