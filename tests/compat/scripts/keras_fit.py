"""Keras 3 on PyTorch: ``model.fit`` with a torch DataLoader, validation and a checkpoint callback."""

import os
import sys

os.environ["KERAS_BACKEND"] = "torch"
import keras
from pictures import SIDE, loader

data, out = sys.argv[1], sys.argv[2]
keras.config.set_image_data_format("channels_first")
model = keras.Sequential(
    [
        keras.layers.Input((3, SIDE, SIDE)),
        keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(2),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
keeping = keras.callbacks.ModelCheckpoint(f"{out}.weights.h5", save_weights_only=True)
train, check = loader(f"{data}/train"), loader(f"{data}/val", shuffle=False)
model.fit(train, validation_data=check, epochs=500, callbacks=[keeping], verbose=2)
