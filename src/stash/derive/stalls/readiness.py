"""When a step's gradients are ready to be exchanged: parameter by parameter, and bucket by bucket.

DistributedDataParallel reduces a bucket once its last gradient is ready. Which gradients a bucket holds is not
recorded: they fill the buckets in the order in which they became ready, which is how the reducer lays buckets out
after the first step. Knows nothing of how long the exchange then takes.
"""

from __future__ import annotations

from itertools import accumulate

from stash.base.records import Profile, Record

_SAME = 0.01
"""Of all bytes: buckets and gradients that differ by more are not of the same parameters."""


class ReadyGradient(Record):
    """One gradient, with all bytes that are ready once it is."""

    name: str
    bytes: int
    ready_seconds: float
    """Since the first gradient of the backward pass was ready."""
    bytes_so_far: int


class ReadyBucket(Record):
    """One bucket, in the order of reduction."""

    number: int
    bytes: int
    ready_seconds: float


class Readiness(Record):
    """The gradients in the order in which they became ready, and their buckets if those can be laid out."""

    gradients: tuple[ReadyGradient, ...]
    buckets: tuple[ReadyBucket, ...]
    why_no_buckets: str | None = None


def readiness(profile: Profile) -> Readiness:
    """The readiness of a profile's gradients; empty where no moment was recorded."""
    work = profile.workload
    timed = [(gradient, gradient.ready_seconds) for gradient in work.gradients]
    known = sorted(((g, at) for g, at in timed if at is not None), key=lambda pair: pair[1])
    sums = list(accumulate(gradient.bytes for gradient, _ in known))
    gradients = tuple(
        ReadyGradient(name=gradient.name, bytes=gradient.bytes, ready_seconds=at, bytes_so_far=so_far)
        for (gradient, at), so_far in zip(known, sums, strict=True)
    )
    why = _why_no_buckets(profile, gradients)
    return Readiness(
        gradients=gradients, buckets=() if why else _buckets(work.bucket_bytes, gradients), why_no_buckets=why
    )


def _why_no_buckets(profile: Profile, gradients: tuple[ReadyGradient, ...]) -> str | None:
    work = profile.workload
    if not gradients:
        return "no gradient's moment was recorded"
    if not work.bucket_bytes:
        return "one rank exchanges nothing" if profile.world_size == 1 else "no bucket was seen to be reduced"
    if len(gradients) < len(work.gradients):
        return "some gradients' moments were not recorded"
    if abs(sum(work.bucket_bytes) - gradients[-1].bytes_so_far) > _SAME * gradients[-1].bytes_so_far:
        return "the buckets' bytes are not those of the gradients"
    return None


def _buckets(sizes: tuple[int, ...], gradients: tuple[ReadyGradient, ...]) -> tuple[ReadyBucket, ...]:
    """Each is ready with the gradient that fills it; rounding of sizes leaves the last to the last gradient."""
    found, last = [], gradients[-1]
    for number, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True), 1):
        filling = next((each for each in gradients if each.bytes_so_far >= end), last)
        found.append(ReadyBucket(number=number, bytes=size, ready_seconds=filling.ready_seconds))
    return tuple(found)
