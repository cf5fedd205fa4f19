"""The account of an epoch: the step's stalls, and what lies between steps, in seconds of a step and shares of it all.

Takes the ledgers of all ranks: of each row, the slowest rank's time is what it costs everybody. What comes now and
then is shared out over the steps from one time to the next; of what came once, or never, that is said. Start-up is
no part of an epoch. Knows nothing of verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from stash.analysis.epoch_starts import count_ledger_steps, longer_first_steps, occurrences
from stash.analysis.slow_lines import SlowLine, SlowLines, find_slow_lines
from stash.core.intervals import Interval, mean_interval
from stash.core.ladder import DATA_STALLS, EXCHANGE_STALLS, UNTOUCHED, rung
from stash.core.ledger_rows import (
    BACKWARD,
    CHECKPOINT,
    COLLECTIVE,
    COLLECTOR,
    COMPILATION,
    EPOCH_END,
    EPOCH_START,
    EVALUATION,
    INPUT,
    INTERPRETER,
    LOOP,
    NOW_AND_THEN,
    START_UP,
)
from stash.core.records.base import Record
from stash.core.records.profile import Profile, RankLedger
from stash.core.units import format_seconds

COMPUTE = "compute"
CONTENTION = "contention"
IN_COMPUTE = (LOOP, COLLECTOR, COMPILATION, INTERPRETER, COLLECTIVE, INPUT)
"""Rows that the lowest rung contains, and that are no computing of the job's; collectives of the script's own, and
waits for loaders, where no rung goes without them."""
RUN_ROWS = (*IN_COMPUTE, *NOW_AND_THEN)
"""Rows that are none of the step's stalls."""
_MIN_TIMES = 3
"""Occurrences from which an interval is made."""
_TIME_ERROR, _TIME_SHARE = 5e-4, 0.05
"""Half of the method's 95 % interval of one occurrence, whose calls Stash follows, in seconds; and as a part of it, as
caches and clocks are other ones in another launch (``python -m bench.truth.computing``)."""
_DOUBT = 0.5
"""Of a row that was seen once; of one seen n times, less by the root of n."""
_AGREEING = 0.15
"""The same of an epoch's start that the process's first one confirms, if they are no further apart."""
_SLOWER = 1.5
"""Times as long as the other ranks' median, from which a row is one rank's."""
_BETWEEN = "between"
"""The stage of a step's stamps that the loop's own code is in."""
_WORTH_SAYING = 0.05
"""Of a step."""
_STRETCHED = 0.25
"""Of the first steps, lost to other work, from which their own code is stretched as they are."""
_MOST = 0.5
"""Of the loop's own code, that stamps have to see of it: what runs within a step's other stages grows by itself."""
GROWING = 1.25
"""Times what first steps had, from which a row grows."""
_EXAMPLE = 100
"""Steps of an epoch whose length is unknown."""
_OVERDUE = 2.0
"""Times as many steps as between the ones before, after which what has not come again comes less often."""


class RunRow(Record):
    """One row of the account, seconds of a step."""

    name: str
    time: Interval | None
    """With an interval where there are several occurrences, or rounds; ``None`` where it is unknown how often."""
    share: float | None = None
    """Of an epoch's wall."""
    doubt: float = 0.0
    """Where there is no interval: by how much it may be more or less."""
    each: Interval | None = None
    """Of what comes now and then, one occurrence."""
    every: float | None = None
    """… and the steps from one to the next."""
    times: int = 0
    """… and how often it was seen."""
    rank: int | None = None
    """The rank that all others wait for here; ``None`` where ranks are about equal."""
    why: str = ""
    """Why its part of an epoch is unknown."""
    grew: float | None = None
    """How many times as long it is in measured steps as in the first, where that is longer."""

    @property
    def seconds(self) -> float:
        return 0.0 if self.time is None else self.time.value

    @property
    def least(self) -> float:
        """What it takes for certain."""
        low = None if self.time is None else self.time.low
        return self.seconds - self.doubt if low is None else low

    @property
    def most(self) -> float:
        high = None if self.time is None else self.time.high
        return self.seconds + self.doubt if high is None else high

    @property
    def is_between_steps(self) -> bool:
        """Whether it is none of the step's stalls."""
        return self.name in RUN_ROWS


