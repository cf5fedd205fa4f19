"""In which order cells are run: what tells most for least comes first.

A broken place shows in its first cell, whichever that is, so every place runs one small cell before the grid begins,
the cheapest place first. Then one repeat of everything before the next, and small batches before large ones, since
one that is out of memory spares those above it. Cells that share what is rented stay together.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.derive.study.cells import Cell


def ordered(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """All cells once."""
    positions = {cell.place.name: number for number, cell in reversed(list(enumerate(cells)))}

    def cost(cell: Cell) -> tuple[float, int]:
        return (cell.dollars_per_hour or 0.0, positions[cell.place.name])

    def size(cell: Cell) -> tuple[float, float, int]:
        return (cell.nodes, cell.size, cell.batch or 0)

    first: dict[str, Cell] = {}
    for cell in sorted(cells, key=lambda cell: (cell.repeat, *size(cell))):
        first.setdefault(cell.place.name, cell)
    pilots = sorted(first.values(), key=cost)
    chosen = {cell.id for cell in pilots}
    rest = [cell for cell in cells if cell.id not in chosen]
    place_price = {cell.place.name: (cell.place.dollars_per_hour or 0.0) for cell in cells}
    rest.sort(
        key=lambda cell: (
            cell.repeat, place_price[cell.place.name], positions[cell.place.name], cell.nodes, cell.size,
            cell.workload, cell.batch or 0,
        )
    )  # fmt: skip
    return (*pilots, *rest)
