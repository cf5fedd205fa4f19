"""The page on how sure recommendations are: every table by the command that prints it, and what the tables mean."""

from __future__ import annotations

from bench.plan import fleet_judge, price_ratio, published
from stash.core.errors import UserError

HEAD = """# How sure is the recommendation

`stash recommend` chooses by forecasts, and [those are wrong by some per cent](validation.md). What matters to whoever
pays is another number: what the choice costs more than the best one would have. It was measured where the truth of
every candidate is known. Written by `python -m bench.plan`; each part says which command prints its tables alone.

How to read the tables. A *goal* is a deadline, a budget, or both; those that nothing keeps are not counted. *Kept*:
the choice, as it was measured, kept the goal. *Chose nothing*: it was said that nothing would. *Within 3 %*: kept,
and no more than that above the best, in dollars, or in time where only money is limited. *More than the best* is of
the choices that kept their goal. *90% sure* is what `stash recommend` asks for unless told otherwise: a limit has to
be kept with that probability. *More likely than not* takes whatever keeps it in more than half of all draws.

Beside it stand the rules by which people choose today (`derive/plan/rules`; `stash recommend --compare-rules` shows
them for a job of yours), with the same facts before them: prices, data sheets, the speed of one device where that was
measured. None of them says how sure it is.
"""
FLEET = """## An emulated fleet, where everything can be run

Eight instance types of one device that differ in devices, links, network, disk and price, one to three nodes of each:
an emulated cluster for every candidate, and three models with little, some and much to exchange. Each model is
profiled on two nodes of one cheap type; every other candidate is forecast from that profile and the types' data
sheets before it is run. The truth is the job untouched, timed by a stopwatch at its optimizer, reading data that are
not in memory. Prices are made up, and were written down before. `python -m bench.plan.fleet` (root) runs what is not
kept yet; `python -m bench.plan.fleet --judge` prints this.
"""
NOT_RUN = "Not run yet."
PUBLISHED = """## Published measurements, a part of them hidden

Throughputs that others published: on K80, P100, V100 and A100, one to 32 of them (Gavel; TensorFlow, DLPerf, NVIDIA),
and on one V100 with 1 to 24 cores (Synergy). The chooser sees a part of a table and names one of a job's hidden
set-ups; then the hidden numbers are looked at. `python -m bench.plan.published` prints this.

*Splits*, {seeds} of each kind, drawn with seeds 0 to {last}. Each source is a table of its own, and so are Gavel's
packed and spread jobs, as their rows of one GPU are the same measurement. Rows that Stash's models of exchange and
crowding were learned from are left out (TensorFlow's on synthetic data, DLPerf's BERT in float32 on several nodes).

*Forecasts* are made as those of other GPUs are: by the model's own pairs at other batches, by what cores make and the
GPU trains, by the exchange over links whose data sheet is known, by other models' pairs, by data sheets; intervals
are those of the same errors within the visible part. *No leakage*: a forecaster is handed the visible part and
nothing else, and a test scrambles all hidden numbers and finds every forecast and every choice unchanged. One thing
followed a first look at choices: curves of cores that are flat from the fewest visible on tell nothing of fewer.

Deadlines are 1 to 1/32 of the time that the job takes where it is known to run cheapest, budgets 4 to 1/4 of the cost
there. Prices of a GPU for an hour: {prices}.
"""
PUBLISHED_FINDINGS = """What this shows:

- Where half of a table is visible, and where links are known, choices are right more often than any rule's.
- Of Synergy's models those are missed whose curve is no maximum of two lines ([AlexNet and
  ShuffleNet](validation.md#cpu-cores-for-each-gpu)). Rules see one GPU everywhere, and take the fewest cores.
- Where all that is known of a model is one row on one K80, forecasts for other GPUs are other models' ratios, which
  lie a factor of three apart, and choices are no better than rules'. *SkyPilot* does best on Gavel's tables then: it
  takes one GPU of the next kind, a P100, which happens to be the cheapest for most of those jobs. The remedy is a
  profile on the GPU in question.
- To be sure has its price. With intervals this wide nothing is sure enough for a fifth to two fifths of Gavel's
  goals, and that is what is said; asked to be less sure, more goals are kept, and more of the choices are right.
- What is said of deadlines comes true about as often as it is said. It is a little too sure where a model's other
  rows are hidden: intervals come from errors over the visible models, and the hidden ones differ more.
"""
RATIO = """## When the most expensive instance is the best

The paper: more expensive instances may not be the most performant for all models. `python -m bench.plan.price_ratio`
prints this. *Becomes best at*: the ratio of prices an hour, dearest over cheapest, below which the dearest set-up is
the cheapest for a whole training; *of its price*: that as a part of what it costs.
"""
RATIO_FINDINGS = """
- Measured or forecast, of no model is the dearest the cheapest for the work at its price. Where little is lost to
  exchange it would have to cost a few per cent less; where much is, a fraction of what it does.
- It is not always the fastest either: spread over machines, eight P100 train two of Gavel's four models faster than
  eight V100.
- Forecasts start from one K80 and one P100, and published pairs between a P100 and a V100 are where their intervals
  come from. `p3dn.24xlarge` has the GPUs of `p3.16xlarge` and costs more: on one node its network earns nothing, and
  the ratio of these two prices is the most that it can be worth.
"""


def page(seeds: int = 20) -> str:
    """Everything in Markdown; the fleet's tables are there once it has run."""
    parts = [HEAD, FLEET, _fleet(), "", PUBLISHED.format(seeds=seeds, last=seeds - 1, prices=published.prices())]
    parts += published.lines(seeds)
    return "\n".join([*parts, PUBLISHED_FINDINGS, RATIO, *price_ratio.lines(), RATIO_FINDINGS.rstrip(), ""])


def _fleet() -> str:
    try:
        return fleet_judge.page()
    except UserError:
        return NOT_RUN
