"""Run a script under PyTorch's own profiler: ``operators.py SCRIPT`` prints what takes the most time itself."""

from __future__ import annotations

import os
import runpy
import sys

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile


def leave(code: int) -> None:
    """Stands in for ``os._exit``, which would lose what was recorded."""
    raise SystemExit(code)


def main() -> None:
    """Of all operators, the one with the most time of its own; a script without an end is ended by its steps."""
    os._exit, really_leave = leave, os._exit  # type: ignore[assignment]
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.getcwd())
    steps = 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps >= int(os.environ.get("STEPS", "40")) + 10:
            raise SystemExit

    register_optimizer_step_post_hook(step)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit:
            pass
    rows = recorded.key_averages()
    largest = max(rows, key=lambda row: row.self_cpu_time_total)
    whole = sum(row.self_cpu_time_total for row in rows)
    if os.environ.get("RANK", "0") == "0":
        print(f"largest: {largest.key} {largest.self_cpu_time_total / whole:.0%}", flush=True)
    really_leave(0)


if __name__ == "__main__":
    main()
