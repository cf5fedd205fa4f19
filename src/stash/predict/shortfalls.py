"""What a machine that is short of something costs a profiled job: seconds of a step, by part and together.

Figures below those of their like become a share of each thing that a step needs, and the forecast of ``stash whatif``
says what that does: compute goes by the slowest device, products and memory each by its own share of it; the exchange
by the slowest link; preparing data by the cores that are left. The profile is taken to be of a healthy machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from stash.analysis.findings.parts import OTHERS
from stash.analysis.findings.peers import Standing
from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.records.base import Record
from stash.core.records.host import Host
from stash.core.records.profile import Workload
from stash.predict.changed_job import ChangedJob, change_job
from stash.predict.cluster import Network, NodeLinks, Target
from stash.predict.exposure import AS_MEASURED
from stash.predict.forecasting import job_stalls, lost
from stash.predict.passes import Base, ComputeScale

_BALANCE = 10.0
"""FLOPs of products in the time in which memory moves a byte, where no figures say: about a CPU's."""


class Shares(Record):
    """What is there of what should be; 1 is all of it, and what nothing is known of."""

    products: float = 1.0
    memory: float = 1.0
    inside: float = 1.0
    """Of the links inside a node."""
    network: float = 1.0
    cores: float = 1.0
    balance: float = _BALANCE
    """FLOPs of products that a healthy one makes in the time in which its memory moves a byte."""

    @property
    def whole(self) -> bool:
        return {self.products, self.memory, self.inside, self.network, self.cores} == {1.0}


class Loss(Record):
    """Seconds of a step that a part costs; ``None`` with the reason where the profile cannot tell."""

    part: str
    """``compute``, ``exchange``, ``prep``, or ``all`` of them together."""
    seconds: Interval | None
    share: float | None = None
    """Of the profiled step."""
    why: str = ""


def shares_of(hosts: Sequence[Host], found: Sequence[Standing], work: Workload, on_gpu: bool) -> Shares:
    """Of the slowest device, link and node, for this job."""
    types = {operator.dtype.removeprefix("torch.") for operator in work.operators if operator.flops} or {"float32"}
    if "float32" in types and work.float32_products not in (None, "highest"):
        types.add("tf32")
    device = [each for each in found if each.part == "compute" and bool(each.member) == on_gpu and not _of_one(each)]
    every = [each for each in device if each.group.startswith("gemm")]
    gemms = [each for each in every if each.group.split()[1] in types] or every
    triads = [each for each in device if each.group.startswith("triad")]
    products = _slowest(gemms)
    left = min((_cores_left(host) for host in hosts), default=1.0)
    if products is None and not on_gpu:
        products = left
    loading = _slowest(each for each in found if _of_one(each) and each.group.startswith(("JPEG", "copy")))
    exchanges = [each for each in found if each.part == "exchanges"]
    crossing = [each for each in exchanges if "ranks on 1," not in each.group]
    return Shares(
        products=products or 1.0,
        memory=_slowest(triads) or 1.0,
        inside=_slowest(each for each in exchanges if each not in crossing) or 1.0,
        network=_slowest(crossing or [each for each in found if each.part == "streams"]) or 1.0,
        cores=left * (loading or 1.0),
        balance=max(each.usual for each in gemms) / triads[0].usual if gemms and triads else _BALANCE,
    )


def _of_one(standing: Standing) -> bool:
    return standing.group.endswith(", 1 core")


def _slowest(found: Iterable[Standing]) -> float | None:
    """The slowest member's median ratio, if any of its figures is slow, else 1; ``None`` without figures."""
    members: dict[tuple[str, str], list[Standing]] = {}
    for each in found:
        members.setdefault((each.hostname, each.member), []).append(each)
    ratios = [
        min(1.0, median(each.ratio for each in own)) if any(each.slow for each in own) else 1.0
        for own in members.values()
    ]
    return min(ratios, default=None)


