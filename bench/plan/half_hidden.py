"""A published table of which a part is hidden: the split, and forecasts of what is hidden from what is not.

What a model takes on one set-up over another is worked out as Stash does it for two GPUs
(``stash.predict.gpu_pairs``): by the model's own pairs at other batches, else by the exchange on links whose data
sheet is known, else between single GPUs by ``gpu_scale``, else by other models' pairs, else by data sheets. Each has
the interval of its own errors within the visible part. Only that part is handed to a ``Known``, and what other
sources published; the hidden numbers are not in its memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np

from bench.plan.tables import Cells, Job, Setup
from bench.predict import published as links
from stash.catalog.facts import GpuFacts
from stash.catalog.reference import Speed, model_key, speeds
from stash.predict import compute_ratios
from stash.predict.draws import Array, Draws
from stash.predict.gpu_pairs import Pair, arm, by_model, left_out_errors, near, pairs
from stash.predict.gpu_scale import GpuCell, GpuScale, peak, sheets

Table = Mapping[Job, Cells]
DRAWS = Draws()
FEW = 3
"""Models: with fewer of a pair of set-ups how models differ is unknown, and all pairs' errors are taken."""
PLATEAU = 0.95
"""Of the most that was seen trained, or made: what lies above counts as all of it."""
GAVEL = "Gavel (OSDI 2020)"
"""What is published of whole jobs, which all of these tables are."""
UNKNOWN = math.log(10)
"""Half of an interval where fewer errors than that are visible: a factor of ten either way."""


