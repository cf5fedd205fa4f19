"""The job of the README's example: workers spawned again for every epoch, a metric over all that was seen."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset[tuple[Tensor, int]]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        signal = torch.randn(4096, generator=torch.Generator().manual_seed(index))
        return torch.fft.rfft(signal).abs()[:512], index % 2


def area_under_roc(scores: Tensor, labels: Tensor) -> float:
    ranks = scores.argsort().argsort().float()
    positive = labels.bool()
    return float((ranks[positive].mean() - (positive.sum() - 1) / 2) / (~positive).sum())


if __name__ == "__main__":
    torch.set_num_threads(1)
    training = DataLoader(
        Signals(3200), 32, shuffle=True, num_workers=2, multiprocessing_context="spawn"
    )
    held_out = DataLoader(Signals(960), 64)
    model = nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1)
    )
    optimizer = torch.optim.Adam(model.parameters())
    scores, labels = torch.empty(0), torch.empty(0, dtype=torch.long)
    for epoch in range(100):
        for x, y in training:
            optimizer.zero_grad()
            guess = model(x)[:, 0]
            nn.functional.binary_cross_entropy_with_logits(guess, y.float()).backward()
            optimizer.step()
            scores, labels = torch.cat([scores, guess.detach()]), torch.cat([labels, y])
            area = area_under_roc(scores, labels)
        with torch.no_grad():
            losses = [
                nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y.float())
                for x, y in held_out
            ]
        torch.save(model.state_dict(), "model.pt")
        print(
            f"epoch {epoch}: area {area:.3f}, validation {torch.stack(losses).mean():.3f}",
            flush=True,
        )