def _cores_left(host: Host) -> float:
    """Of the cores' time, what neither a quota, nor the machine's own host, nor other programs keep from a job."""
    state = next((each for each in host.links.states if each.device == "cpu"), None) if host.links else None
    cores, limit = host.cores, None if host.limits is None else host.limits.cpus
    allowed = 1.0 if not cores or limit is None else min(1.0, limit / cores)
    if state is None or not cores:
        return allowed
    others = state.others_cores or 0.0
    taken = others / cores if others > OTHERS else 0.0
    left = 1 - taken - (state.steal or 0.0)
    return allowed * left if left > 0 else allowed  # so busy a machine tells nothing of how much a job would get


def losses(base: Base, shares: Shares) -> tuple[Loss, ...]:
    """Of each part that is short, and of all together where several are."""
    parts = {
        "compute": Shares(products=shares.products, memory=shares.memory, balance=shares.balance),
        "exchange": Shares(inside=shares.inside, network=shares.network),
        "prep": Shares(cores=shares.cores),
    }
    found = [_loss(base, name, part) for name, part in parts.items() if not part.whole]
    return (*found, *([_loss(base, "all", shares)] if len(found) > 1 else []))


def _loss(base: Base, name: str, shares: Shares) -> Loss:
    try:
        drawn = job_stalls(_job_on(base, shares))
        if lost(base, drawn) and shares.inside == shares.network == 1.0:
            # the profile does not tell how the exchange hides behind passes: it is taken to stay as long as it was
            drawn = job_stalls(replace(_job_on(base, shares), exchange=AS_MEASURED))
    except UserError as error:
        return Loss(part=name, seconds=None, why=str(error))
    unknown = lost(base, drawn)
    if unknown:
        return Loss(part=name, seconds=None, why=f"{unknown[0].name}: {unknown[0].why}")
    longer = drawn.step - job_stalls(change_job(base)).step
    low, high = np.quantile(longer, (0.025, 0.975))
    mean = float(np.mean(longer))
    seconds = Interval(value=mean, low=min(mean, float(low)), high=max(mean, float(high)))
    return Loss(part=name, seconds=seconds, share=mean / base.breakdown.step_seconds)


def _job_on(base: Base, shares: Shares) -> ChangedJob:
    """The profiled job where there is only so much of each."""
    job, target = change_job(base), _target_with(base.target, shares)
    longer = compute_factor(base.profile.workload, shares)
    return replace(
        job,
        target=target,
        compute=ComputeScale(np.full(base.draws.count, longer)),
        exchange=replace(job.exchange, compute=longer),
        unchanged=False,
        only_cached=False,
    )


def compute_factor(work: Workload, shares: Shares) -> float:
    """Times as long as profiled that compute takes: products at their share, everything else at the memory's.

    What each of the two takes of it is weighed by the operators' FLOPs and bytes, at the machine's own balance.
    """
    flops = sum(each.flops or 0.0 for each in work.operators)
    moved = sum(each.bytes or 0 for each in work.operators if not each.flops)
    weight = 1.0 if not flops else flops / (flops + shares.balance * moved)
    return weight / shares.products + (1 - weight) / shares.memory


def _target_with(target: Target, shares: Shares) -> Target:
    update: dict[str, object] = {}
    for name, times in (("inside", shares.inside), ("network", shares.network)):
        links: NodeLinks | Network | None = getattr(target, name)
        if times != 1.0:
            if links is None or links.bytes_per_second is None:
                raise UserError(f"the profile does not tell the rate of the {name} links, so their loss is unknown")
            scaled = links.bytes_per_second.scaled(times, source="stash probe")
            update[name] = links.model_copy(update={"bytes_per_second": scaled})
    if shares.cores != 1.0:
        if target.cores is None:
            raise UserError("the profile does not tell how many cores it had, so what fewer cost is unknown")
        update["cores"] = target.cores.scaled(shares.cores, source="stash probe")
    return target.model_copy(update=update)
