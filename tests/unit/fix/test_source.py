"""Arguments of calls changed in source, with nothing else touched."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.fix.script_changes import Site
from stash.fix.source import ByWords, Edit, SourceText, edited


def site(text: str, name: str = "DataLoader", kind: str = "loader", columns: bool = True) -> Site:
    """Where the first call of that name stands, as the agent would record it."""
    call = next(
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and name in (getattr(node.func, "id", ""), getattr(node.func, "attr", ""))
    )
    end = (call.end_lineno or 0, call.end_col_offset)
    column = call.col_offset if columns else None
    return Site(kind, "key", "train.py", call.lineno, end[0], column, end[1] if columns else None, {})


def changed(text: str, position: int | None = None, columns: bool = True, **new: object) -> str:
    source = SourceText(text)
    call = source.call(site(text, columns=columns))
    assert call is not None
    edits = [source.argument(call, name, value, position) for name, value in new.items()]
    assert all(isinstance(each, Edit) for each in edits), edits
    return edited(text, [each for each in edits if isinstance(each, Edit)])


def test_a_literal_is_replaced_where_it_stands():
    text = "loader = DataLoader(data, 8, num_workers = 2)  # two\n"
    assert changed(text, num_workers=6) == "loader = DataLoader(data, 8, num_workers = 6)  # two\n"
    assert changed(text, columns=False, num_workers=6).count("= 6") == 1  # Python 3.10 records no columns
    assert changed("DataLoader(d, 8, True, None, None, 2)\n", 5, num_workers=6) == (
        "DataLoader(d, 8, True, None, None, 6)\n"
    )


def test_an_argument_is_added_as_the_others_stand():
    assert changed("x = DataLoader(data)\n", num_workers=6) == "x = DataLoader(data, num_workers=6)\n"
    assert changed("x = DataLoader((data))\n", num_workers=6) == "x = DataLoader((data), num_workers=6)\n"
    assert changed("x = DataLoader(\n    data,\n    8,\n)\n", num_workers=6) == (
        "x = DataLoader(\n    data,\n    8,\n    num_workers=6,\n)\n"
    )
    assert changed("x = DataLoader(\n    data,\n    8  # small\n)\n", num_workers=6) == (
        "x = DataLoader(\n    data,\n    8,\n    num_workers=6  # small\n)\n"
    )
    assert changed("x = DataLoader(\n    data, 8,\n)\n", num_workers=6) == (
        "x = DataLoader(\n    data, 8, num_workers=6,\n)\n"
    )
    assert changed("x = DataLoader(\r\n    data,\r\n    8,\r\n)\r\n", num_workers=6) == (
        "x = DataLoader(\r\n    data,\r\n    8,\r\n    num_workers=6,\r\n)\r\n"
    )
    assert changed("x = DataLoader()\n", num_workers=6) == "x = DataLoader(num_workers=6)\n"


def test_letters_of_several_bytes_before_the_call_do_not_move_the_edit():
    text = 'name = "Größe – 大"; x = DataLoader(data, num_workers=0)\n'
    assert changed(text, num_workers=6) == text.replace("=0", "=6")


def test_a_name_set_once_is_changed_where_it_is_set_unless_others_use_it():
    text = "WORKERS = 2\nx = DataLoader(data, num_workers=WORKERS)\n"
    assert changed(text, num_workers=6) == text.replace("= 2", "= 6")
    shared = text + "y = DataLoader(other, num_workers=WORKERS)\n"
    assert changed(shared, num_workers=6) == shared.replace("=WORKERS", "=6", 1)


def test_values_from_elsewhere_are_told_and_not_written():
    parser = 'p.add_argument("-j", "--workers", type=int)\np.add_argument("--jobs", dest="n")\n'
    for value, found in {
        "args.workers": ByWords("--workers 6"),
        "args.n": ByWords("--jobs 6"),
        "int(args.n)": ByWords("--jobs 6"),
        'cfg["num_workers"]': ByWords("num_workers: 6 in the script's configuration"),
        "cfg.data.num_workers": ByWords("num_workers: 6 in the script's configuration"),
    }.items():
        text = f"{parser}x = DataLoader(data, num_workers={value})\n"
        source = SourceText(text)
        call = source.call(site(text))
        assert call is not None
        assert source.argument(call, "num_workers", 6, None) == found


@pytest.mark.parametrize(
    ("action", "value", "found"),
    [
        ('"store_true"', True, ByWords("--pin")),
        ('"store_true"', False, "the flag --pin says otherwise: leave that out"),
        ('"store_false"', False, ByWords("--pin")),
        ("argparse.BooleanOptionalAction", False, ByWords("--no-pin")),
        ("argparse.BooleanOptionalAction", True, ByWords("--pin")),
    ],
)
def test_flags_are_told_as_they_are_typed(action: str, value: bool, found: object):
    text = f'p.add_argument("--pin", action={action})\nx = DataLoader(data, pin_memory=args.pin)\n'
    source = SourceText(text)
    call = source.call(site(text))
    assert call is not None
    assert source.argument(call, "pin_memory", value, None) == found


def test_an_argument_goes_behind_a_last_one_in_brackets_of_several_lines():
    text = "x = DataLoader(\n    data,\n    sampler=(\n        a if b else None\n    ),\n)\n"
    assert changed(text, num_workers=6) == text.replace("    ),\n", "    ),\n    num_workers=6,\n")


def test_an_option_that_the_script_works_on_is_left_where_the_call_uses_it():
    parser = 'p.add_argument("--workers", type=int)\nargs.workers = args.workers // gpus\n'
    text = f"{parser}x = DataLoader(data, num_workers=args.workers)\n"
    assert changed(text, num_workers=6) == f"{parser}x = DataLoader(data, num_workers=6)\n"


def test_an_argument_beside_those_of_a_mapping_is_the_calls_own():
    text = "x = DataLoader(data, num_workers=2, **options)\n"
    assert changed(text, num_workers=6) == text.replace("=2", "=6")


def test_a_generator_without_brackets_stays_alone():
    text = "x = DataLoader(p for p in model)\n"
    source = SourceText(text)
    call = source.call(site(text))
    assert call is not None
    assert isinstance(source.argument(call, "num_workers", 6, None), str)


@pytest.mark.parametrize(
    "call",
    [
        "DataLoader(data, **options, **more)", "DataLoader(*parts)", "DataLoader(data, num_workers=cpus() // 2)",
        "DataLoader(data, num_workers=n)",
    ],
)  # fmt: skip
def test_what_is_worked_out_while_it_runs_is_not_written(call: str):
    text = f"def build(n):\n    return {call}\n"
    source = SourceText(text)
    node = source.call(site(text))
    assert node is not None
    assert isinstance(source.argument(node, "num_workers", 6, None), str)


def test_a_line_goes_behind_the_imports():
    text = '"""Trains."""\n\nimport os\nimport torch\n\nx = 1\n'
    source = SourceText(text)
    assert source.find_imports("torch")
    edit = source.line_after_imports("torch.backends.cudnn.benchmark = True")
    assert edited(text, [edit]) == (
        '"""Trains."""\n\nimport os\nimport torch\n\ntorch.backends.cudnn.benchmark = True\n\nx = 1\n'
    )


def test_a_line_that_needs_torch_goes_behind_its_import_wherever_that_stands():
    text = 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"\nimport torch\nx = 1\n'
    edit = SourceText(text).line_after_imports("torch.y = True", needs="torch")
    assert edited(text, [edit]) == text.replace("import torch\n", "import torch\n\ntorch.y = True\n")


def test_a_call_that_has_moved_is_not_found():
    text = "x = DataLoader(data)\n"
    assert SourceText("\n" + text).call(site(text)) is None


@given(
    before=st.lists(st.sampled_from(["batch_size=8", "shuffle=True", "drop_last=True"]), unique=True),
    broken=st.booleans(), trailing=st.booleans(), value=st.integers(0, 99),
)  # fmt: skip
def test_whatever_the_call_looks_like_only_that_argument_changes(
    before: list[str], broken: bool, trailing: bool, value: int
):
    between, comma = ("\n    " if broken else " "), ("," if trailing else "")
    inside = f",{between}".join(["data", *before]) + comma
    text = f"x = DataLoader({between.strip(' ')}{inside}{between.strip(' ')})\n"
    after = changed(text, num_workers=value)

    def arguments(source: str) -> dict[str | None, str]:
        call = SourceText(source).call(site(source))
        assert call is not None
        return {each.arg: ast.unparse(each.value) for each in call.keywords}

    assert arguments(after) == {**arguments(text), "num_workers": str(value)}
    added = len(after) - len(text)  # nothing but the argument, its comma and its margin
    assert added <= len(f",\n    num_workers={value},")


@pytest.mark.parametrize(
    ("text", "name", "found"),
    [
        ("loaders = list(map(DataLoader, sets))\n", "list", False),
        ("def __init__(self, data):\n    DataLoader.__init__(self, data, 8, True, None, None)\n", "__init__", False),
        ("def __init__(self, data):\n    super().__init__(data, 8, num_workers=2)\n", "__init__", True),
        ("build = partial(DataLoader, data)\nloader = build(8)\n", "build", True),
    ],
)
def test_a_call_that_has_arguments_before_those_of_what_it_calls_is_not_changed(text: str, name: str, found: bool):
    assert (SourceText(text).call(site(text, name)) is not None) is found


@pytest.mark.parametrize(
    "text",
    [
        "n = 2\nx = [DataLoader(data, num_workers=n) for n in (0, 1)]\n",
        "n = 2\nn, m = 3, 4\nx = DataLoader(data, num_workers=n)\n",
        "n = 2\nfrom config import n\nx = DataLoader(data, num_workers=n)\n",
        "n = 2\nwith limits() as n:\n    x = DataLoader(data, num_workers=n)\n",
    ],
)
def test_a_name_that_something_else_gives_a_value_too_is_not_changed_where_it_is_set(text: str):
    source = SourceText(text)
    call = source.call(site(text))
    assert call is not None
    assert isinstance(source.argument(call, "num_workers", 6, None), str)


def test_a_name_that_had_another_value_as_it_ran_is_left_alone():
    # GIVEN a script that sets its own names from the command line
    text = "n = 0\nexec(open('options.py').read())\nx = DataLoader(data, num_workers=n)\n"
    source = SourceText(text)
    call = source.call(site(text))
    assert call is not None
    # WHEN two workers ran
    edit = source.argument(call, "num_workers", 6, None, now=2)
    # THEN a value where the name is set would be overwritten again
    assert isinstance(edit, Edit)
    assert edited(text, [edit]) == text.replace("workers=n", "workers=6")


def test_none_is_nothing_that_an_option_can_say():
    text = 'p.add_argument("--ahead", type=int)\nx = DataLoader(data, prefetch_factor=args.ahead)\n'
    source = SourceText(text)
    call = source.call(site(text))
    assert call is not None
    assert source.argument(call, "prefetch_factor", None, None) == "None cannot be typed for --ahead"


def test_lines_are_put_in_with_the_files_own_ends():
    text = "import torch\r\nx = 1\r\n"
    assert edited(text, [SourceText(text).line_after_imports("class A:\n    b = 1")]) == (
        "import torch\r\n\r\nclass A:\r\n    b = 1\r\nx = 1\r\n"
    )


def test_a_line_in_a_file_without_imports_goes_behind_what_runs_it():
    text = "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\ndef main():\n    import torch\n"
    after = edited(text, [SourceText(text).line_after_imports("import os")])
    assert after == text.replace("def main", "\nimport os\ndef main")


def test_a_mark_of_utf_8_before_the_text_stays():
    text = "\ufeffx = DataLoader(data, num_workers=0)\ny = DataLoader(other)\n"
    source = SourceText(text)
    call = source.call(site(text.removeprefix("\ufeff")))
    assert call is not None
    edit = source.argument(call, "num_workers", 6, None)
    assert isinstance(edit, Edit)
    assert edited(text, [edit]) == text.replace("=0", "=6")
