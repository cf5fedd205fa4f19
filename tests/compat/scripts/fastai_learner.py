"""fastai: a Learner on its own data loaders, with its own optimizer."""

import sys

from fastai.callback.tracker import SaveModelCallback
from fastai.vision.all import ImageDataLoaders, Learner, Resize, accuracy, nn
from pictures import BATCH, SIDE, network

data, out = sys.argv[1], sys.argv[2]
loaders = ImageDataLoaders.from_folder(
    data, train="train", valid="val", item_tfms=Resize(SIDE), bs=BATCH, num_workers=1, device="cpu"
)
learner = Learner(
    loaders, network(), loss_func=nn.CrossEntropyLoss(), metrics=accuracy, model_dir=out
)
learner.fit(500, 1e-3, cbs=SaveModelCallback(every_epoch=False))
