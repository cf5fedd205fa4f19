"""Files about fleets: what is read of them, and the one sentence that each mistake in them is."""

import json
import math
import stat
from pathlib import Path

import pytest
from fleet_pools import PUBLISHED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stash.core.errors import ArtefactError, UserError
from stash.spot.run_records import SpotLog
from stash.spot.spot_files import load_spot_log, read_model, read_pool, read_runs, save_spot_log

pytestmark = pytest.mark.usefixtures("home")

HEAD = "servers,workers,updates_per_second\n"


def test_the_published_pool_is_in_base_units():
    pool = read_pool(PUBLISHED)
    assert (pool.exchange_bytes, pool.worker_bytes_per_second, pool.server.bytes_per_second) == (
        11.5e6,
        142e6,
        1.2e9,
    )
    assert [kind.samples for kind in pool.types] == [1024, 1024, 1024, 2048, 8192]
    assert pool.as_of == "2023-09-07"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("as_of: 2023-09-07", "as_of: lately", ":3: as_of: 'lately' is not a date"),
        ("11.5MB", "11.5 elephants", ":5: exchange_bytes: unknown size unit 'elephants'"),
        (
            "quota: 2",
            "qouta: 2",
            ":11: types[0].qouta: there is no such field; did you mean quota?",
        ),
        ("quota: 2", "quota: -2", ":11: types[0].quota: should be greater than or equal to 0"),
        ("g4dn.4xlarge", "p3.2xlarge", "there are two called 'p3.2xlarge'"),
        ("loss: {", "loss: {gamma6: 1, ", "loss.gamma6: there is no such field"),
        ("server: {bytes", "server: [bytes", "it is not valid YAML"),
        ("source:", "sauce:", "did you mean source?"),
    ],
)
def test_a_mistake_in_a_pool_is_named_with_its_line(tmp_path, old, new, sentence):
    file = tmp_path / "pool.yaml"
    file.write_text(PUBLISHED.read_text().replace(old, new, 1))
    with pytest.raises(UserError) as mistake:
        read_pool(file)
    assert sentence in str(mistake.value)


def test_runs_are_read_with_their_columns_in_any_order_and_others_beside_them(
    tmp_path,
):
    file = tmp_path / "runs.csv"
    file.write_text(
        "\ufeffnote,workers, updates_per_second,servers\nx, v100=2 + k80=1 ,12.5,1\n\n,k80=1,4,2\n"
    )
    first, second = read_runs(file)
    assert (first.workers, first.updates_per_second, first.size) == ({"v100": 2, "k80": 1}, 12.5, 3)
    assert second.servers == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no column servers; its first line has to be"),
        ("servers,workers\n", "has no column updates_per_second"),
        (HEAD, "has 0 lines below its first"),
        (
            HEAD + "1,k80=1,4\n0,k80=1,4",
            ":3: servers: '0' should be greater than or equal to 1; write it like 1",
        ),
        (
            HEAD + "1,k80=1,nan",
            ":2: updates_per_second: 'nan' should be a finite number; write it like 12.5",
        ),
        (HEAD + "1,k80=1", ":2: updates_per_second: '' should be a valid number"),
        (
            HEAD + "1,k80,4",
            ":2: workers: 'k80' cannot be read at 'k80'; write it like v100=2+k80=1",
        ),
        (HEAD + "1,k80=0,4", "cannot be read at 'k80=0'"),
        (HEAD + "1,k80=1+k80=2,4", "names k80 twice"),
    ],
)
def test_a_mistake_in_runs_is_named_with_its_line(tmp_path, text, sentence):
    file = tmp_path / "runs.csv"
    file.write_text(text)
    with pytest.raises(UserError) as mistake:
        read_runs(file)
    assert sentence in str(mistake.value)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.binary(max_size=200), cut=st.integers(0, 900))
def test_no_file_is_worse_than_a_users_mistake(tmp_path, content, cut):
    file = tmp_path / "any"
    for given_bytes in (content, PUBLISHED.read_bytes()[:cut] + content, HEAD.encode() + content):
        file.write_bytes(given_bytes)
        for read in (read_pool, read_runs, read_model):
            try:
                read(file)
            except UserError:
                pass


GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "schema-1.spotlog.json"


def _changed(tmp_path, change):
    file = tmp_path / "x.spotlog.json"
    file.write_text(json.dumps({**json.loads(GOLDEN.read_text()), **change}))
    return file


def test_the_log_of_a_real_run_of_the_first_schema_is_still_read():
    log = load_spot_log(GOLDEN)
    assert [each.gone for each in log.takeovers] == ["worker1", "worker2", "server1"]
    assert (len(log.updates.seconds), log.reason, log.goal_loss) == (394, "time is up", 0.01)
    assert log.books.wrong is None


def test_a_log_is_saved_for_its_owner_alone_with_a_line_for_each_event_and_read_again(
    tmp_path,
):
    log = load_spot_log(GOLDEN)
    file = tmp_path / "job.spotlog.json"
    save_spot_log(log, file)
    assert load_spot_log(file) == log
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sum(line.startswith('  {"at"') for line in file.read_text().splitlines()) == len(
        log.events
    )


def test_a_loss_that_is_no_number_is_unknown():
    fields = json.loads(GOLDEN.read_text())
    fields["updates"]["loss"][:2] = [math.nan, 1e300]
    log = SpotLog.model_validate({**fields, "loss": math.inf})
    assert (log.loss, *log.updates.loss[:2]) == (None, None, None)


def test_a_log_that_contradicts_itself_is_refused(tmp_path):
    stretch = {"start": 5.0, "stop": 5.0, "workers": {"t4": 1}, "updates": 20, "predicted": None}
    with pytest.raises(ArtefactError, match=r"stretches\.0: .*it ends 0 s after it starts"):
        load_spot_log(_changed(tmp_path, {"stretches": [stretch]}))
    with pytest.raises(ArtefactError, match="the columns are not equally long"):
        load_spot_log(_changed(tmp_path, {"updates": {"seconds": [1.0]}}))
