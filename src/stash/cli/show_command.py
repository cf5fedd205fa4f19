"""``stash show``: any saved artefact, read and shown."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stash.core.errors import UserError
from stash.core.printable import printable_line
from stash.report.output import print_probe, print_profile
from stash.store.storing import store_option
from stash.ui.options import Options, argument, flag, json_flag, option

if TYPE_CHECKING:
    from stash.core.fix_records import Fix
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile


@dataclass(frozen=True, kw_only=True)
class ShowOptions(Options):
    """One call of ``stash show``."""

    file: str = argument(
        "FILE",
        "A *.stash.json file of `stash profile`, a *.host.json of `stash probe`, a *.plan.json, a *.spotlog.json of "
        "`stash spot run`, a *.watch.jsonl of `stash watch`, a *.fix.json; or a store's id.",
    )
    json: bool = json_flag(
        "Print the breakdown as JSON, for other programs; its keys are a contract (docs/format.md)."
    )
    explain: bool = flag("Say also what each word of a profile's report means.")
    as_seen: bool = flag("Leave what other work on the machine cost in the stalls of a profile, as they were seen.")
    redact: bool = flag("Leave out names of machines, paths and addresses.")
    output: Path | None = option("FILE", "With --redact: save what is left, to be passed on.", Path, "-o", "--output")
    store: str | None = store_option()


def show(options: ShowOptions) -> None:
    """Show where a step's time goes: every stall with its interval, what dominates, what to do next.

    Examples:

        stash show resnet18.stash.json

        stash show resnet18.stash.json --json | jq '.stalls[] | {name, seconds}'

        stash show resnet18.stash.json --redact -o shared.stash.json
    """
    from stash.analysis.disturbance import without_delays
    from stash.core.fix_records import Fix, is_fix
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.monitor.records import is_record
    from stash.plan.records import is_plan
    from stash.spot.spot_files import is_spot_log
    from stash.store.storing import found as run_of

    if is_record(options.file):
        _print_watched_run(Path(options.file), options.json)
        return
    file, json, explain, redact, output = options.file, options.json, options.explain, options.redact, options.output
    kinds = {"a plan": is_plan, "a log of a run": is_spot_log, "a record of a fix": is_fix}
    made = next((kind for kind, is_one in kinds.items() if is_one(file)), None)
    if made is not None:
        if redact or explain or options.as_seen:
            refused = "--redact" if redact else "--explain" if explain else "--as-seen"
            raise UserError(f"{refused} is about profiles, and {file} is {made}; leave it out")
        {"a plan": _print_plan, "a log of a run": _print_spot_log, "a record of a fix": _print_saved_fix}[made](
            file, json
        )
        return
    if output is not None and not redact:
        raise UserError(f"--output {output} belongs to --redact: it saves what is left of a profile to be passed on")
    with no_garbage():
        run = run_of(file, options.store)
        if isinstance(run.artefact, Fix):  # of a store, by its id
            if redact or explain or options.as_seen:
                raise UserError("--redact, --explain and --as-seen are about profiles; leave them out of a fix")
            _print_fix(run.artefact, file, json)
            return
        found = _fit_to_share(run.artefact, run.place, output) if redact else run.artefact
        if explain and (json or isinstance(found, Probe)):
            raise UserError("--explain is about the report of a profile; type `stash show NAME.stash.json --explain`")
        if options.as_seen and isinstance(found, Probe):
            raise UserError("--as-seen is about the stalls of a profile; a probe has none")
        if isinstance(found, Profile):
            found = without_delays(found) if options.as_seen else found
            print_profile(found, json, source=Path(file), explain=explain)
        else:
            from stash.catalog.layers import load as load_catalog

            print_probe(found, load_catalog(), saved=Path(file), json=json)


def _print_plan(file: str, json: bool) -> None:
    """A saved plan as `stash recommend` printed it."""
    from stash.plan.page import document, page
    from stash.plan.records import load_plan
    from stash.report.output import printed
    from stash.spot.spot_files import is_fleet_plan

    if is_fleet_plan(Path(file)):
        _print_fleet_plan(Path(file), json)
        return
    plan = load_plan(file)
    printed(document(plan) if json else page(plan))


def _print_watched_run(file: Path, json: bool) -> None:
    """The record of a watched run, over all of its windows."""
    from stash.monitor.page import document, page
    from stash.monitor.records import load
    from stash.report.output import printed

    record = load(file)
    printed(document(record) if json else page(record, file.name))


def _print_fleet_plan(file: Path, json: bool) -> None:
    """A saved plan as `stash spot plan` printed it."""
    from stash.report.output import printed
    from stash.spot.pages.fleet_plan import document, page
    from stash.spot.spot_files import read_plan

    plan = read_plan(file)
    printed(document(plan) if json else page(plan, file.name))


def _print_saved_fix(file: str, json: bool) -> None:
    from stash.core.fix_records import FILE

    _print_fix(FILE.load(file), file, json)


def _print_fix(record: Fix, file: str, json: bool) -> None:
    """A saved record as `stash fix` printed it."""
    from stash.fix.page import document, page
    from stash.report.output import printed

    printed(document(record) if json else page(record, file))


def _print_spot_log(file: str, json: bool) -> None:
    """A run's log as `stash spot run` ended."""
    from stash.report.output import printed
    from stash.spot.pages.run_report import document, page
    from stash.spot.spot_files import load_spot_log

    log = load_spot_log(file)
    printed(document(log) if json else page(log, Path(file).name))


def _fit_to_share(artefact: Profile | Probe, place: str, output: Path | None) -> Profile | Probe:
    """The artefact without names and paths, saved if there is a file to save it to."""
    from stash.core.artefact import save
    from stash.core.redaction import redacted
    from stash.report.output import output_file

    found = redacted(artefact)
    if output is not None:
        if str(output.resolve()) == place:
            raise UserError(
                f"--output {output} is the profile itself, which would lose its names; choose another file"
            )
        save(found, output_file(output, "", ""))
        print(printable_line(f"Saved {output}: no names of machines, no paths, no addresses."), file=sys.stderr)
    return found


@contextmanager
def no_garbage() -> Iterator[None]:
    """A large job's blocks are all needed to the end: looking for garbage among them would take half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
