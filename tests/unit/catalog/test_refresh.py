"""``stash catalog refresh``: precedence, and every way a download can be broken."""

from contextlib import suppress
from datetime import datetime, timezone
from email.message import Message
from http.server import BaseHTTPRequestHandler
from urllib.error import HTTPError, URLError

import pytest
from http_serving import serving
from price_lists import HUNT_AWS, HUNT_GCP, HUNT_HEAD, Web, zip_text

from stash.catalog import facts, layers, refresh
from stash.catalog.offers import OfferFilter
from stash.core.errors import StashError, UserError

pytestmark = pytest.mark.usefixtures("home")

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


def offline(url):
    raise URLError("Name or service not known")


@pytest.fixture
def web():
    return Web()


@pytest.fixture
def kept(web, home):
    """A good snapshot is there; whatever the test does must leave it as it is, and no other file beside it."""
    refresh.refresh_snapshot(web, now=NOW)
    before = facts.snapshot_file().read_bytes()
    yield web
    assert facts.snapshot_file().read_bytes() == before
    assert [path.name for path in home.iterdir()] == ["catalog.json"]


def prices(name):
    known = layers.load()
    return {
        (offer.kind, offer.region): offer.dollars_per_hour
        for offer in known.offers_of(known.instance(name))
    }


def test_a_refresh_brings_new_prices_with_date_and_source(web):
    report = refresh.refresh_snapshot(web, now=NOW)
    assert report.updated == ("gpuhunt aws", "gpuhunt gcp")
    known = layers.load()
    offer = next(
        o for o in known.query(OfferFilter(region="us-east-1")) if o.instance.name == "p3.8xlarge"
    )
    assert offer.dollars_per_hour == 10.1
    assert offer.as_of == "2026-11-19"
    assert offer.source == "gpuhunt aws, published 2026-11-19"
    assert known.layers == ("shipped facts of 2026-11-20", "snapshot of 2026-11-20")


def test_a_shipped_price_of_an_earlier_date_stays_as_history(web):
    refresh.refresh_snapshot(web, now=NOW)
    known = layers.load()
    past = [o for o in known.offers_of(known.instance("p3.8xlarge")) if o.kind == "prior"]
    assert {(o.dollars_per_hour, o.as_of) for o in past} == {(12.24, None), (12.24, "2026-07-20")}
    unchanged = [o for o in known.offers_of(known.instance("g5.xlarge")) if o.kind == "prior"]
    # it tells since when
    assert [(o.dollars_per_hour, o.as_of) for o in unchanged] == [(1.006, "2026-07-20")]


def test_hardware_facts_of_price_lists_only_fill_gaps(web):
    refresh.refresh_snapshot(web, now=NOW)
    known = layers.load()
    assert known.instance("g5.xlarge").gpu_memory_bytes == 22.35 * 2**30  # the list says 24
    new = known.instance("g7.new")
    assert (new.gpu_model, new.gpu, new.gpu_memory_bytes, new.layer) == (
        "L4",
        "L4",
        24 * 2**30,
        "snapshot",
    )
    assert new.network_bytes_per_second is None
    other = known.instance("x1.made")
    assert (other.gpu_model, other.gpu, other.gpu_memory_bytes) == ("V100", None, 32 * 2**30)


