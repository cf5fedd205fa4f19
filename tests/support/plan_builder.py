"""Rental plans by hand: ResNet-50 for 90 epochs on instances of AWS, with every standing a choice can have.

Steps are given stall by stall in milliseconds; times, bills and shares follow from them by pencil arithmetic, so that
every total is the sum of its parts.
"""

import math

from stash.core.intervals import Interval
from stash.plan.records import (
    BillItem,
    Choice,
    Constraints,
    Experiment,
    Goal,
    HourlyPrice,
    PlanFact,
    Relaxation,
    Rental,
    RentalPlan,
    Setting,
    StallShare,
    TrainingWork,
    Unranked,
)

HOUR = 3600.0
SAMPLES = 90 * 1_281_167
BATCH = 64
START_SECONDS = 300.0
PRICES = "karpenter zz_generated.pricing_aws.go"
DOLLARS = {
    "g5.48xlarge": 16.288,
    "p3.16xlarge": 24.48,
    "p3.8xlarge": 12.24,
    "g5.12xlarge": 5.672,
    "g4dn.12xlarge": 3.912,
}
DEVICES = {
    "g5.48xlarge": (8, "A10G"),
    "p3.16xlarge": (8, "V100-SXM2-16GB"),
    "p3.8xlarge": (4, "V100-SXM2-16GB"),
    "g5.12xlarge": (4, "A10G"),
    "g4dn.12xlarge": (4, "T4"),
}
ORIGINS = {"compute": "scaled", "network": "data sheet"}
NETWORK = PlanFact(
    about="what a node's interface carries",
    unit="bytes/s",
    value=1.25e9,
    origin="data sheet",
    as_of="2026-11-20",
    source="karpenter-aws instance-types.md (v1.12)",
)


def around(value, spread=0.04):
    """An interval of ± ``spread`` of the value."""
    return Interval(value=value, low=value * (1 - spread), high=value * (1 + spread), repetitions=6)


def rental(instance, nodes=1):
    devices, device = DEVICES[instance]
    price = HourlyPrice(
        dollars_per_hour=Interval(value=DOLLARS[instance]),
        paid_as="on-demand",
        region="us-east-1",
        as_of="2026-07-20",
        source=PRICES,
    )
    return Rental(
        instance=instance, cloud="aws", nodes=nodes, devices=devices, device=device, price=price
    )


def choice(
    instance,
    nodes,
    standing,
    why,
    stalls,
    on_time=None,
    **changes,
):
    """One choice; ``stalls`` in milliseconds of a step, by name."""
    rented = rental(instance, nodes)
    per_step = BATCH * nodes * rented.devices
    steps = math.ceil(SAMPLES / per_step)
    step = sum(stalls.values()) / 1000
    trains = steps * step
    dollars_per_second = rented.dollars_per_hour / HOUR
    fields = {
        "rented": rented,
        "setting": Setting(),
        "standing": standing,
        "why": why,
        "samples_per_step": per_step,
        "steps": steps,
        "step": around(step),
        "stalls": tuple(
            StallShare(
                name=name,
                seconds=around(ms / 1000),
                share=ms / 1000 / step,
                dollars=around(steps * ms / 1000 * dollars_per_second),
                origin=ORIGINS.get(name, "measured"),
                facts=(NETWORK,) if name == "network" else (),
            )
            for name, ms in stalls.items()
        ),
        "items": (
            BillItem(
                name="training",
                seconds=around(trains),
                dollars=around(trains * dollars_per_second),
                text=f"{steps:,} steps",
            ),
            BillItem(
                name="start-up",
                seconds=around(START_SECONDS, 0.5),
                dollars=around(START_SECONDS * dollars_per_second, 0.5),
                text="boot and image pull",
            ),
        ),
        "seconds": around(trains + START_SECONDS),
        "dollars": around((trains + START_SECONDS) * dollars_per_second),
        "on_time": on_time,
        "origin": "data sheet" if "network" in stalls else "scaled",
        "beyond": ("more nodes than were profiled",) if nodes > 1 else (),
    }
    return Choice(**{**fields, **changes})


