"""Trains in an interpreter of another environment, which must not find Stash's own packages."""

import importlib.util
import runpy
import sys

assert sys.prefix.endswith("/env"), sys.prefix
assert importlib.util.find_spec("typer") is None, "found what it was not given"
runpy.run_path("train.py", run_name="__main__")
