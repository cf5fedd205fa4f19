"""The seam: what fleets (``study``, ``spot``, ``market``), ``schedule`` and users take of the features below them.

A name stands here as long as one of them needs it; import-linter refuses every other way. What these names mean is
documented where they live. ``core`` and ``ui`` know no feature, and are imported as they are. Loads what it names on
first use.
"""

from __future__ import annotations

from stash.core.front import make_lazy_access

TYPE_CHECKING = False  # as typing has it
if TYPE_CHECKING:
    from stash.analysis.attribution import attribute
    from stash.analysis.breakdown import Breakdown
    from stash.analysis.step_times import count_readers
    from stash.catalog.facts import OLD_DAYS as OLD_PRICE_DAYS
    from stash.catalog.facts import Date, GpuFacts, Instance, Offer, price_age
    from stash.catalog.layers import load as load_catalog
    from stash.catalog.machines import VALUE_BYTES, Ownership, peak_rates
    from stash.catalog.machines import find_variants as gpu_variants
    from stash.catalog.offers import Catalog, OfferFilter
    from stash.catalog.own import ON_PREMISE, ByteRate, Dollars, PowerPrice, Purchase, Watts
    from stash.catalog.reference import Tariff, model_key, tariffs
    from stash.catalog.reference import speeds as published_speeds
    from stash.catalog.sky import AUTOSTOP, CLOUDS, plain_name
    from stash.catalog.sky import resources as sky_resources
    from stash.catalog.sky import task_yaml as sky_task_yaml
    from stash.catalog.sky import where as sky_place
    from stash.core.artefact import load, save
    from stash.core.records.profile import Profile
    from stash.lab.testbed.bed import Started
    from stash.lab.testbed.emulation import Emulation
    from stash.lab.testbed.emulation import dump as emulation_yaml
    from stash.lab.testbed.generate import emulate_workload
    from stash.lab.zoo.registry import WORKLOADS, WorkloadSpec
    from stash.lab.zoo.registry import workload as find_workload
    from stash.measure.agent.watch import loader, phase, step
    from stash.measure.from_python import profile
    from stash.measure.host.notices import Notice, NoticeWatch, sigterm_as_notice
    from stash.measure.host.notices import find_services as notice_services
    from stash.measure.linux.processes import find_by_variable as find_processes
    from stash.measure.linux.processes import list_descendants
    from stash.measure.linux.processes import status_of as process_status
    from stash.measure.protocol.folder import lock as lock_file
    from stash.plan.candidates import resolve_names
    from stash.plan.hourly_prices import RECENT_DAYS, is_recent
    from stash.plan.launch import task_body, task_name
    from stash.plan.plan_options import PlanOptions, TrainedJob, training_work
    from stash.plan.records import Constraints
    from stash.predict.changes import Alteration, named_gpu
    from stash.predict.cluster import reached_share
    from stash.predict.cluster_sources import network_rate
    from stash.predict.cluster_sources import target_of_instance as instance_target
    from stash.predict.draws import Array, Quantity, given_quantity
    from stash.predict.forecasting import base_of as forecast_base
    from stash.predict.forecasting import lost_stalls as missing_stalls
    from stash.predict.forecasting import shipped_catalog, stall_draws, what_if
    from stash.predict.memory import job_footprint
    from stash.predict.passes import Base
    from stash.report.output import file_of as page_file
    from stash.report.output import print_output as print_answer
    from stash.store.storing import open_store
    from stash.store.storing import profile_of as find_profile

