"""What ``stash schedule economics`` shows: the path to where nobody moves, who stays, and what it costs."""

from __future__ import annotations

from typing import Any

from stash.core.formatting import format_dollars
from stash.core.units import format_count
from stash.schedule.economics import Economics, UserBill
from stash.ui.charts.chart import Grid
from stash.ui.page import Page

SCHEMA = 1


def economics_page(cluster: str, found: Economics) -> Page:
    """Users at the first step and the last, and steps between."""
    asked = found.rules
    rules = (
        f"{format_dollars(found.hourly)} an hour over {found.hours:,.1f} h | waiting "
        f"{format_dollars(asked.waiting_dollars)}/h | "
        f"users leave at {asked.defect_at:g} times their runtimes | {asked.cloud.instance} at "
        f"{format_dollars(asked.cloud.dollars_per_hour)}/h"
    )
    first = Grid(
        "Users",
        ("GPU-h", "waiting", "own", "cloud", "decides"),
        tuple(_user(bill) for bill in found.steps[0].bills),
        frozenset({0, 5}),
        "Of the first decision: own is π for each GPU-hour and what waiting costs, cloud its bill by the second.",
        first="user",
        ranks=(0, 3, 4, 1, 2, 5),
    )
    path = Grid(
        "The path",
        ("π", "utilisation", "users", "leave"),
        tuple(
            (
                str(number),
                f"${step.price:.3f}",
                f"{step.utilisation:.0%}",
                str(len(step.bills)),
                ", ".join(step.leaving) or "nobody",
            )
            for number, step in enumerate(found.steps, 1)
        ),
        frozenset({0, 4}),
        "π: dollars per GPU-hour used.",
        first="step",
    )
    return Page(
        title=f"Is {cluster} worth it?",
        subtitle=(rules,),
        verdict=(_verdict(found),),
        grids=(first, path),
        warnings=tuple(
            f"The cloud's bill is unknown: nothing says how fast {name} is there."
            for name in found.unknown[:5]
        ),
    )


def _user(bill: UserBill) -> tuple[str, ...]:
    cloud = "unknown" if bill.cloud is None else format_dollars(bill.cloud)
    decides = "stays" if bill.stays else f"leaves: {bill.why}"
    return (
        bill.user,
        f"{bill.gpu_hours:,.1f}",
        f"{bill.waiting_hours:,.1f}",
        format_dollars(bill.own),
        cloud,
        decides,
    )


def _verdict(found: Economics) -> str:
    first = found.steps[0]
    if not found.left:
        who = "Nobody leaves"
    elif found.staying:
        who = (
            f"{format_count(len(found.left), 'user')} of {len(first.bills)} leave, and "
            f"{', '.join(found.staying)} stay"
        )
    else:
        who = "Everybody leaves"
    if found.break_even is None:
        return f"{who}. Break-even utilisation is unknown, as the cloud's bill is."
    used = first.utilisation
    side = "above" if used > found.break_even else "below"
    return (
        f"{who}. The cluster is used to {used:.0%}, {side} the {found.break_even:.0%} from which it is cheaper than "
        "the cloud for these jobs."
    )


def economics_document(policy: str, found: Economics) -> dict[str, Any]:
    """What ``--json`` prints."""
    cloud = found.rules.cloud
    return {
        "schema": SCHEMA,
        "policy": policy,
        "dollars_per_hour": found.hourly,
        "hours": found.hours,
        "cloud": {"instance": cloud.instance, "dollars_per_hour": cloud.dollars_per_hour},
        "break_even_utilisation": found.break_even,
        "cloud_dollars": found.cloud_total,
        "left": list(found.left),
        "staying": list(found.staying),
        "steps": [
            {
                "price": step.price,
                "utilisation": step.utilisation,
                "users": [vars(bill) for bill in step.bills],
            }
            for step in found.steps
        ],
        "unknown": list(found.unknown),
    }