class RunAccount(Record):
    """An epoch: its rows' ``seconds`` add up to ``step_seconds``, a step with its part of what lies between steps."""

    rows: tuple[RunRow, ...]
    """The stalls in ladder order, then the others."""
    step_seconds: float
    epoch_steps: float | None
    startup_seconds: float
    places: tuple[SlowLine, ...] = ()
    """The largest first."""
    unseen: tuple[str, ...] = ()
    """Sentences: what is not in this."""
    computes_on_host: bool = True
    """Elsewhere lines at which the training thread was seen are no devices' work."""

    @property
    def lines(self) -> SlowLines:
        return SlowLines(self.places, self.computes_on_host)

    @property
    def own_seconds(self) -> float:
        """Of a step, what compute contains and the account tells apart."""
        return sum(row.seconds for row in self.rows if row.name in IN_COMPUTE)

    def row(self, name: str) -> RunRow | None:
        return next((row for row in self.rows if row.name == name), None)

    def is_mostly_own_collectives(self, name: str) -> bool:
        """Whether most of a stall is the script's own calls."""
        row = self.row(name) if name in EXCHANGE_STALLS else None
        return (
            row is not None
            and 2 * sum(place.seconds for place in self.lines.own_collectives) > row.seconds
        )

    def place_of_stall(self, name: str) -> SlowLine | None:
        """The line at which steps wait for a stall of theirs; ``None`` where it is spread over them."""
        if self.is_mostly_own_collectives(name):
            return self.lines.own_collectives[0]
        rows = {**dict.fromkeys(DATA_STALLS, INPUT), **dict.fromkeys(EXCHANGE_STALLS, BACKWARD)}
        return self.lines.of_row(rows.get(name, ""))


NO_ACCOUNT = RunAccount(rows=(), step_seconds=0.0, epoch_steps=None, startup_seconds=0.0)
"""Where there are no ledgers."""


def account_for_run(
    profile: Profile,
    stalls: Mapping[str, Interval],
    step_seconds: float,
    lowest: str,
    longer_seconds: float = 0.0,
    lost_share: float = 0.0,
    leader_is_slow: bool = False,
) -> RunAccount | None:
    """The account of a profile with ledgers; ``None`` without.

    ``stalls`` are those of the breakdown by name, ``lowest`` is the rung that contains compute. By ``longer_seconds``
    a step as typed was longer than what was measured; it lost ``lost_share`` to other work, which is doubt. Where
    ``leader_is_slow``, compute is what the other ranks take.
    """
    ledgers = tuple(ledger for ledger in count_ledger_steps(profile) if ledger.timed_steps)
    if not ledgers:
        return None
    growth = _own_code_growth(profile, ledgers, lowest, step_seconds)
    own = _rows_of_steps(ledgers, growth, lost_share, has_input=rung(lowest).reads_data)
    if CONTENTION not in stalls:
        own += _own_collectives(ledgers)
    places = find_slow_lines(ledgers)
    times = {LOOP: growth or 1.0}
    inside = sum(
        _part_under(ledgers, row.name, lowest, leader_is_slow) * times.get(row.name, 1.0)
        for row in own
    )
    lacking = longer_seconds if growth is None else 0.0
    stall_rows, unseen = _subtract_own_code(
        _without_hooks(stalls, inside, SlowLines(places))
        if profile.workload.exchange_hook
        else stalls,
        step_seconds,
        own,
        inside,
        lacking,
        len(ledgers),
    )
    in_step = _no_more_than_contains_it(stall_rows, own, lost_share)
    in_step = _without_work_of_stash(in_step, profile.missed_seconds)
    recurring, starts = _recurring_rows(profile, ledgers, sum(row.seconds for row in in_step))
    rows = [*in_step, *(_add_doubt(row, lost_share) for row in recurring)]
    whole = sum(row.seconds for row in rows)
    if whole <= 0:  # stalls that were measured as negative
        return None
    epoch_steps = next((each.epoch_steps for each in ledgers if each.epoch_steps), None)
    return RunAccount(
        rows=tuple(
            row if row.time is None else row.model_copy(update={"share": row.seconds / whole})
            for row in rows
        ),
        step_seconds=whole,
        epoch_steps=_steps_apart(starts) or epoch_steps,
        startup_seconds=max(ledger.seconds_of(START_UP) for ledger in ledgers),
        places=places,
        unseen=(*unseen, *_list_unseen(ledgers, starts, epoch_steps)),
        computes_on_host=profile.is_on_cpu,
    )


