"""What a machine that is short of something costs a profiled job: seconds of a step, by part and together.

Figures below those of their like become a share of each thing that a step needs, and the forecast of ``stash whatif``
says what that does: compute goes by the slowest device, products and memory each by its own share of it; the exchange
by the slowest link; preparing data by the cores that are left. The profile is taken to be of a healthy machine.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from stash.analysis.findings.part_checks import OTHERS, THROTTLED, is_disturbed
from stash.analysis.findings.rates import own_rate
from stash.analysis.findings.standings import FigureStanding
from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.records.base import Record
from stash.core.records.host import Host
from stash.core.records.profile import Workload
from stash.predict.changed_job import ChangedJob, change_job
from stash.predict.cluster import Network, NodeLinks, Target
from stash.predict.cluster_sources import usable_threads
from stash.predict.exposure import AS_MEASURED
from stash.predict.forecasting import job_stalls, lost_stalls
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
    def is_whole(self) -> bool:
        return {self.products, self.memory, self.inside, self.network, self.cores} == {1.0}


class JobLoss(Record):
    """Seconds of a step that a part costs; ``None`` with the reason where the profile cannot tell."""

    part: str
    """``compute``, ``exchange``, ``prep``, or ``all`` of them together."""
    seconds: Interval | None
    share: float | None = None
    """Of the profiled step."""
    why: str = ""


def shares_of(
    hosts: Sequence[Host], found: Sequence[FigureStanding], work: Workload, on_gpu: bool
) -> Shares:
    """Of the slowest device, link and node, for this job."""
    types = {
        operator.dtype.removeprefix("torch.") for operator in work.operators if operator.flops
    } or {"float32"}
    if "float32" in types and work.float32_products not in (None, "highest"):
        types.add("tf32")
    device = [
        each
        for each in found
        if bool(each.member) == on_gpu and not each.group.endswith(", 1 core")
    ]
    every = [each for each in device if each.group.startswith("gemm")]
    gemms = [each for each in every if each.group.split()[1] in types] or every
    triads = [each for each in device if each.group.startswith("triad")]
    left = min((_cores_left(host) for host in hosts), default=1.0)
    crossing = [
        each for each in found if each.part == "exchanges" and "ranks on 1," not in each.group
    ]
    streams = [each for each in found if each.part == "streams"]
    is_crowded = not on_gpu and any(map(is_disturbed, hosts))
    products, memory = _slowest(gemms) if gemms or on_gpu else left, _slowest(triads)
    throttled = [share for host in hosts if (share := _unthrottled(host, types)) is not None]
    if is_crowded and throttled:
        products = memory = min(throttled)
    elif is_crowded:
        products, memory = (
            # Over all of the figures' time, which each has as much of: a job gets no better moments either.
            fmean(figure.sustained_ratio for figure in each) if each else left
            for each in (gemms, triads)
        )
    loading = [each for each in found if each.group.startswith(("JPEG", "copy"))]
    return Shares(
        products=products,
        memory=memory,
        inside=_slowest(
            [each for each in found if each.part == "exchanges" and each not in crossing]
        ),
        network=_slowest(crossing or streams),
        cores=left * _slowest(loading),
        balance=max(each.usual for each in gemms) / triads[0].usual
        if gemms and triads
        else _BALANCE,
    )


def _unthrottled(host: Host, types: Collection[str]) -> float | None:
    """What a quota leaves of all cores' products; ``None`` where none was used up.

    That is the quota's share of the cores, times what a second of a core does under it by what it does at best:
    threads wait, at work, for one that was stopped. A probe's seconds hold too few of a quota's periods to tell it
    by the clock.
    """
    if host.links is None or not any(
        (state.throttled or 0.0) > THROTTLED for state in host.links.states
    ):
        return None
    gemms = [
        each for each in host.links.figures if each.device == "cpu" and each.name.startswith("gemm")
    ]
    every = [each for each in gemms if not each.name.endswith(", 1 core")]
    whole = spent = 0.0
    for figure in [each for each in every if each.name.split()[1] in types] or every:
        best = own_rate(figure)
        if best is not None:
            whole += figure.work * sum(map(len, figure.bursts)) / best
            spent += sum(figure.cpu_seconds)
    limit = usable_threads(host)
    quota = limit / host.cores if limit is not None and host.cores else 1.0
    return quota * (whole / spent if spent else 1.0)


def _slowest(found: Sequence[FigureStanding]) -> float:
    """Of the members with a slow figure, the slowest one's median ratio; 1 without any."""
    members: dict[tuple[str, str], list[FigureStanding]] = {}
    for each in found:
        members.setdefault((each.hostname, each.member), []).append(each)
    slow = [own for own in members.values() if any(each.slow for each in own)]
    return min((median(each.ratio for each in own) for own in slow), default=1.0)