def chosen_choice():
    stalls = {
        "compute": 240,
        "transfer": 4,
        "contention": 6,
        "interconnect": 50,
        "prep": 10,
        "fetch": 20,
    }
    return choice("g5.48xlarge", 1, "chosen", "cheapest of what keeps the deadline", stalls, 0.98)


def tied_choice():
    stalls = {
        "compute": 170,
        "transfer": 4,
        "contention": 6,
        "interconnect": 20,
        "prep": 10,
        "fetch": 20,
    }
    return choice("p3.16xlarge", 1, "tied", "as cheap within its intervals", stalls, 0.99)


def front():
    stalls = {
        "compute": 170,
        "transfer": 4,
        "contention": 6,
        "interconnect": 20,
        "network": 65,
        "prep": 10,
        "fetch": 20,
    }
    return choice("p3.16xlarge", 2, "front", "sooner, and dearer", stalls, 0.99)


def lost():
    stalls = {
        "compute": 170,
        "transfer": 4,
        "contention": 6,
        "interconnect": 8,
        "network": 180,
        "fetch": 2,
    }
    return choice("p3.8xlarge", 2, "lost", "49 % of its bill is network stall", stalls, 0.93)


def infeasible(on_time=0.0):
    stalls = {
        "compute": 240,
        "transfer": 4,
        "contention": 4,
        "interconnect": 20,
        "prep": 8,
        "fetch": 14,
    }
    return choice(
        "g5.12xlarge", 1, "infeasible", "misses the deadline by 12 hours", stalls, on_time
    )


def slow():
    stalls = {
        "compute": 440,
        "transfer": 6,
        "contention": 4,
        "interconnect": 30,
        "prep": 5,
        "fetch": 15,
    }
    return choice("g4dn.12xlarge", 1, "infeasible", "misses the deadline by 37 hours", stalls, 0.0)


def plan(**changes):
    """One of every standing, a tie with its experiment, and what could not be ranked."""
    fields = {
        "stash_version": "0",
        "created": "2026-11-22T12:00:00+00:00",
        "workload": "resnet50",
        "profiles": ("train.stash.json",),
        "goal": Goal(
            work=TrainingWork(samples=SAMPLES, text="90 epochs of 1,281,167 samples"),
            deadline_seconds=24 * HOUR,
        ),
        "constraints": Constraints(clouds=("aws",)),
        "choices": (chosen_choice(), tied_choice(), front(), lost(), infeasible(), slow()),
        "unranked": (
            Unranked(instance="p2.8xlarge", cloud="aws", why="its network is not known", count=2),
            Unranked(instance="p5.48xlarge", cloud="aws", why="no price in the catalog", count=1),
        ),
        "experiment": Experiment(
            command=("stash", "profile", "--budget", "300", "train.py"),
            on="p3.16xlarge",
            seconds=600,
            dollars=4.08,
            text="ten minutes of p3.16xlarge settle this, for $4.08",
        ),
        "assumptions": (
            "A fixed batch of 64 on each device: more devices train larger global batches, of as many samples in all",
            "Nothing but instances is paid: no disk, no egress",
        ),
        "warnings": ("prices are 125 days old: stash catalog refresh",),
        "weighed": 1234,
        "pruned": 1100,
        "seed": 0,
        "draws": 2000,
    }
    return RentalPlan(**{**fields, **changes})


def nothing_feasible(**changes):
    """A deadline nothing keeps, and what would have to give."""
    late = [
        item.model_copy(
            update={"standing": "infeasible", "why": "misses the deadline", "on_time": 0.0}
        )
        for item in (front(), tied_choice(), chosen_choice())
    ]
    fields = {
        "goal": Goal(
            work=TrainingWork(samples=SAMPLES, text="90 epochs of 1,281,167 samples"),
            deadline_seconds=4 * HOUR,
            budget_dollars=300,
        ),
        "choices": tuple(late),
        "experiment": None,
        "relaxations": (
            Relaxation(option="deadline", to="10h", text="2 × p3.16xlarge is done in 9.3 hours"),
            Relaxation(
                option="max-nodes",
                to="32",
                text="20 × p3.16xlarge would keep the deadline, for $920",
            ),
        ),
    }
    return plan(**{**fields, **changes})
