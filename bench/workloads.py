"""The stopwatch that untouched jobs run under."""

from __future__ import annotations

from bench.machine import ROOT

TIMED = ROOT / "bench" / "timed.py"
"""Runs another module with a stopwatch; started as a file, so that it needs no particular folder."""
