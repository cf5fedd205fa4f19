"""How people choose machines today, as rules next to a plan: what each would have rented, and its regret.

A rule sees prices, data sheets and what a profile's owner knows, and never a forecast; its pick is then weighed as
the plan weighs its own, so regret is of the choice alone. Exhaustive search finds whatever is best, and its regret is
what measuring everything costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stash.analysis.findings.machine import model_of
from stash.catalog.facts import GpuFacts, Instance
from stash.catalog.offers import Catalog
from stash.catalog.reference import model_key
from stash.core.errors import UserError
from stash.plan.candidates import Rentable
from stash.plan.evaluation import WHOLE, Evaluation
from stash.plan.records import Choice, Goal, HourlyPrice, RuleChoice
from stash.plan.search import CandidateSet, PlanProblem
from stash.predict.gpu_pairs import PRECISIONS, by_model, pairs, trained_in
from stash.predict.gpu_scale import peak
from stash.predict.passes import Base


@dataclass(frozen=True)
class Offered:
    """An instance at a price, with its GPU's data sheet."""

    instance: Instance
    price: HourlyPrice
    devices: int
    """Of a node."""
    most_nodes: int
    gpu: GpuFacts | None = None
    """``None`` without GPUs, and where no source says which it is."""

    @property
    def key(self) -> str:
        return f"{self.instance.cloud}/{self.instance.name}"

    @property
    def dollars_per_hour(self) -> float:
        """Dollars an hour of a node."""
        return self.price.dollars_per_hour.value


class Picked(NamedTuple):
    """So many of an offer."""

    offer: Offered
    nodes: int

    @property
    def dollars_per_hour(self) -> float:
        return self.nodes * self.offer.dollars_per_hour


@dataclass(frozen=True)
class RuleFacts:
    """What those who follow a rule know of their job."""

    samples: float
    """Of the whole training."""
    nodes: int
    devices: int
    """Of a node: what the job ran on when it was profiled, which is what people ask for again."""
    precision: str = PRECISIONS[0]
    """``fp32`` or ``amp``."""
    deadline_seconds: float | None = None
    budget_dollars: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    """Samples per second of one GPU by itself, by GPU model: the profiled one's times published ratios."""
    measured: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Samples per second of the whole job where it was profiled, by instance type and nodes."""
    trial_seconds: float | None = None
    """What one measurement takes."""


def cheapest_per_hour(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """One machine of the lowest hourly price; of equally cheap ones that with most devices."""
    cheapest = min(offers, key=lambda offer: (offer.dollars_per_hour, -offer.devices, offer.key), default=None)
    return "nothing is offered" if cheapest is None else Picked(cheapest, 1)


def fastest_gpu(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The GPU of most peak FLOP/s, in the machine that has it for the least money an hour."""
    known = _with_peak(offers, facts)
    most = max((each for _, each in known), default=0.0)
    return cheapest_per_hour([offer for offer, each in known if each == most], facts) if known else _NO_PEAK


