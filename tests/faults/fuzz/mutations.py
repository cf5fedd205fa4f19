"""Changes to a file: of its values if it is JSON, of its lines and words if it is text, of its bytes in any case.

The same seed makes the same file, everywhere and always. Knows no format of Stash's.
"""

import copy
import json
import re
from typing import Any

Container = Any

ACTS = "x\x1b]0;owned\x07\x1b[2J\x00\x9b2J\u202e\u2066\x7fy"
"""Sets a window's title, clears the screen, turns the text around."""
_DEEP, _LONG = "@deep@", "@long@"
"""Places in written JSON for what Python's writer refuses: very many brackets, an integer of very many digits."""
NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    2**31,
    2**63,
    -(2**63),
    10**30,
    1e308,
    -1e308,
    1e-308,
    5e-324,
    1e-13,
    1e18,
    1e12,
    0.0,
    -0.0,
    0.5,
    float("inf"),
    float("-inf"),
    float("nan"),
)
TEXTS = (
    "",
    " ",
    ACTS,
    "\n\n",
    "x" * 5000,
    "\ud800",
    "../../etc/passwd",
    "nan",
    "-1",
    "cuda:0",
    "cuda:99999999999999999999",
    "cuda:²",
    "cpu",
    "solo",
    "cold",
    "9" * 5000,
    "2026-13-45",
    "{}",
    "[red]x[/red]",
    "%s%n",
    "gen9 x16",
    "漢字",
)
OTHERS = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"times": [10**9], "values": [0]},
    _DEEP,
    _LONG,
)
BYTES = (
    b"\x00",
    b"\xff",
    b"\xfe\xff",
    b"\x1b[2J",
    b"{",
    b"[" * 1000,
    b'"',
    b"\n",
    b",",
    b"\xed\xa0\x80",
    b"1e999",
    b"-",
)
LINES = (
    "a: &a [1, 2]",
    "b: [*a, *a]",
    "<<: *a",
    "x: &x {y: *x}",
    "? {a: b} : c",
    "k: !!python/object:os.system x",
    "t: !!timestamp x",
    "i: !!int 0x",
    "n: .inf",
    "f: .nan",
    "d: 2026-13-45",
    "s: 1:1:1:1:1:1:1:1",
    "l: " + "9" * 5000,
    "q: " + "[" * 500,
    "- - - - -",
    "\tname: x",
    "name: " + json.dumps(ACTS),
    "---",
    "...",
    "%YAML 9.9",
    "!!binary x",
    ",".join("x" * 40),
    '"',
    "a,b\x00,c",
    ",,,,,,,,,,,,,,,,,,,,",
    "nan,inf,-inf,1e999",
)


def mutated(content, chance):
    """``content`` with some changes; most often such that a reader still gets far."""
    tree = _tree(content)
    if tree is not None and chance.random() < 0.85:
        content = _written(_of_values(tree, chance))
    elif chance.random() < 0.8:
        content = _of_lines(content.decode("utf-8", "replace"), chance).encode(
            "utf-8", "surrogatepass"
        )
    if chance.random() < 0.15:
        content = _of_bytes(content, chance)
    return content


def _tree(content):
    try:
        return json.loads(content)
    except ValueError:
        return None


def _written(tree):
    text = json.dumps(tree)
    text = text.replace(json.dumps(_DEEP), "[" * 3000 + "]" * 3000).replace(
        json.dumps(_LONG), "9" * 5000
    )
    return text.encode()


def _of_values(tree, chance):
    places = list(_places(tree))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        if not places:
            break
        holder, key = chance.choice(places)
        try:
            holder[key]
        except LookupError:  # gone by an earlier change
            continue
        chance.choice(_CHANGES)(holder, key, chance)
    return tree


def _places(tree):
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        keys = (
            list(holder)
            if isinstance(holder, dict)
            else range(len(holder))
            if isinstance(holder, list)
            else ()
        )
        for key in keys:
            yield holder, key
            waiting.append(holder[key])


def _replace(holder, key, chance):
    holder[key] = copy.deepcopy(chance.choice(chance.choice((NUMBERS, NUMBERS, TEXTS, OTHERS))))


def _like_it(holder, key, chance):
    """Another value of the same type: what passes the first check of a reader."""
    value = holder[key]
    if isinstance(value, bool) or value is None:
        holder[key] = chance.choice((None, True, False))
    elif isinstance(value, int):
        holder[key] = chance.choice(
            (0, 1, value + 1, value - 1, -value, value * 1000, 2**40, 2**62)
        )
    elif isinstance(value, float):
        holder[key] = value * chance.choice((0.0, -1.0, 1e-9, 0.5, 2.0, 1e3, 1e9, 1e15))
    elif isinstance(value, str):
        holder[key] = chance.choice(
            (value + ACTS, value.upper(), value[::-1], value * 50, chance.choice(TEXTS))
        )
    else:
        _replace(holder, key, chance)


def _remove(holder, key, chance):
    del holder[key]


def _repeat(holder, key, chance):
    times = chance.choice((1, 2, 5, 50))
    if isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(holder[key]) for _ in range(times)]
    else:
        holder |= {f"{key}{number}": copy.deepcopy(holder[key]) for number in range(times)}


def _swap(holder, key, chance):
    other = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


def _empty(holder, key, chance):
    if isinstance(holder[key], (list, dict)):
        holder[key].clear()
    else:
        holder[key] = type(holder[key])() if holder[key] is not None else 0


_CHANGES = (
    _replace,
    _replace,
    _like_it,
    _like_it,
    _like_it,
    _remove,
    _repeat,
    _swap,
    _empty,
)


def _of_lines(text, chance):
    lines = text.split("\n")
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        at = chance.randrange(len(lines))
        change = chance.randrange(7)
        if change == 0:
            del lines[at : at + chance.choice((1, 3))]
        elif change == 1:
            lines[at:at] = [lines[at]] * chance.choice((1, 2, 100))
        elif change == 2:
            indent = re.match(r"[ -]*", lines[at])
            lines.insert(at, (indent[0] if indent else "") + chance.choice(LINES))
        elif change == 3:
            other = chance.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines[at] = _of_words(lines[at], chance)
        lines = lines or [""]
    return "\n".join(lines)


def _of_words(line, chance):
    words = list(re.finditer(r"[\w.$/+-]+", line))
    if not words:
        return line + chance.choice(TEXTS)
    word = chance.choice(words)
    new = chance.choice((*TEXTS, *map(str, NUMBERS), "*a", "&a", "!!int", "[", "{", "<<", ""))
    return line[: word.start()] + new + line[word.end() :]


def _of_bytes(content, chance):
    at = chance.randrange(len(content) + 1)
    change = chance.randrange(4)
    if change == 0:
        return content[:at]
    if change == 1:
        return content[:at] + chance.choice(BYTES) + content[at:]
    if change == 2:
        return content[:at] + content[at + chance.choice((1, 2, 30)) :]
    return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
