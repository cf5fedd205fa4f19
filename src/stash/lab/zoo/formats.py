"""How samples lie in files: what generators (``synthesis``), readers and models agree on.

Needs nothing but numbers, so that what only lists data sets need not import numpy or torch.
"""

from __future__ import annotations

IMAGE_CLASSES = 100
"""Folders that generated pictures are spread over."""

# Text -----------------------------------------------------------------------------------------------------

VOCABULARY = 30_522
"""Ids fit BERT's vocabulary, and so GPT-2's larger one."""
TOKENS_PER_SAMPLE = 1024

# Audio ----------------------------------------------------------------------------------------------------

SAMPLE_RATE = 16_000
"""Hertz, 16 bits, mono, as in Speech Commands."""
WORDS = 35
"""In Speech Commands v2 (Warden 2018, arXiv 1804.03209)."""

# Clicks ---------------------------------------------------------------------------------------------------

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
