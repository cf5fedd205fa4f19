"""``stash market``: import, record and show markets; backtest policies on them; say what to do now.

Parses, calls and prints. Starts nothing.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from stash.analysis.attribution import attribute
from stash.catalog.facts import OLD_DAYS
from stash.catalog.layers import load as load_catalog
from stash.catalog.own import ON_PREMISE
from stash.core.errors import UserError
from stash.core.formatting import listed
from stash.core.output_files import output_file, write_output
from stash.core.printable import print_note, print_written, printable_line
from stash.core.units import counted
from stash.market import advising
from stash.market.advising import MarketAdvice, held_offer, move_task, start_command
from stash.market.answers_page import advice_document, advice_page
from stash.market.backtest import check_policies, impossible, replay
from stash.market.decisions import JobMarket, job_market
from stash.market.fees import published_fees
from stash.market.jobs import MarketJob, job_of_profile, read_job
from stash.market.market_importers import (
    asked_lately,
    current,
    import_aws,
    import_skypilot,
    outdated,
    refuse_absurd,
)
from stash.market.market_options import (
    BacktestOptions,
    MarketImportOptions,
    MoveOptions,
    RecordOptions,
    ReplayOptions,
    ShowMarketOptions,
)
from stash.market.market_rules import policy
from stash.market.market_table import read_market, written
from stash.market.market_trace import MarketTrace, chosen, merged
from stash.market.page import backtest_document, backtest_page, market_document, market_page
from stash.plan.plan_options import PlanOptions, TrainedJob, work
from stash.predict.forecasting import base_of
from stash.predict.passes import Base
from stash.report.output import file_of, printed
from stash.store.storing import profile_of
from stash.ui.commands import App

_REFRESH = "`stash catalog refresh` renews them"


def import_market(options: MarketImportOptions) -> None:
    """Turn recorded prices and availability into a market file.

    KIND is aws (the output of `aws ec2 describe-spot-price-history`) or skypilot (skypilot-org/spot-traces).

    Examples:
      stash market import aws history.json -o 2020.market.csv.gz
    """
    target = _target(options.output, options.kind)
    if options.kind == "aws":
        found = import_aws(options.paths)
    else:
        found = import_skypilot(options.paths, dict(options.spot_price), dict(options.on_demand_price))
    _save(found.trace, target)
    printed(market_document(found.trace, target.name) if options.json else market_page(found.trace, target.name))
    for note in found.notes:
        print_note(f"Left out or assumed: {note}.", options.json)
    print_written(target, options.json)


def _target(wanted: Path | None, stem: str) -> Path:
    target = output_file(wanted, stem, ".market.csv.gz")
    if not target.name.endswith((".market.csv", ".market.csv.gz")):
        raise UserError(f"--output {target}: a market's name ends in .market.csv or .market.csv.gz")
    return target


def _save(trace: MarketTrace, target: Path) -> None:
    write_output(target, written(trace, target))


def record(options: RecordOptions) -> None:
    """Add the catalog's current prices to a market file.

    Examples:
      stash catalog refresh && stash market record prices.market.csv.gz
    """
    target = _target(options.market, "prices")
    look, old = asked_lately(load_catalog(None), datetime.now(timezone.utc))
    before = [read_market(target)] if target.exists() else []
    _save(merged([*before, look]), target)  # the last look so far holds for its ``max_gap`` at most
    print(printable_line(f"{counted(len(look.offers), 'offer')} added to {target}."))
    if old:
        print_note(f"Left out: {counted(old, 'older price')}; `stash catalog refresh` gets today's.", False)


def show(options: ShowMarketOptions) -> None:
    """Show what a market file holds, and what is missing.

    Examples:
      stash market show 2020.market.csv.gz
    """
    trace, source = markets(options.markets)
    printed(market_document(trace, source) if options.json else market_page(trace, source))


def markets(paths: Sequence[Path]) -> tuple[MarketTrace, str]:
    """The files as one market, and what it is called; raises UserError."""
    found = merged([read_market(path) for path in paths])
    source = ", ".join(path.name for path in paths)
    refuse_absurd(found, load_catalog(None), source)
    return found, source


def backtest(options: BacktestOptions) -> None:
    """Replay a job over recorded weeks under several policies.

    A job is a profile with --epochs and --dataset, --samples or the like, or a job.yaml that states work and rates.
    Every policy is replayed from many starts and compared with the lowest possible cost. Ctrl-C keeps the finished
    starts.

    Examples:
      stash market backtest 2020.market.csv.gz --job resnet50.stash.json --epochs 90 --dataset imagenet --deadline 8d
    """
    target = None if options.output is None else output_file(options.output, "", options.output.suffix)
    whole, source = markets(options.markets)
    trace = _narrowed(whole, options)
    job, missing, home, _ = _job(options, trace)
    job = _located(job, whole)
    found = replay(
        trace, job, options.policy, options.starts, options.deadline, home=home,
        excluded=missing, done=_progress(options.json or options.quiet),
    )  # fmt: skip
    nobody = impossible(found)
    if nobody is not None:
        raise UserError(nobody)
    shown = backtest_page(found, source)
    if target is not None:
        write_output(target, file_of(shown, target.suffix.lower()))
    printed(backtest_document(found, source) if options.json else shown)
    if target is not None:
        print_written(target, options.json)


def _progress(quiet: bool) -> Callable[[int, int], None] | None:
    if quiet or not sys.stderr.isatty():
        return None

    def show_progress(done: int, of: int) -> None:
        print(f"\r{done} of {of} starts", end="" if done < of else "\r\033[K", file=sys.stderr, flush=True)

    return show_progress


def _narrowed(trace: MarketTrace, options: ReplayOptions) -> MarketTrace:
    """Only the clouds and regions that were asked for; raises UserError if nothing is left."""
    clouds, regions = options.cloud or (), options.region or ()
    found = chosen(
        trace, lambda offer: (not clouds or offer.cloud in clouds) and (not regions or offer.region in regions)
    )
    if not found.offers:
        known = sorted({f"{each.cloud} {each.region}" for each in trace.offers})
        raise UserError(f"--cloud and --region leave no offer; the market has {', '.join(known[:8])}")
    return found


def _job(options: ReplayOptions, trace: MarketTrace) -> tuple[MarketJob, Mapping[str, str], str | None, Base | None]:
    """(job, why an instance has no rate, the instance it was profiled on, what forecasts start with)."""
    if options.job.suffix in (".yaml", ".yml"):
        if options.given("epochs", "samples", "dataset"):
            raise UserError(
                f"{options.job} states its own samples; leave out {options.given('epochs', 'samples', 'dataset')[0]}"
            )
        return options.stated(read_job(options.job)), {}, None, None

    profile, _ = profile_of(str(options.job), None)
    catalog = load_catalog(options.instances)
    base = base_of(profile, attribute(profile, str(options.job)), catalog=lambda: catalog)
    asked = PlanOptions(epochs=options.epochs, samples=options.samples, dataset=options.dataset)
    samples = work(asked, TrainedJob.of_profile(base)).samples
    job, missing = job_of_profile(base, samples, trace.offers, catalog)
    home = next((host.instance for host in profile.hosts if host.instance), None)
    there = home if any(each.instance == home for each in trace.offers) else None
    return options.stated(job), missing, there, base


def _located(job: MarketJob, whole: MarketTrace) -> MarketJob:
    """The job with its data in ``cloud/region``, or in a cloud; raises UserError for what is neither."""
    named = "" if job.data_in is None else job.data_in.strip().lower()
    if not named:
        return job
    offers = [*whole.offers, *current(load_catalog(None), datetime.now(timezone.utc)).offers]
    places = [f"{each.cloud}/{each.region}" for each in offers if each.region]
    found = [place for place in places if named in (place.lower(), place.partition("/")[2].lower())]
    clouds = sorted({ON_PREMISE, *(each.cloud for each in offers)})
    if not found and named.partition("/")[0] not in clouds:
        raise UserError(
            f"--data-in {job.data_in}: no offer is of that region or cloud; name another region with its cloud, like "
            f"aws/eu-west-1, of {listed(clouds, len(clouds))}"
        )
    return job.model_copy(update={"data_in": found[0] if found else named})


def advise(options: MoveOptions) -> None:
    """Advise whether to stay or to move now, and why.

    Prices are the catalog's (`stash catalog refresh` renews them) and those of the market files, if any. --samples
    and --epochs count the remaining work. Nothing is started.

    Examples:
      stash market advise --job resnet50.stash.json --epochs 40 --dataset imagenet --on p3.2xlarge@us-east-1a
    """
    now = datetime.now(timezone.utc)
    catalog = load_catalog(options.instances)
    whole = merged([*([markets(options.markets)[0]] if options.markets else []), current(catalog, now)])
    trace = _narrowed(whole, options)
    job, missing, home, base = _job(options, trace)
    job = _located(job, whole)
    market = job_market(job, trace, published_fees(), missing)
    moment = now.timestamp()
    held, note = None, None
    if options.on is not None:
        known, held, note = held_offer(market.trace, options.on, moment)
        market = replace(market, trace=known)
    rule = policy(options.policy, market, home)
    check_policies((rule,), options.deadline)
    notes = ["the catalog says prices, not whether machines are to be had"] + ([note] if note else [])
    old = len(outdated(catalog, now).intersection(market.offers))
    if old:
        notes.append(f"{counted(old, 'price')} may be {OLD_DAYS} days old and more; {_REFRESH}")
    found = advising.advise(market, rule, held, moment, options.deadline, warnings=notes)
    if found.to is not None:
        found = _with_task(found, market, base, options)
    printed(advice_document(found) if options.json else advice_page(found))
    if found.task is not None and options.output is None and not options.json:
        print(f"\n{found.task}", end="")
    if found.task is not None and options.output is not None:
        print_written(options.output, options.json)


def _with_task(found: MarketAdvice, market: JobMarket, base: Base | None, options: MoveOptions) -> MarketAdvice:
    """The same with what starts the move; raises UserError where it cannot be written."""
    assert found.to is not None
    offer = market.offers[market.trace.number(found.to)]
    task = move_task(offer, market.job, None if base is None else base.profile, load_catalog(options.instances))
    target = None if options.output is None else output_file(options.output, "move", ".sky.yaml")
    name = Path("move.sky.yaml") if target is None else target
    command = start_command(offer, task.name, name)
    steps = (f"save a checkpoint, write the task below to {name}, and: `{shlex.join(command)}`",)
    if target is not None:
        write_output(target, task.yaml)
        steps = (f"save a checkpoint, and: `{shlex.join(command)}`",)
    return replace(found, task=task.yaml, command=command, next_steps=(*steps, *task.notes))


app = App(no_args_is_help=True)


@app.callback()
def market() -> None:
    """Replay a job over recorded spot prices, and choose a policy."""


app.command("import")(import_market)
app.command()(record)
app.command()(show)
app.command()(backtest)
app.command()(advise)