def half_of_cells(table: Table, seed: int) -> Table:
    """What stays visible: each job's cells are shuffled, and the first half of them kept, one at least."""
    random = np.random.default_rng(seed)
    found = {}
    for job, cells in table.items():
        order = random.permutation(len(cells))[: max(1, len(cells) // 2)]
        setups = list(cells)
        found[job] = {setups[number]: cells[setups[number]] for number in sorted(order)}
    return found


def half_of_models(table: Table, seed: int) -> Table:
    """What stays visible: all of one half of the models, and of the others one cell a job, on the fewest GPUs."""
    random = np.random.default_rng(seed)
    models = sorted({model_key(job.model) for job in table})
    hidden = {models[number] for number in random.permutation(len(models))[: (len(models) + 1) // 2]}
    return {job: _first(cells) if model_key(job.model) in hidden else dict(cells) for job, cells in table.items()}


def _first(cells: Cells) -> Cells:
    setup = min(cells, key=lambda each: (each.count, each.dollars_per_hour, each.name))
    return {setup: cells[setup]}


@dataclass(frozen=True, eq=False)
class Known:
    """The visible part of a table, and what it says of the rest."""

    visible: Table

    def seconds_per_sample(self, job: Job, setup: Setup) -> Array | None:
        """Of a hidden cell, ``[draws]``; ``None`` if nothing visible tells."""
        ways = (self._by_own_pairs, self._by_cores, self._by_links)
        for way in (*ways, self._by_scale, self._by_other_models, self._by_sheets):
            known = way(job, setup)
            if known is not None:
                middle, half = known
                deviations = DRAWS.normals(f"{job.name} on {setup.name}")
                return np.exp(middle + half / 1.96 * deviations)
        return None

    def _by_own_pairs(self, job: Job, setup: Setup) -> tuple[float, float] | None:
        def own(pair: Pair) -> bool:
            return pair.model == model_key(job.model) and near(pair.batch, job.batch)

        return self._by_pairs(job, setup, own, lambda found: self._spread_within)

    def _by_other_models(self, job: Job, setup: Setup) -> tuple[float, float] | None:
        return self._by_pairs(job, setup, lambda pair: pair.model != model_key(job.model), self._spread_between)

    def _by_pairs(
        self, job: Job, setup: Setup, like: Callable[[Pair], bool], spread: Callable[[Sequence[Pair]], float]
    ) -> tuple[float, float] | None:
        """(ln seconds, half of its interval): of every visible cell of the job that has such pairs, the surest's."""
        known = []
        for seen, rate in self.visible[job].items():
            found = [pair for pair in self._pairs(seen, setup, job.precision) if like(pair)]
            if found:
                known.append((by_model(found) - math.log(rate), spread(found)))
        return min(known, key=lambda each: each[1], default=None)

    def _by_cores(self, job: Job, setup: Setup) -> tuple[float, float] | None:
        """Cores make samples at the rate that they were seen to, up to what the GPU trains."""
        rate = _supplied(self.visible[job], setup)
        return None if rate is None else (-math.log(rate), self._spread_of_cores)

    def _by_links(self, job: Job, setup: Setup) -> tuple[float, float] | None:
        """One GPU of the same machine, and the exchange over its links, as forecasts without a profile do."""
        machine = links.MACHINES.get(setup.machine)
        alone = next((s for s in self.visible[job] if s.machine == setup.machine and s.count == 1), None)
        if machine is None or alone is None or setup.count == 1:
            return None
        step = 1 / self.visible[job][alone]
        samples = float(job.batch or 128)
        whole = _step_on_links(job, step * samples, setup.machine, setup.nodes, setup.count) / samples / setup.count
        logs = np.log(whole)
        return float(logs.mean()), 1.96 * float(logs.std())

    def _by_scale(self, job: Job, setup: Setup) -> tuple[float, float] | None:
        """One GPU from one of another kind, by the product's scale fitted to what is visible and to other sources."""
        known = []
        for seen, rate in self.visible[job].items():
            if seen.count == setup.count == 1 and seen.machine == setup.machine and seen.gpu != setup.gpu:
                first, second = (
                    GpuCell(model_key(job.model), each.facts, job.precision, whole=True) for each in (seen, setup)
                )
                ratio, deviation = self._scale.ratio(first, second)
                known.append((ratio - math.log(rate), 1.96 * deviation))
        return min(known, key=lambda each: each[1], default=None)

    @cached_property
    def _scale(self) -> GpuScale:
        sources = {row.source.split(",")[0].split(" (")[0] for row in speeds()}
        own = {name for name in sources for job in self.visible if name.startswith(job.source.split(",")[0])}
        others = [row for row in speeds() if row.source.split(",")[0].split(" (")[0] not in own]
        singles = [
            Speed(job.model, job.batch, job.precision, setup.gpu, rate, None, GAVEL, f"{job.source} {setup.machine}")
            for job, cells in self.visible.items()
            for setup, rate in cells.items()
            if setup.count == 1
        ]
        return GpuScale([*others, *singles], sheets())

    def _by_sheets(self, job: Job, setup: Setup) -> tuple[float, float] | None:
        """Peak rates of the GPUs, and as many times as fast as there are more of them."""
        ratios = [
            ratio - math.log(rate)
            for seen, rate in self.visible[job].items()
            if (ratio := _of_sheets(seen, setup, job.precision)) is not None
        ]
        return (float(np.mean(ratios)), self._spread_of_sheets) if ratios else None

    @cached_property
    def _speeds(self) -> tuple[Speed, ...]:
        return tuple(
            Speed(job.model, job.batch, job.precision, setup.name, rate, None, job.source, job.source)
            for job, cells in self.visible.items()
            for setup, rate in cells.items()
        )

    @cached_property
    def _every_pair(self) -> dict[tuple[str, str, str], tuple[Pair, ...]]:
        """Of each two set-ups that are visible together."""
        setups = sorted({speed.gpu for speed in self._speeds})
        by_setup: dict[str, list[Speed]] = defaultdict(list)
        for speed in self._speeds:
            by_setup[speed.gpu].append(speed)
        return {
            (first, second, precision): pairs(first, second, precision, by_setup[first] + by_setup[second])
            for first, second in combinations(setups, 2)
            for precision in ("fp32", "amp")
        }

    def _pairs(self, first: Setup, second: Setup, precision: str) -> tuple[Pair, ...]:
        ordered = first.name < second.name
        key = (first.name, second.name) if ordered else (second.name, first.name)
        found = self._every_pair.get((*key, precision), ())
        return found if ordered else tuple(pair._replace(log_ratio=-pair.log_ratio) for pair in found)

    @cached_property
    def _spread_within(self) -> float:
        """Of a model's pair against its pairs at other batches, each left out in turn."""
        errors = []
        for found in self._every_pair.values():
            for pair in found:
                alike = [p for p in found if p != pair and p.model == pair.model and near(p.batch, pair.batch)]
                errors += [by_model(alike) - pair.log_ratio] if alike else []
        return _arm(errors)

    def _spread_between(self, found: Sequence[Pair]) -> float:
        """Never below what pairs anywhere showed: of few models a pair's own errors are small by luck."""
        own = left_out_errors(found)
        return max(arm(own) if len(own) >= FEW else 0.0, self._spread_anywhere)

    @cached_property
    def _spread_anywhere(self) -> float:
        return _arm([error for found in self._every_pair.values() for error in left_out_errors(found)])

    @cached_property
    def _spread_of_cores(self) -> float:
        errors = []
        for cells in self.visible.values():
            for setup, rate in cells.items():
                supplied = _supplied({each: seen for each, seen in cells.items() if each != setup}, setup)
                errors += [math.log(rate / supplied)] if supplied else []
        return _arm(errors)

    @cached_property
    def _spread_of_sheets(self) -> float:
        return _arm([
            ratio - math.log(cells[first] / cells[second])
            for job, cells in self.visible.items()
            for first, second in combinations(cells, 2)
            if (ratio := _of_sheets(first, second, job.precision)) is not None
        ])  # fmt: skip


def _arm(errors: Sequence[float]) -> float:
    """Half of the interval of errors; next to nothing is known from few of them."""
    return arm(errors) if len(errors) >= FEW else UNKNOWN


def _supplied(seen: Mapping[Setup, float], setup: Setup) -> float | None:
    """Samples per second with this many cores: DS-Analyzer's min(P, G), as the queue of workers is for equal batches.

    P is known from fewer cores than the GPU could use, G from more; ``None`` where the one that is asked for is not.
    """
    known = {each.cores: rate for each, rate in seen.items() if each.cores is not None}
    if setup.cores is None or not known:
        return None
    trained = max(known.values())
    waiting = {cores: rate for cores, rate in known.items() if rate < PLATEAU * trained}
    enough = [cores for cores in known if cores not in waiting]
    made = max((rate / cores for cores, rate in waiting.items()), default=None) or trained / min(enough)
    reached = len(enough) > 1 or trained < PLATEAU * made * min(enough)
    if setup.cores >= min(enough):
        return trained if reached else None
    return min(made * setup.cores, trained) if waiting or not reached else None


def _sheet_ratio(first: GpuFacts, second: GpuFacts, precision: str) -> float | None:
    """The geometric mean of the ratios of peak arithmetic and of memory rate: a job is bound by either at times."""
    logs = [
        (peak(first, precision), peak(second, precision)),
        (first.memory_bytes_per_second, second.memory_bytes_per_second),
    ]
    ratios = [math.log(old / new) for old, new in logs if old and new]
    return math.exp(sum(ratios) / len(ratios)) if ratios else None


def _of_sheets(first: Setup, second: Setup, precision: str) -> float | None:
    """ln(seconds on the second / seconds on the first), each GPU adding its whole."""
    same = first.gpu == second.gpu
    ratio = 1.0 if same else _sheet_ratio(first.facts, second.facts, precision)
    return None if ratio is None else math.log(ratio * first.count / second.count)


@lru_cache(maxsize=4096)
def _step_on_links(job: Job, step: float, machine: str, nodes: int, count: int) -> Array:
    """Seconds of a step on several GPUs of a known machine, from one's, ``[draws]`` (``bench.predict.published``)."""
    crowded = step * (1 + DRAWS.around("crowding", compute_ratios.crowding().interval))
    fabric = links.fabric(links.MACHINES[machine], nodes, count // nodes)
    return crowded + links.exposed(links.model(job.model), step, fabric)
