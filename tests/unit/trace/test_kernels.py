"""The table of kernels: what each name is, and that the table itself is sound."""

import re

import pytest

from stash.trace.kernels import classes_of, kernel_patterns

EXCHANGE = [
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "void ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32(ncclSymDevArgs)",
    "mscclKernel_Sum_float_LL(ncclDevComm*)",
    "void deep_ep::internode_ll::dispatch<true, 7168>(void*)",
    "void deep_ep::intranode::combine<__nv_bfloat16>(int)",
    "nvshmemi_transfer_put_signal(void*)",
    "void c10d::symmetric_memory::one_shot_all_reduce_kernel<float>(int)",
    "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16>(int)",
    "void vllm::cross_device_reduce_2stage<__half, 8>(vllm::RankData*)",
    "void aiter::allreduce_fusion_kernel_1stage<__hip_bfloat16, 8>(int)",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(int)",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs<2>(int)",
    "gloo:all_reduce",
]
COPY = [
    "Memcpy HtoD (Pageable -> Device)",
    "Memset (Device)",
    "__amd_rocclr_copyBuffer.kd",
    "CopyHostToDevice",
]
COMPUTE = [
    "void at::native::elementwise_kernel<128, 2, ncclKernel_AllReduce>(int)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)",
    "triton_poi_fused_all_reduce_add_0",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16>(cutlass::Params)",
    "void vectorized_gather_kernel<16, long>(char*)",
    "void at::native::indexFuncLargeIndex<nccl>(broadcast)",
    "FlashAttnFwd<dispatch::all_to_all>",
]


@pytest.mark.parametrize(
    ("names", "expected"), [(EXCHANGE, "exchange"), (COPY, "copy"), (COMPUTE, "compute")]
)
def test_a_kernel_is_what_its_own_name_says(names, expected):
    assert {
        name: found
        for name, found in zip(names, classes_of(names), strict=True)
        if found != expected
    } == {}


def test_every_row_can_be_used_and_says_where_it_is_from():
    for row in kernel_patterns():
        assert re.compile(row.pattern)
        assert row.kernel_class in ("exchange", "copy", "compute")
        assert row.library
        assert row.source
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.date)
