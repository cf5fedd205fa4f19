"""M5, a convolutional network that classifies spoken words straight from the wave form.

Knows the model of Dai et al. 2016 (arXiv 1610.00087, table 1) and nothing about reading sound.
"""

from __future__ import annotations

from torch import Tensor, nn

CLASSES = 35
"""Words in Speech Commands v2 (Warden 2018, arXiv 1804.03209)."""


class M5(nn.Module):
    """Four convolutions over (batch, 1, 8000) float waves at 8 kHz; returns (batch, classes) logits."""

    def __init__(self, classes: int = CLASSES) -> None:
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
        self.head = nn.Linear(channels, classes)

    def forward(self, wave: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(wave).mean(dim=2))
        return logits
