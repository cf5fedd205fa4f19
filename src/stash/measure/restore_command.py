"""``stash restore``: puts back files that a killed profile had replaced, and says which; every command asks first.

A guardian process does it as soon as a profile is killed; this is for what outlived the guardian, or could not be put
back. How it is done, ``protocol.put_back`` knows.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from stash.core.interrupts import require_linux
from stash.core.printable import printable
from stash.ui.options import Options, flag


@dataclass(frozen=True, kw_only=True)
class RestoreOptions(Options):
    """One call of ``stash restore``."""

    dry_run: bool = flag("List the files without putting them back.")
    other_machines: bool = flag("Include profiles of other machines; none of them may be running.")


def restore(options: RestoreOptions) -> None:
    """Put back the files that a killed profile had replaced.

    A profile puts them back when it ends; if it is killed (kill -9), a second process does so within seconds. If that
    is killed too, or the machine goes down, the next stash command does it. A file that has changed since stays, and
    its earlier content is saved under a new name beside it.

    Examples:
      stash restore --dry-run
      stash restore
    """
    require_linux("stash restore")
    from stash.measure.launcher.guarded import report_sentences
    from stash.measure.protocol import put_back
    from stash.measure.protocol.folder import has_owner, machine_of

    failed = False
    found = put_back.find_abandoned()
    for folder in found:
        if has_owner(folder) is None and not options.other_machines:
            machine = machine_of(folder) or "that is not known"
            print(printable(f"of a profile on the machine {machine}, which may still run:"))
            _list_files(folder, " with --other-machines")
        elif options.dry_run:
            _list_files(folder)
        elif (report := put_back.restore_run(folder)) is not None:
            failed = failed or bool(report.unprotected)
            print(*map(printable, report_sentences(report)), sep="\n")
    if not found:
        print("nothing to put back: no profile that was killed has left a file changed")
    if failed:
        raise typer.Exit(1)


def restore_what_is_left() -> None:
    """What every command does first; where nothing was ever left it costs a few looks for folders."""
    if not sys.platform.startswith("linux"):
        return
    from stash.measure.protocol.folder import somebody_kept
    from stash.measure.protocol.watch_folder import abandoned_folders, remove_stale_orders

    for folder in abandoned_folders():
        _tell_of_job(f"{folder}/orders.json")
        shutil.rmtree(folder, ignore_errors=True)
    remove_stale_orders()
    if not somebody_kept():
        return
    from stash.measure.launcher.guarded import restored_sentences
    from stash.measure.launcher.neighbours import restore_killed_runs

    for sentence in restored_sentences(restore_killed_runs()):
        print(printable(sentence), file=sys.stderr)


def _tell_of_job(orders: str) -> None:
    """Say whether the job of a killed watcher goes on."""
    from stash.measure.linux.processes import find_by_variable, list_descendants
    from stash.measure.protocol.orders import VARIABLE

    job = find_by_variable(VARIABLE, orders)
    below = {each for process in job for each in list_descendants(process)}
    for process in set(job) - below:
        text = f"a watcher was killed; its job goes on unwatched as process {process} (`kill {process}` ends it)"
        print(f"stash: {text}", file=sys.stderr)


def _list_files(folder: Path, how: str = "") -> None:
    from stash.measure.protocol import put_back
    from stash.measure.protocol.file_backup import entries_of
    from stash.measure.protocol.put_back import NOT_BEFORE, is_to_undo

    for ledger in put_back.list_ledgers(folder):
        for kept in filter(is_to_undo, entries_of(ledger) or ()):
            goes = kept.how in NOT_BEFORE
            source = f", from {kept.other}" if kept.other and not goes else ""
            print(
                printable(
                    f"  {kept.path} would be {'removed' if goes else 'put back'}{how}{source}"
                )
            )
