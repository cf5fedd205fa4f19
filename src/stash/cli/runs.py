"""Runs as people name them: a file, the URL of one, or the id of one in the store, or how only that id begins.

A file that is there is always meant first. Knows where artefacts are, and nothing of what is in them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stash.base.errors import ArtefactError, UserError

if TYPE_CHECKING:
    from stash.base.records import Probe, Profile
    from stash.keep.store import Store

_LIKE_AN_ID = re.compile(r"[0-9a-f]{4,24}")


class FoundRun(NamedTuple):
    """One artefact that a word of the command line means."""

    artefact: Profile | Probe
    place: str
    """Where it is: two words of the same place are the same run."""


def found(word: str, url: str | None = None) -> FoundRun:
    """The run that ``word`` means, of the files or of the store at ``url`` (else ``STASH_STORE``).

    Raises ArtefactError for what cannot be read, UserError for what is no run or may be several, StoreError where the
    store cannot be reached.
    """
    from stash.cli.storing import chosen, opened
    from stash.keep.artefact import load_any

    path, named = Path(word), chosen(url)
    if "://" in word:
        folder, _, name = word.rpartition("/")
        return _of_store(opened(folder), name)
    if named is not None and not path.exists() and "/" not in word:
        opened_store = opened(named)
        return _of_store(opened_store, opened_store.find(word))
    if named is None and not path.exists() and _LIKE_AN_ID.fullmatch(word):
        raise ArtefactError(
            f"there is no file {word}; if it is an id, say of which store: --store URL, or STASH_STORE=URL"
        )
    return FoundRun(load_any(path), str(path.resolve()))


def profile_of(word: str, url: str | None = None) -> tuple[Profile, str]:
    """The profile that ``word`` means and its place; raises UserError if it is a probe."""
    from stash.base.records import Profile

    run = found(word, url)
    if not isinstance(run.artefact, Profile):
        raise UserError(f"{word} is a probe of a machine; give the *.stash.json files of `stash profile`")
    return run.artefact, run.place


def _of_store(store: Store, name: str) -> FoundRun:
    return FoundRun(store.load(name), store.shelf.place(name))
