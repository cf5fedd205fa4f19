"""What ``stash schedule economics`` shows: the path to where nobody moves, who stays, and what else could be done."""

from __future__ import annotations

from typing import Any

from stash.core.formatting import dollars
from stash.core.units import counted
from stash.schedule.comparing import ClusterWorth
from stash.schedule.economics import UserBill
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

SCHEMA = 1


def economics_page(worth: ClusterWorth) -> Page:
    """Users at the first step and the last, steps between, alternatives."""
    found = worth.found
    rules = (
        f"{dollars(found.hourly)} an hour over {found.hours:,.1f} h | waiting {dollars(worth.waiting_dollars)}/h | "
        f"users leave at {worth.defect_at:g} times their runtimes | {worth.cloud.instance} at "
        f"{dollars(worth.cloud.dollars_per_hour)}/h"
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
    more = Grid(
        "One more machine",
        ("$ an hour", "mean JCT", "waiting saved"),
        tuple(
            (
                f"{each.gpus} {each.gpu}",
                "unknown" if each.hourly is None else dollars(each.hourly),
                f"{each.mean_jct:.2f} h",
                f"{worth.waiting_hours - each.waiting_hours:,.1f} h",
            )
            for each in worth.more
        ),
        frozenset({0}),
        f"Against {worth.mean_jct:.2f} h of mean JCT and {worth.waiting_hours:,.1f} h of waiting now.",
        first="machine",
    )
    return Page(
        title=f"Is {worth.cluster.name} worth it?",
        subtitle=(rules,),
        verdict=(_verdict(worth),),
        grids=(first, path, more),
        warnings=tuple(
            f"The cloud's bill is unknown: nothing says how fast {name} is there." for name in found.unknown[:5]
        ),
        chapters=(Chapter("bursts", "Cloud bursts", points=(_burst(worth),), brief=True),),
    )


def _user(bill: UserBill) -> tuple[str, ...]:
    cloud = "unknown" if bill.cloud is None else dollars(bill.cloud)
    decides = "stays" if bill.stays else f"leaves: {bill.why}"
    return bill.user, f"{bill.gpu_hours:,.1f}", f"{bill.waiting_hours:,.1f}", dollars(bill.own), cloud, decides


def _verdict(worth: ClusterWorth) -> str:
    found = worth.found
    first = found.steps[0]
    if not found.left:
        who = "Nobody leaves"
    elif found.staying:
        who = f"{counted(len(found.left), 'user')} of {len(first.bills)} leave, and {', '.join(found.staying)} stay"
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


def _burst(worth: ClusterWorth) -> str:
    found = worth.cloud_burst
    if not found.jobs:
        return (
            f"No job waits longer than {worth.defect_at:g} times its runtime: there is nothing to send to the cloud."
        )
    cost = "" if found.dollars is None else f" for {dollars(found.dollars)}"
    return (
        f"{counted(found.jobs, 'job')} waited longer than {worth.defect_at:g} times the runtime: in the cloud{cost} "
        f"all jobs end after {found.mean_jct_after:.2f} h in the mean instead of {found.mean_jct_before:.2f} h."
    )


def economics_document(worth: ClusterWorth) -> dict[str, Any]:
    """What ``--json`` prints."""
    found = worth.found
    return {
        "schema": SCHEMA,
        "policy": worth.policy,
        "dollars_per_hour": found.hourly,
        "hours": found.hours,
        "cloud": {"instance": worth.cloud.instance, "dollars_per_hour": worth.cloud.dollars_per_hour},
        "break_even_utilisation": found.break_even,
        "cloud_dollars": found.cloud_total,
        "left": list(found.left),
        "staying": list(found.staying),
        "steps": [
            {"price": step.price, "utilisation": step.utilisation, "users": [vars(bill) for bill in step.bills]}
            for step in found.steps
        ],
        "more": [vars(each) for each in worth.more],
        "burst": vars(worth.cloud_burst),
        "unknown": list(found.unknown),
    }
