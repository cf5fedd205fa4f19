"""Files of loss curves: what was saved is read again, and what is wrong with one is one sentence."""

from __future__ import annotations

import json
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loss_courses import learned_curve

from stash.core.errors import ArtefactError
from stash.spot.spot_files import load_curve, save_curve

pytestmark = pytest.mark.usefixtures("home")


def test_a_curve_is_saved_for_its_owner_alone_and_read_again(tmp_path: Path) -> None:
    curve, file = learned_curve(), tmp_path / "job.curve.json"
    save_curve(curve, file)
    assert load_curve(file) == curve
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["curve_schema"] == 1


def test_a_curve_of_the_first_schema_is_still_read() -> None:
    curve = load_curve(Path(__file__).resolve().parents[2] / "golden" / "schema-1.curve.json")
    assert curve.fitted.curve.gamma5 == pytest.approx(0.4, abs=0.01)
    assert (len(curve.replays), curve.learned.most_workers) == (6, 6)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not a loss curve: it is not JSON"),
        ("{}", "it is JSON, but has no curve_schema"),
        ('{"plan_schema": 1}', "is a plan of `stash recommend`, not a loss curve"),
        ('{"curve_schema": 99}', "was made by a newer Stash (schema 99"),
        ('{"curve_schema": 1}', "is not a loss curve: "),
        ('{"curve_schema": 1, "replays": [', "is damaged or cut short"),
    ],
)
def test_what_is_no_curve_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "x.curve.json"
    file.write_text(text)
    with pytest.raises(ArtefactError) as mistake:
        load_curve(file)
    assert sentence in str(mistake.value)


def test_a_missing_curve_names_those_that_are_there(tmp_path: Path) -> None:
    save_curve(learned_curve(), tmp_path / "one.curve.json")
    with pytest.raises(ArtefactError, match=r"curves there, newest first: .*one.curve.json"):
        load_curve(tmp_path / "two.curve.json")


@given(st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_curve_is_read_or_refused_and_never_a_traceback(tmp_path: Path, data: st.DataObject) -> None:
    file = tmp_path / "fuzzed.curve.json"
    save_curve(learned_curve(), file)
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]))
    with suppress(ArtefactError):
        assert load_curve(file).learned.most_workers > 0
