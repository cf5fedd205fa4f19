"""The secrets of one run: without them nobody joins the Ray on its machines, or asks anything of its servers.

They lie in the run's folder, for its owner alone, as a file of variables that SkyPilot reads (``--secret-file``): so
they are in no command, task or journal. A later controller finds them there; they go once nothing is rented.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stash.base.membership import TOKEN

MODE = {"RAY_AUTH_MODE": "token"}
"""What has Ray ask for it (docs.ray.io, token authentication)."""
VARIABLES = ("RAY_AUTH_TOKEN", TOKEN)
"""Ray's token, which Ray sends in the clear, and the secret that servers and workers prove to know."""
FILE = "secrets.env"


def renew(file: Path, variables: Sequence[str]) -> None:
    """Write new ones, whole or not at all, readable by their owner only."""
    handle, fresh = tempfile.mkstemp(dir=file.parent)  # mode 600
    with os.fdopen(handle, "w") as opened:
        opened.writelines(f"{variable}={secrets.token_hex(32)}\n" for variable in variables)
    Path(fresh).replace(file)
