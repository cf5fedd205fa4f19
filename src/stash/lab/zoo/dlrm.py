"""DLRM, a click-through model whose embedding tables hold nearly all of its bytes.

Knows the architecture of Naumov et al. 2019 (arXiv 1906.00091) in its Criteo Kaggle configuration
(``bench/dlrm_s_criteo_kaggle.sh`` of facebookresearch/dlrm), and the sizes of that data set's tables.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from stash.lab.zoo.criteo import CARDINALITIES, DENSE

MAX_ROWS = 200_000
"""Rows kept per table (the original's ``--max-ind-range``), so that gradients are about 100 MB."""
TABLES = tuple(min(rows, MAX_ROWS) for rows in CARDINALITIES)


class DLRM(nn.Module):
    """Bottom MLP, 26 embeddings, pairwise dot products, top MLP; gradients are dense, as DDP needs them.

    Takes (batch, 13) floats and (batch, 26) ids of any size, which are folded into the tables; returns
    (batch,) logits.
    """

    def __init__(self, dimension: int = 16) -> None:
        super().__init__()
        self.bottom = _mlp(DENSE, 512, 256, 64, dimension)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, dimension, mode="sum") for rows in TABLES)
        for table, rows in zip(self.tables, TABLES, strict=True):
            nn.init.uniform_(table.weight, -(rows**-0.5), rows**-0.5)  # type: ignore[arg-type]
        vectors = 1 + len(TABLES)
        self.top = _mlp(dimension + vectors * (vectors - 1) // 2, 512, 256, 1, activate_last=False)
        rows, columns = torch.tril_indices(vectors, vectors, offset=-1, device="cpu")
        self.register_buffer("pairs", rows * vectors + columns, persistent=False)

    pairs: Tensor

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        first = self.bottom(dense)
        looked_up = [
            table((categories[:, i] % rows).unsqueeze(1))
            for i, (table, rows) in enumerate(zip(self.tables, TABLES, strict=True))
        ]
        vectors = torch.stack([first, *looked_up], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)[:, self.pairs]
        logits: Tensor = self.top(torch.cat([first, products], dim=1)).squeeze(1)
        return logits


def _mlp(*widths: int, activate_last: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for narrow, wide in pairwise(widths):
        layers += [nn.Linear(narrow, wide), nn.ReLU()]
    return nn.Sequential(*layers if activate_last else layers[:-1])