def _add_doubt(row: RunRow, share: float) -> RunRow:
    """Less certain by that share of it, where no interval says how much it varies."""
    return row.model_copy(update={"doubt": max(row.doubt, share * row.seconds)})


# Rows of every step


def _rows_of_steps(
    ledgers: Sequence[RankLedger], growth: float | None, lost_share: float, has_input: bool
) -> list[RunRow]:
    """Those that compute contains; of the loop's own code as long as it is in measured steps."""
    found = []
    for name in IN_COMPUTE:
        if name == COLLECTIVE or (name == INPUT and not has_input):
            continue
        row = _row_of_steps(ledgers, name)
        if row is None:
            continue
        row = _add_doubt(row, lost_share)
        if name == LOOP and growth is not None and growth > GROWING:
            time, doubt = Interval(value=row.seconds * growth), row.doubt * growth
            row = row.model_copy(update={"time": time, "doubt": doubt, "grew": growth})
        found.append(row)
    return found


def _row_of_steps(ledgers: Sequence[RankLedger], name: str) -> RunRow | None:
    seconds, rank = _slowest({ledger.rank: ledger.timed_seconds_of(name) for ledger in ledgers})
    if seconds <= 0:
        return None
    count = min(ledger.timed_steps for ledger in ledgers)
    if name in (COLLECTOR, COMPILATION):
        count = max(1, *(ledger.times_in_steps(name) for ledger in ledgers))
    found = _occurrences(ledgers, name).values()
    return RunRow(
        name=name,
        time=Interval(value=seconds),
        doubt=_DOUBT * seconds / math.sqrt(count),
        each=Interval(value=fmean(found)) if found else None,
        times=len(found),
        rank=rank,
    )


def _own_collectives(ledgers: Sequence[RankLedger]) -> list[RunRow]:
    """The row of those that lines of the script call, if there are any."""
    seconds = _own_collective_seconds(ledgers)
    if seconds <= 0:
        return []
    doubt = _DOUBT * seconds / math.sqrt(min(ledger.timed_steps for ledger in ledgers))
    return [RunRow(name=COLLECTIVE, time=Interval(value=seconds), doubt=doubt)]


def _own_collective_seconds(ledgers: Sequence[RankLedger]) -> float:
    """Of a step, as long as the rank that comes last takes for them: others wait for it, too.

    Those that a library calls, as for shards, have no line of the script.
    """
    seen = (
        sum(place.seconds for place in ledger.places if place.row == COLLECTIVE)
        / ledger.timed_steps
        for ledger in ledgers
    )
    return min(map(min, seen, (ledger.timed_seconds_of(COLLECTIVE) for ledger in ledgers)))


