"""What a store holds, as tables that a terminal shows: the list of artefacts, and whatever a query gave."""

from stash.show.store.terminal import answered, artefacts

__all__ = ["answered", "artefacts"]
