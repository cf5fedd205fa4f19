"""Inputs: text made to act on a terminal, secrets among the words of a command; files are in ``parsers``."""

import shutil
import stat

from tests.faults.case import Case, Expected
from tests.faults.fuzz.mutations import ACTS

KIND = "inputs"
SECRET = "s3cr3tValue"
ACTING = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"


def _short(outcome, room):
    output = len(outcome.stdout) + len(outcome.stderr)
    return f"{output} characters were printed" if output > 60_000 else None


WORDS = (
    "--api-key",
    SECRET,
    f"--token={SECRET}",
    f"https://me:{SECRET}@host/data",
    f"HF_TOKEN={SECRET}",
)


def _kept_secret(outcome, room):
    """Neither in what is printed nor in the artefact, which is its owner's alone."""
    artefact = room.work / "run.stash.json"
    texts = [outcome.stdout, outcome.stderr, *([artefact.read_text()] if artefact.exists() else [])]
    if any(SECRET in text for text in texts):
        return "a secret is told"
    if artefact.exists() and stat.S_IMODE(artefact.stat().st_mode) != 0o600:
        return "the artefact can be read by others"
    return _short(outcome, room)


def _log_is_private(outcome, room):
    """The whole of what was cut is where the last lines say, in a folder of the user's alone."""
    logs = list(room.temporary.glob("stash-*/output.log"))
    if len(logs) != 1 or str(logs[0]) not in outcome.stderr:
        return "the log of the whole is not named"
    if stat.S_IMODE(logs[0].parent.stat().st_mode) != 0o700:
        return "the log's folder can be read by others"
    return _kept_secret(outcome, room)


STRANGE = f"tr{ACTS.replace(chr(0), '')}ain.py"


def _with_strange_name(room):
    shutil.copy(room.work / "train.py", room.work / STRANGE)


CASES = [
    Case(
        KIND,
        "secrets among the words of a job",
        ("wordy.py", *WORDS),
        check=_kept_secret,
        pace="quick",
        expected=Expected((0,), (), ("Traceback",), rounds=1),
    ),
    Case(
        KIND,
        "secrets among the words of a dry run",
        ("wordy.py", *WORDS),
        ("--dry-run",),
        check=_kept_secret,
        expected=Expected((0,), (r"--api-key '?\*\*\*'?",)),
        pace="quick",
    ),
    Case(
        KIND,
        "an exception of 3 MB that acts on terminals",
        ("wordy.py", "--fails"),
        check=_log_is_private,
        expected=Expected(
            (1,), ("ValueError", "characters left out", "the end"), (ACTING,), leaves=("stash-*",)
        ),
    ),
    Case(
        KIND,
        "a job that prints 200,000 lines and fails",
        ("wordy.py", "--prints"),
        check=_log_is_private,
        expected=Expected((1,), ("exit code 3",), (ACTING,), leaves=("stash-*",)),
    ),
    Case(
        KIND,
        "a script whose name acts on terminals",
        (STRANGE,),
        prepare=_with_strange_name,
        expected=Expected((0,), (r"\\x1b\]0;owned",), (ACTING, "Traceback"), rounds=1),
    ),
]
