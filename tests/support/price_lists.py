"""Price lists as they are published, and a fake internet to publish them on."""

from __future__ import annotations

import io
import zipfile
from email.message import Message
from urllib.error import HTTPError

from stash.catalog.refresh import SOURCES

# Heads and lines as gpuhunt (src/gpuhunt/_internal/storage.py, v3) and SkyPilot (catalogs/v8/*/vms.csv) publish them.
HUNT_HEAD = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,"
    "gpu_vendor,flags,cpu_arch,provider_data\n"
)
HUNT_AWS = (
    HUNT_HEAD
    + "p3.8xlarge,us-east-1,10.1,32,244.0,4,V100,16.0,False,,nvidia,,x86,{}\n"
    + "p3.8xlarge,us-east-1,3.9,32,244.0,4,V100,16.0,True,,nvidia,,x86,{}\n"
    + "p3.8xlarge,eu-west-1,13.22,32,244.0,4,V100,16.0,False,,nvidia,,x86,{}\n"
    + "p4d.24xlarge,us-east-1,21.957642,96,1152.0,8,A100,40.0,False,,nvidia,,x86,{}\n"
    + "g7.new,us-east-1,2.5,8,32.0,1,L4,24.0,False,,nvidia,,x86,{}\n"
    + "g5.xlarge,us-east-1,1.006,4,16.0,1,A10G,24.0,False,,nvidia,,x86,{}\n"
    + "m5.large,us-east-1,0.1,2,8.0,0,,,False,,,,x86,{}\n"
    + "t2.nano,us-east-1,0.0058,1,0.5,0,,,False,,,,x86,{}\n"
)
HUNT_GCP = (
    HUNT_HEAD
    + "n1-standard-8,us-central1-a,2.7,8,30.0,1,V100,16.0,False,,nvidia,,x86,{}\n"
    + "n1-standard-8,us-central1-f,2.9,8,30.0,1,V100,16.0,False,,nvidia,,x86,{}\n"
    + "v5litepod-8,us-central1-a,9.6,224,384.0,1,tpu-v5litepod-8,128.0,False,,google,,x86,{}\n"
)
SKY_AWS = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch\n"
    "a1.2xlarge,,,8.0,16.0,,0.204,0.105600,us-east-2,use2-az1,arm64\n"
    "p3.8xlarge,V100,4.0,32.0,244.0,\"{'Gpus': [{'Name': 'V100', 'Manufacturer': 'NVIDIA', 'Count': 4, 'MemoryInfo': "
    "{'SizeInMiB': 16384}}], 'TotalGpuMemoryInMiB': 65536}\",12.24,3.7,us-east-1,use1-az1,x86_64\n"
    "p3.8xlarge,V100,4.0,32.0,244.0,,12.24,4.7,us-west-2,usw2-az1,x86_64\n"
    "p3.8xlarge,V100,4.0,32.0,244.0,,12.24,4.9,us-west-2,usw2-az2,x86_64\n"
    "p4de.24xlarge,A100-80GB,8.0,96.0,1152.0,,27.44705,27.447050,us-east-1,use1-az1,x86_64\n"
    "x1.made,V100-32GB,1.0,8.0,61.0,,2.0,,us-east-1,use1-az1,x86_64\n"
)
SKY_GCP = (
    "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n"
    "a2-highgpu-1g,12.0,85.0,,,,us-central1,us-central1-a,0.73948,0.36975\n"
    "a2-ultragpu-1g,12.0,170.0,,,,us-central1,us-central1-a,1.09962,0.54978\n"
    "a3-megagpu-8g,208.0,1872.0,,,,us-central1,us-central1-a,9.46,2.88\n"
    "n1-standard-8,8.0,30.0,,,,us-central1,us-central1-a,0.38,0.08\n"
    ",,,A100,1,,us-central1,us-central1-a,2.933908,1.4341\n"
    ",,,A100-80GB,1,,us-central1,us-central1-a,3.969176,1.979\n"
    ",,,H100-MEGA,8,,us-central1,us-central1-a,82.75,25.29\n"
    ",,,V100,1,,us-central1,us-central1-a,2.48,1.148\n"
    ",,,tpu-v6e-4,1,tpu-v6e-4,us-central2,us-central2-b,700.0,700.0\n"
)
SKY_RUNPOD = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Region,SpotPrice,Price,AvailabilityZone,GpuInfo\n"
    "1x_A100-80GB_SECURE,A100-80GB,1.0,8.0,117.0,US,1.39,1.39,US-CA-1,\"{'Gpus': [{'Name': 'A100 PCIe', "
    "'Manufacturer': 'Nvidia', 'Count': 1, 'MemoryInfo': {'SizeInMiB': 80}}], 'TotalGpuMemoryInMiB': 80}\"\n"
    "1x_A40_SECURE,A40,1.0,9.0,50.0,US,0.2,0.44,US-CA-1,\"{'Gpus': [{'Name': 'A40', 'Count': 1, 'MemoryInfo': "
    "{'SizeInMiB': 48}}]}\"\n"
)


def zipped(text: str | bytes, name: str = "aws.csv") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return buffer.getvalue()


class Web:
    """A fake internet: what is published where; everything else answers 404."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | Exception] = {}
        self.asked: list[str] = []
        self.publish("gpuhunt aws", zipped(HUNT_AWS))
        self.publish("skypilot aws", SKY_AWS.encode())

    def publish(self, name: str, body: bytes | Exception, version: bytes = b"20261119-1234\n") -> None:
        source = next(source for source in SOURCES if source.name == name)
        self.pages[source.url.format(version=version.decode().strip())] = body
        if source.version_url:
            self.pages[source.version_url] = version

    def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        page = self.pages.get(url) or HTTPError(url, 404, "Not Found", Message(), None)
        if isinstance(page, Exception):
            raise page
        return page
