"""Runs a study: each cell is described by the engine of its place, then done, and nothing is left running.

STUDY.study/journal.jsonl      what became of every cell, and what was rented: the truth about the study
STUDY.study/results/           the profiles, a store of their own (or wherever `results:` says)
STUDY.study/cells/ID/          what one cell was started with, what it printed, its profile
STUDY.study/models/            what emulated cells train
STUDY.study/probes/            what was measured of machines, for all cells there
STUDY.study/lock               held by the one controller that runs the study
"""
