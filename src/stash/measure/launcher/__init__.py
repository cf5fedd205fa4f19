"""Describes a run, starts it through an engine, follows it, decides when it is enough."""
