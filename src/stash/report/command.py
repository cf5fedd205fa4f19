"""``stash compare`` and ``stash export``: profiles held against each other, and handed to other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.core import parsers
from stash.core.errors import StashError, UserError, one_line
from stash.core.imports import require_package
from stash.core.output_files import answer_file, write_output
from stash.core.printable import print_written, printable_line, strict_json
from stash.core.units import format_count
from stash.report.output import print_output
from stash.store.storing import find_run, require_profile, store_option
from stash.ui.options import (
    Options,
    argument,
    check_one_format,
    flag,
    json_flag,
    markdown_flag,
    option,
)

if TYPE_CHECKING:
    from stash.core.records.profile import Profile
    from stash.report.exports import ExportedRun


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """One call of ``stash compare``."""

    files: tuple[str, ...] = argument(
        "BEFORE... [vs] AFTER...",
        "Profiles; the first is compared with each other one. "
        "With `vs`, all before it are compared with all after it.",
        many=True,
    )
    force: bool = flag("Compare even different workloads and steps of different size.")
    json: bool = json_flag("Print JSON, one document per pair; docs/format.md documents its keys.")
    markdown: bool = markdown_flag()
    store: str | None = store_option()

    def check(self) -> None:
        check_one_format(self)


def compare(options: CompareOptions) -> None:
    """Compare runs of a job, stall by stall, with intervals.

    Two probes are compared figure by figure.

    Examples:
      stash compare monday.stash.json today.stash.json
      stash compare before-*.stash.json vs after-*.stash.json
    """
    from stash.core.records.host import Probe
    from stash.core.trace_records import Trace
    from stash.report.comparison_page import document, page

    pairs = parse_sides(options.files)
    words = dict.fromkeys(word for pair in pairs for side in pair for word in side)
    found_runs = {word: find_run(word, options.store) for word in words}
    for before, after in pairs:
        _refuse_itself((*before, *after), [found_runs[word].place for word in (*before, *after)])
    artefacts = {word: run.artefact for word, run in found_runs.items()}
    traces = {word: each for word, each in artefacts.items() if isinstance(each, Trace)}
    if all(isinstance(each, Probe) for each in artefacts.values()):
        _compare_probes(pairs, artefacts, options)
        return
    if len(traces) == len(artefacts):
        from stash.analysis.comparison import compare, find_differing_facts

        contents: list[tuple[Any, ...]] = []
        for pair in pairs:
            first, second = ([traces[word] for word in side] for side in pair)
            names = (first[0].workload, *pair)
            facts = find_differing_facts(first, second)
            contents.append((compare(first, second), names, facts))
    else:
        runs = {word: require_profile(word, run) for word, run in found_runs.items()}
        contents = _compare_profiles(pairs, runs, options.force)
    if options.json:
        print(strict_json([document(*each) for each in contents]))
        return
    for number, each in enumerate(contents):
        print("\n" if number else "", end="")
        print_output(page(*each), options.markdown)


def _compare_profiles(
    pairs: Sequence[tuple[Side, Side]], runs: Mapping[str, Profile], force: bool
) -> list[tuple[Any, ...]]:
    """Each pair as ``comparison_page`` takes it; raises UserError for different jobs unless ``force``."""
    from stash.analysis.comparison import (
        comparable_sides,
        compare,
        find_changed_facts,
        incomparable,
        network_stall,
    )

    loaded = [
        ([runs[name] for name in before], [runs[name] for name in after]) for before, after in pairs
    ]
    different = [incomparable(*sides) for sides in loaded]
    refused = next((index for index, facts in enumerate(different) if facts), None)
    if refused is not None and not force:
        differ = ", ".join(
            f"{fact.name} ({fact.before} and {fact.after})" for fact in different[refused]
        )
        before, after = pairs[refused]
        raise UserError(
            f"{before[0]} and {after[0]} are different jobs, in {differ}; compare them all the same with --force",
            code="different_jobs",
        )
    contents = []
    for pair, profiles, facts in zip(pairs, loaded, different, strict=True):
        one, other = ({name: runs[name] for name in side} for side in pair)
        comparison = compare(*comparable_sides(one, other, anyway=force))
        names = (profiles[0][0].workload.name, *pair)
        changed = find_changed_facts(*profiles)
        network = network_stall(*profiles)
        contents.append((comparison, names, changed, facts, network))
    return contents


Side = tuple[str, ...]


def _compare_probes(
    pairs: Sequence[tuple[Side, Side]], probes: Mapping[str, Any], options: CompareOptions
) -> None:
    """Every figure that both probes of a pair have; raises UserError where a side has several."""
    from stash.report.probe_page import compared_document, compared_page

    if any(len(side) > 1 for pair in pairs for side in pair):
        raise UserError(
            "probes are compared two by two; with --store, `stash probe` holds one against many"
        )
    sides = [[(word, probes[word]) for (word,) in pair] for pair in pairs]
    if options.json:
        print(strict_json([compared_document(*pair) for pair in sides]))
        return
    for before, after in sides:
        print_output(compared_page(before, after), options.markdown)


def parse_sides(words: Sequence[str]) -> list[tuple[Side, Side]]:
    """The pairs of sides that the words of the command line ask for; raises UserError."""
    if "vs" in words:
        at = words.index("vs")
        pairs = [(tuple(words[:at]), tuple(words[at + 1 :]))]
    else:
        pairs = [((words[0],), (name,)) for name in words[1:]]
    if not pairs or not all(before and after for before, after in pairs):
        raise UserError(
            "stash compare needs two profiles, like `stash compare monday.stash.json today.stash.json`"
        )
    for before, after in pairs:
        words_of_both = (*before, *after)
        _refuse_itself(words_of_both, [str(Path(name).resolve()) for name in words_of_both])
    return pairs


def _refuse_itself(names: Side, places: Sequence[str]) -> None:
    """Raise UserError if one place has two of the names: by their paths before they are read, by their ids after."""
    twice = next(
        (name for name, place in zip(names, places, strict=True) if places.count(place) > 1), None
    )
    if twice is not None:
        raise UserError(
            f"{twice} is on both sides: a profile does not differ from itself", code="same_run"
        )


TOOLS = {
    "mlflow": "MLflow",
    "wandb": "Weights & Biases",
    "tensorboard": "TensorBoard",
    "openmetrics": "OpenMetrics",
}


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """One call of ``stash export``."""

    runs: tuple[str, ...] = argument("RUN...", "Profiles: files, or ids of the store.", many=True)
    to: str = option(
        "TOOL", f"Export to {', '.join(TOOLS)}.", parsers.one_of(list(TOOLS)), default=...
    )
    output: Path | None = option(
        "PATH",
        "Write to TensorBoard's folder or OpenMetrics' file (default: print).",
        Path,
        "-o",
        "--output",
    )
    project: str = option("NAME", "Use this MLflow experiment or W&B project.", default="stash")
    redact: bool = flag("Remove names of machines, paths and addresses.")
    store: str | None = store_option()

    def check(self) -> None:
        to = self.to
        output = self.output
        if to == "tensorboard" and output is None:
            raise UserError(
                "--to tensorboard needs a folder: --output tb/, which `tensorboard --logdir tb/` shows"
            )
        if to in ("mlflow", "wandb") and output is not None:
            raise UserError(
                f"--output {output}: {TOOLS[to]} has a place of its own; say which with --project"
            )


def export(options: ExportOptions) -> None:
    """Export profiles to MLflow, W&B, TensorBoard or OpenMetrics.

    Examples:
      MLFLOW_TRACKING_URI=http://mlflow:5000 stash export today.stash.json --to mlflow
      WANDB_MODE=offline stash export *.stash.json --to wandb --project speed
      stash export *.stash.json --to tensorboard -o tb/
      stash export 3f9a --to openmetrics -o /var/lib/node_exporter/stash.prom
    """
    from stash.catalog.layers import load as load_catalog
    from stash.core.records.host import Probe
    from stash.core.redaction import redact_artefact
    from stash.report.exports import make_export, openmetrics, probe_families

    to = options.to
    output = options.output
    places = {
        run.place: (word, run) for word in options.runs for run in (find_run(word, options.store),)
    }
    probes = [run.artefact for _, run in places.values() if isinstance(run.artefact, Probe)]
    if probes and to != "openmetrics":
        raise UserError(f"--to {to} takes profiles; a probe goes to openmetrics only")
    profiles = {
        place: require_profile(word, run)
        for place, (word, run) in places.items()
        if not isinstance(run.artefact, Probe)
    }
    target = answer_file(output, places) if to == "openmetrics" and output is not None else None
    each = (
        make_export(redact_artefact(profile) if options.redact else profile)
        for profile in profiles.values()
    )
    runs = list({run.id: run for run in each}.values())
    families = probe_families(probes, load_catalog()) if probes else []
    if target is not None:
        write_output(target, openmetrics(runs, families))
        print_written(target, False)
        return
    if to == "openmetrics":
        print(openmetrics(runs, families), end="")
        return
    require_package(to, f"--to {to}")
    try:
        done = _handed_over(runs, to, output, options.project)
    except StashError:
        raise
    except Exception as error:  # whatever the tool's own package raises
        raise StashError(f"{TOOLS[to]} did not take the profiles: {one_line(error)}") from error
    print(printable_line(done))


def _handed_over(runs: Sequence[ExportedRun], to: str, output: Path | None, project: str) -> str:
    """What was done, as a sentence."""
    from stash.report import exports

    if to == "tensorboard":
        assert output is not None
        exports.write_tensorboard(runs, output)
        return f"Wrote {format_count(len(runs), 'run')} to {output}; show them with `tensorboard --logdir {output}`."
    if to == "mlflow":
        new = exports.log_to_mlflow(runs, project)
        return f"New runs in MLflow's experiment {project}: {new}; there already: {len(runs) - new}"
    return f"Runs in W&B's project {project}: {exports.log_to_wandb(runs, project)}"
