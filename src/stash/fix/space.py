"""The space of changes: what of a job can be set, when that can be tried, and what it can save at most by forecast.

``SPACE`` is a table of *knobs*. A knob proposes *changes*, values of it, for the job at hand, or says why not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stash.advice.run_remedies import COLLECTED
from stash.core.fix_records import Effect
from stash.core.formatting import join_names
from stash.core.ledger_rows import COLLECTOR
from stash.fix import loader_changes as loaders
from stash.fix.loader_changes import propose_for_loader
from stash.fix.script_changes import (
    MIB,
    OF_EXCHANGE,
    Facts,
    Knob,
    Proposal,
    ScriptChange,
    Site,
    thread_vars,
)
from stash.measure.agent.wraps.patched_code import SeldomCollected
from stash.predict.precision import training_precision


def _propose_no_waits(facts: Facts) -> Proposal:
    if facts.ranks < 2 and facts.is_on_cpu:
        return "one process on CPUs waits for nobody"
    found = facts.list_step_sites("wait")
    if not found:
        return "no synchronize() and no barrier() in every step"
    calls = join_names([f"{each.values['name']}() in line {each.line}" for each in found])
    return [
        ScriptChange(
            "no_waits",
            "waits",
            f"without {calls}",
            stalls=("contention", *OF_EXCHANGE),
            removes=tuple(found),
            settings={"skip": [each.key for each in found]},
            forecast=sum(each.values["seconds"] for each in found) / facts.steps,
        )
    ]


def _propose_items(facts: Facts) -> Proposal:
    if facts.is_on_cpu:
        return "on CPUs .item() waits for nothing"
    return [
        ScriptChange(
            f"item:{each.line}",
            "items",
            f".item() at {Path(each.file).name}:{each.line} does not wait for its step",
            stalls=("compute",),
            settings={"late": each.key},
            site=each,
            forecast=facts.most_seconds("compute"),
            by_hand="keep `.detach()` of it, and call .item() every 50 steps, when the number is printed",
        )
        for each in facts.list_step_sites("item")
    ] or "no .item() in every step"


def _propose_threads(facts: Facts) -> Proposal:
    if not facts.is_on_cpu:
        return "the job trains on GPUs"
    now = facts.threads
    room = max(1, facts.cores // facts.ranks)
    site = facts.find_site("threads")
    wanted = sorted({1, room, max(1, room // 2)} - {now})
    return [
        ScriptChange(
            f"threads={n}",
            "threads",
            f"threads per rank {now} -> {n}",
            effect="rounding",
            stalls=("compute", "contention"),
            settings={"threads": n},
            site=site,
            forecast=facts.most_seconds("compute", "contention"),
            # in the call that sets them; where the script writes the variable itself, that counts
            # whatever it is started with
            writes={} if site is None else {"0": n},
            line=f"torch.set_num_threads({n})" if site is None and facts.sets_threads else "",
            variables={} if site is not None or facts.sets_threads else thread_vars(n),
        )
        for n in wanted
    ] or "as many as cores"


def _find_ddp(facts: Facts) -> Site | str:
    site = facts.find_site("ddp")
    return "the job has no DistributedDataParallel" if site is None or facts.ranks < 2 else site


def _exchange_seconds(facts: Facts) -> float | None:
    names = [
        name for name in ("interconnect", "network") if facts.case.breakdown.stall(name) is not None
    ]
    return facts.most_seconds(*names) if names else None


def _sum_effect(facts: Facts) -> Effect:
    """Of two ranks a sum is the same whatever it travels with; of more its order depends on its place in a bucket."""
    return "none" if facts.ranks <= 2 else "rounding"


def _propose_bucket(facts: Facts) -> Proposal:
    site = _find_ddp(facts)
    if isinstance(site, str):
        return site
    total = sum(facts.case.profile.workload.bucket_bytes)
    now = site.values["bucket_bytes_cap"]
    if not total or not now:
        return "how large the gradients are is not known"
    current = round(now / MIB, 2)
    wanted = {
        max(1, round(total / 8 / MIB)),
        max(1, round(total / 3 / MIB)),
        25,
        math.ceil(2 * total / MIB),
    }
    if total < 2 * MIB:
        wanted = {25}  # all of it in one bucket as DDP comes
    kept = [n for n in wanted if n != current and not (n * MIB >= total and current * MIB >= total)]
    larger = sorted(n for n in kept if n > current)
    smaller = sorted((n for n in kept if n < current), reverse=True)
    most = _exchange_seconds(facts)
    milder = dict(zip(smaller[1:], smaller, strict=False))
    return [
        _set_calls(
            f"bucket={n}",
            "bucket",
            f"bucket_cap_mb {current:g} -> {n}",
            "ddp",
            facts.list_sites("ddp"),
            {"bucket_cap_mb": n},
            effect=_sum_effect(facts),
            stalls=OF_EXCHANGE,
            forecast=most,
            joins=n > current,  # more exchanges may cost more
            beyond=f"bucket={milder[n]}" if n in milder else "",
        )
        for n in (*larger, *smaller)
    ] or "one bucket holds all gradients, of whatever size"


def _flag_of_ddp(name: str, value: bool, behind: str = "") -> Callable[[Facts], Proposal]:
    """``behind`` is a flag that has to be off before."""

    def propose(facts: Facts) -> Proposal:
        site = _find_ddp(facts)
        if isinstance(site, str):
            return site
        unset = [each for each in facts.list_sites("ddp") if each.values[name] != value]
        if not unset or any(each.values.get(behind) for each in unset):
            return f"{behind} goes first" if unset else "already set"
        text = f"{name} {not value} -> {value}"
        stalls = ("compute", *OF_EXCHANGE)
        return [
            _set_calls(
                name,
                name,
                text,
                "ddp",
                unset,
                {name: value},
                effect=_sum_effect(facts),
                stalls=stalls,
            )
        ]

    return propose


def _batches_of_step(facts: Facts) -> float:
    loaders = facts.case.profile.workload.loaders
    return max((loader.batches_per_step for loader in loaders), default=1)


def _propose_static_graph(facts: Facts) -> Proposal:
    """PyTorch ends a job whose first passes under it exchange nothing."""
    if _batches_of_step(facts) > 1:
        return "no static graph goes with accumulated gradients (no_sync)"
    return _flag_of_ddp("static_graph", True, behind="find_unused_parameters")(facts)


def _propose_no_sync(facts: Facts) -> Proposal:
    work, batches = facts.case.profile.workload, _batches_of_step(facts)
    if isinstance(_find_ddp(facts), str) or batches <= 1:
        return "a step is one batch"
    if work.skips_exchanges is not False:
        return "gradients are exchanged once a step already"
    by_hand = (
        f"of all but the last of a step's {batches:g} batches, run the forward and the backward pass inside "
        "`with ddp.no_sync():`"
    )
    return [
        ScriptChange(
            "no_sync",
            "no_sync",
            f"gradients exchanged once for the {batches} batches of a step",
            effect="rounding",
            stalls=OF_EXCHANGE,
            settings={"exchange_every": int(batches)},
            by_hand=by_hand,
            forecast=_exchange_seconds(facts),
        )
    ]


def _set_calls(
    name: str,
    knob: str,
    text: str,
    kind: str,
    sites: Sequence[Site],
    values: Mapping[str, Any],
    **more: Any,
) -> ScriptChange:
    """Arguments of all calls of a kind, set in trials and written as they are."""
    return ScriptChange(
        name,
        knob,
        text,
        site=sites[0],
        also=tuple(sites[1:]),
        settings={kind: values},
        writes=values,
        **more,
    )


def _propose_set_to_none(facts: Facts) -> Proposal:
    unset = [each for each in facts.list_sites("zero_grad") if not each.values["set_to_none"]]
    if not unset:
        return "already set"
    text = "zero_grad(set_to_none=True)"
    values = {"set_to_none": True}
    change = _set_calls(
        "set_to_none", "set_to_none", text, "zero_grad", unset, values, stalls=("compute",)
    )
    return [change]


def _propose_fused(facts: Facts) -> Proposal:
    # on GPUs foreach is what PyTorch takes by itself
    forms = ("fused", "foreach") if facts.is_on_cpu else ("fused",)
    sites = facts.list_sites("optimizer")
    form = next(
        (form for form in forms if any(form in each.values["takes"] for each in sites)), None
    )
    if form is None:
        return "the optimizer has no fused form"
    unset = [each for each in sites if form in each.values["takes"] and not each.values[form]]
    if not unset:
        return "already set"
    return [
        _set_calls(
            form,
            "fused",
            f"{unset[0].values['class']}({form}=True)",
            "optimizer",
            unset,
            {form: True},
            effect="rounding",
            stalls=("compute",),
            forecast=facts.update_seconds if facts.is_on_cpu else facts.most_seconds("compute"),
        )
    ]


def _has_convolutions(facts: Facts) -> bool:
    return any("conv" in operator.operator for operator in facts.case.profile.workload.operators)


def _propose_channels_last(facts: Facts) -> Proposal:
    if not _has_convolutions(facts):
        return "the model has no convolutions"
    return [
        ScriptChange(
            "channels_last",
            "channels_last",
            "model in channels_last",
            effect="rounding",
            stalls=("compute",),
            settings={"channels_last": True},
            forecast=facts.most_seconds("compute"),
            by_hand="model = model.to(memory_format=torch.channels_last)  # before DDP and the optimizer are built",
        )
    ]


def _flag_of_gpus(
    name: str, text: str, effect: Effect, consent: str = ""
) -> Callable[[Facts], Proposal]:
    def propose(facts: Facts) -> Proposal:
        if facts.is_on_cpu:
            return "the job trains on CPUs"
        if "cudnn.benchmark" in name and not _has_convolutions(facts):
            return "the model has no convolutions"
        short = name.rpartition("backends.")[2]
        return [
            ScriptChange(
                short,
                short,
                text,
                effect=effect,
                stalls=("compute",),
                settings={"flags": {name: True}},
                line=f"torch.{name} = True",
                consent=consent,
                forecast=facts.most_seconds("compute"),
            )
        ]

    return propose


def _propose_compile(facts: Facts) -> Proposal:
    return [
        ScriptChange(
            "compile",
            "compile",
            "torch.compile",
            effect="rounding",
            stalls=("compute",),
            settings={"compile": True},
            by_hand="model.compile()  # before DDP is built around it",
            forecast=facts.most_seconds("compute"),
        )
    ]


def _propose_bfloat16(facts: Facts) -> Proposal:
    if training_precision(facts.case.profile.workload) == "amp":
        return "the job trains in 16 bits already"
    if "float64" in (facts.case.profile.workload.precision or ""):
        return "the job trains in 64 bits, which autocast leaves alone"
    device = "cpu" if facts.is_on_cpu else "cuda"
    return [
        ScriptChange(
            "bfloat16",
            "bfloat16",
            "forward passes in bfloat16",
            effect="numerics",
            stalls=("compute",),
            settings={"autocast": "bfloat16"},
            consent="numerics",
            forecast=facts.most_seconds("compute"),
            by_hand=f'with torch.autocast("{device}", torch.bfloat16):  # around the forward pass and the loss',
        )
    ]


SETTABLE: Mapping[str, str] = dict.fromkeys(thread_vars(1), r"[1-9][0-9]{0,3}")
"""Variables that a change may set, and a pattern of their values: no record sets another."""


def _propose_denormals(facts: Facts) -> Proposal:
    if not facts.case.profile.workload.vanished_values:
        return "no values of the model were seen to become denormal"
    call = "torch.set_flush_denormal(True)"
    return [
        ScriptChange(
            "flush_denormal",
            "denormals",
            f"{call}: denormal values become 0",
            effect="rounding",
            stalls=("compute",),
            settings={"flush_denormal": True},
            line=call,
            by_hand=f"call `{call}` first of all",
            forecast=facts.most_seconds("compute"),
        )
    ]


def _propose_collector(facts: Facts) -> Proposal:
    run = facts.case.breakdown.run
    row = None if run is None else run.row(COLLECTOR)
    if row is None or not row.seconds:
        return "Python's garbage collector took no time that was seen"
    frozen = "call gc.collect() and gc.freeze() after the first step"
    hook = "register_optimizer_step_post_hook"
    # torch.optim itself has no such name
    before = f"from torch.optim.optimizer import {hook}\n{loaders.source_with_imports(SeldomCollected, 'gc')}\n\n{hook}"
    seldom = f"{frozen}, gc.disable() with them, and gc.collect() every {COLLECTED} steps"
    return [
        ScriptChange(
            name,
            "collector",
            text,
            stalls=("compute", COLLECTOR),
            settings={"collector": {"every": every}},
            line=f"{before}(SeldomCollected({every or ''}))",
            by_hand=by_hand,
            forecast=row.most,
        )
        for name, text, by_hand, every in (
            (
                "collector=seldom",
                f"gc.freeze(), and gc.collect() once in {COLLECTED} steps",
                seldom,
                COLLECTED,
            ),
            ("collector=frozen", "gc.freeze() after the first step", frozen, 0),
        )
    ]


SPACE: tuple[Knob, ...] = (
    Knob("workers", propose_for_loader(loaders.workers_changes)),
    Knob("prefetch", propose_for_loader(loaders.prefetch_changes), joins=True),
    Knob("persistent", propose_for_loader(loaders.persistent_changes), joins=True, leads=True),
    Knob("start_method", propose_for_loader(loaders.start_method_changes), leads=True),
    Knob("evaluation", loaders.evaluation_changes, joins=True, leads=True),
    Knob("in_order", propose_for_loader(loaders.order_changes)),
    Knob("worker_threads", propose_for_loader(loaders.worker_threads_changes), leads=True),
    Knob("cache", propose_for_loader(loaders.cache_changes)),
    Knob("pin", propose_for_loader(loaders.pin_changes), joins=True),
    Knob("non_blocking", loaders.non_blocking_changes, joins=True),
    Knob("waits", _propose_no_waits, joins=True),
    Knob("items", _propose_items, joins=True),
    Knob("threads", _propose_threads),
    Knob("bucket", _propose_bucket),
    Knob("bucket_view", _flag_of_ddp("gradient_as_bucket_view", True), joins=True),
    Knob("static_graph", _propose_static_graph, joins=True),
    Knob("find_unused", _flag_of_ddp("find_unused_parameters", False), joins=True),
    Knob("no_sync", _propose_no_sync, leads=True),
    Knob("set_to_none", _propose_set_to_none, joins=True),
    Knob("fused", _propose_fused, joins=True),
    Knob("collector", _propose_collector, leads=True),
    Knob("denormals", _propose_denormals, leads=True),
    Knob("channels_last", _propose_channels_last),
    Knob(
        "cudnn",
        _flag_of_gpus("backends.cudnn.benchmark", "cuDNN tries its algorithms", "rounding"),
        joins=True,
    ),
    Knob(
        "tf32",
        _flag_of_gpus(
            "backends.cuda.matmul.allow_tf32", "matrix products in TF32", "numerics", "numerics"
        ),
    ),
    Knob("compile", _propose_compile),
    Knob("bfloat16", _propose_bfloat16),
)
"""In the order in which they are weighed where no forecast ranks them."""
NAMES = tuple(knob.name for knob in SPACE)
_UNASKED = ("compile", "channels_last", "bfloat16")
"""Knobs that are tried on CPUs only if ``--try`` names them: each launch takes long, and gains there are rare."""


def propose_changes(
    facts: Facts, wanted: Sequence[str] = ()
) -> tuple[list[ScriptChange], dict[str, str]]:
    """All changes for a job, of the knobs ``wanted`` or of all, and why there are none of the others."""
    changes: list[ScriptChange] = []
    left: dict[str, str] = {}
    for knob in SPACE:
        if wanted and knob.name not in wanted:
            continue
        is_asked = knob.name not in _UNASKED or not facts.is_on_cpu or knob.name in wanted
        found = knob.propose(facts) if is_asked else f"on CPUs only with --try {knob.name}"
        if isinstance(found, str):
            left[knob.name] = found
        else:
            changes += [
                replace(each, joins=knob.joins or each.joins, leads=knob.leads) for each in found
            ]
    return changes, left
