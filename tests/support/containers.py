"""Batches of classes of their own, as libraries have them; small, and in the style of each."""

from __future__ import annotations

import copy
import weakref
from collections import UserDict, namedtuple
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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

    def __init__(self, owner: Any) -> None:
        self._mapping: dict[str, Any] = {}
        self._owner = weakref.ref(owner)

    def __getitem__(self, key: str) -> Any:
        return self._mapping[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._mapping[key] = value

    def __delitem__(self, key: str) -> None:
        del self._mapping[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapping)

    def __len__(self) -> int:
        return len(self._mapping)


class Graphs:
    """Several graphs in one: attributes that lie in a store, and methods that change the object itself, as PyG's."""

    def __init__(self, graphs: int, **attributes: Any) -> None:
        self.__dict__["num_graphs"] = graphs
        self.__dict__["_store"] = Store(self)
        self._store.update(attributes)

    def __getattr__(self, name: str) -> Any:
        if "_store" not in self.__dict__ or name not in self._store:
            raise AttributeError(name)
        return self._store[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self._store[name] = value

    def __delattr__(self, name: str) -> None:
        del self._store[name]

    def __deepcopy__(self, memo: dict[int, Any]) -> Graphs:
        return Graphs(
            self.num_graphs,
            **{key: copy.deepcopy(value, memo) for key, value in self._store.items()},
        )

    def to(self, device: Any) -> Graphs:
        for key, value in self._store.items():
            self._store[key] = value.to(device)
        return self


class Encoding(UserDict):
    """As Hugging Face's: ``to`` changes it and returns it."""

    def to(self, device: Any) -> Encoding:
        self.data = {key: value.to(device) for key, value in self.data.items()}
        return self


class Sized(dict):
    """A dictionary that knows its samples and whose deep copies are always around new tensors, as TensorDict."""

    def __init__(self, values: dict[str, Tensor], batch_size: tuple[int, ...]) -> None:
        super().__init__(values)
        self.batch_size = torch.Size(batch_size)

    def __deepcopy__(self, memo: dict[int, Any]) -> Sized:
        return self.clone()

    def clone(self, recurse: bool = True) -> Sized:
        return Sized(
            {key: value.clone() if recurse else value for key, value in self.items()},
            self.batch_size,
        )

    def to(self, device: Any) -> Sized:
        return Sized({key: value.to(device) for key, value in self.items()}, self.batch_size)


class Instances:
    """What was found in one picture, as in detectron: named tensors of one length, which is no number of samples."""

    def __init__(self, **fields: Tensor) -> None:
        self._fields = fields

    def to(self, device: Any) -> Instances:
        return Instances(**{name: field.to(device) for name, field in self._fields.items()})


class Stubborn:
    """Refuses to be copied, and to be moved."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __deepcopy__(self, memo: dict[int, Any]) -> Stubborn:
        raise TypeError("not to be copied")
