"""``stash compare``, ``stash check`` and ``stash export``: profiles held against each other, limits, other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.core.errors import StashError, UserError, one_line
from stash.core.printable import printable_line
from stash.store.storing import StoreOption
from stash.ui.options import PublicOption, flag, option

if TYPE_CHECKING:
    from stash.analysis.comparison import DifferingFact
    from stash.analysis.limits import Decision, Limit, Requirement, Tolerance
    from stash.core.records.profile import Profile
    from stash.report.export.exported_runs import ExportedRun

# Compare ---------------------------------------------------------------------------------------------------
# ``stash compare``: two sides of profiles, what differs between them, and whether that is shown.
#
# Parses, loads, shows: what it says comes from ``stash.analysis.comparison`` and ``stash.report``.

COMPARE_FILES_HELP = (
    "Profiles: the first is compared with each other one; with the word vs, all before it with all after it."
)
JSON_HELP = "Print the comparison as JSON, a list of one document per pair; its keys are a contract (docs/format.md)."
ANYWAY_HELP = "Compare even different jobs (another workload, batch, precision, number of ranks, or rungs)."


def compare(
    files: Annotated[list[str], typer.Argument(metavar="BEFORE... [vs] AFTER...", help=COMPARE_FILES_HELP)],
    anyway: Annotated[bool, flag("--anyway", ANYWAY_HELP)] = False,
    json: Annotated[bool, flag("--json", JSON_HELP)] = False,
    store: StoreOption = None,
) -> None:
    """Say what differs between runs of a job, stall by stall, and whether more than chance is shown.

    Examples:

        stash compare monday.stash.json today.stash.json

        stash compare before-*.stash.json vs after-*.stash.json
    """
    from stash.analysis.comparison import incomparable
    from stash.report.output import print_comparisons
    from stash.store.storing import profile_of

    pairs = sides(files)
    words = dict.fromkeys(word for pair in pairs for side in pair for word in side)
    runs = {word: profile_of(word, store) for word in words}
    for before, after in pairs:
        _refuse_itself((*before, *after), [runs[word][1] for word in (*before, *after)])
    loaded = [([runs[name][0] for name in before], [runs[name][0] for name in after]) for before, after in pairs]
    different = [incomparable(before, after) for before, after in loaded]
    refused = next((index for index, facts in enumerate(different) if facts), None)
    if refused is not None and not anyway:
        raise UserError(_refusal(pairs[refused], different[refused]))
    print_comparisons(pairs, loaded, different, json)


Side = tuple[str, ...]


def sides(words: Sequence[str]) -> list[tuple[Side, Side]]:
    """The pairs of sides that the words of the command line ask for; raises UserError."""
    if "vs" in words:
        at = words.index("vs")
        pairs = [(tuple(words[:at]), tuple(words[at + 1 :]))]
    else:
        pairs = [((words[0],), (name,)) for name in words[1:]]
    if not pairs or not all(before and after for before, after in pairs):
        raise UserError("stash compare needs two profiles, like `stash compare monday.stash.json today.stash.json`")
    for before, after in pairs:
        words_of_both = (*before, *after)
        _refuse_itself(words_of_both, [str(Path(name).resolve()) for name in words_of_both])
    return pairs


def _refuse_itself(names: Side, places: Sequence[str]) -> None:
    """Raise UserError if one place has two of the names: by their paths before they are read, by their ids after."""
    twice = next((name for name, place in zip(names, places, strict=True) if places.count(place) > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is on both sides: a profile does not differ from itself")


def _refusal(pair: tuple[Side, Side], facts: Sequence[DifferingFact]) -> str:
    told = ", ".join(f"{fact.name} ({fact.before} and {fact.after})" for fact in facts)
    return f"{pair[0][0]} and {pair[1][0]} are different jobs, in {told}; compare them all the same with --anyway"


# Check -----------------------------------------------------------------------------------------------------
# ``stash check``: limits that profiles must keep, for pipelines; an exit code for each of three answers.
#
# Parses, loads, prints one line a limit.

CHECK_FILES_HELP = "Profiles of one job, of `stash profile`; several tell how launches differ."


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=CHECK_FILES_HELP, show_default=False)],
    most: Annotated[list[str] | None, option("NAME=VALUE", "A limit: network=15%, step=250ms.", "--max")] = None,
    least: Annotated[list[str] | None, option("NAME=VALUE", "A limit from below: samples/s=90.", "--min")] = None,
    against: Annotated[list[str] | None, option("FILE", "A baseline's profile; may be repeated.")] = None,
    slower: Annotated[
        list[str] | None, option("[NAME=]PERCENT", "How much longer than its the step, or a stall, may be.")
    ] = None,
    require: Annotated[
        list[str] | None, option("NAME=VALUE", "A fact that must be so: ranks=8, precision=bfloat16.")
    ] = None,
    junit: Annotated[
        Path | None, option("FILE", "Write the decisions as JUnit XML, for a pipeline's report.")
    ] = None,
    json: Annotated[bool, flag("--json", "Print the decisions as JSON.")] = False,
    store: StoreOption = None,
) -> None:
    """Check that a job keeps its limits: exit code 0 if it does, 1 if it does not, 3 if nobody can tell.

    A limit passes or fails only if the whole 95 % interval does; where it holds the limit, a longer profile tells.

    Examples:

        stash check today.stash.json --max network=15% --max step=250ms

        stash check today.stash.json --against monday.stash.json --slower 5% --junit stash.xml

        stash check today.stash.json --require ranks=8 --require precision=bfloat16 --min samples/s=900
    """
    from stash.analysis.limits import CANNOT_TELL, FAILS, PASSES, overall, parse, parse_requirement, parse_slower
    from stash.report.output import print_decisions, save_junit
    from stash.store.storing import profile_of

    limits = [parse("--max", text) for text in most or []] + [parse("--min", text) for text in least or []]
    tolerances = [parse_slower(text) for text in slower or []]
    requirements = [parse_requirement(text) for text in require or []]
    if bool(against) is not bool(tolerances):
        raise UserError("--against FILE and --slower PERCENT belong together: give both, or neither")
    if not (limits or tolerances or requirements):
        raise UserError(
            "stash check needs a limit, like --max network=15% or --against monday.stash.json --slower 5%"
        )
    profiles = {name: profile_of(name, store)[0] for name in files}
    baseline = {name: profile_of(name, store)[0] for name in against or []}
    decisions = _decided(profiles, limits, requirements, baseline, tolerances)
    print_decisions(decisions, json)
    if junit is not None:
        save_junit(decisions, next(iter(profiles.values())).workload.name, junit)
    raise typer.Exit({PASSES: 0, FAILS: 1, CANNOT_TELL: 3}[overall(decisions)])


def _decided(
    profiles: Mapping[str, Profile],
    limits: Sequence[Limit],
    requirements: Sequence[Requirement],
    baseline: Mapping[str, Profile],
    tolerances: Sequence[Tolerance],
) -> list[Decision]:
    """What becomes of every limit, in the order of the options; raises UserError if the baseline is another job."""
    from stash.analysis.attribution import attribute
    from stash.analysis.comparison import incomparable
    from stash.analysis.limits import held, not_slower, required

    facts = incomparable(list(baseline.values()), list(profiles.values())) if baseline else ()
    if facts:
        differing = ", ".join(f"{fact.name} ({fact.before} and {fact.after})" for fact in facts)
        raise UserError(f"--against {next(iter(baseline))}: it is another job, in {differing}")
    before, after = ([attribute(profile, name) for name, profile in side.items()] for side in (baseline, profiles))
    return [
        *(required(requirement, profiles) for requirement in requirements),
        *(held(limit, after) for limit in limits),
        *(not_slower(tolerance, before, after) for tolerance in tolerances),
    ]


# Export ----------------------------------------------------------------------------------------------------
# ``stash export``: profiles handed to MLflow, Weights & Biases, TensorBoard, or written as OpenMetrics text.
#
# Parses, prepares what is handed over, hands it over.

TOOLS = {"mlflow": "MLflow", "wandb": "Weights & Biases", "tensorboard": "TensorBoard", "openmetrics": "OpenMetrics"}
RUNS_HELP = "Profiles: files, or ids of the store."


def export(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help=RUNS_HELP, show_default=False)],
    to: Annotated[str, option("TOOL", f"One of {', '.join(TOOLS)}.", "--to")],
    output: Annotated[
        Path | None, option("PATH", "TensorBoard's folder; OpenMetrics' file, else it is printed.", "-o", "--output")
    ] = None,
    project: Annotated[str, option("NAME", "MLflow's experiment; W&B's project.")] = "stash",
    url: Annotated[str | None, option("URL", "MLflow's tracking server, or W&B's; else as they are set up.")] = None,
    redact: Annotated[bool, flag("--redact", "Leave out names of machines, paths and addresses.")] = False,
    public: PublicOption = False,
    store: StoreOption = None,
) -> None:
    """Hand profiles to another tool: what was measured, on what, and the verdict.

    [bold]Examples[/bold]

      stash export today.stash.json --to mlflow --url http://mlflow:5000
      WANDB_MODE=offline stash export *.stash.json --to wandb --project speed
      stash export *.stash.json --to tensorboard -o tb/
      stash export 3f9a --to openmetrics --public -o /var/lib/node_exporter/stash.prom
    """
    from stash.core.redaction import redacted
    from stash.report.export.exported_runs import exported
    from stash.store.storing import profile_of

    if to not in TOOLS:
        raise UserError(f"--to {to}: it is one of {', '.join(TOOLS)}")
    _refuse_what_does_not_fit(to, output, url)
    found = {place: profile for profile, place in (profile_of(word, store) for word in runs)}
    told = [exported(redacted(profile) if redact else profile) for profile in found.values()]
    if to == "openmetrics":
        _text(told, output, public)
        return
    try:
        said = _handed_over(told, to, output, project, url)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != to:
            raise
        raise UserError(f"--to {to} needs a package that is not installed: pip install 'stash-ddl[{to}]'") from None
    except StashError:
        raise
    except Exception as error:  # whatever the tool's own package raises
        raise StashError(f"{TOOLS[to]} did not take the profiles: {one_line(error)}") from error
    print(printable_line(said))


def _refuse_what_does_not_fit(to: str, output: Path | None, url: str | None) -> None:
    if to == "tensorboard" and output is None:
        raise UserError("--to tensorboard needs a folder: --output tb/, which `tensorboard --logdir tb/` shows")
    if to in ("mlflow", "wandb") and output is not None:
        raise UserError(f"--output {output}: {TOOLS[to]} has a place of its own; say which with --url and --project")
    if to in ("tensorboard", "openmetrics") and url is not None:
        raise UserError(f"--url {url}: {TOOLS[to]} goes into files; say where with --output")


def _handed_over(runs: Sequence[ExportedRun], to: str, output: Path | None, project: str, url: str | None) -> str:
    """What was done, as a sentence."""
    if to == "tensorboard":
        from stash.report.export import tensorboard

        assert output is not None
        tensorboard.write(runs, output)
        return f"Runs in {output}: {len(runs)}; `tensorboard --logdir {output}` shows them"
    if to == "mlflow":
        from stash.report.export import mlflow

        new = mlflow.write(runs, project, url)
        return f"New runs in MLflow's experiment {project}: {new}; there already: {len(runs) - new}"
    from stash.report.export import wandb

    return f"Runs in W&B's project {project}: {wandb.write(runs, project, url)}"


def _text(runs: Sequence[ExportedRun], output: Path | None, public: bool) -> None:
    from stash.core.files import write_whole
    from stash.report.export.openmetrics import render

    text = render(runs)
    if output is None:
        print(text, end="")
        return
    try:
        write_whole(output, text, mode=0o666 if public else None)
    except OSError as error:
        raise UserError(f"--output {output}: {error.strerror or error}; choose another place") from None
