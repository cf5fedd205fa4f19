"""``stash characterize``: runs a study's cells wherever they are to be measured, and goes on where it was left.

What it does is ``study_run``'s business, which is loaded when the command is used.
"""

from __future__ import annotations

from stash.study.study_options import CharacterizeOptions


def characterize(options: CharacterizeOptions) -> None:
    """Measure every workload, batch and machine of a study file.

    Finished cells are never run again: after Ctrl-C, a crash or a limit, the same command continues.

    Rented machines are released at the end, also after errors.

    Examples:
      stash characterize study.yaml --dry-run
      stash characterize study.yaml --max-dollars 40
    """
    from stash.study.study_run import run_study

    run_study(options)
