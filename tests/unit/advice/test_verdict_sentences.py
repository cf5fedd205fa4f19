"""What is advised about profiles made by hand, to the word: verdict, next steps, and remedies with what each saves.

``PYTHONPATH=src:tests/support python tests/unit/advice/test_verdict_sentences.py`` writes the golden again; look at
the diff. A case whose name begins with a row of a breakdown shows all remedies of that row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from breakdowns import CALM, FETCH, PREP, flat
from golden_numbers import copy_close_numbers
from profile_builder import build, ledger, own_launches

from stash.advice.case import Case
from stash.advice.remedies import REMEDIES
from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.core.ladder import UNTOUCHED
from stash.core.measured import Block, Collective, Rate, WorkerTimes
from stash.core.records.host import Gpu, Limits
from stash.core.records.profile import (
    EmbeddingTable,
    Gradient,
    LedgerPlace,
    Loader,
    Operator,
    Profile,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "advice.expected.md"
STEP = flat(6, solo=0.020, warm=0.0202)
WAITS = flat(6, solo=0.020, warm=0.100)
SMALL = flat(solo=0.1, crowd=0.101, node=0.102, warm=0.103, cold=0.104)
EXCHANGE = flat(solo=0.1, crowd=0.1, node=0.2)
STARTS = {"epoch start": {0: 1.2, 20: 1.07, 40: 1.07, 60: 1.07}}
"""1.07 s before every 20 steps: 53.5 ms of each."""
WORK = {"parameter_bytes": 4_000_000}
"""As many as ``exchanges`` carry."""
FLOAT32 = {"precision": "float32"}
TABLE = EmbeddingTable(
    rows=100_000,
    dimension=32,
    lookups=256,
    distinct=250,
    hottest=0.01,
    sparse=False,
    gradient_bytes=12_800_000,
)
GRADIENTS = tuple(Gradient(name=str(number), bytes=4) for number in range(60))
TRAINS = "Trainer(model, data).train()"
RARE = (0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 4)
"""Batches by how long each took: one in ten takes very long."""


def mapped(workers=2, **fields):
    return Loader(kind="map", workers=workers, **fields)


RESTARTED = mapped(persistent_workers=False)


def stream(workers):
    return Loader(kind="iterable", workers=workers)


def job(*ledgers, times=STEP, ranks=1, loader=RESTARTED, work=None, **fields):
    workload = {"loaders": (loader,), **(work or {})}
    return build(times, ranks=ranks, workload=workload, ledgers=ledgers, **fields)


def starts(*places, **fields):
    """A job of long epoch starts."""
    return job(ledger(epoch_steps=20, now_and_then=STARTS, places=places), **fields)


def places(row, text, seconds=0.0, **fields):
    """A job of 16 timed steps, in each of which so many seconds of a row are at one line."""
    place = at(row, text, seconds, **fields)
    return job(ledger(a_step={row: seconds}, places=(place,)))


def at(row, text, a_step=0.0, line=88, **fields):
    return LedgerPlace(
        row=row, file="train.py", line=line, text=text, seconds=16 * a_step, **fields
    )


def now_and_then(row, first, seconds, **fields):
    times = {number * first: seconds for number in (1, 2, 3)}
    return job(ledger(epoch_steps=20, now_and_then={row: times}), **fields)


def as_typed(profile, seconds, **fields):
    """A profile whose first steps, as typed, took so long."""
    steps = tuple(seconds + 0.0001 * (at % 3) for at in range(10))
    typed = tuple(
        Block(
            0, UNTOUCHED.name, rank.rank, steps=10, seconds=sum(steps), step_seconds=steps, **fields
        )
        for rank in profile.ranks
    )
    return profile.model_copy(update={"blocks": (*typed, *profile.blocks)})


def exchanges(seconds, latency=None, scope="node", **fields):
    """The whole exchange by itself."""
    given = {"ranks": 2, "bytes": 4_000_000, **fields}
    return (Collective(scope=scope, seconds=seconds, latency_seconds=latency, **given),)


def prep(work_per_step, workers, cores):
    """100 ms of training and 100 of waiting; so many seconds of one worker a step."""
    return build(
        flat(**PREP),
        block_extra={"warm": {"fetch_seconds": work_per_step * 10}},
        workload={"loaders": (mapped(workers),)},
        host={"cores": cores},
    )


def without_workers(core_seconds, made_seconds=0.04):
    """One rank on 2 cores: 4 ms of training on one of them, after 40 ms of samples, so many of them on a core."""
    return build(
        flat(solo=0.004, warm=0.004 + made_seconds),
        ranks=1,
        block_extra={
            "solo": {"cpu_seconds": 0.04},
            "warm": {"wait_seconds": 10 * made_seconds, "fetch_cpu_seconds": 10 * core_seconds},
        },
        workload={"loaders": (mapped(0),)},
        host={"cores": 2},
    )


def loading(loader):
    """One core a rank, which preparing samples keeps busy all the 200 ms of a step."""
    warm = {"fetch_seconds": 1600.0} if loader.workers else {"wait_seconds": 1.0}
    return build(
        flat(**PREP),
        block_extra={"warm": warm},
        workload={"loaders": (loader,)},
        host={"cores": 2},
    )


def told_by_workers(loader, ranks=1, **of_workers):
    times = WorkerTimes(
        feed="warm", rank=0, round=0, batches=(20, 20), seconds=(1.0, 1.0), **of_workers
    )
    return build(
        flat(6, solo=0.005, warm=0.015),
        ranks=ranks,
        workload={"loaders": (loader,)},
        workers=(times,),
    )


def fetch(samples):
    """Files of 100 kB, half of whose step is fetch, on nodes of 32 GB."""
    return build(
        flat(**FETCH),
        workload={"loaders": (mapped(samples=samples),), "sample_disk_bytes": 1e5},
        rates=tuple(Rate(feed="cold", rank=r, round=3, samples=80, seconds=2.0) for r in range(2)),
        host={"memory_bytes": 32 * 10**9},
    )


def limited(profile, **limits):
    """In a container that may use less than the machine has."""
    host = profile.hosts[0].model_copy(update={"limits": Limits(**limits)})
    return profile.model_copy(update={"hosts": (host,)})


def large_file(disk_bytes, file_bytes=8 * 10**8):
    return build(
        flat(6, solo=0.02, warm=0.02, cold=0.06),
        workload={"sample_bytes": 8192.0, "sample_disk_bytes": disk_bytes},
        block_extra={"cold": {"files": 1, "file_bytes": file_bytes}},
    )


def hiding(loader_rate):
    """Interconnect 100 of 200 ms; 16 samples a step from loaders of the given rate per rank."""
    rates = tuple(
        Rate(feed="warm", rank=r, round=3, samples=80, seconds=80 / loader_rate) for r in range(2)
    )
    return build(flat(solo=0.1, crowd=0.1, node=0.2, warm=0.2), rates=rates)


def longest_batch():
    """Ranks take turns in having the longest batch."""
    turns = {0: (0.001, 0.039), 1: (0.039, 0.001)}
    times = flat(6, solo=0.02, crowd=0.02, node=0.045, warm=0.0452)
    profile = job(times=times, ranks=2, loader=mapped(0, batch_spread=0.4))
    blocks = (
        replace(block, step_seconds=turns[block.rank] * (block.steps // 2))
        if block.rung == "crowd"
        else block
        for block in profile.blocks
    )
    return profile.model_copy(update={"blocks": tuple(blocks)})


def threads(delayed, others=15):
    """A training thread on four cores that waits for one for so long of 1 s, beside so many others."""
    extra = {"step_delays": (delayed / 10,) * 10, "loop_delays": (0.2,) * others}
    return build(flat(solo=0.1), ranks=1, block_extra={"solo": extra}, host={"cores": 4})


def busy(share):
    extra = {} if share is None else {"resident": {"gpu": share}, "solo": {"gpu": share}}
    times = flat(6, resident=0.0199, solo=0.020, warm=0.0202)
    return job(times=times, device="cuda", work={"precision": "bfloat16"}, block_extra=extra)


NOISY = {"solo": [0.001, 0.060, 0.002, 0.050], "warm": [0.001, 0.060, 0.002, 0.050]}
OPEN = {"solo": [0.020] * 6, "warm": [0.0202, 0.0302] * 3}
"""Times whose noise leaves prep open."""
NO_LOADER = dict.fromkeys(("warm", "cold"), "no data loader was seen; wrap yours")
SCRIPTS_CALLS = at("collective", "dist.barrier()", 0.024)
TWO_NODES = flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.2)
CASES: Mapping[str, Profile] = {
    # What takes most of a step.
    "no stall": build(SMALL),
    "no stall, and fetch unknown": build(SMALL, skipped={"cold": "97% of the pages stayed"}),
    "no loader was seen": build(
        flat(solo=0.1, crowd=0.101, node=0.102), skipped=NO_LOADER, workload={"loaders": ()}
    ),
    **{
        f"no loader, {share:.1%} of a step before its forward pass": build(
            flat(solo=0.1), skipped=NO_LOADER, workload={"loaders": (), "before_forward": share}
        )
        for share in (0.004, 0.2)
    },
    **{
        f"no loader, 0.4% before the forward pass, inputs placed on the device: {placed}": build(
            flat(solo=0.1),
            device="cuda",
            skipped=dict.fromkeys(("resident", "warm", "cold"), "no data loader"),
            workload={"loaders": (), "before_forward": 0.004, "inputs_placed": placed},
        )
        for placed in (True, False, None)
    },
    "rungs that were left out": build(flat(node=0.1, warm=0.101, cold=0.101)),
    "the largest stall leads though compute is larger": build(
        flat(solo=0.1, crowd=0.105, node=0.12)
    ),
    "one that may be large, in wide intervals": build(
        {"solo": [0.10] * 4, "crowd": [0.10, 0.14, 0.08, 0.12]}
    ),
    "a certain one beside one that may be larger": build(
        {"solo": [0.1] * 4, "crowd": [0.11] * 4, "node": [0.12, 0.17, 0.10, 0.15]}
    ),
    "one that may be nearly as large": build(
        {
            "solo": [0.1] * 4,
            "crowd": [0.14, 0.16, 0.145, 0.155],
            "node": [0.14, 0.20, 0.125, 0.175],
        }
    ),
    "two that tie": build(
        {"solo": [0.1] * 3, "crowd": [0.118, 0.122, 0.120], "node": [0.140, 0.142, 0.139]}
    ),
    "two rounds": build({name: values[:2] for name, values in CALM.items()}),
    "two sets of launches": own_launches(sets=2),
    "a single round": build(flat(1, **PREP), block_extra={"warm": {"wait_seconds": 0.04}}),
    **{
        f"a single round of steps that wait, as {waited:g} ms of first steps of 200 ms do": as_typed(
            build(
                flat(1, solo=0.02, crowd=0.02, node=0.02, warm=0.2),
                block_extra={"warm": {"wait_seconds": 1.8}},
            ),
            0.2,
            wait_seconds=waited / 1e3 * 10,
        )
        for waited in (170, 20)
    },
    "steps that vary by more than themselves": job(times=NOISY),
    "steps that vary so, and epoch starts": starts(times=NOISY),
    # Without the prep stall of 140 less 100 ms 60 of 100 are won; at 190 ms only 10, so prep comes first.
    "what surfaces next limits what is saved": hiding(16 / 2 / 0.14),
    "what surfaces next comes first": hiding(16 / 2 / 0.19),
    # What lies between steps.
    "epoch start: workers are restarted": starts(at("epoch start", "for x in loader:", each=1.07)),
    "epoch start: a sampler": starts(
        at("epoch start", "return sorted(self.weights)", each=1.07), loader=mapped(0)
    ),
    "epoch start: a stream": starts(
        at("epoch start", "buffer = list(islice(records, 6000))", each=1.07), loader=stream(0)
    ),
    **{
        f"epoch start: {seconds} s, with how often is unknown": job(
            ledger(now_and_then={"epoch start": {0: seconds}}), loader=stream(0)
        )
        for seconds in (2.7, 0.2)
    },
    "epoch start: a loader without workers": starts(loader=mapped(0)),
    "epoch start: a loader that is made again": starts(
        at("epoch start", "for x in loader:", each=1.07),
        loader=mapped(persistent_workers=True, remade=True),
    ),
    "epoch start: spawned workers": starts(
        loader=mapped(persistent_workers=False, start_method="spawn")
    ),
    "epoch start: forked workers": starts(
        loader=mapped(persistent_workers=False, start_method="fork")
    ),
    "epoch start: an iterator for each step": job(
        ledger(now_and_then={"epoch start": dict.fromkeys(range(20), 0.03)})
    ),
    # 0.7 s every 20 steps are 35 ms of each, more than the step's 20.2; half of it, of what was seen once, is not.
    "epoch start: seen once": job(ledger(epoch_steps=20, now_and_then={"epoch start": {0: 0.7}})),
    "epoch start: seen once, three times as long": job(
        ledger(epoch_steps=20, now_and_then={"epoch start": {0: 2.1}})
    ),
    "epoch start: beside a larger stall": starts(times=WAITS),
    "epoch start: ties with evaluation": job(
        ledger(
            epoch_steps=20,
            now_and_then={
                "epoch start": {0: 1.0, 20: 1.0, 40: 1.3, 60: 1.15},
                "evaluation": {20: 1.1, 40: 1.1, 60: 1.1},
            },
        )
    ),
    # Prep is 8 ms of a step, epoch starts are 18.5; compute may be as long as these.
    "epoch start: larger for certain than a stall": job(
        ledger(epoch_steps=20, now_and_then={"epoch start": {0: 0.4, 20: 0.36, 40: 0.38, 60: 0.4}}),
        times=flat(6, solo=0.020, warm=0.028),
    ),
    "evaluation: every 20 steps": now_and_then("evaluation", 20, 2.0),
    "evaluation: on one of two ranks": job(
        ledger(0, epoch_steps=20, now_and_then={"evaluation": {20: 2.0, 40: 2.0, 60: 2.0}}),
        ledger(1, epoch_steps=20),
        times=flat(6, solo=0.020, crowd=0.020, node=0.021, warm=0.0212),
        ranks=2,
    ),
    "checkpoint: every 20 steps": now_and_then("checkpoint", 20, 2.0),
    # 300 MB are copied at 1 GB/s, 1.7 of 2 s go on beside training.
    "checkpoint: of known bytes": now_and_then(
        "checkpoint", 25, 2.0, work={"parameter_bytes": 10**8, "optimizer_bytes": 2 * 10**8}
    ),
    "collector: 15 ms in each step": job(
        ledger(now_and_then={"collector": dict.fromkeys(range(84, 100), 0.015)})
    ),
    # 0.3 s in 100 steps; one collection in 100 steps is left.
    "collector: three times": job(
        ledger(steps=100, timed_steps=100, now_and_then={"collector": {10: 0.1, 20: 0.1, 30: 0.1}})
    ),
    "collector: asked for by the script": job(
        ledger(
            now_and_then={"collector": dict.fromkeys(range(84, 100), 0.015)},
            places=(at("collector", "gc.collect()", 0.0125),),
        )
    ),
    "compilation: 15 ms in each step": job(
        ledger(now_and_then={"compilation": dict.fromkeys(range(84, 100), 0.015)})
    ),
    "loop: most of a step": places("loop", "metric.update(out, y)", 0.015),
    **{
        f"loop: {text}": places("loop", text, 0.010)
        for text in (
            "total += loss.item()",
            "writer.add_scalar('loss', loss)",
            "time.sleep(0.01)",
            "writer.add_histogram(name, p.grad, step)",
            "p.data = p.data - self.lr * p.grad",
        )
    },
    "loop: called from elsewhere": places("loop", "scores.argsort()", 0.012, caller="train.py:43"),
    "loop: prepares batches": places("loop", "ids = tokenize(texts)", 0.019, prepares=True),
    "loop: prepares batches without a loader": job(
        ledger(
            a_step={"loop": 0.010},
            places=(at("loop", "ids = tokenize(texts)", 0.010, prepares=True),),
        ),
        work={"loaders": ()},
    ),
    "loop: of one rank": job(
        ledger(0, a_step={"loop": 0.040}),
        ledger(1, a_step={"loop": 0.001}),
        times=flat(6, solo=0.050, crowd=0.050, node=0.052, warm=0.052),
        ranks=2,
    ),
    "loop: less than compute without it": job(
        ledger(epoch_steps=20, a_step={"loop": 0.006}, now_and_then={})
    ),
    "loop: most of a compute that noise leaves open": job(
        ledger(
            a_step={"loop": 0.0101}, places=(at("loop", "total += p.grad.norm().item()", 0.030),)
        ),
        times=OPEN,
    ),
    "interpreter: another thread has it": places("interpreter", "while True:", 0.015),
    # First steps that differ. What lies between steps explains no longer step.
    "epoch start: the job as typed is another": as_typed(
        job(
            ledger(
                epoch_steps=20, now_and_then={"epoch start": {0: 0.12, 20: 0.1, 40: 0.1, 60: 0.1}}
            )
        ),
        0.0302,
    ),
    **{
        f"first steps of 30 ms that waited {waited * 100:g} ms, and noise": as_typed(
            job(times={**NOISY, "warm": [0.011, 0.070, 0.012, 0.060]}), 0.030, wait_seconds=waited
        )
        for waited in (0.2, 0.1)
    },
    "first steps of 30 ms": as_typed(job(), 0.0302),
    # Logging is taken out while blocks are measured: 12 ms between steps as typed, of which blocks have 2.
    "first steps longer by the script's own code": as_typed(
        job(ledger(a_step={"forward": 0.018, "loop": 0.012})), 0.0302
    ),
    "first steps longer by waiting": as_typed(
        job(ledger(a_step={"loop": 0.012})), 0.0302, wait_seconds=0.1
    ),
    "first steps shorter than what is between them": as_typed(starts(), 0.040),
    "first steps longer than what is between them": as_typed(starts(), 0.060),
    **{
        f"first steps of 70 ms that wait {waited * 100:.0f} ms for data": as_typed(
            job(times=WAITS), 0.070, wait_seconds=waited
        )
        for waited in (0.4, 0.3)
    },
    **{
        f"first steps of 20 ms that wait {waited:.0f} ms for collectives": as_typed(
            build(flat(6, solo=0.005, crowd=0.005, node=0.030, warm=0.0302), ranks=2),
            0.020,
            stage_seconds={"exchange": waited / 300, "collective": waited / 150},
        )
        for waited in (12, 6)
    },
    # Contention of 30 of 38 ms; as typed 33, so 5 ms more or less, and the others have 8 at most.
    "first steps differ by less than a stall leads": as_typed(
        build(flat(6, solo=0.001, crowd=0.031, node=0.038, warm=0.038), ranks=2), 0.033
    ),
    # Remedies of compute.
    "compute: in float32 on a CPU": job(ledger(), work=FLOAT32),
    "compute: convolutions": job(
        ledger(),
        work={
            "operators": (
                Operator(operator="aten.convolution", shapes="", dtype="float32", calls=1),
            )
        },
    ),
    **{f"compute: a GPU whose busy share is {share}": busy(share) for share in (0.97, 0.5, None)},
    "compute: a Tesla T4 in float32": build(
        flat(resident=0.1, solo=0.1),
        ranks=1,
        device="cuda",
        host={"gpus": (Gpu(index=0, name="Tesla T4"),)},
    ),
    "compute: values that vanished": job(ledger(), work={"vanished_values": 1200}),
    "compute: anomalies are looked for": job(ledger(), work={"anomaly_mode": True}),
    "compute: anomalies are looked for, in noise": job(
        ledger(), times=OPEN, work={"anomaly_mode": True}
    ),
    **{
        f"compute: products of {dtype} on a CPU": job(
            ledger(),
            work={
                "operators": (
                    Operator(
                        operator="aten.mm", shapes="", dtype=dtype, calls=1, flops=1e9, bytes=1
                    ),
                )
            },
        )
        for dtype in ("float16", "bfloat16")
    },
    "compute: in float64": job(ledger(), work={"precision": "float64"}),
    **{
        f"compute: an embedding of 12.8 of {whole} MB, {changed or 'as it came'}": job(
            ledger(),
            work={
                "embeddings": (TABLE.model_copy(update=changed),),
                "parameter_bytes": whole * 10**6,
            },
        )
        for whole, changed in (
            (13, {}),
            (30, {}),
            (13, {"sparse": True}),
            (13, {"distinct": 20_000}),
        )
    },
    **{
        f"compute: an optimizer of {count} parameters": job(
            ledger(),
            block_extra={"solo": {"stage_seconds": {"optimizer": 0.06}}},
            work={"gradients": GRADIENTS[:count]},
        )
        for count in (60, 9)
    },
    "compute: an update that is the script's own lines": job(
        ledger(a_step={"loop": 0.0055, "optimizer": 0.0005, "forward": 0.014}),
        block_extra={"solo": {"stage_seconds": {"optimizer": 0.06}}},
        work={"gradients": GRADIENTS},
    ),
    # 5,096 calls take 25 ms to call; 12.6 MB and 43 MFLOP 5.5 ms, a hundred times as much far longer.
    **{
        f"compute: {calls:,} operators of {size:,} bytes": job(
            ledger(
                places=(
                    at("forward", "h, c = self.cell(x[:, t], (h, c))", 0.012, caller="train.py:43"),
                )
            ),
            work={
                "operators": (
                    Operator(
                        operator="aten.mul",
                        shapes="",
                        dtype="float32",
                        calls=calls,
                        flops=43e6,
                        bytes=size * calls,
                    ),
                )
            },
        )
        for calls, size in ((5096, 2470), (5096, 247_000), (300, 2470))
    },
    "compute: gradients that nobody uses": job(ledger(), work={"unused_gradients": 5_380_096}),
    "compute: forward passes computed again": job(ledger(), work={"recomputes": True}),
    **{
        f"compute: {seconds * 1e3:g} of 19 ms at a line of the forward pass": job(
            ledger(
                places=(
                    at("forward", "best = match(boxes)", seconds, caller="train.py:43"),
                    at(
                        "backward",
                        "loss.backward()",
                        0.019 - seconds,
                        inside="_engine_run_backward",
                    ),
                )
            )
        )
        for seconds in (0.012, 0.005)
    },
    "compute: 7 of 19 ms at lines of a backward pass near each other": job(
        ledger(
            places=(
                at("backward", "loss.backward()", 0.012, inside="_engine_run_backward"),
                at("backward", "a = math.exp(r[i, j])", 0.004, caller="train.py:43"),
                at("backward", "e[i, j] = a * e[i + 1, j]", 0.003, caller="train.py:43"),
                at("forward", "y = self.rnn(x)", 0.002, line=40, inside="LSTM.forward"),
            )
        )
    ),
    "compute: 9 of 19 ms in a library that a line calls": job(
        ledger(
            places=(
                at("forward", "loss = model(x)", 0.009, inside="Linear.forward"),
                at("backward", "loss.backward()", 0.010, inside="_engine_run_backward"),
            )
        )
    ),
    "compute: 9 of 19 ms where a line logs": job(
        ledger(
            a_step={"forward": 0.019},
            places=(
                at("forward", 'self.log("f1/dog", f1[0])', 0.009, inside="Metric.update"),
                at("forward", "F.log_softmax(x)", 0.008, 91, inside="log_softmax"),
            ),
        )
    ),
    "compute: 9 of 19 ms in models that do not train": job(
        ledger(
            a_step={"forward": 0.019},
            places=(
                at("forward", "z = vae.encode(x)", 0.006, is_frozen=True, inside="conv"),
                at("forward", "h = encoder(text)", 0.003, 89, is_frozen=True, inside="linear"),
                at("forward", "y = unet(z, h)", 0.008, 91, inside="linear"),
            ),
        )
    ),
    "loop: 9 of 20 ms at a line that one look saw in the pass after it": job(
        ledger(
            a_step={"forward": 0.011, "loop": 0.009},
            places=(
                at("loop", "pairs = distort(images)", 0.0085, 75),
                at("forward", "pairs = distort(images)", 0.0002, 75),
                at("forward", "y = model(x)", 0.0108, 97, inside="Linear.forward"),
                at("loop", "probability = logits.softmax(1)", 0.0005, 120),
            ),
        )
    ),
    "compute: 9 of 19 ms in the script's own optimizer": job(
        ledger(
            a_step={"forward": 0.005, "backward": 0.005, "optimizer": 0.009},
            places=(
                at("forward", "y = model(x)", 0.005, inside="Linear.forward"),
                at("optimizer", "u, s, v = torch.linalg.svd(gradient)", 0.009, 171),
            ),
        )
    ),
    "compute: 6 of 19 ms in weights that a parametrization makes": job(
        ledger(
            a_step={"forward": 0.019},
            places=(
                at("forward", "h = self.mix(h)", 0.006, inside="_Orthogonal.forward"),
                at("forward", "y = self.read(h)", 0.008, 91, inside="Linear.forward"),
            ),
        )
    ),
    "compute: a communication hook that computes": build(
        flat(6, solo=0.010, crowd=0.010, node=0.110, warm=0.110),
        ranks=2,
        workload={"exchange_hook": "topk"},
        ledgers=tuple(
            ledger(
                rank,
                a_step={"loop": 0.09, "backward": 0.01},
                places=(
                    at("loop", "torch.topk(flat, k)", 0.08, 42, caller="train.py:88"),
                    at("backward", "loss.backward()", 0.01),
                ),
            )
            for rank in (0, 1)
        ),
    ),
    "prep: samples that wait for a store": build(
        flat(**PREP),
        block_extra={"warm": {"fetch_seconds": 2.0, "fetch_cpu_seconds": 0.2}},
        workload={"loaders": (mapped(2),)},
        host={"cores": 8},
    ),
    "compute: 16 threads on 4 cores": threads(0.5),
    "compute: 16 threads on 4 cores that hardly wait": threads(0.1),
    "compute: 6 threads on 4 cores": threads(0.5, others=5),
    # Remedies of exchanges.
    "interconnect: exposed altogether": build(EXCHANGE, collectives=exchanges(0.1), workload=WORK),
    "interconnect: of unknown batches": build(
        EXCHANGE, batch=None, collectives=exchanges(0.1), workload=WORK
    ),
    # Of four batches' exchanges one is left, as it was; what twice the batch hides is unknown.
    "interconnect: the whole exchange unknown": build(EXCHANGE, workload=WORK),
    # 36 ms of 48 are exposed: a pass twice as long hides 12 as before, and 36 for two steps' samples are 18.
    "interconnect: a quarter hides": build(
        flat(solo=0.1, crowd=0.1, node=0.136), collectives=exchanges(0.048), workload=WORK
    ),
    "interconnect: most hides": build(
        flat(solo=0.1, crowd=0.1, node=0.12), collectives=exchanges(0.048), workload=WORK
    ),
    "interconnect: float32 on GPUs": build(EXCHANGE, device="cuda", workload=FLOAT32),
    "interconnect: float32 on CPUs": build(EXCHANGE, workload=FLOAT32),
    "interconnect: a hook of the script's": build(
        EXCHANGE, device="cuda", workload={**FLOAT32, "exchange_hook": "fp16_compress_hook"}
    ),
    "interconnect: exchanges are skipped already": build(
        EXCHANGE, workload={"skips_exchanges": True}
    ),
    "interconnect: accumulates, with how many exchanges is unknown": build(
        EXCHANGE, workload={"loaders": (mapped(batches_per_step=4),)}
    ),
    # Three of four exchanges of 25 ms.
    "interconnect: exchanges after each of four batches": build(
        EXCHANGE,
        workload={"loaders": (mapped(batches_per_step=4),), "skips_exchanges": False, **WORK},
        collectives=exchanges(0.025),
    ),
    "interconnect: a large last bucket": build(
        EXCHANGE, workload={"precision": "bfloat16", "bucket_bytes": (10**7, 7 * 10**7)}
    ),
    # 33.6 MB of buffers beside 4 of gradients; a tenth of them, which are not worth a word.
    **{
        f"interconnect: {size:,} bytes of buffers": build(
            EXCHANGE, workload={**WORK, "bucket_bytes": (4_000_000,), "buffer_bytes": size}
        )
        for size in (33_600_000, 400_000)
    },
    "interconnect: unused parameters are searched for": build(
        EXCHANGE, workload={**WORK, "finds_unused": True}
    ),
    "interconnect: 240 buckets of 17 kB": build(
        EXCHANGE, workload={"bucket_bytes": (17_000,) * 240}
    ),
    "compute: noise, and unused parameters are searched for": build(
        {**NOISY, "node": NOISY["solo"]}, ranks=2, workload={"finds_unused": True}
    ),
    # Of 30 ms 24 are the script's own calls: every 10 steps, 2.4 are left.
    "interconnect: collectives of the script's": job(
        ledger(0, places=(SCRIPTS_CALLS,)),
        ledger(1),
        times=flat(6, solo=0.020, crowd=0.020, node=0.050, warm=0.0502),
        ranks=2,
    ),
    **{
        f"interconnect: {calls:g} gathers of the script's": job(
            ledger(
                0,
                places=(at("collective", "memory = gather(bank)", 0.024, inside="all_gather"),),
            ),
            ledger(1),
            times=flat(6, solo=0.020, crowd=0.020, node=0.050, warm=0.0502),
            ranks=2,
            work={"collectives_per_step": {"all_gather": calls}},
        )
        for calls in (1.0, 7.0)
    },
    "interconnect: few collectives of the script's": job(
        ledger(0, places=(at("collective", "dist.barrier()", 0.001),)),
        times=flat(6, solo=0.020, crowd=0.020, node=0.050, warm=0.0502),
        ranks=2,
    ),
    # Accumulation saves 3/4 of 100 ms; twice the batch has one exchange for two steps' samples.
    "network: of two nodes": build(
        TWO_NODES,
        ranks=4,
        nodes=2,
        device="cuda",
        collectives=exchanges(0.12, scope="world", ranks=4, bytes=10**8),
        workload={**FLOAT32, "bucket_bytes": (10**7, 9 * 10**7)},
    ),
    "network: in half precision": build(
        TWO_NODES, ranks=4, nodes=2, workload={"precision": "bfloat16"}
    ),
    "network: one unit for a link": build(
        flat(solo=0.1, crowd=0.1, cluster=0.2),
        nodes=2,
        collectives=exchanges(0.1, scope="world", bytes=4_930_000),
        workload={"parameter_bytes": 5_000_000},
    ),
    "network: 40 of 50 ms are latency": build(
        flat(solo=0.1, crowd=0.1, cluster=0.15),
        nodes=2,
        collectives=exchanges(0.05, 0.04, "world"),
        workload=WORK,
    ),
    "network: nothing but latency": build(
        flat(solo=0.1, crowd=0.1, node=0.1, cluster=0.15),
        ranks=4,
        nodes=2,
        device="cuda",
        collectives=exchanges(0.05, 0.0499, "world"),
        workload={"parameter_bytes": 288},
    ),
    "contention: a slow rank": build(
        flat(solo=0.1, crowd=0.15), ranks=4, factors={0: 0.8, 1: 0.8, 3: 0.8}
    ),
    **{
        f"contention: batches that differ by {spread}": build(
            flat(6, solo=0.02, crowd=0.03, node=0.031),
            workload={"loaders": (mapped(0, batch_spread=spread),)},
        )
        for spread in (0.4, 0.02, None)
    },
    "contention: the longest batch": longest_batch(),
    "transfer: from pageable memory": build(
        flat(resident=0.1, solo=0.12, crowd=0.12),
        device="cuda",
        batch=64,
        workload={"loaders": (mapped(pin_memory=False),), "sample_bytes": 602112.0},
    ),
    # Remedies of prep. 360 ms of one worker behind 100 of training: 3.6 workers, 4 with headroom.
    "prep: more workers": prep(0.36, 2, 16),
    "prep: more workers than cores can run": prep(20.0, 40, 16),
    "prep: workers enough": prep(0.2, 4, 16),
    "prep: in a container of 4 cores": limited(prep(0.36, 2, 64), cpus=4.0),
    # One worker is busy all 200 ms, training a core for 60: on 3 cores both take 86.7 ms, which 2.3 workers fill, and
    # 4.3 cores do both in 60 ms.
    "prep: workers without cores": build(
        flat(solo=0.06, crowd=0.06, node=0.06, warm=0.2),
        block_extra={"node": {"cpu_seconds": 0.6}, "warm": {"fetch_seconds": 2.0}},
        workload={"loaders": (mapped(1),)},
        host={"cores": 6},
    ),
    # 40 ms behind 4, with 5 % more: 11 workers; their 0.8 ms and the 4 of training fit onto two cores in 2.4 ms.
    "prep: samples that sleep": without_workers(0.0008),
    # Two cores need 22 ms for 40 of samples and 4 of training, which two workers fill: that saves 22 of 40.
    "prep: samples that compute": without_workers(0.04),
    "prep: no machine has so many cores": without_workers(0.4, made_seconds=0.4),
    # A step of 4.9 ms, of which a worker would take longer to hand its batch over than to make it.
    "prep: made sooner than handed over": without_workers(0.0009, made_seconds=0.0009),
    # 16 samples at 80/s: 200 ms of one worker behind 100 ms.
    "prep: by the loaders' rate": build(
        flat(**PREP),
        rates=tuple(Rate(feed="warm", rank=r, round=3, samples=80, seconds=2.0) for r in range(2)),
        workload={"loaders": (mapped(1),)},
    ),
    # 90.5 of 100 ms are waiting, which workers take over, and no more.
    "prep: without workers": build(
        flat(**PREP),
        block_extra={"warm": {"wait_seconds": 0.905}},
        workload={"loaders": (mapped(0),)},
    ),
    **{f"prep: a stream of {workers} workers": loading(stream(workers)) for workers in (0, 1, 2)},
    "prep: a worker of a map": loading(mapped(1)),
    "prep: a loader of unknown kind": build(
        flat(**PREP), workload={"loaders": (Loader(kind="watched"),)}
    ),
    **{
        f"prep: rare slow batches, in_order={order}": told_by_workers(
            mapped(in_order=order), took=RARE
        )
        for order in (True, False, None)
    },
    "prep: even batches": told_by_workers(mapped(in_order=True), took=(0, 0, 0, 40)),
    **{
        f"prep: workers of {count:g} threads": told_by_workers(mapped(), threads=count)
        for count in (16.0, 1.0)
    },
    **{
        f"prep: {tensors:g} tensors a batch, {workers} workers": told_by_workers(
            mapped(workers, tensors_per_batch=tensors)
        )
        for tensors, workers in ((113.0, 2), (3.0, 2), (113.0, 0))
    },
    **{
        f"prep: {size:g} bytes of arrays a batch, {workers} workers": told_by_workers(
            mapped(workers, tensors_per_batch=0.0, array_bytes_per_batch=size)
        )
        for size, workers in ((38e6, 2), (64e3, 2), (38e6, 0))
    },
    "prep: a stream of two ranks": told_by_workers(stream(2), ranks=2),
    "prep: a stream of one rank": told_by_workers(stream(2)),
    "prep: samples made at a line": told_by_workers(mapped(samples_at="train.py:25"), ranks=2),
    **{
        f"prep: one rank scatters batches {times:g} times a step": build(
            flat(6, solo=0.005, warm=0.015),
            workload={
                "loaders": (mapped(0),),
                "collectives_per_step": {"scatter_object_list": times, "all_reduce": 24.0},
            },
        )
        for times in (1.0, 0.01)
    },
    # Of 80 ms of waiting some are the sampler's, in the training process; two workers make a batch in 10 ms, or in 80.
    **{
        f"prep: {seconds * 1e3:g} ms in the training process, {made * 50:g} in workers": job(
            ledger(
                places=(
                    at("input", "for x in loader:", 0.08 - seconds),
                    at("input", "yield random.choices(rows, k=32)", seconds, caller="train.py:43"),
                )
            ),
            times=WAITS,
            block_extra={"warm": {"fetch_seconds": made}},
        )
        for seconds, made in ((0.03, 1.6), (0.01, 1.6), (0.01, 0.2))
    },
    "prep: a sampler that draws slowly": job(times=WAITS, loader=mapped(2, draw_seconds=0.07)),
    **{
        f"prep: without workers, at {text}": job(
            ledger(places=(at("input", text, 0.07, caller="train.py:43"),)),
            times=WAITS,
            loader=mapped(0, samples_at="train.py:20"),
        )
        for text in ("rows.append(pad(row))", "db = sqlite3.connect(path)")
    },
    "loop: steps an environment": places(
        "loop", "seen, reward, done, cut, _ = envs.step(action)", 0.010
    ),
    "collective: waits for another rank's message": places(
        "collective", "dist.recv(self.parcel, src=1)", 0.010, inside="recv"
    ),
    "compute: by one round and by steps as typed": as_typed(
        job(
            ledger(a_step={"forward": 0.03}),
            times=flat(1, solo=0.1, warm=0.101),
            loader=mapped(2),
        ),
        0.101,
    ),
    "estimate: one round of a loop that takes a fifth": as_typed(
        job(
            ledger(a_step={"loop": 0.02}),
            times=flat(1, solo=0.1, warm=0.101),
            loader=mapped(2),
        ),
        0.101,
    ),
    "prep: without workers, waits for a server": job(
        ledger(
            places=(
                at("input", "reply.read()", 0.06, inside="SocketIO.readinto"),
                at("input", "np.frombuffer(raw)", 0.01, line=90),
            )
        ),
        times=WAITS,
        loader=mapped(0),
    ),
    "prep: a line waits for it": job(
        ledger(places=(at("input", "for x in loader:", 0.05), at("backward", "x.sum()", 0.01))),
        times=WAITS,
    ),
    # A trainer that is called in one line: loop, forward and backward pass all belong to it.
    "loop: a line that trains a whole step": job(
        ledger(
            a_step={"loop": 0.006},
            places=tuple(
                LedgerPlace(row=row, file="train.py", line=9, text=TRAINS, seconds=seconds)
                for row, seconds in (("loop", 0.3), ("forward", 1.0), ("backward", 2.0))
            ),
        )
    ),
    "interconnect: a line waits for it": job(
        ledger(places=(at("input", "for x in loader:", 0.05), at("backward", "x.sum()", 0.01))),
        times=flat(6, solo=0.020, crowd=0.020, node=0.050, warm=0.0502),
        ranks=2,
    ),
    # Remedies of fetch. 16 samples of 100 kB in 100 ms against 80 samples/s measured.
    "fetch: fits into memory": fetch(100_000),
    "fetch: does not fit into memory": fetch(1_000_000),
    "fetch: in a container of 8 GB": limited(fetch(100_000), memory_bytes=8 * 10**9),
    "fetch: small files": build(
        flat(**FETCH), block_extra={"cold": {"files": 100, "file_bytes": 2_000_000}}
    ),
    "fetch: a large file read at random": large_file(131072.0),
    "fetch: a large file read in order": large_file(8192.0),
    "fetch: a small file read at random": large_file(131072.0, file_bytes=10**5),
}


def describe(name):
    """Lines of the golden about one case."""
    profile = CASES[name]
    breakdown = attribute(profile)
    advice = verdict(breakdown, profile)
    yield f"## {name}"
    yield f"{advice.kind}: {', '.join(advice.stalls) or 'none'}"
    yield advice.text
    yield from (f"- {step}" for step in advice.next_steps)
    if not profile.workload.loaders:
        yield from (f"unknown {missing.name}: {missing.why}" for missing in breakdown.skipped)
    row = name.partition(":")[0]
    for remedy in REMEDIES[row](Case(breakdown, profile)) if row in REMEDIES else ():
        saves = "?" if remedy.saves is None else f"{remedy.saves * 1e3:.4g} ms"
        yield f"    {remedy.name or '-'}{' (first)' if remedy.first else ''}, {saves}: {remedy.text}"


def read_golden():
    """Each case's text by its name."""
    parts = GOLDEN.read_text().split("\n## ") if GOLDEN.exists() else []
    return {part.removeprefix("## ").partition("\n")[0]: part for part in parts}


@pytest.mark.parametrize("name", CASES)
def test_advice_is_what_it_was(name):
    expected = read_golden().get(name, "").removeprefix("## ").strip()
    text = "\n".join(describe(name)).removeprefix("## ")
    assert copy_close_numbers(text, expected) == expected


def test_every_step_is_a_sentence():
    for profile in CASES.values():
        advice = verdict(attribute(profile), profile)
        assert 1 <= len(advice.next_steps) <= 4
        for text in (advice.text, *advice.next_steps):
            assert text[0].isupper()
            assert text.endswith(".")
            assert ".." not in text.replace("(..., ", "(")


if __name__ == "__main__":
    GOLDEN.write_text("\n\n".join("\n".join(describe(name)) for name in CASES) + "\n")
