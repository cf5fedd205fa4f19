"""Reads a folder of pictures with one sub-folder per class, as torchvision's ImageFolder does.

Knows decoding with Pillow and the usual ImageNet augmentation. Importing it imports torchvision.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from stash.core.errors import UserError
from stash.core.imports import prepare_torchvision

prepare_torchvision()

from torchvision import transforms  # noqa: E402

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Decoded, randomly cropped and flipped, normalised: (3, size, size) float32 and a 0-d int64 label."""

    def __init__(self, root: Path, size: int = 224) -> None:
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.files = [
            (root / name / file, label)
            for label, name in enumerate(self.classes)
            for file in sorted(os.listdir(root / name))
            if file.lower().endswith(SUFFIXES) and not file.startswith(".")
        ]
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(size),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
            ]
        )

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        path, label = self.files[index]
        try:
            with Image.open(path) as file:
                picture = file.convert("RGB")
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(
                f"the image {path} cannot be decoded: {error}; replace or delete it"
            ) from error
        return self.transform(picture), torch.tensor(label)
