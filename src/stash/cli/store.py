"""``stash store``: what keeps a store: artefacts put into it, its tables made, its files looked at.

Parses, calls ``keep/store``, prints.
"""

from __future__ import annotations

from typing import Annotated

import typer

from stash.base.errors import UserError
from stash.base.printable import printable_line, strict_json
from stash.cli.options import App, flag
from stash.cli.storing import StoreOption

app = App(no_args_is_help=True)
URL_HELP = "A folder or a URL; else --store, or $STASH_STORE."


@app.callback()
def store() -> None:
    """Keep profiles and probes in a folder, or wherever fsspec reaches: add, compact, verify."""


@app.command()
def add(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Profiles and probes.", show_default=False)],
    store: StoreOption = None,
) -> None:
    """Put copies of profiles and probes into a store; what is there already is not put twice.

    stash store add *.stash.json --store ~/runs
    """
    from pathlib import Path

    from stash.cli.storing import chosen, opened
    from stash.keep.artefact import content_of
    from stash.keep.store.names import SHOWN, id_of

    url = chosen(store)
    if url is None:
        raise UserError("which store? Say --store URL, or set STASH_STORE")
    target = opened(url)
    for file in files:
        name = target.put(content_of(Path(file)), file)
        print(printable_line(f"{id_of(name)[:SHOWN]}  {file}"))


@app.command()
def compact(
    url: Annotated[str | None, typer.Argument(metavar="STORE", help=URL_HELP, show_default=False)] = None,
    store: StoreOption = None,
    rebuild: Annotated[bool, flag("--rebuild", "Derive everything anew from the artefacts.")] = False,
) -> None:
    """Write the store's tables as Parquet beside the artefacts, so that queries open a few files only.

    The artefacts stay as they are; what came later is read besides. FoundRun it now and then.
    """
    from stash.cli.storing import needed, progress, say_unreadable, url_or_option
    from stash.keep.store import compact as compacted

    opened = needed(url_or_option(url, store))
    done = compacted(opened, rebuild, progress("read"))
    print(printable_line(f"{opened.url}: {done.artefacts:,} artefacts in the tables, {done.fresh:,} of them new"))
    say_unreadable(opened)


@app.command()
def verify(
    url: Annotated[str | None, typer.Argument(metavar="STORE", help=URL_HELP, show_default=False)] = None,
    store: StoreOption = None,
    json: Annotated[bool, flag("--json", "Print what was found as JSON.")] = False,
) -> None:
    """Read every artefact and name what is corrupt, truncated, foreign, unfinished or of a newer Stash.

    Nothing is changed or removed. Exit code 1 if anything was named.
    """
    from stash.cli.storing import needed, progress, url_or_option
    from stash.keep.store import verify as verified

    opened = needed(url_or_option(url, store))
    whole, suspects = verified(opened, progress("read"))
    if json:
        print(strict_json({"schema": 1, "whole": whole, "suspects": [each._asdict() for each in suspects]}))
    else:
        for each in suspects:
            print(printable_line(f"{each.kind + ':':12}{each.name}: {each.why}", 600))
        print(printable_line(f"{opened.url}: {whole:,} artefacts are whole, {len(suspects):,} files are not"))
    if suspects:
        raise typer.Exit(1)
