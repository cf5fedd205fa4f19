"""Nothing that Stash prints acts on a terminal; long text is cut; JSON is JSON."""

import json

import pytest

from stash.core.printable import last_of, printable, printable_line, shorten_text, strict_json

HOSTILE = "a\x1b]0;owned\x07b\x1b[2Jc\x00d\x9b31me\u202ef\u2066g\udcffh\x7f"


def acts(text):
    return [
        c
        for c in text
        if c not in "\n\t" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u2066\udcff")
    ]


def test_what_would_act_is_shown_instead():
    assert printable(HOSTILE) == (
        "a\\x1b]0;owned\\x07b\\x1b[2Jc\\x00d\\x9b31me\\u202ef\\u2066g\\udcffh\\x7f"
    )
    assert printable("line\r\nline\tend ± µ 漢") == "line\nline\tend ± µ 漢"
    assert printable("12%\r13%") == "12%\\x0d13%"


def test_a_name_stays_in_its_line_and_is_not_endless():
    assert printable_line("a\nb\tc") == "a\\nb c"
    long = printable_line("x" * 3_000_000)
    assert len(long) < 2_100
    assert "2998000 characters left out" in long


def test_long_text_keeps_its_beginning_and_its_end():
    assert shorten_text("abc", 3) == "abc"
    short = shorten_text("ValueError: " + "x" * 5000 + " at the end", 600)
    assert short.startswith("ValueError: x")
    assert short.endswith("x at the end")


def test_of_long_output_the_last_lines_are_shown():
    lines = [f"line {number}" for number in range(10_000)]
    shown = last_of("\n".join(lines), 1000).splitlines()
    assert "characters left out" in shown[0]
    assert shown[1:] == lines[-len(shown) + 1 :]
    assert last_of("short") == "short"
    assert len(last_of("x" * 10**6, 1000)) < 1100


def test_json_says_the_same_and_shows_nothing_that_acts():
    document = {"name": HOSTILE, "value": 1.5, "nothing": None, "text": "± 漢"}
    text = strict_json(document)
    assert json.loads(text) == document
    assert not acts(text)
    text.encode("utf-8")


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_json_has_no_infinity(value):
    with pytest.raises(ValueError, match="JSON"):
        strict_json({"value": value})
