"""``stash recommend``: what to rent for a job, what that costs, and which of the dollars are stalls.

Parses, loads, shows: what is asked comes from ``derive.plan.asked``, the answer from ``derive.plan``, its looks from
``stash.show.plan``. Starts nothing, and asks no cloud.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import StashError, UserError
from stash.base.printable import printable_line
from stash.cli.options import flag, option
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.base.plan import RentalPlan
    from stash.cli.planning import Planned

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
    from stash.cli.planning import PlanRequest, planned

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
    from stash.base.plan import PLAN_SUFFIX
    from stash.cli.output import output_file

    for path in wanted:
        if not path.name.endswith((PLAN_SUFFIX, *_ENDINGS)):
            raise UserError(f"--output {path}: a name ends in {', '.join(_ENDINGS)} or {PLAN_SUFFIX}")
    return [output_file(path, "", path.suffix) for path in wanted]


def _print(plan: RentalPlan, explain: str | None, markdown: bool, json: bool, pareto: bool) -> None:
    from stash.cli.output import printed
    from stash.show.plan.view import view

    if json:
        from stash.base.printable import strict_json
        from stash.show.plan.contract import document

        print(strict_json(document(plan)))
    elif explain is not None:
        from stash.show.plan.explain import explained
        from stash.show.plan.explain_terminal import render as render_derivation

        printed(explained(plan, explain), render_derivation)
    elif markdown:
        from stash.show.plan.markdown import render as render_markdown

        print(render_markdown(view(plan, pareto)), end="")
    else:
        from stash.show.plan.terminal import render

        printed(view(plan, pareto), render)


def _write(plan: RentalPlan, target: Path, pareto: bool, quiet: bool) -> None:
    """One file, by its ending; said on stderr where standard output is for a program or a ticket."""
    from stash.base.plan import PLAN_SUFFIX
    from stash.cli.output import write_output

    if target.name.endswith(PLAN_SUFFIX):
        from stash.keep.plans import save_plan

        save_plan(plan, target)
    elif target.suffix == ".md":
        from stash.show.plan.markdown import render
        from stash.show.plan.view import view

        write_output(target, render(view(plan, pareto)))
    else:
        from stash.show.plan.page import picture

        write_output(target, picture(plan, target.suffix))
    print(printable_line(f"Wrote {target}."), file=sys.stderr if quiet else sys.stdout)


def _write_task(found: Planned, quiet: bool) -> None:
    """The chosen one as a SkyPilot task, beside no earlier one; raises StashError where nothing is chosen."""
    from stash.cli.output import output_file, write_output
    from stash.derive.plan.sky import sky_task, task_name

    chosen = found.plan.chosen
    if chosen is None:
        raise StashError("--launch sky: nothing keeps deadline and budget, so there is no choice to write down")
    target = output_file(None, task_name(found.profile), ".sky.yaml")
    write_output(target, sky_task(chosen, found.profile, found.catalog, found.bill, target.name), new=True)
    note = f"Wrote {target}, a SkyPilot task of {chosen.name}; nothing was started."
    print(printable_line(note), file=sys.stderr if quiet else sys.stdout)
