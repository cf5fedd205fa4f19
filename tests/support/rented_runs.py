"""A rented run in namespaces of its own: the stand-ins for ``sky``, ``ssh`` and ``scp``, and what is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from stash.measure.linux.processes import carrying

ADDRESS = "10.99.0.1"
_APART = f"""
ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add {ADDRESS}/24 dev v0 || exit 90
ip link set v0 up && ip link set v1 up && mkdir -p /tmp/ray && mount --bind "$FAKE_SKY/ray" /tmp/ray || exit 90
exec "$@"
"""


def run_apart(folder: Path, program: str, seconds: float) -> tuple[subprocess.CompletedProcess[str], list[int]]:
    """What ``program`` did in ``folder``, and the processes that it left, now ended; clouds are ``folder/fake``."""
    for name in ("home", "ray"):
        (folder / "fake" / name).mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            ["unshare", "--net", "--mount", "bash", "-c", _APART, "bash", sys.executable, "-c", program],
            cwd=folder, env=_environment(folder / "fake"), capture_output=True, text=True, check=False,
            timeout=seconds,
        )  # fmt: skip
        unended = carrying("FAKE_SKY", f"{folder}/fake")
    finally:
        for process in carrying("FAKE_SKY", f"{folder}/fake"):
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
    if done.returncode == 90:
        pytest.skip("no network namespaces here")
    return done, unended


def _environment(fake: Path) -> dict[str, str]:
    stand_ins = Path(__file__).parent / "fake_sky"
    return {
        **os.environ,
        "PATH": f"{stand_ins}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "FAKE_SKY": str(fake),
        "FAKE_ADDRESS": ADDRESS,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_enable_worker_prestart": "0",
        "RAY_raylet_start_wait_time_s": "200",
    }
