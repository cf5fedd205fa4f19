"""The page on validation: a section for each kind of evidence, with its split, its tables and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.predict import (
    cpu_sensitivity,
    gavel,
    gpus,
    links,
    loader_queue,
    memory,
    published,
    slowest,
    speed,
    testbed,
    this_machine,
)  # fmt: skip
from bench.predict.errors import Prediction, coverage, errors, summary, worst
from stash.predict import compute_ratios
from stash.predict.exchange_stalls import MODEL_SPREAD, UNREADY_SPREAD

HEAD = """# How wrong predictions are

Every prediction of Stash against measurements that it was not fitted to. Errors are of what was predicted over what
was measured, less one; *median / 90th* are percentiles of their sizes, *bias* their mean, *in the interval* how often
the 95 % interval held the measurement. Beside them stand the simplest ways to predict the same. Written by
`python -m bench.predict`; [how predictions are made](prediction.md) is a page of its own.
"""

PICTURE = """![Predicted over measured, a mark a case: Stash and perfect scaling, by source](pictures/predicted.png)

Throughput on several GPUs: predicted over measured, a mark a case; what is beyond 4 is drawn at 4. The picture is
made by `python -m bench.predict.plots`.
"""
PUBLISHED = """## Published throughput on several GPUs

{cases} throughputs, each predicted from the same source's throughput on one GPU and the data sheet of the machine's
links; no profile was there to hold the model to. *Split*: of each source every other model on a machine is learned
from: {learned} throughputs say what a step takes longer on several devices than its exchange explains
({crowding:.0%} of it in the middle, {low:.0%} to {high:.0%}), and none of their models on these machines is in the
table. What links reach of their sheets comes from published collectives of other people, and the model's own spread
({spread:.0%}) from four throughputs of DLPerf's BERT that are not in the table either. When gradients are ready is
published for ResNet-50 and VGG16 (arXiv 2006.10103), and taken as even for the others.

Over all: median / 90th {own}, in the interval {covered:.0%}; perfect scaling {perfect}; payload over one link
{plain}.
"""
PUBLISHED_FAILURES = """
- Inside a node nothing tells beforehand which model loses much: a forecast from one GPU is about as good as perfect
  scaling, and only its interval says what may come. Profile two GPUs: contention and prep are measured then.
- *TensorFlow*: VGG16 on 8 P100 is predicted too fast by a quarter. TensorFlow 1.1 exchanges each variable by itself,
  through parameter servers or one all-reduce each; the model is of DistributedDataParallel's buckets. InceptionV3 on
  P100 loses nothing at all, which none of the models that were learned from does.
- *NVIDIA*: the faster a step, the more it loses. ResNet-50 in mixed precision takes 15 % longer on 8 GPUs of a node
  than on one, BERT-large at two sentences a step 25 %: no exchange over NVLink takes that long, so other things do
  (input, launching kernels), which one GPU does not show.
- *DLPerf*: BERT exchanges all gradients at once after the backward pass, as its script says, and is predicted well
  over InfiniBand. In mixed precision its steps wait between what 16 and what 32 bits of gradients would take; the
  model has 16.
"""

PAPER = """## arXiv 2006.10103: 64 V100 over 100 Gbit/s of TCP

The paper finds scaling factors of 60 to 76 % for these three models on eight p3dn.24xlarge, and about 99 % if the
network were used in full. Predicted from its per-gradient timings on one V100 and from what *others* saw sockets do;
its authors' own collectives are left out of that.

| model | sockets as others saw them | 95 % interval | all of 100 Gbit/s |
| --- | ---: | ---: | ---: |"""
PAPER_FAILURES = """
The mean of the three is {mean:.0%}. Every interval holds the paper's range and is wide: sockets carried between 11
and 41 Gbit/s of these lines, by version and setting, which no data sheet tells. VGG16 is predicted too slow at the
middle of that, since its 553 MB then outlast the backward pass several times.
"""

GAVEL = """## Gavel: other batches on K80, P100 and V100, packed and spread

