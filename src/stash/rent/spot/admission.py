"""The secret of one run: without it nobody joins the Ray on its machines, or asks anything of it.

It lies in the run's folder, for its owner alone, as a file of variables that SkyPilot reads (``--secret-file``): so
it is in no command, task or journal. A later controller of the run finds it there; it goes once nothing is rented.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path

MODE = {"RAY_AUTH_MODE": "token"}
"""What has Ray ask for it (docs.ray.io, token authentication)."""
VARIABLE = "RAY_AUTH_TOKEN"
FILE = "secrets.env"


def renew(file: Path, variable: str) -> None:
    """Write a new one, whole or not at all, readable by its owner only."""
    handle, fresh = tempfile.mkstemp(dir=file.parent)  # mode 600
    with os.fdopen(handle, "w") as opened:
        opened.write(f"{variable}={secrets.token_hex(32)}\n")
    Path(fresh).replace(file)
