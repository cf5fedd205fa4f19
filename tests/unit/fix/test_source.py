"""Arguments of calls changed in source, with nothing else touched."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.fix.script_changes import Site
from stash.fix.source import Edit, SourceText, TypedChange, apply_edits


def site(text, name="DataLoader", kind="loader", columns=True):
    """Where the first call of that name stands, as the agent would record it."""
    call = next(
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
    )
    end = (call.end_lineno or 0, call.end_col_offset)
    column = call.col_offset if columns else None
    return Site(
        kind, "key", "train.py", call.lineno, end[0], column, end[1] if columns else None, {}
    )


def argument(
    text,
    name,
    value,
    position=None,
    columns=True,
    **more,
):
    """What becomes of one argument of the text's call."""
    source = SourceText(text)
    call = source.find_call(site(text.removeprefix("\ufeff"), columns=columns))
    assert call is not None
    return source.set_argument(call, name, value, position, **more)


def changed(text, workers=6, **more):
    edit = argument(text, "num_workers", workers, **more)
    assert isinstance(edit, Edit), edit
    return apply_edits(text, [edit])


BROKEN = "x = DataLoader(\n    data,\n    8"
PARSER = 'p.add_argument("--workers", type=int)\nargs.workers = args.workers // gpus\n'


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (
            "loader = DataLoader(data, 8, num_workers = 2)  # two\n",
            "loader = DataLoader(data, 8, num_workers = 6)  # two\n",
        ),
        ("x = DataLoader(data)\n", "x = DataLoader(data, num_workers=6)\n"),
        ("x = DataLoader((data))\n", "x = DataLoader((data), num_workers=6)\n"),
        (f"{BROKEN},\n)\n", f"{BROKEN},\n    num_workers=6,\n)\n"),
        (f"{BROKEN}  # small\n)\n", f"{BROKEN},\n    num_workers=6  # small\n)\n"),
        ("x = DataLoader(\n    data, 8,\n)\n", "x = DataLoader(\n    data, 8, num_workers=6,\n)\n"),
        (
            "x = DataLoader(\r\n    data,\r\n)\r\n",
            "x = DataLoader(\r\n    data,\r\n    num_workers=6,\r\n)\r\n",
        ),
        ("x = DataLoader()\n", "x = DataLoader(num_workers=6)\n"),
        # letters of several bytes before the call, and a mark of UTF-8 before the text
        (
            'name = "Größe – 大"; x = DataLoader(data, num_workers=0)\n',
            'name = "Größe – 大"; x = DataLoader(data, num_workers=6)\n',
        ),
        (
            "\ufeffx = DataLoader(data, num_workers=0)\n",
            "\ufeffx = DataLoader(data, num_workers=6)\n",
        ),
        # a name set once is changed where it is set, unless others use it
        (
            "N = 2\nx = DataLoader(data, num_workers=N)\n",
            "N = 6\nx = DataLoader(data, num_workers=N)\n",
        ),
        (
            "N = 2\nx = DataLoader(data, num_workers=N)\ny = DataLoader(other, num_workers=N)\n",
            "N = 2\nx = DataLoader(data, num_workers=6)\ny = DataLoader(other, num_workers=N)\n",
        ),
        # behind a last one in brackets of several lines, and beside those of a mapping
        (
            f"{BROKEN},\n    sampler=(\n        a if b else None\n    ),\n)\n",
            f"{BROKEN},\n    sampler=(\n        a if b else None\n    ),\n    num_workers=6,\n)\n",
        ),
        (
            "x = DataLoader(data, num_workers=2, **options)\n",
            "x = DataLoader(data, num_workers=6, **options)\n",
        ),
        # an option that the script works on is left where the call uses it
        (
            f"{PARSER}x = DataLoader(data, num_workers=args.workers)\n",
            f"{PARSER}x = DataLoader(data, num_workers=6)\n",
        ),
    ],
)
def test_one_argument_is_changed_and_nothing_else(text, after):
    assert changed(text) == after


def test_a_call_is_found_without_columns_and_an_argument_by_its_position():
    # Python 3.10 records none
    assert changed("x = DataLoader(d, num_workers=2)\n", columns=False).count("=6") == 1
    assert (
        changed("DataLoader(d, 8, True, None, None, 2)\n", position=5)
        == "DataLoader(d, 8, True, None, None, 6)\n"
    )


OPTIONS = """p.add_argument("-j", "--workers", type=int)
p.add_argument("--jobs", dest="n")
p.add_argument("--on", action="store_true")
p.add_argument("--off", action="store_false")
p.add_argument("--pin", action=argparse.BooleanOptionalAction)
"""
IN_CONFIGURATION = TypedChange("num_workers: 6 in the script's configuration")


