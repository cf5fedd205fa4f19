"""The shape of a Criteo click log: how a record is laid out and how large each category is.

Shared by the generator, the reader and the model; knows none of them and needs nothing but numbers.
"""

from __future__ import annotations

DENSE = 13
"""Integer counters per record."""
CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
"""Distinct values of the 26 categories of the Kaggle Display Advertising data (facebookresearch/dlrm)."""
FIELDS = 1 + DENSE + len(CARDINALITIES)
"""int32 fields of a record: label, counters, categories."""
RECORD_BYTES = 4 * FIELDS
