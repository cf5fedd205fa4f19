"""An LSTM is run cell by cell in a Python loop over 120 time steps.

Seen in: pytorch/pytorch#20060 (cells of an LSTM in a loop), automan000/Convolutional_LSTM_PyTorch#11 (slower than another framework).
Symptom: GPU hardly busy, CPU at 100 %; a larger batch costs nothing.
Cause: thousands of tiny operations a step.
Truth: COMPUTE (forward and backward): the loop's lines in forward().
Remedy: nn.LSTM (FIXED=1), or torch.compile.
Run: python 36_cell_in_a_python_loop.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 80)), bool(os.environ.get("FIXED"))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.lstm, self.head = nn.LSTMCell(32, 48), nn.LSTM(32, 48, batch_first=True), nn.Linear(48, 5)

    def forward(self, x):
        if FIXED:
            return self.head(self.lstm(x)[0])
        h = c = x.new_zeros(len(x), 48)
        states = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            states.append(h)
        return self.head(torch.stack(states, 1))


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(1024, 120, 32), torch.randint(0, 5, (1024, 120))), 8, shuffle=True)
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
done, start = 0, time.perf_counter()
while done < STEPS:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
        done += 1
        if done == STEPS:
            break
print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
