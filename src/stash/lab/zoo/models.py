"""The zoo's models: torchvision's for pictures, M5 for sound, DLRM for clicks, BERT for text."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from stash.core.imports import prepare_torchvision, require_package
from stash.lab.zoo.synthesis import LABELS, VOCABULARY

DENSE = 13
"""Counters of a click."""
CARDINALITIES = (
    1460,
    583,
    10131227,
    2202608,
    305,
    24,
    12517,
    633,
    3,
    93145,
    5683,
    8351593,
    3194,
    27,
    14992,
    5461306,
    10,
    5652,
    2173,
    4,
    7046547,
    18,
    15,
    286181,
    105,
    142572,
)
"""Distinct values of the 26 categories of the Kaggle Display Advertising data (facebookresearch/dlrm)."""
MAX_ROWS = 200_000
"""Rows kept per table (the original's ``--max-ind-range``), so that gradients are about 100 MB."""
TABLES = tuple(min(rows, MAX_ROWS) for rows in CARDINALITIES)


class M5(nn.Module):
    """Four convolutions over (batch, 1, 8000) float waves at 8 kHz; returns (batch, classes) logits.

    A convolutional network that classifies spoken words straight from the wave form: Dai et al. 2016
    (arXiv 1610.00087, table 1).
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 1
        for width, kernel, stride in ((128, 80, 4), (128, 3, 1), (256, 3, 1), (512, 3, 1)):
            layers += [
                nn.Conv1d(channels, width, kernel, stride, padding=kernel // 2),
                nn.BatchNorm1d(width),
                nn.ReLU(),
                nn.MaxPool1d(4),
            ]
            channels = width
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, LABELS["audio"])

    def forward(self, wave: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(wave).mean(dim=2))
        return logits


class DLRM(nn.Module):
    """Bottom MLP, 26 embeddings, pairwise dot products, top MLP; gradients are dense, as DDP needs them.

    A click-through model whose embedding tables hold nearly all of its bytes: Naumov et al. 2019
    (arXiv 1906.00091) in its Criteo Kaggle configuration (``bench/dlrm_s_criteo_kaggle.sh`` of
    facebookresearch/dlrm).

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


# BERT, built from published configurations by the optional ``transformers``; nothing is downloaded.

BERT_SIZES: dict[str, dict[str, Any]] = {
    "bert_base_qa": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
    "bert_large_qa": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16},
}
"""Devlin et al. 2019, section 3; the vocabulary is the uncased one of 30522 pieces."""


def build_model(name: str, kind: str) -> nn.Module:
    """The model of that name, fed with data of ``kind``; raises UserError where BERT lacks transformers."""
    if kind == "audio":
        return M5()
    if kind == "clicks":
        return DLRM()
    prepare_torchvision()  # transformers imports torchvision wherever that is installed.
    model: nn.Module
    if kind == "images":
        from torchvision.models import get_model

        model = get_model(name, weights=None)
        return model
    require_package("transformers", name)
    from transformers import BertConfig, BertForQuestionAnswering

    shape = BERT_SIZES[name]
    config = BertConfig(vocab_size=VOCABULARY, intermediate_size=4 * shape["hidden_size"], **shape)
    model = BertForQuestionAnswering(config)
    return model
