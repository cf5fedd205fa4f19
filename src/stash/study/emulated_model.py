"""Writes the model that emulated cells train, once for all of them: run as a module, for it traces the real model.

python -m stash.study.emulated_model FILE WORKLOAD BATCH GPU PRECISION SAMPLES_PER_SECOND
"""

from __future__ import annotations

import sys
from pathlib import Path

from stash.api import VALUE_BYTES, Emulation, emulation_yaml, gpu_variants, load_catalog, peak_rates
from stash.core.files import write_whole


def make_model(
    workload: str, batch: int, gpu: str, precision: str, samples_per_second: float
) -> Emulation:
    """The workload's layers by their operations and bytes on that GPU, all times scaled to that speed."""
    from stash.api import emulate_workload

    rates = peak_rates(gpu_variants(gpu, load_catalog()), precision)
    made = emulate_workload(
        workload,
        rates.flops_per_second,
        rates.memory_bytes_per_second,
        batch,
        value_bytes=VALUE_BYTES[precision],
    )
    return made.scale(time=batch / samples_per_second / made.compute_seconds)


def main() -> None:
    """Write the file whole, unless it is there."""
    file, workload, batch, gpu, precision, speed = sys.argv[1:]
    if not Path(file).exists():
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        emulation = make_model(workload, int(batch), gpu, precision, float(speed))
        write_whole(Path(file), emulation_yaml(emulation).encode())


if __name__ == "__main__":
    main()