def _own_code_growth(
    profile: Profile, ledgers: Sequence[RankLedger], lowest: str, step_seconds: float
) -> float | None:
    """How many times as long the loop's own code takes in measured steps as in the first; ``None`` if unknown.

    Checkpoints and evaluations that first steps had between them would count for it, and what ranks wait for others;
    of a loop that takes next to nothing, and of code that some blocks have and others do not, the quotient says nothing.
    """
    loop = ledgers[0].timed_seconds_of(LOOP)
    has_more = any(ledgers[0].times_in_steps(name) for name in (EVALUATION, CHECKPOINT))
    if len(ledgers) > 1 or has_more or loop < _WORTH_SAYING * step_seconds:
        return None
    blocks = profile.blocks
    later = [each for each in blocks if each.rung == lowest and _BETWEEN in each.stage_seconds]
    ranks = {block.rank for block in later}
    first = [each for each in blocks if each.rung == UNTOUCHED.name and each.rank in ranks]
    steps = sum(block.steps for block in first)
    before = sum(block.stage_seconds.get(_BETWEEN, 0.0) for block in first)
    before -= sum(row.timed_seconds for row in ledgers[0].rows if row.row == EPOCH_END)
    if not later or before < _MOST * steps * loop:
        return None
    each = [block.stage_seconds[_BETWEEN] / block.steps for block in later]
    now, mean = median(each), fmean(each)
    if not mean / GROWING < now < mean * GROWING:
        return None  # it comes now and then
    return now / (before / steps)


def _slowest(by_rank: Mapping[int, float]) -> tuple[float, int | None]:
    slowest = max(by_rank, key=lambda rank: by_rank[rank])
    others = [seconds for rank, seconds in by_rank.items() if rank != slowest]
    alone = bool(others) and by_rank[slowest] > _SLOWER * median(others)
    return by_rank[slowest], slowest if alone else None


def _subtract_own_code(
    stalls: Mapping[str, Interval],
    step_seconds: float,
    own: Sequence[RunRow],
    inside: float,
    lacking: float,
    ranks: int,
) -> tuple[list[RunRow], list[str]]:
    """The stalls as rows, without what the ledger has rows of its ``own`` for, and sentences where that is too much.

    The lowest rung contains ``inside`` of it, which is what the ranks do that run under it; what the slowest does
    beyond that is contention. What was measured may be ``lacking`` some of the loop, by as much as it is shorter than
    a step as typed.
    """
    beyond = sum(row.seconds for row in own) - inside if ranks > 1 else 0.0
    inside = max(0.0, inside - lacking)
    doubt = math.hypot(*(row.doubt for row in own)) if own else 0.0
    if CONTENTION not in stalls:
        inside = inside + beyond
        beyond = 0.0
    less = {COMPUTE: inside, CONTENTION: beyond}
    rows = []
    unseen = []
    for name, time in stalls.items():
        left = less.get(name, 0.0)
        shifted = time if not left else time.shift(-left).add_error(doubt)
        if left and shifted.value < 0:
            unseen.append(
                f"The script's own code took {format_seconds(left)} of a step as typed, more than the "
                f"{format_seconds(time.value)} of {name} that contain it, so no more is counted."
            )
        unknown = max(0.0, step_seconds - shifted.value) if shifted.low is None else 0.0
        rows.append(RunRow(name=name, time=shifted, doubt=unknown))
    return rows, unseen


def _without_hooks(
    stalls: Mapping[str, Interval], inside: float, lines: SlowLines
) -> dict[str, Interval]:
    """Stalls of which compute has what exchanges contain of the script's own code, of which there is ``inside``.

    Functions of its own that exchange gradients (``register_comm_hook``) do not run where nothing is exchanged: what
    is more than compute is theirs where most of it was seen in them.
    """
    if COMPUTE not in stalls:
        return dict(stalls)
    left = inside - stalls[COMPUTE].value
    if 2 * lines.seconds_in_hooks < left:
        return dict(stalls)
    found = dict(stalls)
    for name in EXCHANGE_STALLS:
        part = min(left, stalls[name].value) if name in stalls else 0.0
        if part > 0:
            found[name], found[COMPUTE] = stalls[name].shift(-part), found[COMPUTE].shift(part)
            left -= part
    return found