HOMES = {
    "attribute": "stash.analysis.attribution",
    "Breakdown": "stash.analysis.breakdown",
    "count_readers": "stash.analysis.step_times",
    "Date": "stash.catalog.facts",
    "GpuFacts": "stash.catalog.facts",
    "Instance": "stash.catalog.facts",
    "OLD_PRICE_DAYS": "stash.catalog.facts:OLD_DAYS",
    "Offer": "stash.catalog.facts",
    "price_age": "stash.catalog.facts",
    "load_catalog": "stash.catalog.layers:load",
    "Ownership": "stash.catalog.machines",
    "VALUE_BYTES": "stash.catalog.machines",
    "gpu_variants": "stash.catalog.machines:find_variants",
    "peak_rates": "stash.catalog.machines",
    "Catalog": "stash.catalog.offers",
    "OfferFilter": "stash.catalog.offers",
    "ByteRate": "stash.catalog.own",
    "Dollars": "stash.catalog.own",
    "ON_PREMISE": "stash.catalog.own",
    "PowerPrice": "stash.catalog.own",
    "Purchase": "stash.catalog.own",
    "Watts": "stash.catalog.own",
    "Tariff": "stash.catalog.reference",
    "model_key": "stash.catalog.reference",
    "published_speeds": "stash.catalog.reference:speeds",
    "tariffs": "stash.catalog.reference",
    "AUTOSTOP": "stash.catalog.sky",
    "CLOUDS": "stash.catalog.sky",
    "plain_name": "stash.catalog.sky",
    "sky_place": "stash.catalog.sky:where",
    "sky_resources": "stash.catalog.sky:resources",
    "sky_task_yaml": "stash.catalog.sky:task_yaml",
    "load": "stash.core.artefact",
    "save": "stash.core.artefact",
    "Profile": "stash.core.records.profile",
    "Started": "stash.lab.testbed.bed",
    "Emulation": "stash.lab.testbed.emulation",
    "emulation_yaml": "stash.lab.testbed.emulation:dump",
    "emulate_workload": "stash.lab.testbed.generate",
    "WORKLOADS": "stash.lab.zoo.registry",
    "WorkloadSpec": "stash.lab.zoo.registry",
    "find_workload": "stash.lab.zoo.registry:workload",
    "loader": "stash.measure.agent.watch",
    "phase": "stash.measure.agent.watch",
    "step": "stash.measure.agent.watch",
    "profile": "stash.measure.from_python",
    "Notice": "stash.measure.host.notices",
    "NoticeWatch": "stash.measure.host.notices",
    "notice_services": "stash.measure.host.notices:find_services",
    "sigterm_as_notice": "stash.measure.host.notices",
    "list_descendants": "stash.measure.linux.processes",
    "find_processes": "stash.measure.linux.processes:find_by_variable",
    "process_status": "stash.measure.linux.processes:status_of",
    "lock_file": "stash.measure.protocol.folder:lock",
    "resolve_names": "stash.plan.candidates",
    "RECENT_DAYS": "stash.plan.hourly_prices",
    "is_recent": "stash.plan.hourly_prices",
    "task_body": "stash.plan.launch",
    "task_name": "stash.plan.launch",
    "PlanOptions": "stash.plan.plan_options",
    "TrainedJob": "stash.plan.plan_options",
    "training_work": "stash.plan.plan_options",
    "Constraints": "stash.plan.records",
    "Alteration": "stash.predict.changes",
    "named_gpu": "stash.predict.changes",
    "reached_share": "stash.predict.cluster",
    "instance_target": "stash.predict.cluster_sources:target_of_instance",
    "network_rate": "stash.predict.cluster_sources",
    "Array": "stash.predict.draws",
    "Quantity": "stash.predict.draws",
    "given_quantity": "stash.predict.draws",
    "forecast_base": "stash.predict.forecasting:base_of",
    "missing_stalls": "stash.predict.forecasting:lost_stalls",
    "shipped_catalog": "stash.predict.forecasting",
    "stall_draws": "stash.predict.forecasting",
    "what_if": "stash.predict.forecasting",
    "job_footprint": "stash.predict.memory",
    "Base": "stash.predict.passes",
    "page_file": "stash.report.output:file_of",
    "print_answer": "stash.report.output:print_output",
    "find_profile": "stash.store.storing:profile_of",
    "open_store": "stash.store.storing",
}
"""Of each name the module in which it lives, and what it is called there if not the same."""

__all__ = [
    "AUTOSTOP",
    "CLOUDS",
    "OLD_PRICE_DAYS",
    "ON_PREMISE",
    "RECENT_DAYS",
    "VALUE_BYTES",
    "WORKLOADS",
    "Alteration",
    "Array",
    "Base",
    "Breakdown",
    "ByteRate",
    "Catalog",
    "Constraints",
    "Date",
    "Dollars",
    "Emulation",
    "GpuFacts",
    "Instance",
    "Notice",
    "NoticeWatch",
    "Offer",
    "OfferFilter",
    "Ownership",
    "PlanOptions",
    "PowerPrice",
    "Profile",
    "Purchase",
    "Quantity",
    "Started",
    "Tariff",
    "TrainedJob",
    "Watts",
    "WorkloadSpec",
    "attribute",
    "count_readers",
    "emulate_workload",
    "emulation_yaml",
    "find_processes",
    "find_profile",
    "find_workload",
    "forecast_base",
    "given_quantity",
    "gpu_variants",
    "instance_target",
    "is_recent",
    "job_footprint",
    "list_descendants",
    "load",
    "load_catalog",
    "loader",
    "lock_file",
    "missing_stalls",
    "model_key",
    "named_gpu",
    "network_rate",
    "notice_services",
    "open_store",
    "page_file",
    "peak_rates",
    "phase",
    "plain_name",
    "price_age",
    "print_answer",
    "process_status",
    "profile",
    "published_speeds",
    "reached_share",
    "resolve_names",
    "save",
    "shipped_catalog",
    "sigterm_as_notice",
    "sky_place",
    "sky_resources",
    "sky_task_yaml",
    "stall_draws",
    "step",
    "tariffs",
    "task_body",
    "task_name",
    "training_work",
    "what_if",
]

__getattr__, __dir__ = make_lazy_access(__name__, HOMES)
