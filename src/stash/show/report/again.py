"""The command that measures the same again: Stash's options as a profile records them, then the job's own words.

What was masked as a secret stays masked, and where the ranks of several machines met was not recorded.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from stash.base.ladder import NOT_ASKED
from stash.base.records import Profile

_PYTHON = (".py", ".pyc")


def command(profile: Profile) -> str:
    """One line to type into a shell, on each node of the job."""
    return " ".join(("stash profile", *_options(profile), *_job(profile)))


def _options(profile: Profile) -> Iterator[str]:
    settings = profile.settings
    yield f"--precision {100 * settings.precision:g}"
    yield f"--budget {settings.budget_seconds:g}"
    if any(skipped.why == NOT_ASKED for skipped in profile.skipped):
        yield f"--rungs {','.join(settings.rungs)}"
    if _is_python(profile) and profile.world_size:
        yield f"--nproc-per-node {profile.world_size // max(1, profile.nodes)}"
        if profile.nodes > 1:
            yield f"--nnodes {profile.nodes}"


def _job(profile: Profile) -> Iterator[str]:
    if not _is_python(profile):
        yield "--"
    yield from map(shlex.quote, profile.workload.command)


def _is_python(profile: Profile) -> bool:
    """Whether Stash started the ranks itself, of a script or a module, rather than another launcher."""
    words = profile.workload.command
    return bool(words) and (words[0] == "-m" or words[0].endswith(_PYTHON))
