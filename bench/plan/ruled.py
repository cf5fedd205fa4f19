"""The product's rules of how people choose today, asked about what benchmarks offer: machines that no catalog has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stash.catalog.facts import GpuFacts, Instance
from stash.core.intervals import Interval
from stash.plan.records import HourlyPrice
from stash.plan.rules import Offered, Picked, RuleFacts
from stash.plan.rules_compared import RULES

Called = Callable[[Picked], str]
"""How a pick is named among the candidates."""


def offered(name: str, gpu: GpuFacts, devices: int, most_nodes: int, dollars_per_hour: float) -> Offered:
    """A machine of the benchmark's as the rules see one."""
    instance = Instance(
        cloud="benchmark", name=name, gpu_model=gpu.model, gpu_count=devices, as_of=gpu.as_of, source="the benchmark"
    )
    price = HourlyPrice(
        dollars_per_hour=Interval(value=dollars_per_hour), paid_as="on-demand", source="the benchmark"
    )
    return Offered(instance, price, devices, most_nodes, gpu)


def choices(offers: Sequence[Offered], facts: RuleFacts, called: Called) -> dict[str, str | None]:
    """What each rule would rent, by its name; ``None`` where it can choose nothing."""
    picked = {rule.name: rule.chooses(list(offers), facts) for rule in RULES}
    return {name: None if isinstance(each, str) else called(each) for name, each in picked.items()}
