"""The description of an emulated model: read, scaled, written back, and refused by line and field."""

import pytest

from stash.core.errors import UserError
from stash.lab.testbed.emulation import Emulation, LayerSpec, dump, load

TEXT = """\
name: two
layers:
- {name: a, bytes: 4kB, forward_seconds: 2ms, backward_seconds: 0.004}
- name: b
  bytes: 4000
  forward_seconds: 3 ms
  backward_seconds: 6 ms
optimizer_seconds: 1ms
"""


def written(folder, text):
    path = folder / "model.yaml"
    path.write_text(text)
    return path


def test_a_description_is_read_with_units_and_written_back(tmp_path):
    made = load(written(tmp_path, TEXT))
    assert made.bytes == 8000
    assert made.compute_seconds == pytest.approx(0.016)
    assert load(written(tmp_path, dump(made))) == made


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bytes: 4000", "bytes: 4000 bots", r":5: layers\[1\].bytes: unknown size unit 'bots'"),
        ("bytes: 4000", "bites: 4000", r":\d: layers\[1\].bytes: is missing"),
        ("optimizer_seconds: 1ms", "optimiser: 1ms", ":8: optimiser: there is no such field"),
        ("optimizer_seconds: 1ms", "optimizer_seconds: -1", ":8: optimizer_seconds"),
        ("  forward_seconds: 3 ms", "  forward_seconds: {", "not valid YAML"),
        ("optimizer_seconds: 1ms", "slow_ranks: {1: 0}", r":8: slow_ranks.1"),
        ("optimizer_seconds: 1ms", "exchange: 3", ":8: exchange: must hold named fields$"),
    ],
)
def test_a_wrong_description_is_refused_with_file_line_and_field(tmp_path, old, new, words):
    path = written(tmp_path, TEXT.replace(old, new))
    with pytest.raises(UserError, match=words) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_missing_empty_or_binary_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="layers"):
        load(written(tmp_path, ""))
    (tmp_path / "model.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not a text file"):
        load(tmp_path / "model.yaml")


def test_scaling_keeps_the_ratio_of_wire_time_to_compute():
    made = Emulation(
        layers=(LayerSpec(name="a", bytes=4_000_000, forward_seconds=0.1, backward_seconds=0.2),)
    )
    small = made.scale(size=0.1, time=0.5)
    before = made.bytes / 1e9 / made.compute_seconds
    after = small.bytes / (1e9 * 0.1 / 0.5) / small.compute_seconds
    assert after == pytest.approx(before)
