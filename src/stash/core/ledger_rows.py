"""Names of the rows of a ledger (``core.records.profile``). Standard library only: the agent uses them, too."""

from __future__ import annotations

START_UP, EPOCH_START, INPUT, FORWARD = "start-up", "epoch start", "input", "forward"
EPOCH_END = "epoch end"
"""From an epoch's last batch to the next iterator: the script's own code, without evaluation and saving."""
BACKWARD, OPTIMIZER, LOOP = "backward", "optimizer", "loop"
EVALUATION, CHECKPOINT, COLLECTOR, OTHER = "evaluation", "checkpoint", "collector", "other"
COMPILATION = "compilation"
"""Of torch.compile, after the first step: again, for other shapes or values."""
COLLECTIVE = "collective"
"""A collective that the script calls between steps or in a forward pass, which stalls contain."""
INTERPRETER = "interpreter"
"""Python's, for which the training thread waits while another thread of the script's has it."""
IN_STEPS = (INPUT, FORWARD, BACKWARD, OPTIMIZER, LOOP, COLLECTIVE, INTERPRETER)
"""Rows of which every step has a part; the others come now and then."""
COMPUTING = (FORWARD, BACKWARD, OPTIMIZER)
"""Those that compute is."""
NOW_AND_THEN = (EPOCH_START, EPOCH_END, EVALUATION, CHECKPOINT)
"""Rows that no rung of the ladder contains."""
ROWS = (
    START_UP,
    EPOCH_START,
    EPOCH_END,
    *IN_STEPS,
    EVALUATION,
    CHECKPOINT,
    COLLECTOR,
    COMPILATION,
    OTHER,
)
