"""Writes the model that emulated cells train, once for all of them: run as a module, for it traces the real model.

python -m stash.study.emulated_model FILE WORKLOAD BATCH GPU PRECISION SAMPLES_PER_SECOND
"""

from __future__ import annotations

import sys
from pathlib import Path

from stash.catalog.layers import load
from stash.catalog.machines import VALUE_BYTES, peak, variants
from stash.core.files import write_whole
from stash.lab.testbed.emulation import Emulation, dump


def make_model(workload: str, batch: int, gpu: str, precision: str, samples_per_second: float) -> Emulation:
    """The workload's layers by their operations and bytes on that GPU, all times scaled to that speed."""
    from stash.lab.testbed.generate import emulate

    rates = peak(variants(gpu, load()), precision)
    made = emulate(
        workload,
        rates.flops_per_second,
        rates.memory_bytes_per_second,
        batch,
        value_bytes=VALUE_BYTES[precision],
    )
    return made.scaled(time=batch / samples_per_second / made.compute_seconds)


def main() -> None:
    """Write the file whole, unless it is there."""
    file, workload, batch, gpu, precision, speed = sys.argv[1:]
    if not Path(file).exists():
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        write_whole(Path(file), dump(make_model(workload, int(batch), gpu, precision, float(speed))).encode())


if __name__ == "__main__":
    main()
