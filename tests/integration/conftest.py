"""What the integration tests share: a folder of real files, and the real ``stash profile`` (``runs``) on them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from runs import PATIENCE, Outcome, Started, two_ranks

from stash.analysis.attribution import attribute
from stash.analysis.step_times import step_matrix
from stash.cli.main import main
from stash.core.ladder import NAMES
from stash.core.records.profile import Block, Profile

SCRIPTS = Path(__file__).parent / "scripts"
FILES = 192
COMMUNICATION = ("solo", "crowd", "node")
FULL = (*COMMUNICATION, "warm", "cold")

Start = Callable[..., Started]
RunProfile = Callable[..., Outcome]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small pictures as ``.npy`` files; a number in each name."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for number in range(FILES):
        np.save(folder / f"{number:04d}.npy", random.integers(0, 256, (3, 32, 32), dtype=np.uint8))
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start(*arguments)``: begin a ``stash profile`` in the folder of scripts, ended at the latest with the test.

    ``program=`` replaces ``python -m stash profile`` and its usual options by a command of the test's own. A script
    that trains with ranks is started as two at once, unless ``as_typed``: few tests are about the start that fails.
    """
    started: list[Started] = []

    def begin(
        *arguments: object,
        output: Path | None = None,
        budget: float = 1,
        precision: float = 50,
        folder: Path = SCRIPTS,
        program: tuple[object, ...] | None = None,
        as_typed: bool = False,
        standard_input: Path = Path(os.devnull),
        **variables: str,
    ) -> Started:
        output = output or tmp_path / f"run-{len(started)}.stash.json"
        usual = ("--budget", budget, "--precision", precision, "-o", output)
        usual += () if as_typed else two_ranks(list(map(str, arguments)), folder)
        words = tuple(map(str, program if program is not None else (*usual, *arguments)))
        log = tmp_path / f"stderr-{len(started)}.log"
        run = Started(words, output, log, folder, variables, program is None, standard_input)
        started.append(run)
        return run

    yield begin
    for run in started:
        run.kill()


@pytest.fixture
def run_profile(start: Start) -> RunProfile:
    """``run_profile(*arguments) -> Outcome``: the real command, to its end."""

    def run(*arguments: object, timeout: float = PATIENCE, **options: object) -> Outcome:
        return start(*arguments, **options).end(timeout)

    return run


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunProfile:
    """``typed(*arguments) -> Outcome``: the same command in this process, for what must end before a job is started.

    Starting anything all the same fails the test.
    """

    def run(*arguments: object, output: Path | None = None) -> Outcome:
        output = output or tmp_path / "run.stash.json"
        monkeypatch.chdir(SCRIPTS)
        monkeypatch.setattr(sys, "argv", ["stash", "profile", "-o", str(output), *map(str, arguments)])
        monkeypatch.setattr(subprocess, "Popen", lambda command, **_: pytest.fail(f"{command} was started"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), said.out, said.err, None)

    return run


@pytest.fixture
def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measured(outcome: Outcome) -> Profile:
    """The profile of a run that went well; fails with everything that was said if it did not."""
    assert outcome.code == 0, f"exit code {outcome.code}\n{outcome.stdout}\n{outcome.stderr}"
    assert outcome.profile is not None, outcome.stderr
    assert not outcome.survivors, outcome.survivors
    return outcome.profile


def blocks_of(profile: Profile, rung: str) -> list[Block]:
    """The blocks measured under one rung."""
    return [block for block in profile.blocks if block.rung == rung]


def skipped(profile: Profile) -> dict[str, str]:
    """Why each rung was left out."""
    return {item.rung: item.why for item in profile.skipped}


def climbed(outcome: Outcome, rungs: tuple[str, ...] = FULL, ranks: int = 2) -> Profile:
    """The profile, after checks that hold for every kind of script on one machine without a GPU."""
    profile = measured(outcome)
    assert profile.settings.rungs == rungs
    assert set(skipped(profile)) == set(NAMES) - set(rungs)
    assert "CPU" in skipped(profile)["resident"]
    assert skipped(profile)["cluster"] == ("one node" if ranks > 1 else "one device")
    assert [rank.rank for rank in profile.ranks] == list(range(ranks))
    assert len(step_matrix(profile).rounds) >= 1
    for rung in rungs:
        taking_part = {0} if rung == "solo" else set(range(ranks))
        assert {block.rank for block in blocks_of(profile, rung)} == taking_part, rung
    for block in profile.blocks:
        assert block.seconds > 0
        assert len(block.step_seconds) == block.steps
        assert sum(block.step_seconds) == pytest.approx(block.seconds, rel=0.02)
    breakdown = attribute(profile)
    total = sum(stall.seconds for stall in breakdown.stalls if stall.seconds is not None)
    assert total == pytest.approx(breakdown.step_seconds, rel=1e-6)
    return profile


def read_from_disk(profile: Profile) -> None:
    """Cold blocks read files that were out of the page cache, warm blocks as many in each step, in it."""
    cold, warm = blocks_of(profile, "cold"), blocks_of(profile, "warm")
    assert all(block.resident is not None and block.resident < 0.1 for block in cold)
    # on average: kernels may reclaim pages of their own accord at any time
    assert np.mean([np.nan if block.resident is None else block.resident for block in warm]) > 0.9
    assert all(block.files and block.file_bytes for block in cold + warm)
    before, after = ({(b.round, b.rank): b.files / b.steps for b in blocks} for blocks in (cold, warm))
    common = before.keys() & after.keys()
    assert common
    # but for what a loop over several loaders reads of one before another ends
    assert all(before[key] == pytest.approx(after[key], rel=0.1) for key in common)
