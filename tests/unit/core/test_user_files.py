"""Files that people write: every mistake with its line and field, in one form, whatever the model; and the bounds."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from stash.core.errors import UserError
from stash.core.units import parse_rate
from stash.core.user_files import MAX_CHARACTERS, load_rows, loads, quantity


class Lax(BaseModel):
    """Ignores what it does not know, as records do."""

    rate: Annotated[float | None, quantity(parse_rate, bare=True)] = None
    name: str = ""


class First(BaseModel):
    kind: Literal["first"]
    size: int


class Second(BaseModel):
    kind: Literal["second"]
    weight: float = 1.0


class Whole(BaseModel):
    parts: tuple[Lax, ...] = ()
    one: Lax | None = None
    either: tuple[Annotated[First | Second, Field(discriminator="kind")], ...] = ()
    count: Annotated[int, Field(ge=1)] = 1


def mistakes(text):
    with pytest.raises(UserError) as caught:
        loads(text, "a.yaml", Whole)
    return str(caught.value).splitlines()


def test_what_is_right_is_the_model_and_knows_its_lines():
    file = loads("count: 2\nparts:\n- rate: 1GB/s\n- {rate: 5}\n", "a.yaml", Whole)
    assert [part.rate for part in file.content.parts] == [1e9, 5.0]
    assert (
        str(file.mistake(("parts", 1, "rate"), "is wrong")) == "a.yaml:4: parts[1].rate: is wrong"
    )
    assert file.line(("parts", 0, "name")) == 3  # of the nearest value around it


def test_what_is_no_number_is_said_without_the_readers_own_words():
    assert mistakes("count: many\n") == ["a.yaml:1: count: should be a valid integer"]


def test_all_mistakes_are_named_in_the_order_of_lines():
    assert mistakes(
        "one: {nam: x}\ncount: 0\nparts:\n- rate: fast\neither: [{kind: first}, {kind: third}]\n"
    ) == [
        "a.yaml:1: one.nam: there is no such field; did you mean name?",
        "a.yaml:2: count: should be greater than or equal to 1",
        'a.yaml:4: parts[0].rate: cannot read the rate \'fast\'; write it like "10gbit" or "1.2GB/s"',
        "a.yaml:5: either[0].size: is missing",
        "a.yaml:5: either[1].kind: there is no such kind; use one of first, second",
    ]


def test_an_unknown_name_is_a_mistake_even_where_the_model_would_ignore_it():
    assert mistakes("either: [{kind: second, wieght: 3}]") == [
        "a.yaml:1: either[0].wieght: there is no such field; did you mean weight?"
    ]
    assert mistakes("zzz: 1")[0] == (
        "a.yaml:1: zzz: there is no such field; there are parts, one, either, count"
    )
    assert mistakes("either: [{}]") == ["a.yaml:1: either[0]: needs `kind:`, one of first, second"]


def test_of_very_many_mistakes_twenty_are_named():
    found = mistakes("parts:\n" + "- {rate: fast}\n" * 30)
    assert (len(found), found[-1]) == (21, "and 10 more mistakes")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &a [*a]", "a value contains itself"),
        ("a: " + "[" * 600, "nested too deep"),
        (
            "- &a x\n"
            + "".join(
                f"- &a{n} [{', '.join(['*a' if n == 0 else f'*a{n - 1}'] * 9)}]\n" for n in range(9)
            ),
            "it stands for more than 50000 values",
        ),
        ("a" * (MAX_CHARACTERS + 1), "it is longer than 131072 characters"),
        ("a: " + "b" * 10_001, "a value is longer than 10000 characters"),
        ("[1]: 2", "a name is no plain text"),
        ("a: 1\na: 2", "a.yaml:2: it is not valid YAML: 'a' is given twice"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
)
def test_yaml_beyond_the_bounds_is_refused(text, why):
    (found,) = mistakes(text)
    assert "it is not valid YAML" in found
    assert why in found


class Row(BaseModel):
    name: Annotated[str, Field(min_length=1, examples=["a100"])]
    dollars: Annotated[float, Field(ge=0, examples=["3.06"])]


def test_rows_are_models_with_their_lines(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("\ufeffnote, dollars ,name\nx,1, k80 \n\ny,2.5,v100\n")
    assert [
        (line, row.name, row.dollars) for line, row in load_rows(file, Row, "prices", "see here")
    ] == [
        (2, "k80", 1.0),
        (4, "v100", 2.5),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "name,dollar\na,1\n",
            "has no column dollars (dollar is another); its first line has to be name,dollars",
        ),
        ("name,dollars\n", "has 0 lines below its first; it needs 1 to 3, like a100,3.06"),
        ("name,dollars\n" + "a,1\n" * 4, "has 4 lines below its first"),
        (
            "name,dollars\n,x\n",
            ":2: name: '' should have at least 1 character; write it like a100\n",
        ),
        (
            "name,dollars\na,-1\n",
            ":2: dollars: '-1' should be greater than or equal to 0; write it like 3.06",
        ),
        ('name,dollars,note\na,1,"of\ntwo lines"\nb,-1,\n', "a.csv:4: dollars: '-1' should be"),
    ],
)
def test_a_mistake_in_a_row_has_its_line_column_and_an_example(tmp_path, text, why):
    file = tmp_path / "a.csv"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_rows(file, Row, "prices", "see here", most=3)
    assert why in str(caught.value)
