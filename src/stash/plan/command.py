"""``stash recommend``: options read, profiles and catalog loaded, the plan shown and saved."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.core.errors import StashError, UserError
from stash.core.printable import printable_line
from stash.store.storing import StoreOption
from stash.ui.options import flag, option

if TYPE_CHECKING:
    from stash.catalog.offers import Catalog
    from stash.core.records.profile import Profile
    from stash.plan.bill import BillFacts
    from stash.plan.plan_options import TrainedJob
    from stash.plan.records import RentalPlan
    from stash.predict.passes import Base

# Recommend -------------------------------------------------------------------------------------------------
# ``stash recommend``: what to rent for a job, what that costs, and which of the dollars are stalls.
#
# Parses, loads, shows: what is asked comes from ``derive.plan.asked``, the answer from ``derive.plan``, its looks
# from ``stash.plan``. Starts nothing, and asks no cloud.

RUNS_HELP = "Profiles of the job, of `stash profile`: on one kind of machine, or on several."
STUDY_HELP = "A folder of profiles: all *.stash.json in it, and below."
SAMPLES_HELP = "Samples of an epoch, or without --epochs of the whole training, like 1281167 or 50M."
DATASET_HELP = "A known data set, whose size an epoch is: imagenet, coco-2017, openwebtext …"
DEADLINE_HELP = "By when: like 24h or 3d from now, or a date like 2027-01-31T18:00."
QUOTA_HELP = "At most so many of a type, like p3.16xlarge=2; may be given several times."
SCALING_HELP = "What more devices do: each trains the profiled batch (per-device), or they share it (global)."
EFFICIENCY_HELP = "Samples to train grow with (global batch)^E; 0 to 1, else none are added."
CONFIDENCE_HELP = "How probable it has to be that deadline and budget are kept."
EXPLAIN_HELP = "How the time and the bill of this type were found, line by line, with every fact's source."
CALIBRATE_HELP = "An earlier plan and a profile of what it rented, which move forecasts; may be given several times."
RULES_HELP = "What people go by today (price, peak FLOPs, linear scaling …) would have rented, and its regret."
JSON_HELP = "Print the plan as JSON; its keys are a contract (docs/format.md)."
OUTPUT_HELP = "Write it too: a page (.html), the plan (.plan.json), a note (.md) or a picture (.png, .svg, .pdf)."
LAUNCH_HELP = "Write the choice as a SkyPilot task, NAME.sky.yaml; nothing is started."
INSTANCES_HELP = "Your own machines and prices (docs/how-to/own-instances.md); else the usual file."
_ENDINGS = (".html", ".md", ".png", ".svg", ".pdf")
_WORK, _GOAL, _MAY, _BILL, _HOW, _SHOWN = (
    "How much is trained", "By when, for how much", "What may be rented", "What is paid beside the hours",
    "How the job is run there", "What is shown",
)  # fmt: skip


def recommend(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN...", help=RUNS_HELP, show_default=False)] = None,
    study: Annotated[Path | None, option("DIR", STUDY_HELP)] = None,
    epochs: Annotated[str | None, option("N", "Passes over the data set.", panel=_WORK)] = None,
    samples: Annotated[str | None, option("N", SAMPLES_HELP, panel=_WORK)] = None,
    dataset: Annotated[str | None, option("NAME", DATASET_HELP, panel=_WORK)] = None,
    steps: Annotated[str | None, option("N", "Optimizer steps, as large as profiled.", panel=_WORK)] = None,
    tokens: Annotated[str | None, option("N", "Tokens, like 300B.", panel=_WORK)] = None,
    tokens_per_sample: Annotated[str | None, option("N", "The length of a sequence.", panel=_WORK)] = None,
    deadline: Annotated[str | None, option("TIME", DEADLINE_HELP, panel=_GOAL)] = None,
    budget: Annotated[str | None, option("DOLLARS", "At most so much, for all of it.", panel=_GOAL)] = None,
    confidence: Annotated[str | None, option("P", f"{CONFIDENCE_HELP} Else 0.9.", panel=_GOAL)] = None,
    cloud: Annotated[str | None, option("NAMES", "Like aws,gcp.", panel=_MAY)] = None,
    region: Annotated[str | None, option("NAMES", "Like us-east-1.", panel=_MAY)] = None,
    gpu: Annotated[str | None, option("NAMES", "Models or variants, like V100,A100-80GB.", panel=_MAY)] = None,
    min_memory: Annotated[str | None, option("SIZE", "Of a GPU, like 40GB.", panel=_MAY)] = None,
    max_nodes: Annotated[str | None, option("N", "Machines; else 16.", panel=_MAY)] = None,
    max_price: Annotated[str | None, option("DOLLARS/H", "Of all machines together.", panel=_MAY)] = None,
    quota: Annotated[list[str] | None, option("TYPE=N", QUOTA_HELP, panel=_MAY)] = None,
    spot: Annotated[str | None, option("never|allow", "Machines that may be taken away.", panel=_MAY)] = None,
    exclude: Annotated[str | None, option("NAMES", "Instance types, or clouds.", panel=_MAY)] = None,
    max_age: Annotated[str | None, option("DAYS", "Of a price, before a warning.", panel=_MAY)] = None,
    instances: Annotated[Path | None, option("FILE", INSTANCES_HELP, panel=_MAY)] = None,
    scaling: Annotated[str | None, option("per-device|global", SCALING_HELP, panel=_HOW)] = None,
    efficiency: Annotated[str | None, option("E", EFFICIENCY_HELP, panel=_HOW)] = None,
    start: Annotated[str | None, option("TIME", "Until machines are up, like 5m or 3m..8m.", panel=_BILL)] = None,
    image_size: Annotated[str | None, option("SIZE", "Of the container's image.", panel=_BILL)] = None,
    data_size: Annotated[str | None, option("SIZE", "Of the data set; else as profiled.", panel=_BILL)] = None,
    download: Annotated[str | None, option("RATE", "Of a node, like 500MB/s.", panel=_BILL)] = None,
    disk_size: Annotated[str | None, option("SIZE", "Of a node; else image and data.", panel=_BILL)] = None,
    disk_price: Annotated[str | None, option("DOLLARS", "Per GB and month.", panel=_BILL)] = None,
    data_in: Annotated[str | None, option("CLOUD", "Where the data lie: others pay egress.", panel=_BILL)] = None,
    egress_price: Annotated[str | None, option("DOLLARS", "Per GB.", panel=_BILL)] = None,
    calibrate: Annotated[list[str] | None, option("PLAN:RUN", CALIBRATE_HELP, "--calibrate-with", panel=_HOW)] = None,
    pareto: Annotated[bool, flag("--pareto", "The whole front of cost against time.", panel=_SHOWN)] = False,
    explain: Annotated[str | None, option("TYPE", EXPLAIN_HELP, panel=_SHOWN)] = None,
    rules: Annotated[bool, flag("--compare-rules", RULES_HELP, panel=_SHOWN)] = False,
    markdown: Annotated[bool, flag("--markdown", "Print a note to paste into a ticket.", panel=_SHOWN)] = False,
    json: Annotated[bool, flag("--json", JSON_HELP, panel=_SHOWN)] = False,
    output: Annotated[list[Path] | None, option("FILE", OUTPUT_HELP, "--output", "-o", panel=_SHOWN)] = None,
    launch: Annotated[str | None, option("sky", LAUNCH_HELP, panel=_SHOWN)] = None,
    store: StoreOption = None,
) -> None:
    """Say what to rent for a job: the cheapest in time, or the fastest for the money, and which dollars are stalls.

    Exit code 1 if nothing keeps the deadline and the budget; then the nearest that can be kept are named.

    Examples:

        stash recommend train.stash.json --epochs 90 --samples 1281167 --deadline 24h

        stash recommend train.stash.json --samples 50M --budget 300 --cloud aws,gcp

        stash recommend --study runs/ --epochs 90 --dataset imagenet --pareto -o choice.html
    """
    given = {
        "epochs": epochs, "samples": samples, "dataset": dataset, "steps": steps, "tokens": tokens,
        "tokens-per-sample": tokens_per_sample, "deadline": deadline, "budget": budget, "confidence": confidence,
        "cloud": cloud, "region": region, "gpu": gpu, "min-memory": min_memory, "max-nodes": max_nodes,
        "max-price": max_price, "spot": spot, "exclude": exclude, "max-age": max_age, "scaling": scaling,
        "efficiency": efficiency, "start": start, "image-size": image_size, "data-size": data_size,
        "download": download, "disk-size": disk_size, "disk-price": disk_price, "data-in": data_in,
        "egress-price": egress_price,
    }  # fmt: skip
    typed = {name: text for name, text in given.items() if text is not None}
    _refuse_contradictions(explain, markdown, json, pareto)
    if launch not in (None, "sky"):
        raise UserError(f"--launch {launch}: sky is what a choice can be written for, as a SkyPilot task")
    targets = _targets(output or ())

    found = planned(
        PlanRequest(runs or (), study, store, typed, quota or (), instances, explain, rules, calibrate or ())
    )
    plan = found.plan
    _print(plan, explain, markdown, json, pareto)
    for target in targets:
        _write(plan, target, pareto, json or markdown)
    if launch is not None:
        _write_task(found, json or markdown)
    if plan.chosen is None:
        raise typer.Exit(1)


def _refuse_contradictions(explain: str | None, markdown: bool, json: bool, pareto: bool) -> None:
    """Raise UserError for two ways of showing at once."""
    ways = [
        name
        for name, wanted in (("--explain", explain is not None), ("--markdown", markdown), ("--json", json))
        if wanted
    ]
    if len(ways) > 1:
        raise UserError(f"{ways[0]} and {ways[1]} are two ways to show a plan; leave out one of them")
    if pareto and explain is not None:
        raise UserError("--pareto shows many choices and --explain one; leave out one of the two")


def _targets(wanted: Sequence[Path]) -> list[Path]:
    """Where to write, checked before time is spent; raises UserError."""
    from stash.plan.records import PLAN_SUFFIX
    from stash.report.output import output_file

    for path in wanted:
        if not path.name.endswith((PLAN_SUFFIX, *_ENDINGS)):
            raise UserError(f"--output {path}: a name ends in {', '.join(_ENDINGS)} or {PLAN_SUFFIX}")
    return [output_file(path, "", path.suffix) for path in wanted]


def _print(plan: RentalPlan, explain: str | None, markdown: bool, json: bool, pareto: bool) -> None:
    from stash.plan.explained import explained
    from stash.plan.page import document, page
    from stash.report.output import file_of, printed

    if markdown:
        print(file_of(page(plan, pareto), ".md"), end="")
    elif explain is not None:
        printed(explained(plan, explain))
    else:
        printed(document(plan) if json else page(plan, pareto))


def _write(plan: RentalPlan, target: Path, pareto: bool, quiet: bool) -> None:
    """One file, by its ending; said on stderr where standard output is for a program or a ticket."""
    from stash.plan.page import page
    from stash.plan.records import PLAN_SUFFIX, save_plan
    from stash.report.output import file_of, write_output

    if target.name.endswith(PLAN_SUFFIX):
        save_plan(plan, target)
    else:
        write_output(target, file_of(page(plan, pareto), target.suffix))
    print(printable_line(f"Wrote {target}."), file=sys.stderr if quiet else sys.stdout)


def _write_task(found: Planned, quiet: bool) -> None:
    """The chosen one as a SkyPilot task, beside no earlier one; raises StashError where nothing is chosen."""
    from stash.plan.launch import sky_task, task_name
    from stash.report.output import output_file, write_output

    chosen = found.plan.chosen
    if chosen is None:
        raise StashError("--launch sky: nothing keeps deadline and budget, so there is no choice to write down")
    target = output_file(None, task_name(found.profile), ".sky.yaml")
    write_output(target, sky_task(chosen, found.profile, found.catalog, found.bill, target.name), new=True)
    note = f"Wrote {target}, a SkyPilot task of {chosen.name}; nothing was started."
    print(printable_line(note), file=sys.stderr if quiet else sys.stdout)


# Planning --------------------------------------------------------------------------------------------------
# From the words of ``stash recommend`` to a plan: profiles and catalog loaded, options read, ``derive.plan`` asked.
#
# Knows where files are and in which order mistakes are told; prints nothing.


@dataclass(frozen=True)
class PlanRequest:
    """One call of ``stash recommend``."""

    runs: Sequence[str]
    """Files, or ids of a store."""
    study: Path | None
    store: str | None
    typed: Mapping[str, str]
    """Options of the goal and its constraints by name, as they were typed."""
    quotas: Sequence[str]
    instances: Path | None
    explain: str | None
    rules: bool
    """Whether other ways to choose stand beside the plan."""
    calibrate: Sequence[str]
    """Earlier plans and profiles of what they rented, like ``train.plan.json:run.stash.json``."""


@dataclass(frozen=True)
class Planned:
    """A plan, and what it was made of."""

    plan: RentalPlan
    profile: Profile
    """The first of those it was made from: all are of one job."""
    catalog: Catalog
    bill: BillFacts


def planned(asked: PlanRequest) -> Planned:
    """The plan; raises UserError."""
    from stash.catalog.layers import load
    from stash.plan.check_command import read_residuals
    from stash.plan.explained import type_of
    from stash.plan.plan_options import bill_facts, constraints, goal
    from stash.plan.recommend import recommend
    from stash.plan.residuals import calibrated

    names = _names(asked)
    bases = _bases(names, asked.store)
    now = datetime.now().astimezone()
    wanted = goal(asked.typed, _job(bases[0]), now)
    catalog = load(asked.instances)
    residuals = read_residuals(list(asked.calibrate), asked.store)
    bill = bill_facts(asked.typed, bases[0].profile.workload.dataset_bytes, catalog)
    plan = recommend(
        bases,
        wanted,
        constraints(asked.typed, asked.quotas, catalog),
        catalog,
        bill,
        names,
        now.date(),
        listed=() if asked.explain is None else (type_of(asked.explain),),
        rules=asked.rules,
        calibrate=(lambda drawn, draws: calibrated(drawn, residuals, draws)) if residuals.found else None,
    )
    told = tuple(f"--calibrate-with leaves out {sentence}" for sentence in residuals.left_out)
    plan = plan.model_copy(update={"warnings": (*plan.warnings, *told)})
    return Planned(plan, bases[0].profile, catalog, bill)


def _names(asked: PlanRequest) -> list[str]:
    """The runs that were named, and those of the study's folder."""
    from stash.core.records.base import SUFFIX

    found = list(asked.runs)
    if asked.study is not None:
        if not asked.study.is_dir():
            raise UserError(f"--study {asked.study}: there is no such folder")
        files = sorted(str(path) for path in asked.study.rglob(f"*{SUFFIX}"))
        if not files:
            raise UserError(f"--study {asked.study}: no *{SUFFIX} is in it; `stash profile` makes one")
        found += files
    if not found:
        raise UserError("what is to be trained? Name a profile: stash recommend train.stash.json --epochs 90")
    twice = next((name for name in found if found.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice; name each file once")
    return found


def _bases(names: Sequence[str], store: str | None) -> list[Base]:
    """The catalog of a base only describes the machines that were profiled."""
    from stash.analysis.attribution import attribute
    from stash.catalog.layers import load
    from stash.plan.candidates import refuse_different_jobs
    from stash.predict.forecasting import base_of
    from stash.store.storing import profile_of

    profiles: list[Profile] = [profile_of(name, store)[0] for name in names]
    refuse_different_jobs(profiles, names)
    return [
        base_of(profile, attribute(profile, name), catalog=load)
        for profile, name in zip(profiles, names, strict=True)
    ]


def _job(base: Base) -> TrainedJob:
    from stash.plan.plan_options import TrainedJob

    sizes = [loader.samples for loader in base.profile.workload.loaders if loader.samples is not None]
    return TrainedJob(base.breakdown.samples_per_step, sizes[0] if len(sizes) == 1 else None)
