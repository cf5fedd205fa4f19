"""What commands share of a store: its option, a copy of what was measured, runs as people name them."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stash.core.errors import ArtefactError, StashError, UserError
from stash.core.printable import printable_line
from stash.core.secrets import mask_text
from stash.ui.options import option

if TYPE_CHECKING:
    from stash.core.artefact import Artefact
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.store.store import Store

ENVIRONMENT = "STASH_STORE"
_WORTH_SAYING = 2_000
"""Artefacts, from which on reading them takes seconds."""


def store_option() -> Any:
    """``--store``."""
    return option("URL", f"Use this store: a folder or URL (default ${ENVIRONMENT}).")


def choose_store(url: str | None) -> str | None:
    """The store that the option or the environment names; ``None`` if neither does."""
    return url or os.environ.get(ENVIRONMENT) or None


def open_store(url: str) -> Store:
    """Open that store, not looked into yet; raises UserError if nothing installed can reach it."""
    from stash.store.storage import open_storage
    from stash.store.store import Store

    return Store(open_storage(url))


def open_chosen_store(url: str | None) -> Store:
    """The store that the command or the environment names, else the current folder."""
    return open_store(choose_store(url) or ".")


def store_for_copies(url: str | None) -> Store | None:
    """The store to keep copies in, if there is one; what cannot be reached is refused before a minute is measured."""
    named = choose_store(url)
    return None if named is None else open_store(named)


def keep_copy(artefact: Artefact, store: Store | None, saved: Path | None) -> None:
    """Keep a copy of what was ``saved``; on stderr, where and as what, or why not.

    A copy that cannot be kept changes nothing else: the exit code is the measurement's.
    """
    if store is None:
        return
    from stash.core.artefact import encode_artefact
    from stash.store.storage import SHOWN, id_of

    try:
        name = store.put(encode_artefact(artefact), str(saved))
    except StashError as error:
        note = f"note: no copy was kept: {error}"
        if saved is not None:
            note += f". `stash store add {shlex.quote(str(saved))} --store {shlex.quote(store.url)}` tries again"
    else:
        shown = (
            "" if os.environ.get(ENVIRONMENT) == store.url else f" --store {shlex.quote(store.url)}"
        )
        note = f"A copy is in {store.url}; `stash show {id_of(name)[:SHOWN]}{shown}` shows it."
    print(printable_line(mask_text(note)), file=sys.stderr)


_PAST = 60
"""Probes at most that are held against a new one, the newest."""


def past_probes(store: Store | None) -> tuple[Probe, ...]:
    """The newest probes of a store; what cannot be read is left out."""
    from stash.core.artefact import PROBE_SUFFIX
    from stash.core.records.host import Probe

    try:
        there = None if store is None else store.contents()
    except StashError:  # it begins with this probe
        there = None
    if store is None or there is None:
        return ()
    names = [name for name in (*there.stored, *there.loose) if name.endswith(PROBE_SUFFIX)][:_PAST]
    found = []
    for name in names:
        with suppress(StashError):
            artefact = store.load(name)
            found += [artefact] if isinstance(artefact, Probe) else []
    return tuple(found)


def make_progress(quiet: bool) -> Callable[[int, int], None]:
    """Says on stderr how far it is, where that takes long enough to be asked, and nothing if ``quiet``."""

    def report(done: int, of: int) -> None:
        if (
            not quiet
            and of >= _WORTH_SAYING
            and (done == of or done % max(_WORTH_SAYING, of // 10) == 0)
        ):
            print(f"read {done:,} of {of:,}", file=sys.stderr, flush=True)

    return report


def say_unreadable(store: Store) -> None:
    """Name on stderr what was left out."""
    if store.unreadable:
        first, why = next(iter(store.unreadable.items()))
        more = f" and {len(store.unreadable) - 1} more" if len(store.unreadable) > 1 else ""
        note = f"note: left out {first}{more}: {why}; `stash store verify {store.url}` names all"
        print(printable_line(mask_text(note), 600), file=sys.stderr)


# Runs as people name them: a file, the URL of one, or the id of one in the store, or how only that id begins.
# A file that is there is always meant first.

_LIKE_AN_ID = re.compile(r"[0-9a-f]{4,24}")


class FoundRun(NamedTuple):
    """One artefact that a word of the command line means."""

    artefact: Artefact
    place: str
    """Where it is: two words of the same place are the same run."""


def find_run(word: str, url: str | None = None) -> FoundRun:
    """The run that ``word`` means, of the files or of the store at ``url`` (else ``STASH_STORE``).

    Raises ArtefactError for what cannot be read, UserError for what is no run or may be several, StoreError where the
    store cannot be reached.
    """
    from stash.core.artefact import load_any

    path = Path(word)
    named = choose_store(url)
    if "://" in word:
        folder, _, name = word.rpartition("/")
        return _load_run(open_store(folder), name)
    if named is not None and not path.exists() and "/" not in word:
        opened_store = open_store(named)
        return _load_run(opened_store, opened_store.find(word))
    if named is None and not path.exists() and _LIKE_AN_ID.fullmatch(word):
        raise ArtefactError(
            f"there is no file {word}; if it is an id, say of which store: --store URL, or STASH_STORE=URL",
            code="artefact_missing",
        )
    return FoundRun(load_any(path), str(path.resolve()))


def profile_of(word: str, url: str | None = None) -> tuple[Profile, str]:
    """The profile that ``word`` means and its place; raises UserError if it is a probe or a record of a fix."""
    run = find_run(word, url)
    return require_profile(word, run), run.place


def require_profile(word: str, run: FoundRun) -> Profile:
    """What ``word`` was found to mean; raises UserError if that is no profile."""
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.core.trace_records import Trace

    if not isinstance(run.artefact, Profile):
        others = {Probe: "a probe of a machine", Trace: "an account of traces"}
        kind = others.get(type(run.artefact), "a record of a fix")
        raise UserError(f"{word} is {kind}; give the *.stash.json files of `stash profile`")
    return run.artefact


def _load_run(store: Store, name: str) -> FoundRun:
    return FoundRun(store.load(name), store.storage.place(name))
