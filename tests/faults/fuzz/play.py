"""Plays mutations of one format, and collects what is wrong."""

import random
import tempfile
from pathlib import Path

from tests.faults.fuzz.limits import problem_with
from tests.faults.fuzz.mutations import mutated

SEED = 20260718


def content(form, corpus, number):
    """The file of this number; number by number the whole files take turns."""
    return mutated(corpus[number % len(corpus)], random.Random(f"{SEED} {form.name} {number}"))


def play(form, numbers, keep=None):
    """Numbers of the mutations that failed, each with what was wrong."""
    problems, corpus = [], form.corpus
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        path = Path(folder) / form.file
        for (
            whole
        ) in corpus:  # also so that what is read once per process is read outside of the limits
            path.write_bytes(whole)
            form.read(path)
        for number in numbers:
            path.write_bytes(content(form, corpus, number))
            problem = problem_with(form.read, path)
            if problem is not None:
                problems.append((number, problem))
                if keep is not None:
                    path.replace(keep / f"{form.name}.{number}")
    return problems
