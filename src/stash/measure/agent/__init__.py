"""The part of Stash that lives inside the training process.

It is put there by ``site/sitecustomize.py`` (on ``PYTHONPATH`` only while a profile runs), wraps the
few PyTorch functions a step passes through, runs the blocks of the ladder and streams what it
measures to the run's folder. It decides nothing about statistics: the launcher does, and leaves a file
called ``stop`` when it has seen enough.
"""