{cases} throughputs at larger batches, from that at the smallest of the same job on the same GPUs; {covered:.0%} are
in the interval. *Split*: by batch, the smallest is given; and by model: of {learned} it was learned how far what is
exposed is from what is said of it ({spread:.0%}), and they are not in the table. These machines' links are
published nowhere, so nothing else can be predicted of them. How much of an exchange is hidden is anything possible,
as it is for a profile without readiness; a first version took all that can hide to be hidden, and was off by 9 to
16 % (median), so these rows are no longer unseen.
"""
GAVEL_FAILURES = """
- A forecast without readiness is about as good as taking the exposed part as fixed, and far better than perfect
  scaling. Where it is far off, so is the fixed part: these are single runs, and some lose more time at a larger batch
  than at a smaller one, which no exchange explains.
"""

LINKS = """## What links reach of their data sheets

{cases} published machines, each predicted from machines that other sources measured. Of {alone} more nobody else
measured the kind. *Split*: leave one source out.
"""
LINKS_FAILURES = """
- Machines with a wrong setting are in it (a third of what InfiniBand claims, an eighth of what sockets do), since a
  user's may be one too: `stash probe` tells.
"""

SLOWEST = """## Waiting for the slowest of many ranks

What the slowest of n ranks takes longer than their mean, from 250 steps such as a profile sees, of a small network
on 2 cores (`bench/noise/two_ranks.csv`). *Split*: alternate stretches of that recording, each half for the other.
Intervals are from resampling stretches of those steps, and from a tail anywhere between a normal and an exponential
one beyond them.
"""
SLOWEST_FAILURES = """
- These steps have a long tail, as on any virtual machine: of 512 ranks the slowest is farther out than a normal tail
  beyond 250 steps says, and how far depends on which 250 were seen.
"""

SPEED = """## Speed

CPU seconds on one core of the machine that wrote this page.
"""


def page() -> str:
    """All of ``docs/validation.md``."""
    data = (gpus.section, cpu_sensitivity.section, loader_queue.section, memory.section)
    sections = (_published, _paper, _gavel, _links, _slowest, testbed.section, this_machine.section, *data, _speed)
    return "\n".join([HEAD, PICTURE, *("\n".join([*section(), ""]) for section in sections)])


def _published() -> list[str]:
    found = list(published.throughputs())
    crowding = compute_ratios.crowding()
    head = PUBLISHED.format(
        cases=len(found),
        learned=len(published.scaling_rows()),
        covered=coverage(found),
        crowding=crowding.value,
        low=crowding.low,
        high=crowding.high,
        spread=MODEL_SPREAD,
        own=errors(each.error for each in found).words,
        perfect=_baseline(found, "perfect scaling"),
        plain=_baseline(found, "payload over one link"),
    )
    return [head, *summary(found), "", "The farthest off:", "", *worst(found), PUBLISHED_FAILURES.rstrip()]


def _baseline(found: Sequence[Prediction], name: str) -> str:
    return errors(each.baselines[name] / each.measured - 1 for each in found).words


def _paper() -> list[str]:
    lines, factors = [PAPER], []
    for name, sockets, whole in published.scaling_factors():
        low, high = np.percentile(sockets, [2.5, 97.5])
        factors.append(float(np.median(sockets)))
        lines.append(f"| {name} | {factors[-1]:.0%} | {low:.0%} to {high:.0%} | {np.median(whole):.1%} |")
    return [*lines, PAPER_FAILURES.format(mean=np.mean(factors)).rstrip()]


def _gavel() -> list[str]:
    found = list(gavel.batches())
    learned = " and ".join(sorted(gavel.learned_from()))
    head = GAVEL.format(cases=len(found), covered=coverage(found), learned=learned, spread=UNREADY_SPREAD)
    return [head, *summary(found), "", "The farthest off:", "", *worst(found), GAVEL_FAILURES.rstrip()]


def _links() -> list[str]:
    found, alone = links.shares()
    return [LINKS.format(cases=len(found), alone=alone), *summary(found), LINKS_FAILURES.rstrip()]


def _slowest() -> list[str]:
    return [SLOWEST, *summary(slowest.waits()), SLOWEST_FAILURES.rstrip()]


def _speed() -> list[str]:
    return [SPEED, *speed.draws_table(), "", *speed.timeline_table(), "", speed.forecast_line()]
