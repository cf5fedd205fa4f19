"""Links between an offer's GPUs where no source names them: they follow from the GPU's variant.

SXM and HGX boards carry NVLink, through switches from Ampere on; all other cards are taken to talk over PCIe of their
generation, whatever of it they reach, and such a fabric has no name, as nobody gave it one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stash.catalog.facts import GpuFacts, Instance, name_words

_FABRICS = {
    "Pascal": "nvlink1",
    "Volta": "nvlink2",
    "Ampere": "nvlink3+nvswitch",
    "Hopper": "nvlink4+nvswitch",
    "Blackwell": "nvlink5+nvswitch",
}
"""Of boards with NVLink, by architecture (NVIDIA's DGX and HGX data sheets)."""
_LANES16 = {"3.0": 15.75e9, "4.0": 31e9, "5.0": 63e9}
"""Bytes per second of 16 lanes, one direction, by generation."""
_FORMS = ("sxm", "pcie", "nvl")
"""Words of offers' names that tell variants of a GPU apart; an HGX board is one of SXM modules."""
_ALIKE = 0.1
"""Of a GPU's memory, that sources round away."""


def fill_links(instance: Instance, gpus: Iterable[GpuFacts]) -> Instance:
    """The same with its GPU's variant and links, as far as one name says both and no source says otherwise."""
    is_named = instance.interconnect not in (None, "pcie")  # without a generation nothing is said
    if is_named or instance.gpu_model is None or (instance.gpu_count or 0) <= 1:
        return instance
    alike = [gpu for gpu in gpus if gpu.model == instance.gpu_model]
    variants = [gpu for gpu in alike if gpu.name == instance.gpu] or _find_variants(instance, alike)
    rates = {gpu.nvlink_bytes_per_second for gpu in variants}
    found: dict[str, object] = {}
    if len(variants) == 1 and instance.gpu is None:
        found["gpu"] = variants[0].name
    if len(rates) == 1 and None not in rates:
        fabric = _FABRICS.get(variants[0].architecture or "", "nvlink")
        found |= {"interconnect": fabric, "interconnect_bytes_per_second": rates.pop()}
    elif instance.pcie_bytes_per_second is None:
        lanes = [_LANES16.get((gpu.pcie or "").partition(" ")[0]) for gpu in variants or alike]
        known = [rate for rate in lanes if rate is not None]
        if not known:
            return instance
        found["pcie_bytes_per_second"] = min(known)
    which = variants[0].name if len(variants) == 1 else instance.gpu_model
    return instance.model_copy(
        update={**found, "source": f"{instance.source}; links: those of {which}"}
    )


def _find_variants(instance: Instance, alike: Iterable[GpuFacts]) -> list[GpuFacts]:
    """Variants of the form and the memory that the offer's name and source say; none where it names no form."""
    name = instance.name.lower().replace("hgx", "sxm")
    form = next((word for word in _FORMS if re.search(rf"(?<![a-z]){word}(?![a-z])", name)), None)
    memory = instance.gpu_memory_bytes
    return [
        gpu
        for gpu in alike
        if form is not None
        and any(word.startswith(form) for word in name_words(gpu.name))
        and (not memory or not gpu.memory_bytes or abs(memory / gpu.memory_bytes - 1) <= _ALIKE)
    ]
