"""Measuring what a machine's links carry: one module per link, and the worker that runs them under torchrun.

Everything here records raw seconds; rates, fits and findings are computed by who reads them.
"""
