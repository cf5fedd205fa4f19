"""The loader's part of the space of changes: workers and their queues, samples that are kept, pinned batches."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from stash.advice.loader_remedies import saved_out_of_order, threads_of_workers
from stash.advice.remedies import REMEDIES
from stash.analysis.batch_times import WORKING, worked_share
from stash.core.ledger_rows import EPOCH_START, EVALUATION
from stash.core.units import format_bytes, format_seconds
from stash.fix.script_changes import Around, Facts, Proposal, ScriptChange, Site, thread_vars
from stash.measure.agent.wraps.patched_code import OneThread
from stash.measure.agent.wraps.sample_cache import MEMORY, CachedSamples


def propose_for_loader(propose: Callable[[Facts, Site], Proposal]) -> Callable[[Facts], Proposal]:
    """What is proposed for the call that built the loader that trains."""

    def propose_change(facts: Facts) -> Proposal:
        return (
            "no DataLoader trains the job" if facts.loader is None else propose(facts, facts.loader)
        )

    return propose_change


def _set_arguments(
    name: str, knob: str, text: str, site: Site, values: Mapping[str, Any], **more: Any
) -> ScriptChange:
    """Arguments of the loader, set as it is built and written as they are."""
    settings = {"loader": {**values, "site": site.key}, **more.pop("settings", {})}
    return ScriptChange(name, knob, text, site=site, settings=settings, writes=values, **more)


_PAGE = 4096
"""Bytes that a kept sample takes besides what is in it: its last page is seldom full."""
_NO_FASTER = 0.8
"""Times what making a sample takes, which reading it back has to stay below."""
_PLACES = {"memory": "in memory", "disk": "on disk"}
_NO_EPOCH = "no epoch ended within a launch: what starting workers costs is spread over a long one"
_LONG_EPOCH = 60.0
"""Seconds of an epoch from which what pays in a second one is not kept unasked, unless one was seen."""
_MOST_WORKERS, _VALUES = 32, 6
"""Of a rank; and values that are tried."""


def workers_changes(facts: Facts, site: Site) -> Proposal:
    now = int(site.values["num_workers"])
    room = max(1, facts.cores // facts.ranks)
    if site.values["iterable"]:
        return "a stream gives each worker all of it unless it is written otherwise"
    asked = [each.asks.workers for each in REMEDIES["prep"](facts.case) if each.asks is not None]
    needed = max((n for n in asked if n is not None), default=room)
    # work of cores more workers than cores do no faster, waiting they do
    by_cores = (worked_share(facts.case.profile) or 0.0) > WORKING
    most_workers = min(_MOST_WORKERS, 2 * room if by_cores else max(2 * room, needed))
    powers = [2**power for power in range(7)]
    wanted = {n for n in (*powers, room, needed, most_workers) if n <= most_workers}
    if now and not site.values["persistent_workers"]:
        wanted.add(0)
    near = order_workers(wanted - {now}, min(needed, most_workers), room)
    text = f"num_workers {now} ->"
    more = {"stalls": ("prep", "fetch"), "forecast": facts.prep_seconds}
    found = [
        _set_arguments(f"workers={n}", "workers", f"{text} {n}", site, {"num_workers": n}, **more)
        for n in near[:_VALUES]
    ]
    return [*found[:1], *_trade_threads(facts, site, needed, room), *found[1:]]


def _trade_threads(facts: Facts, site: Site, needed: int, room: int) -> list[ScriptChange]:
    """Workers on cores that threads leave them: where threads have all cores, neither saves anything alone."""
    now = int(site.values["num_workers"])
    found = []
    if not facts.is_on_cpu or facts.sets_threads or facts.find_site("threads") is not None:
        return []
    for n in sorted({min(needed, room - 1), room // 2} - {0, now}):
        threads = room - n
        if threads >= facts.threads:
            continue
        text = f"num_workers {now} -> {n}, threads per rank {facts.threads} -> {threads}"
        found.append(
            _set_arguments(
                f"workers={n}+threads={threads}",
                "workers",
                text,
                site,
                {"num_workers": n},
                effect="rounding",
                stalls=("prep", "fetch", "contention"),
                settings={"threads": threads},
                variables=thread_vars(threads),
                forecast=facts.prep_seconds,
            )
        )
    return found


def order_workers(values: set[int], needed: int, room: int) -> list[int]:
    """First what lies half way from the cores to the advice, far from neither; then these two, and what is near."""
    inside = [n for n in values if min(needed, room) < n < max(needed, room)]
    first = [needed, room]
    if inside:
        first.insert(
            0, min(inside, key=lambda n: (abs(math.log2(n / math.sqrt(needed * room))), -n))
        )
    return sorted(
        values,
        key=lambda n: (
            first.index(n) if n in first else len(first),
            abs(math.log2((n + 0.5) / needed)),
        ),
    )


def prefetch_changes(facts: Facts, site: Site) -> Proposal:
    now = site.values["prefetch_factor"]
    if not site.values["num_workers"] or now is None:
        return "the loader has no workers"
    new = 4 if now < 4 else 2 * now
    text = f"prefetch_factor {now} -> {new}"
    values = {"prefetch_factor": new}
    return [
        _set_arguments(
            f"prefetch={new}",
            "prefetch",
            text,
            site,
            values,
            stalls=("prep", "fetch"),
            forecast=facts.prep_seconds,
        )
    ]


def persistent_changes(facts: Facts, site: Site) -> Proposal:
    if not site.values["num_workers"] or site.values["persistent_workers"]:
        return "already set" if site.values["persistent_workers"] else "the loader has no workers"
    if facts.epoch_seconds is None:
        return _NO_EPOCH
    return [
        _set_arguments(
            "persistent",
            "persistent",
            "persistent_workers False -> True",
            site,
            {"persistent_workers": True},
            effect="order",
            stalls=("prep", EPOCH_START),
            forecast=facts.epoch_seconds,
        )
    ]


def evaluation_changes(facts: Facts) -> Proposal:
    """Workers of loaders that are read without gradients, again and again."""
    built = [each for each in facts.list_sites("loader") if each.key in facts.evaluations]
    if not built:
        return "no evaluation was seen to begin twice within a launch"
    able = [
        each
        for each in built
        if each.values["num_workers"]
        and not each.values["persistent_workers"]
        and each.calls == 1
        and each.key != facts.trains
    ]
    if not able:
        return "evaluation's loader is made again each time, has no workers, or keeps them"
    values = {"persistent_workers": True}
    return [
        ScriptChange(
            "evaluation_workers",
            "evaluation",
            "persistent_workers False -> True of evaluation's loader",
            effect="order",
            stalls=(EVALUATION,),
            site=able[0],
            also=tuple(able[1:]),
            settings={"evaluation": {each.key: values for each in able}},
            writes=values,
            forecast=sum(facts.evaluations[each.key] for each in able),
        )
    ]


def order_changes(facts: Facts, site: Site) -> Proposal:
    loader = facts.case.loader
    if loader is None or site.values["num_workers"] < 2:
        return "one batch is made at a time"
    if not loader.in_order:
        return "PyTorch has no in_order before 2.6" if loader.in_order is None else "already set"
    share = saved_out_of_order(facts.case)
    most = facts.most_seconds("prep")
    text = "in_order True -> False"
    values = {"in_order": False}
    # None: too few batches were timed
    forecast = most if share is None or most is None else share * most
    return [
        _set_arguments(
            "in_order",
            "in_order",
            text,
            site,
            values,
            effect="order",
            stalls=("prep",),
            forecast=forecast,
        )
    ]


def start_method_changes(facts: Facts, site: Site) -> Proposal:
    loader = facts.case.loader
    if not site.values["num_workers"] or loader is None or loader.start_method in (None, "fork"):
        return (
            "workers are forked already"
            if site.values["num_workers"]
            else "the loader has no workers"
        )
    if not facts.is_on_cpu and loader.on_device is not False:
        return "batches may be made on a GPU, which no forked worker can use"
    if facts.epoch_seconds is None:
        return _NO_EPOCH
    text = f"multiprocessing_context {loader.start_method} -> fork"
    values = {"multiprocessing_context": "fork"}
    return [
        _set_arguments(
            "fork",
            "start_method",
            text,
            site,
            values,
            stalls=("prep", EPOCH_START),
            forecast=facts.epoch_seconds,
        )
    ]


def worker_threads_changes(facts: Facts, site: Site) -> Proposal:
    threads = threads_of_workers(facts.case)
    workers = site.values["num_workers"]
    if not workers or threads is None:
        return (
            "how many threads workers use was not seen" if workers else "the loader has no workers"
        )
    if threads < 2 or threads * workers * facts.ranks <= facts.cores:
        return "there are cores for the threads of all workers"
    return [
        ScriptChange(
            "worker_threads=1",
            "worker_threads",
            f"threads of a loader worker {threads:.0f} -> 1",
            effect="rounding",
            stalls=("prep", "contention", "compute"),
            site=site,
            settings={"loader": {"one_thread": True, "site": site.key}},
            line=source_with_imports(OneThread, "sys"),
            around=Around("worker_init_fn", "OneThread(", alone=True),
            forecast=facts.most_seconds("prep", "contention", "compute"),
        )
    ]


def cache_changes(facts: Facts, site: Site) -> Proposal:
    kept = site.values.get("kept")
    if site.values["iterable"] or kept is None:
        return (
            "samples of a stream have no numbers"
            if site.values["iterable"]
            else "samples were not read twice"
        )
    if "why" in kept:
        return str(kept["why"])
    made = kept["made_seconds"]
    read = kept["read_seconds"]
    if read > _NO_FASTER * made:
        return f"a sample is made in {format_seconds(made)}, and would be read back in {format_seconds(read)}"
    # in time, each rank may read them all
    size = int(facts.ranks * kept["samples"] * (kept["bytes"] + _PAGE))
    place = next((name for name in ("memory", "disk") if size <= kept["free"][name]), None)
    if place is None:
        return f"{kept['samples']:,} samples take {format_bytes(size)}, more than a quarter of what is free"
    before = " before their transform" if kept["transform"] else ""
    again = "from the second epoch on" if facts.ranks == 1 else "where a rank reads a sample again"
    text = f"samples kept{before}, {format_bytes(size)} {_PLACES[place]}, which pays {again}"
    where = f', "{MEMORY}"' if place == "memory" else ""
    epoch = (facts.case.epoch.epoch_steps or 0.0) * facts.case.breakdown.step_seconds
    begun = [
        row.times
        for each in facts.case.profile.ledgers
        for row in each.rows
        if row.row == EPOCH_START
    ]
    asks = max(begun, default=0) < 2 and epoch > _LONG_EPOCH
    return [
        ScriptChange(
            f"cache={place}",
            "cache",
            text,
            stalls=("prep", "fetch"),
            site=site,
            fills=True,
            consent="cache" if asks else "",
            consent_why=f"saves nothing in the first epoch, of {format_seconds(epoch)}"
            if asks
            else "",
            settings={"cache": {"site": site.key, "transform": kept["transform"]}},
            forecast=facts.prep_seconds,
            line=cached_samples(),
            around=Around(
                "dataset",
                "CachedSamples(",
                f"{where}{', transform=True' if kept['transform'] else ''})",
            ),
        )
    ]


def cached_samples() -> str:
    """The class that keeps samples, as it is put into a script."""
    return source_with_imports(CachedSamples, "fcntl", "os", "pickle", "struct", "sys", "tempfile")


def source_with_imports(cls: type, *names: str) -> str:
    """A class as it stands in Stash, with the modules that it needs."""
    text = re.sub(r"  # type: ignore.*", "", inspect.getsource(cls))
    imports = "".join(f"import {name}\n" for name in names)
    return f"{imports}\n\n{text}"


def pin_changes(facts: Facts, site: Site) -> Proposal:
    if facts.is_on_cpu:
        return "the job trains on CPUs"
    if site.values["pin_memory"]:
        return "already set"
    text = "pin_memory False -> True"
    values = {"pin_memory": True}
    more: dict[str, Any] = {
        "stalls": ("transfer",),
        "forecast": facts.most_seconds("transfer", "prep"),
    }
    changes = [_set_arguments("pin", "pin", text, site, values, **more)]
    waiting = [each for each in facts.list_sites("copy") if not each.values["non_blocking"]]
    own = tuple(each for each in facts.list_step_sites("copy") if each in waiting)
    if waiting or not facts.list_sites("copy"):
        more |= {"settings": {"non_blocking": True}, "copies": own}
        more |= {} if own else {"by_hand": "and copy with `batch.to(device, non_blocking=True)`"}
        changes.append(
            _set_arguments(
                "pin+non_blocking", "pin", f"{text}, copies non_blocking", site, values, **more
            )
        )
    return changes


def non_blocking_changes(facts: Facts) -> Proposal:
    copies = [each for each in facts.list_sites("copy") if each.values["pinned"]]
    if not copies:
        return "no copies of pinned batches to a GPU were seen"
    waiting = [each for each in copies if not each.values["non_blocking"]]
    if not waiting:
        return "already set"
    return [
        ScriptChange(
            "non_blocking",
            "non_blocking",
            "copies with non_blocking=True",
            stalls=("transfer",),
            site=waiting[0],
            also=tuple(waiting[1:]),
            settings={"non_blocking": True},
            writes={"non_blocking": True},
            forecast=facts.most_seconds("transfer"),
        )
    ]
