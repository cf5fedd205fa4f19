"""Where folders of what runs keep may be (``state``). By itself, because every command asks whether there are any."""

from __future__ import annotations

import os


def places() -> list[str]:
    """The best first: the user's state directory, and what survives a reboot where that cannot be used."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = state if os.path.isabs(state) else os.path.expanduser("~/.local/state")
    own = [os.path.join(home, "stash", "kept")] if os.path.isabs(home) else []
    return [*own, f"/var/tmp/stash-{os.geteuid()}/kept"]


def somebody_kept() -> bool:
    """Whether there is any folder of a run."""
    for place in places():
        try:
            if os.listdir(place):
                return True
        except OSError:
            continue
    return False