@pytest.mark.parametrize(
    ("written", "value", "found"),
    [
        ("args.workers", 6, TypedChange("--workers 6")),
        ("args.n", 6, TypedChange("--jobs 6")),
        ("int(args.n)", 6, TypedChange("--jobs 6")),
        ('cfg["num_workers"]', 6, IN_CONFIGURATION),
        ("cfg.data.num_workers", 6, IN_CONFIGURATION),
        ("args.on", True, TypedChange("--on")),
        ("args.on", False, "the flag --on says otherwise: leave that out"),
        ("args.off", False, TypedChange("--off")),
        ("args.pin", False, TypedChange("--no-pin")),
        ("args.pin", True, TypedChange("--pin")),
        ("args.workers", None, "None cannot be typed for --workers"),
    ],
)
def test_values_from_elsewhere_are_told_as_they_are_typed_and_not_written(written, value, found):
    assert (
        argument(f"{OPTIONS}x = DataLoader(data, num_workers={written})\n", "num_workers", value)
        == found
    )


@pytest.mark.parametrize(
    "text",
    [
        "x = DataLoader(p for p in model)\n",
        "def build(n):\n    return DataLoader(data, **options, **more)\n",
        "def build(n):\n    return DataLoader(*parts)\n",
        "def build(n):\n    return DataLoader(data, num_workers=cpus() // 2)\n",
        "def build(n):\n    return DataLoader(data, num_workers=n)\n",
        # a name that something else gives a value, too
        "n = 2\nx = [DataLoader(data, num_workers=n) for n in (0, 1)]\n",
        "n = 2\nn, m = 3, 4\nx = DataLoader(data, num_workers=n)\n",
        "n = 2\nfrom config import n\nx = DataLoader(data, num_workers=n)\n",
        "n = 2\nwith limits() as n:\n    x = DataLoader(data, num_workers=n)\n",
    ],
)
def test_what_is_worked_out_while_it_runs_is_not_written(text):
    assert isinstance(argument(text, "num_workers", 6), str)


def test_a_line_goes_behind_the_imports():
    text = '"""Trains."""\n\nimport os\nimport torch\n\nx = 1\n'
    source = SourceText(text)
    assert source.find_imports("torch")
    edit = source.line_after_imports("torch.backends.cudnn.benchmark = True")
    assert apply_edits(text, [edit]) == (
        '"""Trains."""\n\nimport os\nimport torch\n\ntorch.backends.cudnn.benchmark = True\n\nx = 1\n'
    )


def test_a_line_that_needs_torch_goes_behind_its_import_wherever_that_stands():
    text = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\nimport torch\nx = 1\n'
    edit = SourceText(text).line_after_imports("torch.y = True", needs="torch")
    assert apply_edits(text, [edit]) == text.replace(
        "import torch\n", "import torch\n\ntorch.y = True\n"
    )


def test_a_call_that_has_moved_is_not_found():
    text = "x = DataLoader(data)\n"
    assert SourceText("\n" + text).find_call(site(text)) is None


@given(
    before=st.lists(
        st.sampled_from(["batch_size=8", "shuffle=True", "drop_last=True"]), unique=True
    ),
    broken=st.booleans(),
    trailing=st.booleans(),
    value=st.integers(0, 99),
)
def test_whatever_the_call_looks_like_only_that_argument_changes(before, broken, trailing, value):
    between = "\n    " if broken else " "
    comma = "," if trailing else ""
    inside = f",{between}".join(["data", *before]) + comma
    text = f"x = DataLoader({between.strip(' ')}{inside}{between.strip(' ')})\n"
    after = changed(text, value)

    def arguments(source):
        call = SourceText(source).find_call(site(source))
        return {each.arg: ast.unparse(each.value) for each in call.keywords}

    assert arguments(after) == {**arguments(text), "num_workers": str(value)}
    added = len(after) - len(text)  # nothing but the argument, its comma and its margin
    assert added <= len(f",\n    num_workers={value},")


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("loaders = list(map(DataLoader, sets))\n", "list", False),
        (
            "def __init__(self, data):\n    DataLoader.__init__(self, data, 8, True, None, None)\n",
            "__init__",
            False,
        ),
        (
            "def __init__(self, data):\n    super().__init__(data, 8, num_workers=2)\n",
            "__init__",
            True,
        ),
        ("build = partial(DataLoader, data)\nloader = build(8)\n", "build", True),
    ],
)
def test_a_call_that_has_arguments_before_those_of_what_it_calls_is_not_changed(text, name, found):
    assert (SourceText(text).find_call(site(text, name)) is not None) is found


def test_a_name_that_had_another_value_as_it_ran_is_left_alone():
    """A script that sets its own names from the command line: a value where the name is set would be overwritten."""
    text = "n = 0\nexec(open('options.py').read())\nx = DataLoader(data, num_workers=n)\n"
    assert changed(text, now=2) == text.replace("workers=n", "workers=6")


def test_lines_are_put_in_with_the_files_own_ends():
    text = "import torch\r\nx = 1\r\n"
    assert apply_edits(text, [SourceText(text).line_after_imports("class A:\n    b = 1")]) == (
        "import torch\r\n\r\nclass A:\r\n    b = 1\r\nx = 1\r\n"
    )


def test_a_line_in_a_file_without_imports_goes_behind_what_runs_it():
    text = "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\ndef main():\n    import torch\n"
    after = apply_edits(text, [SourceText(text).line_after_imports("import os")])
    assert after == text.replace("def main", "\nimport os\ndef main")
