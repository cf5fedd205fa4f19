"""Plays an NVML description back through the functions of pynvml that Stash calls, with pynvml's own errors.

A machine's GPUs are described the way ``nvidia-smi topo`` prints them: ``links`` is the matrix of ``topo -m``,
of which the NVLink counts are used, and ``ancestors`` that of ``topo -mp``, which has the PCI levels only.
"""

from types import SimpleNamespace

import pynvml

_LEVELS = {"PSB": 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
_NOWHERE = "FFFFFFFF:FF:FF.0"
"""What a driver in a virtual machine says of a switch that the machine does not see."""


def matrix(printed):
    """The cells of a matrix as ``nvidia-smi topo`` prints it, without its header and its first column."""
    return [
        line.split()[1:] for line in printed.strip().splitlines() if line.split()[1:2] != ["GPU1"]
    ]


class RecordedNvml:
    """Stands in for the module; handles are the indices of the GPUs."""

    def __init__(self, about):
        self.about = about or {}
        self.buses = self.about.get("buses", [])
        self.started = 0
        self.levels = matrix(self.about.get("ancestors", ""))
        self.lanes = [self._lanes(index) for index in range(len(self.buses))]

    def _lanes(self, index):
        """The other end of each lane of one GPU, by PCI address."""
        switch = self.about.get("switch")
        if switch:
            return [str(switch["bus"] or _NOWHERE)] * int(switch["lanes"])
        cells = matrix(self.about["links"])[index] if "links" in self.about else []
        counts = [int(cell[2:]) if cell.startswith("NV") else 0 for cell in cells]
        return [bus for bus, count in zip(self.buses, counts, strict=False) for _ in range(count)]

    def nvmlInit(self):  # noqa: N802
        if not self.about:
            raise _error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        self.started += 1

    def nvmlShutdown(self):  # noqa: N802
        self.started -= 1

    def nvmlSystemGetDriverVersion(self):  # noqa: N802
        return str(self.about["driver"])

    def nvmlDeviceGetCount(self):  # noqa: N802
        return len(self.buses)

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        code = self.about.get("faults", {}).get(index)
        if code is not None:
            raise _error(code)
        return index

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        return str(self.about["name"])

    def nvmlDeviceGetMemoryInfo(self, handle):  # noqa: N802
        return SimpleNamespace(total=int(self.about["memory_bytes"]))

    def nvmlDeviceGetPciInfo(self, handle):  # noqa: N802
        return SimpleNamespace(busId=self.buses[handle])

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle):  # noqa: N802
        return self._known("pcie")[0]

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle):  # noqa: N802
        return self._known("pcie")[1]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle):  # noqa: N802
        return self._known("pcie_max")[0]

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle):  # noqa: N802
        return self._known("pcie_max")[1]

    def nvmlDeviceGetTopologyCommonAncestor(self, device1, device2):  # noqa: N802
        return _LEVELS[self.levels[device1][device2]]

    def nvmlDeviceGetNvLinkState(self, device, link):  # noqa: N802
        lanes = self.lanes[device]
        if not lanes:
            raise _error(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if link >= len(lanes):
            raise _error(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(link not in self.about.get("down", {}).get(device, []))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link):  # noqa: N802
        if "switch" not in self.about:
            return pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
        if self.about["switch"]["bus"] is None:
            raise _error(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device, link):  # noqa: N802
        return SimpleNamespace(busId=self.lanes[device][link])

    def nvmlDeviceGetFieldValues(self, handle, fieldIds):  # noqa: N802, N803
        asked = {
            pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: self.about.get(
                "nvlink_megabytes_per_second"
            )
        }
        return [
            SimpleNamespace(
                nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED
                if asked.get(field) is None
                else pynvml.NVML_SUCCESS,
                value=SimpleNamespace(uiVal=asked.get(field) or 0),
            )
            for field in fieldIds
        ]

    def _known(self, fact):
        if fact not in self.about:
            raise _error(pynvml.NVML_ERROR_NOT_SUPPORTED)
        found = self.about[fact]
        return found


def _error(code):
    error = pynvml.NVMLError(code)
    return error
