"""The words of a profile's report, each explained in one place: for ``stash show --explain`` and for the tutorial.

A word is explained only where the report uses it. Knows what rows and labels mean, and no numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

ALWAYS = {
    "step": "one optimizer step of all ranks together, all its gradient accumulation included",
    "rung": "a condition under which the same step is timed; each of the ladder adds one thing to the one below",
    "stall": "what a rung makes a step longer; the stalls add up to the step",
    "±": "half of the 95% interval that the noise of rounds leaves open; stalls without one were measured once",
    "unknown": "not measured, for the reason beside it, and not zero; contained in X: its time is part of row X",
    "within noise": "the interval contains zero: this stall may not exist; it may even be measured as negative",
    "saves about": "what a remedy gains by the forecast of `stash whatif`, not a promise",
}
ROWS = {
    "compute": "what one device needs for the step when nothing is in its way",
    "transfer": "copying the batch from the host's memory to the device",
    "contention": "all ranks at work at once without exchanging: shared memory, power and cores, and a slow rank",
    "interconnect": "waiting for gradients to be exchanged inside a machine",
    "network": "waiting for gradients to be exchanged between machines",
    "prep": "waiting for samples to be decoded, augmented and collated, their files being in memory",
    "fetch": "waiting for the disk, where files are not in memory",
}
LABELS = {
    "samples/s": "what the devices could train if no data were waited for, and what the loaders deliver while nobody "
    "trains; loaders slower than the devices make a data stall",
    "waited": "how long steps stood waiting for the loader: a second estimate of prep and fetch, which leaves out "
    "what workers cost the step otherwise",
    "gradients": "bytes each device exchanges in a step; exposed is what the step waits for them, interconnect and "
    "network together; when run alone, what the exchange takes with nothing else going on; the rest hides behind the "
    "backward pass. The rate is the bus bandwidth, payload / time x 2(p-1)/p for p ranks",
    "slowest": "a rank that is slower than the others even when nothing is exchanged",
    "hidden": "a stall that shows only once another is gone",
    "loader": "starting the loader's workers, once an epoch unless they persist; no part of a step",
    "paper's %": "the percentages of the Stash paper, to compare with its own: of the step under the rung named, not "
    "of the whole step, and with contention counted as interconnect",
    "method": "half of the 95% interval of the method's own error, as seen on jobs whose stalls are known; "
    "it comes on top of the noise behind each ±, and more rounds do not narrow it",
    "measured": "rounds, each of one block of steps under every rung; time; why measuring ended",
}


def words(rows: Iterable[str], labels: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Word and meaning of everything in a report with these rows in its table and these labels in its details."""
    used = ALWAYS | {row: ROWS[row] for row in rows} | {label: LABELS[label] for label in labels if label in LABELS}
    return tuple(used.items())
