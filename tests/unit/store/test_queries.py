"""SQL on a store, and what no query may do."""

import pytest
from stores import calm_profile, made, put_fix

from stash.core.artefact import encode_artefact
from stash.core.errors import StoreError, UserError
from stash.core.printable import printable_line
from stash.store.queries import run_query
from stash.store.schema import TABLES

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def store(tmp_path):
    return made(tmp_path / "runs")


@pytest.fixture(scope="module")
def of_one(tmp_path_factory):
    """A store that the tests which read it leave as it is."""
    return made(tmp_path_factory.mktemp("runs"), days=1, probes=False)


def asked(store, sql):
    with run_query(store, sql) as answer:
        return list(answer.rows)


COUNTS = " union all ".join(f"select '{table}', count(*) from {table}" for table in TABLES)


def test_every_table_answers(store):
    put_fix(store)
    assert all(count > 0 for _, count in asked(store, COUNTS))
    store.put(encode_artefact(calm_profile(9)), "run.stash.json")
    assert asked(store, "select count(*) from profiles") == [(4,)]
    assert asked(store, "select count(distinct id), count(*) from blocks") == [
        (4, 4 * len(calm_profile(9).blocks))
    ]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("selec", r"Parser Error: syntax error at or near"),
        (
            "select bandwidth from profiles",
            r'"bandwidth" not found .*\. profiles has id, created, workload',
        ),
        (
            "select * from runs",
            r"Table with name runs does not exist.*the tables are artefacts, profiles",
        ),
        ("select cast(name as integer) from stalls", r"Conversion Error: .*\. stalls has id, name"),
        ("", "type one SELECT on artefacts, profiles"),
        ("select 1; select 2", "type one SELECT"),
        ("create table x as select 1", "type one SELECT"),
        ("copy profiles to '/tmp/stolen.csv'", "type one SELECT"),
        ("attach '/tmp/x.db'", "type one SELECT"),
        ("set enable_external_access = true", "type one SELECT"),
        ("pragma database_list", "type one SELECT"),
        ("install httpfs", "type one SELECT"),
        ("select * from read_text('/etc/hostname')", "disabled by configuration"),
        ("select * from read_csv('/etc/passwd')", "disabled by configuration"),
        ("select * from read_blob('../*')", "disabled by configuration"),
        ("select * from glob('/*')", "disabled by configuration"),
        ("select * from '/etc/passwd'", "does not exist"),
        ("select * from 'http://127.0.0.1:1/x.parquet'", "Error"),
        ("from profiles, read_json('/etc/hostname')", "disabled by configuration"),
    ],
)
def test_a_query_that_is_wrong_or_reaches_for_more_is_refused(of_one, sql, words):
    with pytest.raises(UserError, match=words) as refused:
        asked(of_one, sql)
    assert "\n" not in str(refused.value)


def test_no_query_reads_the_artefacts_files_themselves(store, tmp_path):
    with pytest.raises(UserError, match="disabled by configuration"):
        asked(
            store,
            f"select * from read_text('{tmp_path}/runs/{store.contents().stored[0]}'), profiles",
        )


def test_a_hostile_artefact_is_text_and_nothing_else(tmp_path):
    names = [
        "'; DROP TABLE profiles; --",
        'x"y\\',
        "\x1b[2J\n\x00",
        "a'||read_text('/etc/passwd')||'",
        "x" * 300,
    ]
    store = made(tmp_path / "it's a store", days=0, probes=False)
    for day, name in enumerate(names, 1):
        store.put(
            encode_artefact(calm_profile(day, workload={"name": name, "command": (name,)})),
            "run.stash.json",
        )
    for _ in range(2):
        assert [
            name for (name,) in asked(store, "select workload from profiles order by created")
        ] == [printable_line(name) for name in names]


def test_progress_is_reported(store):
    progress = []
    with run_query(store, "select * from profiles", lambda done, of: progress.append((done, of))):
        pass
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_without_room_for_temporary_files_a_sentence_says_so(of_one, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stash.store.queries.TemporaryDirectory", full)
    with pytest.raises(
        StoreError, match=r"no folder for temporary files: .*No space left.*; name one with TMPDIR"
    ):
        asked(of_one, "from profiles")