def _no_more_than_contains_it(
    stalls: Sequence[RunRow], own: Sequence[RunRow], lost_share: float
) -> list[RunRow]:
    """The rows of a step: of the script's ``own`` code what is longer than what contains it goes, and is its doubt.

    Other work that stretched it took about the share that the first steps lost to it.
    """
    whole = sum(row.seconds for row in own)
    below = {r.name: max(0.0, -r.seconds) for r in stalls if r.name in (COMPUTE, CONTENTION)}
    if whole <= 0 or not (any(below.values()) or lost_share > _STRETCHED):
        return [*stalls, *own]
    gone = min(1.0, max(sum(below.values()) / whole, lost_share))
    back = {**below, COMPUTE: gone * whole - below.get(CONTENTION, 0.0)}

    def change(row: RunRow) -> RunRow:
        if row.time is None:
            return row
        if row.name not in IN_COMPUTE:
            return row.model_copy(update={"time": row.time.shift(back.get(row.name, 0.0))})
        doubt = max(row.doubt, gone * row.seconds)
        return row.model_copy(update={"time": row.time.scale(1 - gone), "doubt": doubt})

    return [change(row) for row in (*stalls, *own)]


def _without_work_of_stash(rows: Sequence[RunRow], missed: float) -> list[RunRow]:
    """The same, but of the loop's own code ``missed`` seconds are Stash's; all of it may be.

    Compute has lost them with the rest of that code: measured steps contain as much.
    """

    def change(row: RunRow) -> RunRow | None:
        if row.name != LOOP or row.time is None:
            return row
        if row.seconds <= missed:
            return None
        doubt = max(row.doubt, missed)
        return row.model_copy(update={"time": row.time.shift(-missed), "doubt": doubt})

    return [row for row in map(change, rows) if row is not None]


def _part_under(
    ledgers: Sequence[RankLedger], name: str, lowest: str, leader_is_slow: bool
) -> float:
    """Of a row, what the lowest rung's steps contain: the leader's part, the slowest rank's, or all ranks' mean.

    Of a slow leader, what it takes longer than the others has been taken out of them.
    """
    if name == COLLECTIVE:
        return _own_collective_seconds(ledgers)
    seconds = [
        ledger.timed_seconds_of(name) for ledger in sorted(ledgers, key=lambda ledger: ledger.rank)
    ]
    if rung(lowest).active == "leader":
        return median(seconds[1:]) if leader_is_slow and len(seconds) > 1 else seconds[0]
    return sum(seconds) / len(seconds) if rung(lowest).exchanges else max(seconds)


# Rows that come now and then


def _occurrences(ledgers: Sequence[RankLedger], name: str) -> dict[int, float]:
    """Seconds of each by the step after which it began: of several at once the sum, of ranks the slowest."""
    found: dict[int, float] = {}
    for ledger in ledgers:
        for at, seconds in occurrences(ledger, name).items():
            found[at] = max(seconds, found.get(at, 0.0))
    return dict(sorted(found.items()))


def _steps_apart(found: Mapping[int, float]) -> float | None:
    """Steps from one occurrence to the next; ``None`` of a single one."""
    return (max(found) - min(found)) / (len(found) - 1) if len(found) > 1 else None


def _recurring_rows(
    profile: Profile, ledgers: Sequence[RankLedger], in_steps: float
) -> tuple[list[RunRow], dict[int, float]]:
    """Rows that come now and then, and when epochs began; ``in_steps`` is what a step takes by itself.

    One that came once, after n steps, is taken to come every n, unless it then did not. Without a length of the epoch
    there is a formula.
    """
    asked = _occurrences(ledgers, EPOCH_START)
    longer = longer_first_steps(profile).values()
    # what steps after an epoch's start take longer is a part of it
    starts = {
        at: seconds + max((by_step[at] for by_step in longer if at in by_step), default=0.0)
        for at, seconds in asked.items()
    }
    found = [_epoch_start(profile, asked, starts, ledgers)] if starts else []
    for name in NOW_AND_THEN[1:]:
        times = _occurrences(ledgers, name)
        if times:
            every = _steps_apart(times) or max(times) or None
            row = _shared_out(name, _without_first(list(times.values())), every)
            since = _steps_since(ledgers, name, max(times))
            is_overdue = since > _OVERDUE * (every or since)
            found.append(_not_again(row, since, in_steps) if is_overdue else row)
    rows = []
    for row in found:
        _, rank = _slowest({ledger.rank: ledger.seconds_of(row.name) for ledger in ledgers})
        why = row.why
        if row.time is None and not why and row.each is not None:
            share = row.each.value / (row.each.value + _EXAMPLE * in_steps)
            each = format_seconds(row.each.value)
            why = (
                f"{each} each time, and how often is unknown: {share:.0%} if every {_EXAMPLE} steps"
            )
        rows.append(row.model_copy(update={"rank": rank, "why": why}))
    return rows, starts


