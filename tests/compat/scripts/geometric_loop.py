"""torch-geometric: batches of graphs from its own DataLoader, classified by its own layers."""

import sys

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool


def graph():
    """A random graph with 32 nodes."""
    return Data(
        x=torch.randn(32, 64),
        edge_index=torch.randint(0, 32, (2, 128)),
        y=torch.randint(0, 2, (1,)),
    )


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (
            GCNConv(64, 256),
            GCNConv(256, 256),
            torch.nn.Linear(256, 2),
        )

    def forward(self, batch):
        x = self.first(batch.x, batch.edge_index).relu()
        x = self.second(x, batch.edge_index).relu()
        return self.last(global_mean_pool(x, batch.batch))


loader = DataLoader([graph() for _ in range(1024)], batch_size=32, shuffle=True)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(500):
    for batch in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), f"{sys.argv[2]}.pt")
