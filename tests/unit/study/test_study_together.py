"""Commands of one cell: started together, ended together, by the end of their input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stash.study import run_together

ENDS_WITH_ITS_INPUT = "sh -c 'cat; echo saved >>log'"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_all_that_go_well_go_well() -> None:
    assert run_together.main(["sh -c 'echo a >>log'", "sh -c 'echo b >>log'"]) == 0
    assert sorted(Path("log").read_text().split()) == ["a", "b"]


def test_one_that_fails_ends_the_others_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_together, "NOTICE", 0.2)
    assert run_together.main([ENDS_WITH_ITS_INPUT, "sh -c 'exit 7'"]) == 7
    assert Path("log").read_text() == "saved\n"


def test_what_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_together, "NOTICE", 0.2)
    monkeypatch.setattr(run_together, "_GRACE", 0.2)
    assert run_together.main(["sh -c 'trap : TERM; echo $$ >>log; sleep 600'", "sh -c 'sleep 0.2; exit 7'"]) == 7
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("log").read_text()), 0)


def test_a_program_that_is_not_there_is_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_together.main([ENDS_WITH_ITS_INPUT, "no-such-program h1"]) == 1
    assert capfd.readouterr().err == "error: no-such-program: No such file or directory\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_whatever_ends_it_ends_them(number: int, code: int) -> None:
    lines = ["sh -c 'echo begun >>log; cat; echo saved >>log'"]
    process = subprocess.Popen([sys.executable, "-m", "stash.study.run_together", *lines])
    wait_for("begun")
    process.send_signal(number)
    assert process.wait(60) == code
    wait_for("saved")


def wait_for(word: str) -> None:
    deadline = time.monotonic() + 60
    while not (Path("log").exists() and word in Path("log").read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
