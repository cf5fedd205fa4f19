"""Measuring what a machine's links carry: one module per link, and the worker that runs them under torchrun."""
