"""Every error Stash raises on purpose.

    StashError                 anything Stash says about itself; exit code 1
    ├── UserError              the command or its input is wrong; exit code 2
    │   ├── UnitError          a quantity that cannot be read ("10 gbots")
    │   └── ArtefactError      a profile file that is missing, damaged or from a newer Stash
    ├── StoreError             a store that cannot be reached, read or written; exit code 1
    └── JobError               the training job failed, hung or never took a step; exit code 1

A message says what happened, to what, and what to type next, for people; its ``code`` is one word for programs,
which never changes. Only ``cli/main`` prints them. What other libraries raise is quoted by ``one_line``.
"""

from __future__ import annotations


class StashError(Exception):
    """Base of all errors raised by Stash; ``exit_code`` is the process's exit status.

    ``code`` is its class's unless it is raised with one of its own.
    """

    exit_code = 1
    code = "failed"
    as_json = False
    """Whether the command that raised it was asked for JSON."""

    def __init__(self, *arguments: object, code: str | None = None) -> None:
        super().__init__(*arguments)
        if code is not None:
            self.code = code


class UserError(StashError):
    """The command line or its input is at fault, and the message says what to type instead."""

    exit_code = 2
    code = "usage"


class UnitError(UserError):
    """A quantity with a unit could not be read."""

    code = "unit"


class ArtefactError(UserError):
    """A profile cannot be read or written."""

    code = "artefact"


class StoreError(StashError):
    """A store cannot be reached, read or written; what was measured is not touched by that."""

    code = "store"


class JobError(StashError):
    """The profiled training job failed before enough was measured."""

    code = "job"


def error_document(code: str, message: str) -> dict[str, dict[str, str]]:
    """What a command that was asked for JSON prints of an error: a contract, see docs/how-to/integrations.md."""
    return {"error": {"code": code, "message": message}}


def one_line(error: BaseException) -> str:
    """Anybody's error as one line: its first one, without the place in some library's source."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if text.startswith("["):
        text = text.partition("] ")[2] or text
    short = text if len(text) <= 200 else text[:200] + " …"
    return short or type(error).__name__