def flops_per_dollar(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """One machine of most peak FLOP/s of all its GPUs for a dollar an hour; of machines alike in it the smallest."""
    known = [
        (offer.dollars_per_hour / (offer.devices * each), offer.devices, offer.key, offer)
        for offer, each in _with_peak(offers, facts)
    ]
    return Picked(min(known, key=lambda each: each[:3])[3], 1) if known else _NO_PEAK


_NO_PEAK = "no offer's GPU has a peak on its data sheet"


def _with_peak(offers: Sequence[Offered], facts: RuleFacts) -> list[tuple[Offered, float]]:
    """Those whose GPU has one, in FLOP/s of one of them."""
    return [(offer, most) for offer in offers if offer.gpu and (most := peak(offer.gpu, facts.precision))]


def skypilot(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """SkyPilot's optimizer: an hour's work on every machine, so the cheapest hour of what was asked for.

    The user names accelerators, how many a node has, and the number of nodes; several kinds may be named, and here
    all are. Where nothing has as many in a node as the job was profiled on, as many in all are asked for. Run time is
    what the task's time estimator says, and one hour without one, whatever the resource; cost is nodes · price · run
    time, in which nodes that are reserved already are free. Source: ``sky/optimizer.py``,
    ``Optimizer._estimate_nodes_cost_or_time``, github.com/skypilot-org/skypilot at 005b1cb, read on 2026-11-22.
    """

    def hour(picked: Picked) -> float:
        return 0.0 if picked.offer.price.paid_as == "reserved" else picked.dollars_per_hour

    total = facts.nodes * facts.devices
    together = [Picked(offer, total // offer.devices) for offer in offers if total % offer.devices == 0]
    possible = [picked for picked in together if picked.nodes <= picked.offer.most_nodes]
    asked = [picked for picked in possible if picked.nodes == facts.nodes] or possible
    if not asked:
        return f"nothing that is offered has {total} devices in all, as the job was profiled on"
    return min(asked, key=lambda picked: (hour(picked), picked.nodes, picked.offer.key))


def linear(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The cheapest sample of a single GPU by published throughputs, n GPUs taken to be n times as fast as one.

    As few nodes as meet the deadline; without one but with a budget the soonest within it; with neither one node, as
    on a line more of them cost the same. Where nothing keeps what was asked, the soonest of all.
    """
    lines = []
    for offer in offers:
        if rate := facts.rates.get(offer.instance.gpu_model or ""):
            alone = facts.samples / (rate * offer.devices)
            counts = {1, offer.most_nodes}  # besides the least that meets the deadline, none else is ever chosen
            if facts.deadline_seconds is not None:
                counts.add(max(1, math.ceil(alone / facts.deadline_seconds)))
            dollars = alone / 3600 * offer.dollars_per_hour
            lines += [(alone / n, dollars, Picked(offer, n)) for n in sorted(counts) if n <= offer.most_nodes]
    if not lines:
        return "no throughput was published or measured of a single one of the GPUs that are offered"
    return _best(lines, facts)


def stash_table(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The original Stash: of the machines that the job was measured on, the cheapest that is within the time given.

    Its recommendation is measurement-based: every instance of its grid runs the job, cost is T · price, and users
    lower it "given a time budget" (arXiv 2208.14344; ICDCS 2023). What was not measured is never recommended. Without
    a time budget it is the cheapest, with a budget alone the soonest within it, and where nothing keeps what was
    asked the soonest of all.
    """
    table = [
        (facts.samples / rate, facts.samples / rate / 3600 * nodes * offer.dollars_per_hour, Picked(offer, nodes))
        for offer in offers
        for (name, nodes), rate in facts.measured.items()
        if name == offer.instance.name and nodes <= offer.most_nodes
    ]
    if not table:
        return "the job was profiled on none of the machines that are offered, and this rule knows no others"
    return _best(table, facts)


def _best(lines: Sequence[tuple[float, float, Picked]], facts: RuleFacts) -> Picked:
    """Of (seconds, dollars, pick) the cheapest that keeps deadline and budget; else the soonest."""
    late, dear = facts.deadline_seconds, facts.budget_dollars
    kept = [line for line in lines if (late is None or line[0] <= late) and (dear is None or line[1] <= dear)]
    if not kept or (late is None and dear is not None):
        return min(kept or lines, key=lambda line: (line[0], line[1], line[2].offer.key))[2]
    return min(kept, key=lambda line: (line[1], line[2].nodes, line[2].offer.key))[2]


class ChoiceRule(NamedTuple):
    """One way to choose: what it would rent, or why it can choose nothing."""

    name: str
    text: str
    """How, in a few words."""
    chooses: Callable[[Sequence[Offered], RuleFacts], Picked | str]


RULES = (
    ChoiceRule("cheapest per hour", "one machine of the lowest hourly price", cheapest_per_hour),
    ChoiceRule("fastest GPU", "the GPU of most peak FLOP/s, in its cheapest machine", fastest_gpu),
    ChoiceRule("FLOPs per dollar", "most peak FLOP/s for a dollar an hour", flops_per_dollar),
    ChoiceRule(
        "SkyPilot",
        "nodes and devices as profiled, at the cheapest hour: every machine is taken to need one",
        skypilot,
    ),
    ChoiceRule("linear", "one GPU's published throughput for a dollar, n of them n times as fast", linear),
    ChoiceRule(
        "original Stash", "the cheapest within the deadline of the machines that the job was measured on", stash_table
    ),
)


def compare_rules(
    offers: Sequence[Offered],
    facts: RuleFacts,
    weigh: Callable[[Picked], Choice | str],
    best: Choice | None,
) -> tuple[RuleChoice, ...]:
    """What each rule would have rented of ``offers``, next to ``best``, the plan's choice if it has one.

    ``weigh`` is the forecast of a pick with the job's settings as the plan would run it there, *infeasible* where it
    does not keep what was asked, or why there is none.
    """
    found = []
    for rule in RULES:
        picked = rule.chooses(offers, facts)
        choice = picked if isinstance(picked, str) else weigh(picked)
        if isinstance(choice, str):
            rented = "" if isinstance(picked, str) else f"it rents {picked.nodes} × {picked.offer.instance.name}: "
            found.append(RuleChoice(rule=rule.name, text=rule.text, choice=None, why=rented + choice))
            continue
        found.append(
            RuleChoice(
                rule=rule.name,
                text=rule.text,
                choice=choice,
                dollars_more=None if best is None else choice.dollars.value - best.dollars.value,
                seconds_more=None if best is None else choice.seconds.value - best.seconds.value,
                feasible=choice.standing != "infeasible",
            )
        )
    trials, dollars = measuring_everything(offers, facts)
    text = f"measure the job on every type with every number of nodes ({trials:,} trials), then take the best"
    why = "" if best else "nothing that is offered keeps what was asked"
    known = {"dollars_more": dollars, "seconds_more": facts.trial_seconds, "feasible": True} if best else {}
    return (*found, RuleChoice(rule="exhaustive search", text=text, choice=best, why=why, **known))


def measuring_everything(offers: Sequence[Offered], facts: RuleFacts) -> tuple[int, float | None]:
    """How many trials measure the job once on every machine at every number of nodes, and what they cost.

    Each type counts at its lowest price; the time that machines take to start comes on top and is not counted. The
    cost is ``None`` if a trial's length is unknown.
    """
    types: dict[str, Offered] = {}
    for offer in sorted(offers, key=lambda offer: offer.dollars_per_hour):
        types.setdefault(offer.key, offer)
    hourly = sum(offer.dollars_per_hour * offer.most_nodes * (offer.most_nodes + 1) / 2 for offer in types.values())
    dollars = None if facts.trial_seconds is None else hourly * facts.trial_seconds / 3600
    return sum(offer.most_nodes for offer in types.values()), dollars


def rule_facts(bases: Sequence[Base], goal: Goal, catalog: Catalog) -> RuleFacts:
    """What the profiles of one job tell (one at least; the first is what people ask for again), and published ratios.

    A profile gives what anybody can time: how fast one device trains by itself, and the whole job where it ran. Other
    GPUs' speeds are published ratios to the profiled one: of the same model if there are some, else of all.
    """
    first, own, measured = bases[0], dict[str, float](), dict[tuple[str, int], float]()
    precision = trained_in(first.profile.workload)
    for base in bases:
        host, breakdown = next(iter(base.profile.hosts), None), base.breakdown
        alone = breakdown.seconds("compute", "transfer")  # of one device by itself, on replayed batches
        if base.target.device is not None and host is not None and host.gpus and breakdown.samples_per_step:
            model = model_of(host.gpus[0], catalog)
            if model and alone > 0:
                own[model] = breakdown.samples_per_step / breakdown.world_size / alone
        if host is not None and host.instance is not None and breakdown.samples_per_second:
            measured[host.instance, base.target.nodes] = breakdown.samples_per_second
    rates: dict[str, float] = {}
    for seen, rate in list(own.items())[:1]:
        for gpu in catalog.gpus:
            if found := pairs(seen, gpu.model, precision):
                same = [pair for pair in found if pair.model == model_key(first.profile.workload.name)]
                rates[gpu.model] = rate * math.exp(-by_model(same or found))
    return RuleFacts(
        samples=goal.work.samples,
        nodes=first.target.nodes,
        devices=first.target.devices,
        precision=precision,
        deadline_seconds=goal.deadline_seconds,
        budget_dollars=goal.budget_dollars,
        rates={**rates, **own},
        measured=measured,
        trial_seconds=first.profile.elapsed_seconds,
    )


def ruled(
    question: PlanProblem,
    candidates: CandidateSet,
    goal: Goal,
    catalog: Catalog,
    best: Choice | None,
    choice_of: Callable[[Evaluation], Choice],
) -> tuple[RuleChoice, ...]:
    """What each rule would have rented of what can be forecast, and its regret against ``best``."""
    known = {chain.rentable.key for chain in candidates.chains if np.isfinite(chain.least.seconds).any()}
    rentables = [rentable for rentable in candidates.market.rentables if rentable.key in known]
    offers = [
        Offered(each.instance, each.price, each.devices, each.most_nodes, _gpu(each, catalog)) for each in rentables
    ]
    priced = {id(offer): rentable for offer, rentable in zip(offers, rentables, strict=True)}

    def weigh(picked: Picked) -> Choice | str:
        found = _cheapest(question, candidates, priced[id(picked.offer)], picked.nodes)
        return choice_of(found) if isinstance(found, Evaluation) else found

    return compare_rules(offers, rule_facts(question.bases, goal, catalog), weigh, best)


def _gpu(rentable: Rentable, catalog: Catalog) -> GpuFacts | None:
    try:
        return None if rentable.device is None else catalog.gpu(rentable.device)
    except UserError:  # made in several variants, and no source says which it is
        return None


def _cheapest(problem: PlanProblem, candidates: CandidateSet, rentable: Rentable, nodes: int) -> Evaluation | str:
    """So many of it with the settings that cost least, as the plan would run it there; else why it is unknown."""
    found: list[Evaluation] = []
    for chain in candidates.types().get(rentable.key, []):
        if chain.rentable is rentable and nodes in chain.shape.nodes:
            number = int(np.searchsorted(chain.shape.nodes, nodes))
            while chain.stage[number] < WHOLE and np.isfinite(chain.least.dollars[number]):
                problem.evaluator.advance(chain, number)
            if chain.stage[number] == WHOLE:
                found.append(problem.evaluator.evaluated(chain, number))
    if found:
        return min(found, key=lambda each: each.dollars)
    unknown = {**{f"{item.cloud}/{item.instance}": item for item in candidates.unranked}, **problem.evaluator.unknown}
    return (
        unknown[rentable.key].why if rentable.key in unknown else f"the job cannot be shared out over {nodes} of it"
    )
