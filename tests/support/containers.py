"""Batches of classes of their own, as libraries have them; small, and in the style of each."""

import copy
import weakref
from collections import UserDict, namedtuple
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import torch

Pair = namedtuple("Pair", "x y")


@dataclass
class Sample:
    """A dataclass."""

    x: Any
    name: str = "sample"


@dataclass(frozen=True)
class Frozen:
    """One that cannot be assigned to."""

    x: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    """One without a dictionary."""

    x: Any
    y: Any


class Store(MutableMapping):
    """A mapping that knows its owner, as PyG's storages do."""

    def __init__(self, owner):
        self._mapping = {}
        self._owner = weakref.ref(owner)

    def __getitem__(self, key):
        return self._mapping[key]

    def __setitem__(self, key, value):
        self._mapping[key] = value

    def __delitem__(self, key):
        del self._mapping[key]

    def __iter__(self):
        return iter(self._mapping)

    def __len__(self):
        return len(self._mapping)


class Graphs:
    """Several graphs in one: attributes that lie in a store, and methods that change the object itself, as PyG's."""

    def __init__(self, graphs, **attributes):
        self.__dict__["num_graphs"] = graphs
        self.__dict__["_store"] = Store(self)
        self._store.update(attributes)

    def __getattr__(self, name):
        if "_store" not in self.__dict__ or name not in self._store:
            raise AttributeError(name)
        return self._store[name]

    def __setattr__(self, name, value):
        self._store[name] = value

    def __delattr__(self, name):
        del self._store[name]

    def __deepcopy__(self, memo):
        return Graphs(
            self.num_graphs,
            **{key: copy.deepcopy(value, memo) for key, value in self._store.items()},
        )

    def to(self, device):
        for key, value in self._store.items():
            self._store[key] = value.to(device)
        return self


class Encoding(UserDict):
    """As Hugging Face's: ``to`` changes it and returns it."""

    def to(self, device):
        self.data = {key: value.to(device) for key, value in self.data.items()}
        return self


class Sized(dict):
    """A dictionary that knows its samples and whose deep copies are always around new tensors, as TensorDict."""

    def __init__(self, values, batch_size):
        super().__init__(values)
        self.batch_size = torch.Size(batch_size)

    def __deepcopy__(self, memo):
        return self.clone()

    def clone(self, recurse=True):
        return Sized(
            {key: value.clone() if recurse else value for key, value in self.items()},
            self.batch_size,
        )

    def to(self, device):
        return Sized({key: value.to(device) for key, value in self.items()}, self.batch_size)


class Instances:
    """What was found in one picture, as in detectron: named tensors of one length, which is no number of samples."""

    def __init__(self, **fields):
        self._fields = fields

    def to(self, device):
        return Instances(**{name: field.to(device) for name, field in self._fields.items()})


class Stubborn:
    """Refuses to be copied, and to be moved."""

    def __init__(self, x):
        self.x = x

    def __deepcopy__(self, memo):
        raise TypeError("not to be copied")
