"""Findings about what a machine is."""

from __future__ import annotations

from probe_builder import gpus, host
from readings import found

from stash.core.records.host import Limits, Nic


def test_limits_steal_and_a_lost_gpu_are_said():
    broken = (*gpus(3), gpus(4)[3].model_copy(update={"fault": "GPU is lost"}))
    named = found(
        host(gpus=broken, limits=Limits(cpus=2.0, memory_bytes=8 * 2**30), steal_fraction=0.07)
    )
    assert named["lost-gpu"] == ["GPU 3 does not answer: the driver says 'GPU is lost'"]
    assert "allows 2 CPUs of the 8 cores" in named["cpu-limit"][0]
    assert "8.59 GB" in named["memory-limit"][0]
    assert "7.0%" in named["steal"][0]
    assert found(host(limits=Limits(cpus=8.0), steal_fraction=0.001)) == {}


def test_a_machine_that_is_not_what_its_type_promises():
    named = found(
        host(gpus=gpus(3, "Tesla T4", 15 * 2**30), cores=16, memory_bytes=120 * 2**30),
        against="p3.8xlarge",
    )
    assert set(named) == {"gpu-count", "vcpu-count", "gpu-model", "memory"}
    assert "3 GPUs work here, p3.8xlarge has 4 (catalog of 2026-11-20" in named["gpu-count"][0]
    promised = host(gpus=gpus(4), cores=32, memory_bytes=240 * 2**30)
    assert found(promised, against="p3.8xlarge") == {}


def test_rdma_is_missed_only_where_the_type_can_have_it_and_interfaces_were_seen():
    plain = {"cores": 96, "memory_bytes": 768 * 2**30, "gpus": gpus(8, memory=32 * 2**30)}
    nic = Nic(name="ens5", driver="ena")
    assert "no-rdma" in found(host(nics=(nic,), **plain), against="p3dn.24xlarge")
    assert "no-rdma" not in found(
        host(nics=(nic.model_copy(update={"rdma": "efa_0"}),), **plain), against="p3dn.24xlarge"
    )
    assert "no-rdma" not in found(host(**plain), against="p3dn.24xlarge")
