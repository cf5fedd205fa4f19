"""The table that docs/compatibility.md sums up, from rows that were measured. Measures nothing."""

_HEAD = (
    "project",
    "version",
    "command",
    "rungs",
    "plain step",
    "profiled step",
    "",
    "as typed",
    "input: truth",
    "prep says",
    "",
    "verdict",
    "unknown, and why",
    "trouble",
    "on",
)
_NOISE, _TOO_NOISY, _RIGHT = 0.1, 0.25, 0.15
_OF_THE_MACHINE = ("one device", "one node", "the job runs on CPUs")
"""Reasons that say nothing of the project."""


def markdown(rows):
    """The whole table."""
    return "\n".join([_line(_HEAD), "|" + "---|" * len(_HEAD), *map(line, rows)])


def line(row):
    """One row."""
    unknown = {
        name: why for name, why in row.unknown.items() if not why.startswith(_OF_THE_MACHINE)
    }
    what = (row.project, row.version, f"`{row.command}`", ", ".join(row.rungs))
    steps = (
        " / ".join(map(_ms, row.plain)),
        _ms(row.profiled) if row.profiled is not None else "",
        _verdict(row),
    )
    steps += ("" if row.typed is None else f"{row.typed:+.0%}", *_input(row), row.verdict)
    why = "; ".join(f"{name}: {reason}" for name, reason in unknown.items())
    return _line((*what, *steps, why, "; ".join(row.trouble), row.day))


def _input(row):
    """What a step's input costs: plain steps less those on one batch again and again; what Stash says; whether right.

    Right is within 15 % of the step, or within Stash's own interval.
    """
    if row.replayed is None or row.prep is None or not row.plain:
        return "", "", ""
    step = sum(row.plain) / len(row.plain)
    truth, (value, low, high) = step - row.replayed, row.prep
    if max(row.plain) / min(row.plain) - 1 > _TOO_NOISY:
        right = "too noisy to compare"
    else:
        right = "right" if abs(value - truth) <= _RIGHT * step or low <= truth <= high else "wrong"
    return f"{truth / step:.0%}", f"{value / step:.0%}", right


def _line(cells):
    return "| " + " | ".join((cell or "–").replace("|", "\\|") for cell in cells) + " |"


def _ms(seconds):
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"


def _verdict(row):
    """How the profiled step compares with the plain ones; nothing where either is too noisy to tell."""
    if not row.plain or row.profiled is None:
        return ""
    apart = max(row.plain) / min(row.plain) - 1
    if max(apart, (row.half_width or 0.0) / row.profiled) > _TOO_NOISY:
        return "too noisy to compare"
    slack = _NOISE * max(row.plain) + (row.half_width or 0.0)
    within = min(row.plain) - slack <= row.profiled <= max(row.plain) + slack
    return "same" if within else f"× {row.profiled * len(row.plain) / sum(row.plain):.2f}"
