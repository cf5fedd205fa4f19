"""Parsers: every kind of file that people give to Stash, as a bomb: one sentence, exit code 2, in seconds."""

import sys

from hostile_files import BOMBS, HARMLESS, KINDS

from tests.faults.case import Case, Expected


def planted(name, bomb):
    return lambda room: bomb(room.outside / name)


def reading(name):
    def program(room):
        words = (str(room.outside / name) if word == "FILE" else word for word in KINDS[name])
        return ("prlimit", f"--as={4 * 2**30}", sys.executable, "-m", "stash", *words)

    return program


CASES = [
    Case(
        "parsers",
        f"{bomb.__name__.replace('_', ' ')} as {name}",
        prepare=planted(name, bomb),
        program=reading(name),
        expected=Expected((2,), ("^error: |\\nerror: ",), ("Traceback",), seconds=20.0),
    )
    for name in KINDS
    for bomb in BOMBS
    if (name, bomb.__name__) not in HARMLESS
]
