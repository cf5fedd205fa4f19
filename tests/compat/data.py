"""Small generated data in the layouts that the projects want: class folders, boxes, captions, tar shards."""

import io
import tarfile

import numpy as np
from PIL import Image

_COUNTS = {"train": 192, "val": 32}
_SIDE = 96


def make(folder):
    """Make them all, once; the value is the folder."""
    if (folder / "done").exists():
        return folder
    random = np.random.default_rng(0)
    for part, count in _COUNTS.items():
        for number in range(count):
            picture = Image.fromarray(random.integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8))
            _save(picture, folder / part / f"class{number % 2}" / f"{number:04d}.png")
            _save(picture, folder / "boxes" / "images" / part / f"{number:04d}.png")
            label = folder / "boxes" / "labels" / part / f"{number:04d}.txt"
            label.parent.mkdir(parents=True, exist_ok=True)
            label.write_text(f"{number % 2} 0.5 0.5 0.4 0.4\n")
    (folder / "boxes.yaml").write_text(
        f"path: {folder}/boxes\ntrain: images/train\nval: images/val\nnames: {{0: a, 1: b}}\n"
    )
    pictures = sorted((folder / "train").rglob("*.png"))
    rows = [f"{picture},a picture of class {picture.parent.name}" for picture in pictures]
    (folder / "captions.csv").write_text("\n".join(["filepath,title", *rows]) + "\n")
    _shards(pictures, folder / "shards")
    (folder / "done").touch()
    return folder


def _save(picture, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


def _shards(pictures, folder):
    folder.mkdir(exist_ok=True)
    for number in range(4):
        with tarfile.open(folder / f"{number}.tar", "w") as shard:
            for picture in pictures[number::4]:
                for suffix, content in (
                    ("png", picture.read_bytes()),
                    ("cls", picture.parent.name[-1].encode()),
                ):
                    entry = tarfile.TarInfo(f"{picture.stem}.{suffix}")
                    entry.size = len(content)
                    shard.addfile(entry, io.BytesIO(content))
