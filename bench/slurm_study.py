"""A study on a real Slurm of two nodes, as its user sees it: of which docs/how-to/characterize.md tells.

Needs root and Debian's slurm-wlm and munge; the cluster is one of loopback, started and ended here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.machine import arguments
from tests.support.slurm_cluster import obstacle, slurm_cluster

STUDY = """\
workloads:
- name: net
  command: [-m, stash.lab.testbed.train_emulated, --model, model.yaml, --batch, "{batch}"]
  batches: [8, 16]
targets: [{engine: slurm, partition: two, nodes: [1, 2], devices: 1}]
settings: {budget: 10s, rungs: [solo, crowd, node, cluster]}
"""
MODEL = "layers:\n- {name: only, bytes: 4MB, forward_seconds: 20ms, backward_seconds: 40ms}\n"


def main() -> int:
    arguments(__doc__)
    if obstacle():
        print(f"cannot be run here: {obstacle()}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="stash-slurm-") as folder,
        slurm_cluster(Path(folder) / "slurm") as cluster,
    ):
        own = Path(folder) / "study"
        own.mkdir()
        (own / "grid.yaml").write_text(STUDY)
        (own / "model.yaml").write_text(MODEL)
        environment = {**os.environ, **cluster.environment, "STASH_HOME": f"{folder}/home", "COLUMNS": "100"}
        print(
            cluster.call("sinfo", "--version"),
            cluster.call("sinfo", "--partition=two"),
            STUDY,
            sep="\n\n",
            flush=True,
        )
        words = [sys.executable, "-m", "stash", "characterize", "grid.yaml"]
        code = subprocess.run(words, cwd=own, env=environment, check=False).returncode
        print(f"left in the queue: {len(cluster.jobs())} jobs")
        return code


if __name__ == "__main__":
    sys.exit(main())
