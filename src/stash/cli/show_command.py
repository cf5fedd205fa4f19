"""``stash show``: any saved artefact, read and shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stash.core.errors import UserError
from stash.core.garbage import no_garbage
from stash.core.printable import print_written
from stash.report.output import print_probe, print_profile
from stash.store.storing import store_option
from stash.ui.options import Options, argument, flag, json_flag, option

if TYPE_CHECKING:
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile


@dataclass(frozen=True, kw_only=True)
class ShowOptions(Options):
    """One call of ``stash show``."""

    file: str = argument(
        "FILE",
        "A file that Stash wrote, or an id of the store.",
    )
    json: bool = json_flag("Print JSON; docs/format.md documents its keys.")
    explain: bool = flag("Explain every word of a profile's report.")
    as_seen: bool = flag("Leave the cost of other processes in a profile's stalls.")
    redact: bool = flag("Remove names of machines, paths and addresses.")
    output: Path | None = option(
        "FILE", "With --redact: write the result to this file.", Path, "-o", "--output"
    )
    store: str | None = store_option()


def show(options: ShowOptions) -> None:
    """Show where a step's time goes and what to do next.

    Examples:
      stash show resnet18.stash.json
      stash show resnet18.stash.json --json | jq '.stalls[] | {name, seconds}'
      stash show resnet18.stash.json --redact -o shared.stash.json
    """
    from stash.analysis.disturbance import drop_delays
    from stash.cli.saved_files import SavedFile, saved_file
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.report.output import print_output

    file = options.file
    if options.output is not None and not options.redact:
        raise UserError(
            f"--output {options.output} belongs to --redact: it saves what is left of a profile to be passed on"
        )
    with no_garbage():
        saved = saved_file(file, file, options.store)
        if isinstance(saved, SavedFile):
            if asked := options.list_given("redact", "explain", "as_seen"):
                raise UserError(
                    f"{asked[0]} is about profiles, and {file} is {saved.what}; leave it out"
                )
            print_output(saved.document() if options.json else saved.page())
            return
        found = saved.artefact
        assert isinstance(found, Profile | Probe)
        if options.redact:
            found = _fit_to_share(found, saved.place, options)
        if options.explain and (options.json or isinstance(found, Probe)):
            raise UserError(
                "--explain is about the report of a profile; type `stash show NAME.stash.json --explain`"
            )
        if options.as_seen and isinstance(found, Probe):
            raise UserError("--as-seen is about the stalls of a profile; a probe has none")
        if isinstance(found, Profile):
            found = drop_delays(found) if options.as_seen else found
            print_profile(found, options.json, source=Path(file), explain=options.explain)
        else:
            from stash.catalog.layers import load as load_catalog

            print_probe(found, load_catalog(), saved=Path(file), json=options.json)


def _fit_to_share(artefact: Profile | Probe, place: str, options: ShowOptions) -> Profile | Probe:
    """The artefact without names and paths, saved if there is a file to save it to."""
    from stash.core.artefact import save
    from stash.core.output_files import output_file
    from stash.core.redaction import redact_artefact

    found = redact_artefact(artefact)
    output = options.output
    if output is not None:
        if str(output.resolve()) == place:
            raise UserError(
                f"--output {output} is the profile itself, which would lose its names; choose another file"
            )
        save(found, output_file(output, "", ""))
        print_written(output, options.json, ", without names of machines, paths and addresses")
    return found
