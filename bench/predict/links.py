"""What links reach of their claims, predicted for each published machine from all other sources.

Split: leave one source out. The share of a machine's claim is predicted from the machines of the same kind of link
that other people measured; a kind that only one source measured cannot be predicted, and is counted.
"""

from __future__ import annotations

from bench.predict.errors import Prediction, summary
from bench.predict.published import DRAWS
from stash.catalog.reference import CollectiveRate
from stash.predict import cluster
from stash.predict.cluster_sources import network_rate, reach_of
from stash.predict.draws import Quantity


def section() -> str:
    found, alone = shares()
    split = (
        f"{len(found)} published machines, each predicted from machines that other sources measured; {alone} more "
        "are of a kind that one source alone measured."
    )
    return f"## What links reach of their data sheets\n\n{split}\n\n{summary(found)}"


def shares() -> tuple[list[Prediction], int]:
    """Every machine that other sources say something of, and how many there are of which none does."""
    found, alone = [], 0
    for each in cluster.published_shares():
        rate = _predicted(each.rate)
        if rate is None:
            alone += 1
            continue
        found.append(
            Prediction(
                source=f"{each.link}, {'inside a node' if each.rate.scope == 'inside' else 'between nodes'}",
                name=f"{each.rate.ranks} × {each.rate.gpu}, {each.rate.source}",
                measured=each.wire_bytes_per_second,
                predicted=DRAWS.of("share", rate),
                baselines={"the data sheet": each.rate.claimed_bytes_per_second},
            )
        )
    return found, alone


def _predicted(rate: CollectiveRate) -> Quantity | None:
    claim = Quantity(value=rate.claimed_bytes_per_second, origin="data sheet", as_of=rate.as_of, source="its sheet")
    if rate.scope == "between":
        return network_rate(claim, rate.link, rate.source)  # type: ignore[arg-type]
    share = cluster.reached(rate.link, rate.source)  # type: ignore[arg-type]
    return None if share is None else reach_of(claim, share)
