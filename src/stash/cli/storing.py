"""What commands share of a store: the option that names it, the store itself, a copy of what was measured.

A copy that cannot be kept is said and changes nothing else: the artefact is saved before, and the exit code is the
measurement's.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from stash.base.errors import StashError, UserError
from stash.base.printable import printable_line
from stash.base.secrets import masked_text
from stash.cli.options import option

if TYPE_CHECKING:
    from pathlib import Path

    from stash.base.records import Probe, Profile
    from stash.keep.store import Deriver, Store

ENVIRONMENT = "STASH_STORE"
_WORTH_SAYING = 2_000
"""Artefacts, from which on reading them takes seconds."""
StoreOption = Annotated[
    str | None, option("URL", f"A store: a folder or a URL, like s3://bucket/runs; else ${ENVIRONMENT}.", "--store")
]


def chosen(url: str | None) -> str | None:
    """The store that the option or the environment names; ``None`` if neither does."""
    return url or os.environ.get(ENVIRONMENT) or None


def opened(url: str) -> Store:
    """That store, not looked into yet; raises UserError if nothing installed can reach it."""
    from stash.keep.store.shelves import opened
    from stash.keep.store.store import Store

    return Store(opened(url), _deriver())


def needed(url: str | None) -> Store:
    """The store that the option or the environment names, else the current folder."""
    return opened(chosen(url) or ".")


def _deriver() -> Deriver:
    """Rows as ``derive`` makes them, which is loaded when the first is wanted: a list reads those that are there."""
    from stash.keep.store import Deriver, TableRow, TableRows

    def digest(artefact: Profile | Probe, id: str, file: str) -> TableRows:
        from stash.derive.tables import digest_rows

        return digest_rows(artefact, id, file)

    def blocks(profile: Profile, id: str) -> list[TableRow]:
        from stash.derive.tables import block_rows

        return block_rows(profile, id)

    return Deriver(digest, blocks)


def store_for_copies(url: str | None) -> Store | None:
    """The store to keep copies in, if there is one; what cannot be reached is refused before a minute is measured."""
    named = chosen(url)
    return None if named is None else opened(named)


def keep_copy(artefact: Profile | Probe, store: Store | None, saved: Path | None) -> None:
    """Keep a copy of what was ``saved``; on stderr, where and as what, or why not."""
    if store is None:
        return
    from stash.keep.artefact import to_bytes
    from stash.keep.store.names import SHOWN, id_of

    try:
        name = store.put(to_bytes(artefact), str(saved))
    except StashError as error:
        said = f"note: no copy was kept: {error}"
        if saved is not None:
            said += f". `stash store add {shlex.quote(str(saved))} --store {shlex.quote(store.url)}` tries again"
    else:
        shown = "" if os.environ.get(ENVIRONMENT) == store.url else f" --store {shlex.quote(store.url)}"
        said = f"A copy is in {store.url}; `stash show {id_of(name)[:SHOWN]}{shown}` shows it."
    print(printable_line(masked_text(said)), file=sys.stderr)


def progress(what: str) -> Callable[[int, int], None]:
    """Says on stderr how far it is, where that takes long enough to be asked."""

    def say(done: int, of: int) -> None:
        if of >= _WORTH_SAYING and (done == of or done % max(_WORTH_SAYING, of // 10) == 0):
            print(f"{what} {done:,} of {of:,}", file=sys.stderr, flush=True)

    return say


def say_unreadable(store: Store) -> None:
    """Name on stderr what was left out."""
    if store.unreadable:
        first, why = next(iter(store.unreadable.items()))
        more = f" and {len(store.unreadable) - 1} more" if len(store.unreadable) > 1 else ""
        said = f"note: left out {first}{more}: {why}; `stash store verify {store.url}` names all"
        print(printable_line(masked_text(said), 600), file=sys.stderr)


def url_or_option(url: str | None, also: str | None) -> str | None:
    """The one store of an argument and of the option; raises UserError if they are two."""
    if url is not None and also is not None and url != also:
        raise UserError(f"{url} and --store {also} are two stores; name one of them")
    return url if url is not None else also
