"""Files of a run's log: what was saved is read again, and what is wrong with one is one sentence."""

from __future__ import annotations

import json
import math
import stat
from pathlib import Path
from typing import Any

import pytest

from stash.core.errors import ArtefactError
from stash.spot.run_records import SpotLog
from stash.spot.spot_files import load_spot_log, save_spot_log

pytestmark = pytest.mark.usefixtures("home")

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "schema-1.spotlog.json"


def _changed(tmp_path: Path, change: dict[str, Any]) -> Path:
    file = tmp_path / "x.spotlog.json"
    file.write_text(json.dumps({**json.loads(GOLDEN.read_text()), **change}))
    return file


def test_the_log_of_a_real_run_of_the_first_schema_is_still_read() -> None:
    log = load_spot_log(GOLDEN)
    assert [each.gone for each in log.takeovers] == ["worker1", "worker2", "server1"]
    assert (len(log.updates.seconds), log.reason, log.goal_loss) == (394, "time is up", 0.01)
    assert log.books.wrong is None


def test_a_log_is_saved_for_its_owner_alone_with_a_line_for_each_event_and_read_again(
    tmp_path: Path,
) -> None:
    log, file = load_spot_log(GOLDEN), tmp_path / "job.spotlog.json"
    save_spot_log(log, file)
    assert load_spot_log(file) == log
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sum(line.startswith('  {"at"') for line in file.read_text().splitlines()) == len(
        log.events
    )


def test_a_loss_that_is_no_number_is_unknown() -> None:
    fields = json.loads(GOLDEN.read_text())
    fields["updates"]["loss"][:2] = [math.nan, 1e300]
    log = SpotLog.model_validate({**fields, "loss": math.inf})
    assert (log.loss, *log.updates.loss[:2]) == (None, None, None)


def test_a_log_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    stretch = {"start": 5.0, "stop": 5.0, "workers": {"t4": 1}, "updates": 20, "predicted": None}
    with pytest.raises(ArtefactError, match=r"stretches\.0: .*it ends 0 s after it starts"):
        load_spot_log(_changed(tmp_path, {"stretches": [stretch]}))
    with pytest.raises(ArtefactError, match="the columns are not equally long"):
        load_spot_log(_changed(tmp_path, {"updates": {"seconds": [1.0]}}))
