"""Show that the tests are not blind: break Stash in twelve ways and see each break fail what CI runs.

Each break is one edit of a copy of the sources; the copy is what the profiles then run. A sound copy goes first, and
must pass. Three are seen by truth cases; the others by a test of their own, as no emulated job has what they ask
(samples read by C code out of memory, launches that differ, other work on the machine), or shows it: blocks settle
for as long as queues are deep, and stages are stamped. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.machine import ROOT, arguments
from bench.table import progress, report, table
from bench.truth.cases import Case, quick
from bench.truth.suite import Result, faults, load_results


@dataclass(frozen=True)
class Break:
    """One edit: in ``file``, the text ``sound`` becomes ``broken``."""

    name: str
    file: str = ""
    sound: str = ""
    broken: str = ""
    test: str = ""
    """That must fail, instead of truth cases."""

    def apply(self, root: Path) -> None:
        """Edit the copy; raises ValueError if the sources no longer hold the text."""
        if not self.file:
            return
        path = root / self.file
        text = path.read_text()
        if text.count(self.sound) != 1:
            raise ValueError(
                f"{self.file} does not hold exactly one {self.sound!r}: adapt the break to the sources"
            )
        path.write_text(text.replace(self.sound, self.broken))


BREAKS = (
    Break("a sound build"),
    Break(
        "switching the scope does nothing",
        "stash/measure/agent/runner/rank.py",
        "        replicas.set_scope(name)\n",
        "        return\n",
    ),
    Break(
        "cold blocks are warm",
        "stash/measure/agent/runner/blocks.py",
        '"cold": COLD',
        '"cold": WARM',
    ),
    Break(
        "blocks start with full queues",
        "stash/measure/agent/runner/blocks.py",
        "self._sweeping)\n        self._supply.serve_block(visit)\n",
        "self._sweeping)\n        self._supply.serve_block(visit)\n        time.sleep(1)\n",
    ),
    Break(
        "queues keep what was fetched before",
        "stash/measure/agent/wraps/loader.py",
        "    def drain(self) -> None:\n        if self._used.is_over:\n            return\n",
        "    def drain(self) -> None:\n        return\n",
        "tests/unit/measure/agent/test_block_plan_supply.py::test_batches_of_workers_are_the_same_too",
    ),
    Break(
        "replays repeat the first batches for ever",
        "stash/measure/agent/runner/blocks.py",
        "                self._refill_feed(feed)\n",
        "                pass\n",
        "tests/unit/measure/agent/test_block_plan_supply.py::"
        "test_every_block_of_a_round_trains_on_the_same_batches_and_no_two_rounds_do",
    ),
    Break(
        "coldness is not proven",
        "stash/measure/agent/runner/judge.py",
        "    if called is None or storage is None:\n        return None if",
        "    if True:\n        return None if",
        "tests/unit/measure/agent/test_judge_cache_evidence.py::"
        "test_small_files_do_not_prove_the_large_ones_that_c_code_reads_from_memory",
    ),
    Break(
        "launches are pooled",
        "stash/analysis/step_times.py",
        "    if not profile.settings.isolated:\n",
        "    if True:\n",
        "tests/unit/analysis/test_attribution.py::"
        "test_launches_not_their_rounds_are_what_repeats_where_rungs_have_their_own",
    ),
    Break(
        "what other work costs is not subtracted",
        "stash/analysis/shared_cores.py",
        "        local = in_local[:, None] * (",
        "        local = 0 * in_local[:, None] * (",
        "tests/unit/analysis/test_disturbance.py::test_what_strangers_alone_can_have_caused_is_subtracted_whole",
    ),
    Break(
        "the job's own delays are subtracted, too",
        "stash/analysis/shared_cores.py",
        "        own = loaders / wall + surplus\n",
        "        own = 0 * loaders / wall\n",
        "tests/unit/analysis/test_disturbance.py::test_the_jobs_own_loaders_keep_their_share",
    ),
    Break(
        "what the job's own limit costs is subtracted",
        "stash/analysis/shared_cores.py",
        "        limited = np.maximum(",
        "        limited = 1 + 0 * np.maximum(",
        "tests/unit/analysis/test_disturbance.py::test_what_the_jobs_own_limit_caused_is_never_subtracted",
    ),
    Break(
        "the mean rank arrives last",
        "stash/analysis/shared_cores.py",
        "        gained = before.max(axis=0) - (before - local).max(axis=0)\n",
        "        gained = before.mean(axis=0) - (before - local).mean(axis=0)\n",
        "tests/unit/analysis/test_disturbance.py::test_of_ranks_in_step_the_last_one_counts",
    ),
    Break(
        "steps are judged by their length",
        "stash/analysis/step_times.py",
        "    per_rank = rank_values(profile, lambda block: block.seconds)\n    everyone",
        "    per_rank = rank_values(\n"
        "        profile, lambda block: float(np.median(block.step_seconds or [block.seconds])) * block.steps\n"
        "    )\n    everyone",
        "tests/unit/analysis/test_disturbance.py::test_a_loader_that_stalls_every_fourth_step_is_a_stall",
    ),
)


def verdicts(broken: Break, root: Path) -> Iterator[list[str]]:
    """Table rows: what CI's cases, or its tests, say of this build."""
    shutil.copytree(
        ROOT / "src", root / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
    )
    broken.apply(root / "src")
    tests = [broken.test] if broken.file else [one.test for one in BREAKS if one.test]
    if not broken.test:
        for case in quick():
            found = _case_faults(case, root)
            yield [
                broken.name,
                case.name,
                "passes" if not found else "**fails**: " + "; ".join(found),
            ]
    for test in filter(None, tests):
        done = _python(root, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
        name = test.rpartition("::")[2].removeprefix("test_").replace("_", " ")
        verdict = "passes" if done.returncode == 0 else f"**fails**: {_error(done.stdout)}"
        yield [broken.name, f"test: {name}", verdict]


def _case_faults(case: Case, root: Path) -> list[str]:
    """What is wrong with the answer of the build below ``root``."""
    file = root / "results.jsonl"
    file.unlink(missing_ok=True)
    done = _python(
        root, "-m", "bench.truth", "--only", case.name, "--no-stopwatch", "--save", str(file)
    )
    results: list[Result] = load_results(file) if file.exists() else []
    return faults(results) if results else [f"no answer ({_why(done.stderr)})"]


def _python(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _error(words: str) -> str:
    """The first error of pytest's report."""
    errors = [
        line.removeprefix("E").strip() for line in words.splitlines() if line.startswith("E  ")
    ]
    return errors[0][:160] if errors else "without an error"


def _why(words: str) -> str:
    """What the suite printed of a profile that it could not judge."""
    lines = [line.strip() for line in words.splitlines() if line.startswith(("FAILED", "error"))]
    return lines[-1].removeprefix("FAILED ")[:160] if lines else "no output"


def main() -> None:
    """Break, run, print."""
    words = " ".join(arguments(__doc__, words=([], "builds whose name contains these")).words)
    rows = []
    for broken in [one for one in BREAKS if words in one.name]:
        with tempfile.TemporaryDirectory() as folder:
            for row in verdicts(broken, Path(folder)):
                progress(*row)
                rows.append(row)
    report(table(("build", "case", "verdict"), rows))


if __name__ == "__main__":
    main()
