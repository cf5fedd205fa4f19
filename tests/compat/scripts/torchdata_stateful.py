"""torchdata: StatefulDataLoader, whose state is saved with the model after every epoch."""

import sys

import torch
from pictures import BATCH, network, pictures
from torchdata.stateful_dataloader import StatefulDataLoader

data, out = sys.argv[1], sys.argv[2]
loader = StatefulDataLoader(
    pictures(f"{data}/train"), batch_size=BATCH, shuffle=True, num_workers=1
)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(500):
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, f"{out}.pt")