def _epoch_start(
    profile: Profile,
    asked: Mapping[int, float],
    found: Mapping[int, float],
    ledgers: Sequence[RankLedger],
) -> RunRow:
    """The first is no measure of later ones where a loader keeps its workers; elsewhere it stands for them.

    ``found`` are those ``asked`` for with their longer first steps. Later ones that the first confirms are doubted
    by no more than all of them differ.
    """
    first, *later = found.values()
    loaders = profile.workload.loaders
    keeps = any(each.workers and each.persistent_workers and not each.remade for each in loaders)
    if not later and keeps:
        why = f"only the first was seen ({format_seconds(first)}), and its loader keeps its workers"
        return RunRow(name=EPOCH_START, time=None, each=Interval(value=first), times=1, why=why)
    length = next((ledger.epoch_steps for ledger in ledgers if ledger.epoch_steps), None)
    row = _shared_out(EPOCH_START, later or [first], _steps_apart(found) or length)
    if keeps or not later or row.each is None or row.every is None:
        return row
    apart = max(_AGREEING * row.each.value, max(asked.values()) - min(asked.values()))
    return row.model_copy(update={"doubt": min(row.doubt, apart / row.every)})


def _steps_since(ledgers: Sequence[RankLedger], name: str, last: int) -> int:
    """Steps after a row's ``last`` occurrence; 0 where later ones were counted, and not told one by one."""
    rows = (row for ledger in ledgers for row in ledger.rows if row.row == name)
    if any(row.times > len(row.each) for row in rows):
        return 0
    return min(ledger.steps for ledger in ledgers) - last


def _not_again(row: RunRow, since: int, in_steps: float) -> RunRow:
    """Of a row that did not come again as often as before: not in ``since`` steps, which bounds what it takes."""
    assert row.each is not None
    most = row.each.value / (row.each.value + since * in_steps)
    why = f"{format_seconds(row.each.value)} each time, and not again in {since:,} steps: at most {most:.0%}"
    return row.model_copy(update={"time": None, "every": None, "doubt": 0.0, "why": why})


def _without_first(seconds: Sequence[float]) -> Sequence[float]:
    """Occurrences that stand for later ones: the first makes files and imports, as no other does."""
    return seconds[1:] if len(seconds) > _MIN_TIMES else seconds


def _shared_out(name: str, seconds: Sequence[float], every: float | None) -> RunRow:
    each = mean_interval(seconds)
    if len(seconds) < _MIN_TIMES:
        each = Interval(value=each.value)
    each = each.add_error(math.hypot(_TIME_ERROR, _TIME_SHARE * each.value))
    time = None if every is None else each.scale(1 / every)
    doubt = 0.0 if time is None else _DOUBT * time.value / math.sqrt(len(seconds))
    return RunRow(name=name, time=time, each=each, every=every, times=len(seconds), doubt=doubt)


# Places, and what was not seen


def _list_unseen(
    ledgers: Sequence[RankLedger], starts: Mapping[int, float], epoch_steps: int | None
) -> list[str]:
    found = []
    if not starts:
        found.append("No loader was seen to begin an epoch: epoch starts are not in this.")
    elif len(starts) == 1:
        length = f", of {epoch_steps} steps," if epoch_steps else ""
        found.append(
            f"No epoch's end was seen{length} so what comes after an epoch is not in this."
        )
    unplaced = next((ledger.unplaced for ledger in ledgers if ledger.unplaced), "")
    if unplaced:
        found.append(f"Lines of the script are unknown: {unplaced}.")
    return found
