"""Builds the /proc and /sys of a described machine (``tests/recorded/*.yaml``) under a folder.

Knows where the kernel puts which fact and which folders are links to others; holds no facts itself.
"""

import os
from pathlib import Path
from types import SimpleNamespace

import yaml
from recorded_nvml import RecordedNvml

from stash.measure.host.describe import Sources, describe

RECORDED = Path(__file__).parents[3] / "recorded"
MACHINES = tuple(sorted(path.stem for path in RECORDED.glob("*.yaml")))


def machine(name):
    description = yaml.safe_load((RECORDED / f"{name}.yaml").read_text())
    return description


def refuse(url, headers, method, timeout_seconds):
    raise AssertionError(f"asked {url}")


def sources(root, description, fetch=refuse):
    """The machine's files under ``root``, its NVML and its disks' sizes; asking for metadata fails unless given."""
    build(root, description)
    nvml = RecordedNvml(description.get("nvml"))
    return Sources(
        root=root, nvml=nvml, fetch=fetch, statvfs=_statvfs(description.get("sizes", {}))
    )


def known(root, name, data="/", fetch=refuse, **wishes):
    """What ``describe`` finds out about a described machine."""
    return describe(Path(data), sources=sources(root, machine(name), fetch), **wishes)


def change_driver(root, name, **nvml):
    """The same of a machine whose driver says something else."""
    description = machine(name)
    description["nvml"] |= nvml
    return describe(Path("/"), sources=sources(root, description))


def build(root, about):
    tree = Tree(root)
    for path, content in about.get("files", {}).items():
        tree.write(path, content)
    for field, content in about.get("dmi", {}).items():
        tree.write(f"sys/class/dmi/id/{field}", content)
    for bus, facts in about.get("pci", {}).items():
        tree.pci(bus, **facts)
    for name, facts in about.get("net", {}).items():
        tree.interface(name, **facts)
    for name, facts in about.get("rdma", {}).items():
        tree.rdma(name, **facts)
    for name, facts in about.get("block", {}).items():
        tree.block(name, **facts)


class Tree:
    """One machine's files; ``at`` is always the address of the PCI device that something belongs to."""

    def __init__(self, root):
        self.root = root

    def write(self, path, content):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n" if not str(content).endswith("\n") else content)

    def link(self, path, leads_to):
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.root / leads_to, link.parent))

    def pci(self, bus, port=None, driver=None, **facts):
        """A PCI device, directly on its root or plugged into the ``port`` of a bridge that was built before."""
        above = self._folder(port) if port else f"sys/devices/pci{bus[:7]}"
        self.link(f"sys/bus/pci/devices/{bus}", f"{above}/{bus}")
        for name, content in facts.items():
            self.write(f"{above}/{bus}/{name}", content)
        (self.root / above / bus).mkdir(parents=True, exist_ok=True)
        if driver:
            self._driver(f"{above}/{bus}", driver)

    def interface(self, name, at=None, virtio=None, **facts):
        device = self._folder(at) if at else "sys/devices/virtual"
        if virtio:
            device = f"{device}/{virtio}"
            (self.root / device).mkdir()
            self._driver(device, "virtio_net")
        for fact, content in ({"type": 1} | facts).items():
            self.write(f"{device}/net/{name}/{fact}", content)
        self.link(f"sys/class/net/{name}", f"{device}/net/{name}")
        if at:
            self.link(f"{device}/net/{name}/device", device)

    def rdma(self, name, at, rate):
        device = self._folder(at)
        self.write(f"{device}/infiniband/{name}/ports/1/rate", rate)
        self.link(f"{device}/infiniband/{name}/device", device)
        self.link(f"sys/class/infiniband/{name}", f"{device}/infiniband/{name}")

    def block(self, name, dev, slaves=(), partitions=None, **facts):
        folder = f"sys/devices/block-of/{name}"
        self._link_number(folder, name, dev)
        for fact, content in facts.items():
            self.write(
                f"{folder}/{fact.replace('rotational', 'queue/rotational').replace('model', 'device/model')}",
                content,
            )
        for slave in slaves:
            self.link(f"{folder}/slaves/{Path(slave).name}", f"sys/devices/block-of/{slave}")
        for part, number in (partitions or {}).items():
            self._link_number(f"{folder}/{part}", part, number)
            self.write(f"{folder}/{part}/partition", 1)

    def _link_number(self, folder, name, dev):
        self.write(f"{folder}/dev", dev)
        self.link(f"sys/dev/block/{dev}", folder)
        self.link(f"sys/class/block/{name}", folder)

    def _driver(self, device, driver):
        (self.root / f"sys/bus/drivers/{driver}").mkdir(parents=True, exist_ok=True)
        self.link(f"{device}/driver", f"sys/bus/drivers/{driver}")

    def _folder(self, bus):
        return str(
            (self.root / f"sys/bus/pci/devices/{bus}").resolve().relative_to(self.root.resolve())
        )


def _statvfs(sizes):
    def statvfs(path):
        if path not in sizes:
            raise FileNotFoundError(path)
        blocks, free = sizes[path]
        return SimpleNamespace(f_frsize=4096, f_blocks=blocks, f_bavail=free)

    return statvfs
