"""What was typed of a bill, as facts; and every mistake with the option it is in."""

import pytest

from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.plan.bill import BillFacts
from stash.plan.plan_options import PlanOptions, bill_facts
from stash.predict.forecasting import shipped_catalog

CATALOG = shipped_catalog()


def facts(dataset_bytes=None, **typed):
    return bill_facts(PlanOptions(**typed), dataset_bytes, CATALOG)


def test_without_options_only_tariffs_and_the_profile_are_known():
    found = facts(140e9)
    assert found == BillFacts(dataset_bytes=140e9, tariffs=found.tariffs)
    assert found.tariffs["aws"].billed_by_seconds is not None


def test_every_option_is_read_in_its_unit():
    found = facts(
        140e9,
        start="5m",
        image_size="20GB",
        data_size="150GB",
        download="500MB/s",
        data_in="AWS",
    )
    assert found.start_seconds == Interval(value=300, low=300, high=300)
    assert (found.image_bytes, found.dataset_bytes) == (20e9, 150e9)
    assert found.download_bytes_per_second == 500e6
    assert found.data_in == "aws"


def test_a_start_may_be_uncertain():
    assert facts(start="3m..8m").start_seconds == Interval(value=330, low=180, high=480)


def test_free_is_zero_and_not_unknown():
    assert facts(image_size="0GB").image_bytes == 0


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("start", "soon", "--start soon: cannot read the duration"),
        ("start", "8m..3m", "--start 8m..3m: the shorter time comes first"),
        ("start", "-5m", "--start -5m: cannot read"),
        ("image_size", "20 gbit", "--image-size 20 gbit: unknown size unit"),
        ("download", "500MB", None),
        ("download", "0MB/s", "--download 0MB/s: it must be more than 0"),
        ("data_in", "asw", "--data-in asw: no such cloud in the catalog; did you mean aws?"),
        ("data_in", "", "no such cloud in the catalog"),
    ],
)
def test_a_mistake_names_its_option(option, text, message):
    if message is None:
        facts(**{option: text})  # a rate without /s can only mean one thing
        return
    with pytest.raises(UserError) as caught:
        facts(**{option: text})
    assert message in str(caught.value)
