"""A plan as GitHub's Markdown, to paste into a ticket: the verdict, the dollars, the choices; the rest folded.

Whatever comes from an artefact or a price list is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stash.plan.view import ChoiceLine, MoneyPart, PlanView
from stash.ui.markdown import END_OF_FOLD, OTHER_SQUARE, SQUARES, escaped, folded, small

_WIDTH = 40
"""Squares of the bar."""


def render(view: PlanView) -> str:
    """The whole note, ending in a newline."""
    return "\n".join(_note(view)).strip("\n") + "\n"


def _note(view: PlanView) -> Iterator[str]:
    yield f"### What to rent for {escaped(view.title)}"
    yield ""
    yield escaped(view.question)
    yield ""
    yield f"**{escaped(view.verdict)}**"
    if view.relaxations:
        yield ""
        yield from (f"- {escaped(f'`{option}`')}: {escaped(text)}" for option, text in view.relaxations)
    if view.parts:
        yield from _bill(view)
    yield from _choices(view.lines)
    if view.more:
        yield ""
        yield escaped(view.more)
    if view.rules:
        rows = [(rule.rule, rule.rents, rule.dollars, rule.time, rule.remark) for rule in view.rules]
        yield from _table(("how people choose today", "would rent", "costs more", "takes", ""), rows)
    for sentence in view.warnings:
        yield ""
        yield f"⚠️ {escaped(sentence)}"
    if view.facts:
        yield ""
        yield folded("Assumptions, and what else to know")
        yield ""
        for label, text in view.facts:
            yield f"- **{escaped(label)}**: {escaped(text)}"
        yield ""
        yield END_OF_FOLD
    yield ""
    yield small(escaped(view.footer))


def _bill(view: PlanView) -> Iterator[str]:
    shown = [part for part in view.parts if part.fraction > 0]
    whole, reached, drawn, bar = sum(part.fraction for part in shown), 0.0, 0, ""
    for part in shown:
        reached += part.fraction
        upto = round(reached / whole * _WIDTH)
        bar += _square(part) * (upto - drawn)
        drawn = upto
    yield ""
    yield f"{escaped(view.bill)}: {bar}"
    yield ""
    yield " · ".join(
        f"{_square(part)} {escaped(part.name)} {escaped(part.dollars)} ({escaped(part.share)})" for part in view.parts
    )


def _square(part: MoneyPart) -> str:
    return SQUARES.get(part.series, OTHER_SQUARE)


def _choices(lines: Sequence[ChoiceLine]) -> Iterator[str]:
    heads = ("", "what", "time", "cost", "on time", "in budget", "largest stall", "why")
    rows = [
        (line.word, line.name, line.time, line.cost, line.on_time, line.in_budget, line.stall, line.why)
        for line in lines
    ]
    told = [number for number in range(len(heads)) if any(row[number] for row in rows)]
    if rows:
        yield from _table([heads[n] for n in told], [[row[n] for n in told] for row in rows])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield f"| {' | '.join(map(escaped, heads))} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(map(escaped, row))} |"
