"""Why each choice stands where it does: one sentence, of what differs most.

A loser lost to the chosen one in dollars, or in seconds where the fastest is wanted. The part of the bill, or of the
step, that differs most is the reason. Knows wording; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from stash.base.plan import Goal
from stash.base.words.units import format_seconds
from stash.derive.plan.search import aim
from stash.derive.plan.weighing import Weighed


def dollars(value: float) -> str:
    """As people write sums: cents below $100, whole dollars from there."""
    return f"${value:,.2f}" if abs(value) < 100 else f"${value:,.0f}"


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else format_seconds(seconds)


def percent(probability: float) -> str:
    """Never rounded to a certainty that draws do not show."""
    if 0 < probability < 0.01 or 0.99 < probability < 1:
        return "less than 1 %" if probability < 0.5 else "more than 99 %"
    return f"{probability * 100:.0f} %"


def of_chosen(goal: Goal, found: Weighed) -> str:
    """Why it is the one."""
    sure = f"with {percent(goal.confidence)} probability or more"
    if found.rental.price.paid_as == "spot":
        sure = f"{sure}, unless it is interrupted"
    if aim(goal) == "seconds":
        return f"the fastest that stays within {dollars(goal.budget_dollars or 0.0)} {sure}"
    kept = [hours(goal.deadline_seconds)] if goal.deadline_seconds is not None else []
    kept += [dollars(goal.budget_dollars)] if goal.budget_dollars is not None else []
    return f"the cheapest that keeps {' and '.join(kept)} {sure}" if kept else "the cheapest of all"


def of_tied(goal: Goal, chosen: Weighed, better: float) -> str:
    what = "sooner" if aim(goal) == "seconds" else "cheaper"
    return f"as good as {name(chosen)} within what is known: {what} than it in {percent(better)} of cases"


def of_front(found: Weighed, chosen: Weighed) -> str:
    more, less = found.dollars - chosen.dollars, found.seconds - chosen.seconds
    money = f"{dollars(abs(more))} {'dearer' if more > 0 else 'cheaper'}"
    time = f"{hours(abs(less))} {'later' if less > 0 else 'sooner'}"
    return f"{money} and {time} than {name(chosen)}"


def of_loser(goal: Goal, found: Weighed, chosen: Weighed) -> str:
    """The stall or item that makes most of the difference to the chosen one."""
    if aim(goal) == "seconds":
        return _of_slower(found, chosen)
    mine, other = _dollar_parts(found), _dollar_parts(chosen)
    worst = max(mine, key=lambda each: mine[each] - other.get(each, 0.0))
    more = f"{dollars(found.dollars - chosen.dollars)} dearer than {name(chosen)}"
    share = mine[worst] / found.dollars
    if worst == "compute":
        return f"{more}: compute alone costs {dollars(mine[worst])} there, {dollars(other['compute'])} on the other"
    what = f"{worst} stall" if worst in _stalls(found) else worst
    return f"{more}: {percent(share)} of its bill is {what}"


def of_infeasible(goal: Goal, found: Weighed) -> str:
    """Which limit it misses, and by how much."""
    said = []
    on_time, within = found.on_time(goal), found.within_budget(goal)
    if on_time is not None and on_time < goal.confidence and goal.deadline_seconds is not None:
        limit = hours(goal.deadline_seconds)
        said.append(f"takes {hours(found.seconds)}, done in {limit} with {percent(on_time)} probability")
    if within is not None and within < goal.confidence and goal.budget_dollars is not None:
        limit = dollars(goal.budget_dollars)
        said.append(f"costs {dollars(found.dollars)}, within {limit} with {percent(within)} probability")
    stall = _largest_stall(found)
    return f"{' and '.join(said)}{stall}"


def name(found: Weighed) -> str:
    """``"2 × p3.8xlarge"``."""
    return f"{found.rental.nodes} × {found.rental.instance}"


def _of_slower(found: Weighed, chosen: Weighed) -> str:
    mine = {part.name: float(part.seconds.mean()) * found.steps for part in found.drawn.parts}
    other = {part.name: float(part.seconds.mean()) * chosen.steps for part in chosen.drawn.parts}
    worst = max(mine, key=lambda each: mine[each] - other.get(each, 0.0))
    later = f"{hours(found.seconds - chosen.seconds)} later than {name(chosen)}"
    if worst == "compute":
        return f"{later}: compute alone takes {hours(mine[worst])} there, {hours(other['compute'])} on the other"
    return f"{later}: {percent(mine[worst] / found.seconds)} of its time is {worst} stall"


def _largest_stall(found: Weighed) -> str:
    """What of the step is stalls, where that is what keeps it from being faster."""
    step = float(found.drawn.step.mean())
    stalls = {part.name: float(part.seconds.mean()) for part in found.drawn.parts if part.name != "compute"}
    worst = max(stalls, key=lambda each: stalls[each], default=None)
    if worst is None or stalls[worst] < 0.2 * step:
        return ""
    return f"; {percent(stalls[worst] / step)} of its step is {worst} stall"


def _stalls(found: Weighed) -> set[str]:
    return {part.name for part in found.drawn.parts}


def _dollar_parts(found: Weighed) -> Mapping[str, float]:
    """The bill's mean: training by its stalls, and every other item."""
    parts = {
        part.name: float(spent.mean())
        for part, spent in zip(found.billed.predicted, found.billed.stall_dollars, strict=True)
    }
    return parts | {part.name: float(part.dollars.mean()) for part in found.billed.parts if part.name != "training"}
