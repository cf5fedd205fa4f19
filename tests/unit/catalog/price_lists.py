"""Price lists as they are published, and a fake internet to publish them on."""

from __future__ import annotations

import io
import zipfile
from email.message import Message
from urllib.error import HTTPError

from stash.catalog.refresh import GPUHUNT

# Heads and lines as gpuhunt (src/gpuhunt/_internal/storage.py, v3) publishes them.
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
    + "x1.made,us-east-1,2.0,8,61.0,1,V100,32.0,False,,nvidia,,x86,{}\n"
    + "m5.large,us-east-1,0.1,2,8.0,0,,,False,,,,x86,{}\n"
    + "t2.nano,us-east-1,0.0058,1,0.5,0,,,False,,,,x86,{}\n"
)
HUNT_GCP = (
    HUNT_HEAD
    + "n1-standard-8,us-central1-a,2.7,8,30.0,1,V100,16.0,False,,nvidia,,x86,{}\n"
    + "n1-standard-8,us-central1-f,2.9,8,30.0,1,V100,16.0,False,,nvidia,,x86,{}\n"
    + "v5litepod-8,us-central1-a,9.6,224,384.0,1,tpu-v5litepod-8,128.0,False,,google,,x86,{}\n"
)


def zip_text(text, name="aws.csv"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return buffer.getvalue()


class Web:
    """A fake internet: what is published where; everything else answers 404."""

    def __init__(self):
        self.pages: dict[str, bytes | Exception] = {}
        self.publish("gpuhunt aws", zip_text(HUNT_AWS))
        self.publish("gpuhunt gcp", zip_text(HUNT_GCP, "gcp.csv"))

    def publish(self, name, body, version=b"20261119-1234\n"):
        folder = f"{GPUHUNT}/{name.removeprefix('gpuhunt ')}"
        self.pages[f"{folder}/{version.decode().strip()}/catalog.zip"] = body
        self.pages[f"{folder}/version"] = version

    def __call__(self, url):
        page = self.pages.get(url) or HTTPError(url, 404, "Not Found", Message(), None)
        if isinstance(page, Exception):
            raise page
        return page