def _cores_left(host: Host) -> float:
    """Of the cores' time, what neither a quota, nor the machine's own host, nor other programs keep from a job."""
    states = host.links.states if host.links is not None else ()
    limit, cores = usable_threads(host), host.cores
    if not cores or limit is None:
        return 1.0
    taken = 0.0
    for state in states:
        others = state.others_cores or 0.0
        taken += (others / cores if others > OTHERS else 0.0) + (state.steal or 0.0)
    # so busy a machine that nothing is left tells nothing of how much a job would get
    return limit / cores * (1 - taken if taken < 1 else 1)


def losses(base: Base, shares: Shares) -> tuple[JobLoss, ...]:
    """Of each part that is short, and of all together where several are; one rank exchanges nothing."""
    if base.profile.world_size == 1:
        shares = shares.model_copy(update={"inside": 1.0, "network": 1.0})
    parts = {
        "compute": Shares(products=shares.products, memory=shares.memory, balance=shares.balance),
        "exchange": Shares(inside=shares.inside, network=shares.network),
        "prep": Shares(cores=shares.cores),
    }
    found = [_loss(base, name, part) for name, part in parts.items() if not part.is_whole]
    return (*found, *([_loss(base, "all", shares)] if len(found) > 1 else []))


def _loss(base: Base, name: str, shares: Shares) -> JobLoss:
    try:
        drawn = job_stalls(_shrink_job(base, shares))
        if lost_stalls(base, drawn) and shares.inside == shares.network == 1.0:
            # the profile does not tell how the exchange hides behind passes: it is taken to stay as long as it was
            drawn = job_stalls(replace(_shrink_job(base, shares), exchange=AS_MEASURED))
    except UserError as error:
        return JobLoss(part=name, seconds=None, why=str(error))
    unknown = lost_stalls(base, drawn)
    if unknown:
        return JobLoss(part=name, seconds=None, why=f"{unknown[0].name}: {unknown[0].why}")
    longer = drawn.step - job_stalls(change_job(base)).step
    low, high = np.quantile(longer, (0.025, 0.975))
    mean = float(np.mean(longer))
    seconds = Interval(value=mean, low=min(mean, float(low)), high=max(mean, float(high)))
    return JobLoss(part=name, seconds=seconds, share=mean / base.breakdown.step_seconds)


def _shrink_job(base: Base, shares: Shares) -> ChangedJob:
    """The profiled job where there is only so much of each."""
    job, target = change_job(base), _shrink_target(base.target, shares)
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


def _shrink_target(target: Target, shares: Shares) -> Target:
    update: dict[str, object] = {}
    for name, times in (("inside", shares.inside), ("network", shares.network)):
        links: NodeLinks | Network | None = getattr(target, name)
        if times != 1.0:
            if links is None or links.bytes_per_second is None:
                raise UserError(
                    f"the profile does not tell the rate of the {name} links, so their loss is unknown"
                )
            scaled = links.bytes_per_second.scale(times, source="stash probe")
            update[name] = links.model_copy(update={"bytes_per_second": scaled})
    if shares.cores != 1.0:
        if target.cores is None:
            raise UserError(
                "the profile does not tell how many cores it had, so what fewer cost is unknown"
            )
        update["cores"] = target.cores.scale(shares.cores, source="stash probe")
    return target.model_copy(update=update)