BROKEN = {
    "no zip": b"<html>Not what you wanted</html>",
    "empty": b"",
    "cut zip": zip_text(HUNT_AWS)[:-40],
    "damaged zip": zip_text(HUNT_AWS)[:60] + b"\x00\x00\x00\x00" + zip_text(HUNT_AWS)[64:],
    "another file": zip_text(HUNT_AWS, "azure.csv"),
    "cut line": zip_text(HUNT_AWS[:-30]),
    "cut field": zip_text(HUNT_AWS + "p3.8xlarge,us-east\n"),
    "head only": zip_text(HUNT_HEAD),
    "other columns": zip_text(HUNT_AWS.replace("price", "cost", 1)),
    "empty list": zip_text(""),
    "no text": zip_text(HUNT_AWS.encode("utf-16")),
    "cents": zip_text(
        HUNT_AWS.replace(",10.1,", ",1010,")
        .replace(",21.957642,", ",2195.7,")
        .replace(",1.006,", ",100.6,")
    ),
    "zeros": zip_text(
        HUNT_AWS.replace(",10.1,", ",0,").replace(",21.957642,", ",0,").replace(",1.006,", ",0,")
    ),
    "timeout": TimeoutError("timed out"),
    "server error": HTTPError("u", 503, "busy", Message(), None),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_download_never_damages_the_snapshot(kept, how):
    kept.publish("gpuhunt aws", BROKEN[how])
    kept.publish("gpuhunt gcp", HTTPError("u", 404, "gone", Message(), None))
    with pytest.raises(
        StashError, match=r"the catalog was not refreshed.*the snapshot of 2026-11-20 stays"
    ):
        refresh.refresh_snapshot(kept, now=NOW)


@pytest.mark.parametrize(
    "how", [how for how in BROKEN if how != "timeout"]
)  # both come from one host
def test_one_broken_list_does_not_hold_back_the_other(web, how):
    refresh.refresh_snapshot(web, now=NOW)
    web.publish("gpuhunt aws", BROKEN[how])
    web.publish(
        "gpuhunt gcp",
        zip_text(HUNT_GCP.replace(",2.7,", ",2.5,").replace(",2.9,", ",2.5,"), "gcp.csv"),
    )
    report = refresh.refresh_snapshot(web, now=NOW)
    assert report.updated == ("gpuhunt gcp",)
    assert report.failures
    assert prices("p3.8xlarge")["on-demand", "us-east-1"] == 10.1  # its part stays
    assert prices("n1-standard-8+1xV100")["on-demand", "us-central1"] == 2.5


def test_a_version_that_is_no_version_is_not_followed(kept):
    kept.publish("gpuhunt aws", zip_text(HUNT_AWS), b"<html>../../etc</html>")
    kept.publish("gpuhunt gcp", HTTPError("u", 404, "gone", Message(), None))
    with pytest.raises(
        StashError, match=r"its version '<html>../../etc</html>' is not a date and a number"
    ):
        refresh.refresh_snapshot(kept, now=NOW)


def test_a_list_that_shrank_by_half_is_not_believed(web):
    regions = [f"region-{number}" for number in range(40)]
    line = "p3.8xlarge,{},12.24,32,244.0,4,V100,16.0,False,,nvidia,,x86,{{}}\n"
    web.publish("gpuhunt aws", zip_text(HUNT_HEAD + "".join(map(line.format, regions))))
    refresh.refresh_snapshot(web, now=NOW)
    web.publish("gpuhunt aws", zip_text(HUNT_HEAD + "".join(map(line.format, regions[:10]))))
    report = refresh.refresh_snapshot(web, now=NOW)
    assert (
        "gpuhunt aws: it has 10 offers where the snapshot has 40; it may be cut off; not used"
        in report.failures
    )


def test_prices_that_all_jumped_are_not_believed(kept):
    tenfold = HUNT_AWS
    for price, wrong in (
        ("10.1", "101"),
        ("21.957642", "219.6"),
        ("1.006", "10.06"),
        ("13.22", "132"),
        ("2.5", "25"),
    ):
        tenfold = tenfold.replace(f",{price},", f",{wrong},")
    kept.publish("gpuhunt aws", zip_text(tenfold))
    kept.publish("gpuhunt gcp", HTTPError("u", 404, "gone", Message(), None))
    with pytest.raises(
        StashError, match=r"5 of 7 known prices changed more than fivefold; the unit may be wrong"
    ):
        refresh.refresh_snapshot(kept, now=NOW)


@pytest.fixture
def server():
    """A real server on this machine: /whole, /cut (closes early), /elsewhere, /endless; anything else is 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            known = {"/whole": 200, "/cut": 200, "/endless": 200, "/elsewhere": 302}
            self.send_response(known.get(self.path, 404))
            self.send_header("Location", "ftp://elsewhere/list")
            if self.path != "/endless":
                self.send_header("Content-Length", "5" if self.path == "/whole" else "500")
            self.end_headers()
            self.wfile.write(b"hello")
            with suppress(OSError):
                while self.path == "/endless":
                    self.wfile.write(b"x" * 1000)

    with serving(Handler) as address:
        yield address


def test_the_real_transport_notices_a_download_that_was_cut(server):
    assert refresh.fetch_url(f"{server}/whole", "http") == b"hello"
    with pytest.raises(OSError, match=r"not complete|broke"):
        refresh.fetch_url(f"{server}/cut", "http")
    with pytest.raises(HTTPError):
        refresh.fetch_url(f"{server}/nothing", "http")


def test_nothing_is_asked_for_or_sent_on_to_over_another_scheme(server):
    with pytest.raises(OSError, match="is not https"):
        refresh.fetch_https(f"{server}/whole")
    with pytest.raises(OSError, match="it sends on to ftp://elsewhere/list, which is not http"):
        refresh.fetch_url(f"{server}/elsewhere", "http")


def test_an_endless_download_ends(server, monkeypatch):
    monkeypatch.setattr(refresh, "_MAX_BYTES", 1000)
    # which is then refused as too large
    assert len(refresh.fetch_url(f"{server}/endless", "http")) == 1001
    monkeypatch.setattr(refresh, "_MAX_BYTES", 10**9)
    monkeypatch.setattr(refresh, "_MAX_SECONDS", 0.2)
    with pytest.raises(OSError, match="it took longer than"):
        refresh.fetch_url(f"{server}/endless", "http")


def test_offline_says_so_in_one_sentence_and_keeps_what_it_has(kept):
    with pytest.raises(StashError) as caught:
        refresh.refresh_snapshot(offline, now=NOW)
    text = str(caught.value)
    assert text.startswith(
        "the catalog was not refreshed, because this machine seems to be offline"
    )
    assert "the snapshot of 2026-11-20 stays" in text
    assert "\n" not in text
    assert caught.value.exit_code == 1


def test_a_host_that_does_not_answer_is_asked_once(web):
    asked = []

    def silent(url):
        asked.append(url)
        raise TimeoutError("timed out")

    with pytest.raises(StashError):
        refresh.refresh_snapshot(silent, now=NOW)
    assert len(asked) == 1


def test_a_full_disk_leaves_the_old_snapshot(kept, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(
        StashError, match=r"cannot write .*: No space left on device; the old one stays"
    ):
        refresh.refresh_snapshot(kept, now=NOW)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"schema":2', '"schema":99'),
        lambda text: text.replace('"prices":[[', '"prices":[[-1],['),
        lambda text: text.replace('"prices":[["aws"', '"prices":[["gcp"'),
        lambda text: text.replace('"on-demand",10.1', '"on-demand",NaN'),
        lambda text: text.replace('"on-demand",10.1', '"on-demand",-1'),
        lambda text: text.replace('"on-demand",10.1', '"free",10.1'),
        lambda text: text.replace('10.1,"2026-11-19"', '10.1,"last week"'),
        lambda text: text.replace(
            '10.1,"2026-11-19","gpuhunt aws, published 2026-11-19"', '10.1,"2026-11-19",7'
        ),
    ],
)
def test_a_damaged_snapshot_is_a_sentence_and_a_refresh_heals_it(web, damage):
    refresh.refresh_snapshot(web, now=NOW)
    path = facts.snapshot_file()
    text = path.read_text()
    path.write_text(damage(text))
    assert path.read_text() != text
    with pytest.raises(UserError, match=r"is damaged .*stash catalog refresh"):
        layers.load()
    report = refresh.refresh_snapshot(web, now=NOW)
    assert "it is replaced" in report.failures[0]
    assert layers.load().instance("g7.new").vcpus == 8
