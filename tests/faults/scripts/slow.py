"""A job whose steps, or whose samples, take as long as is asked for, by whatever loader."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--step", type=float, default=0.02, help="seconds of a step besides its batch")
parser.add_argument(
    "--batch", type=float, default=0.0, help="seconds in which one worker makes a batch"
)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--context", choices=["fork", "spawn", "forkserver"])
parser.add_argument("--persistent", action="store_true")
parser.add_argument("words", nargs="*")


class Slow(Dataset):
    """Samples that take a while."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.full((8,), float(index))


def main():
    args = parser.parse_args()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = DataLoader(
        Slow(args.batch / 4),
        batch_size=4,
        num_workers=args.workers,
        multiprocessing_context=args.context,
        persistent_workers=args.persistent,
    )
    while True:
        for batch in loader:
            optimizer.zero_grad()
            model(batch).mean().backward()
            time.sleep(args.step)
            optimizer.step()


if __name__ == "__main__":
    main()
