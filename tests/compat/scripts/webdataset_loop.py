"""webdataset: pictures streamed from tar files through its WebLoader."""

import sys

import torch
import webdataset as wds
from pictures import BATCH, SIDE, network
from torchvision import transforms

data, out = sys.argv[1], sys.argv[2]
prepare = transforms.Compose([transforms.Resize((SIDE, SIDE)), transforms.ToTensor()])
shards = wds.WebDataset(f"{data}/shards/{{0..3}}.tar", shardshuffle=4)
pairs = shards.shuffle(64).decode("pil").to_tuple("png", "cls").map_tuple(prepare, int)
samples = pairs.batched(BATCH, partial=False)
loader = wds.WebLoader(samples, batch_size=None, num_workers=1)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(500):
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), f"{out}.pt")
