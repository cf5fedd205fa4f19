"""What the integration tests share: a folder of real files, and the real ``stash profile`` (``runs``) on them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from profiled import FILES, SCRIPTS
from runs import PATIENCE, Outcome, Started, two_ranks

from stash.cli.main import main


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder of small pictures as ``.npy`` files; a number in each name."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for number in range(FILES):
        np.save(folder / f"{number:04d}.npy", random.integers(0, 256, (3, 32, 32), dtype=np.uint8))
    return folder


@pytest.fixture
def start(tmp_path):
    """``start(*arguments)``: begin a ``stash profile`` in the folder of scripts, ended at the latest with the test.

    ``program=`` replaces ``python -m stash profile`` and its usual options by a command of the test's own. A script
    that trains with ranks is started as two at once, unless ``as_typed``: few tests are about the start that fails.
    """
    started = []

    def begin(
        *arguments,
        output=None,
        budget=1,
        noise=50,
        folder=SCRIPTS,
        program=None,
        as_typed=False,
        standard_input=Path(os.devnull),
        **variables,
    ):
        output = output or tmp_path / f"run-{len(started)}.stash.json"
        usual = ("--budget", budget, "--noise", noise, "-o", output)
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
def run_profile(start):
    """``run_profile(*arguments) -> Outcome``: the real command, to its end."""

    def run(*arguments, timeout=PATIENCE, **options):
        return start(*arguments, **options).end(timeout)

    return run


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """``typed(*arguments) -> Outcome``: the same command in this process, for what must end before a job is started.

    Starting anything all the same fails the test.
    """

    def run(*arguments, output=None):
        output = output or tmp_path / "run.stash.json"
        monkeypatch.chdir(SCRIPTS)
        monkeypatch.setattr(
            sys, "argv", ["stash", "profile", "-o", str(output), *map(str, arguments)]
        )
        # it asks a Python
        monkeypatch.setattr("stash.measure.launcher.job.require_torch", lambda *_, **__: None)
        monkeypatch.setattr(
            subprocess, "Popen", lambda command, **_: pytest.fail(f"{command} was started")
        )
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), printed.out, printed.err, None)

    return run


@pytest.fixture
def free_port():
    """A TCP port of 127.0.0.1 that has no listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
