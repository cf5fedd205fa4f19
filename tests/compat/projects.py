"""The projects of the matrix: what to install, and the command that trains with it. Facts only.

``{data}`` is the folder of generated data, ``{out}`` a folder or name for what the job writes, ``{scripts}`` where
our short scripts lie: those stand in where a project's wheel has no training command of its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Project:
    """One row. ``package`` is the distribution whose version is shown; ``requirements`` are pip's."""

    key: str
    package: str
    requirements: tuple[str, ...]
    command: tuple[str, ...]
    """What follows ``stash profile``."""
    variables: tuple[tuple[str, str], ...] = ()


def _script(name):
    return (f"{{scripts}}/{name}.py", "{data}", "{out}")


def _ranks(name):
    """A script that trains on one device unless it is started as ranks."""
    return ("--nproc-per-node", "2", *_script(name))


_YOLO = (
    "detect",
    "train",
    "model=yolov8n.yaml",
    "data={data}/boxes.yaml",
    "epochs=50",
    "imgsz=64",
    "batch=8",
    "device=cpu",
    "workers=1",
    "plots=False",
    "val=False",
    "project={out}",
    "name=run",
    "exist_ok=True",
    "amp=False",
)
"""Without validation: its suppression of overlapping boxes needs torchvision's compiled half."""
_CLIP = (
    "--train-data",
    "{data}/captions.csv",
    "--dataset-type",
    "csv",
    "--csv-separator",
    ",",
    "--model",
    "ViT-S-32",
    "--batch-size",
    "4",
    "--epochs",
    "50",
    "--workers",
    "1",
    "--precision",
    "fp32",
    "--warmup",
    "5",
    "--logs",
    "{out}",
)

PROJECTS = (
    Project("timm", "timm", ("timm",), _script("timm_loop")),
    Project(
        "ultralytics",
        "ultralytics",
        ("ultralytics",),
        ("--", "yolo", *_YOLO),
        (("YOLO_CONFIG_DIR", "{out}"),),
    ),
    Project("ignite", "pytorch-ignite", ("pytorch-ignite",), _script("ignite_engine")),
    Project("geometric", "torch-geometric", ("torch-geometric",), _script("geometric_loop")),
    Project("mmengine", "mmengine", ("mmengine", "setuptools<81"), _script("mmengine_runner")),
    Project(
        "open_clip",
        "open_clip_torch",
        ("open_clip_torch[training]",),
        ("-m", "open_clip_train.main", *_CLIP),
    ),
    Project("keras", "keras", ("keras",), _script("keras_fit")),
    Project("fastai", "fastai", ("fastai",), _script("fastai_learner")),
    Project("torchdata", "torchdata", ("torchdata",), _script("torchdata_stateful")),
    Project("webdataset", "webdataset", ("webdataset",), _script("webdataset_loop")),
    Project("peft", "peft", ("peft", "transformers", "accelerate"), _ranks("peft_trainer")),
    Project("trl", "trl", ("trl", "transformers", "accelerate"), _ranks("trl_sft")),
    Project(
        "transformers-low",
        "transformers",
        ("transformers==4.44.0", "accelerate==0.33.0"),
        _ranks("hf_trainer"),
    ),
    Project(
        "transformers-4.46",
        "transformers",
        ("transformers==4.46.3", "accelerate==1.2.1"),
        _ranks("hf_trainer"),
    ),
    Project("transformers", "transformers", ("transformers", "accelerate"), _ranks("hf_trainer")),
    Project("accelerate-low", "accelerate", ("accelerate==0.33.0",), _ranks("accelerate_loop")),
    Project("accelerate", "accelerate", ("accelerate",), _ranks("accelerate_loop")),
    Project(
        "lightning-low",
        "lightning",
        ("lightning==2.4.0", "setuptools<81"),
        _script("lightning_fit"),
    ),
    Project("lightning", "lightning", ("lightning",), _script("lightning_fit")),
    Project(
        "deepspeed",
        "deepspeed",
        ("deepspeed",),
        _ranks("deepspeed_zero"),
        (("DS_ACCELERATOR", "cpu"), ("DS_BUILD_OPS", "0")),
    ),
    Project("litgpt", "litgpt", ("litgpt",), _script("litgpt_finetune")),
    Project(
        "torchtune", "torchtune", ("torchtune", "torchao==0.15.0"), _ranks("torchtune_sharded")
    ),
    Project("own-update", "torch", (), _script("own_update")),
    Project("hf-streaming", "datasets", ("datasets",), _script("hf_streaming")),
    Project(
        "mosaic-streaming",
        "mosaicml-streaming",
        ("mosaicml-streaming",),
        _script("mosaic_streaming"),
    ),
    Project("torchdata-nodes", "torchdata", ("torchdata",), _script("torchdata_nodes")),
    Project("drawn-again", "torch", (), _script("drawn_again")),
    Project("fabric", "lightning", ("lightning",), _script("fabric_loop")),
    Project("monai", "monai", ("monai",), _script("monai_cached")),
    Project("gymnasium", "gymnasium", ("gymnasium",), _script("environments_in_threads")),
    Project("held-on-device", "torch", (), _script("held_on_device")),
    Project("functional", "torch", (), _script("functional_training")),
    Project("compiled-step", "torch", (), _script("compiled_step")),
    Project("started-by-hand", "torch", (), _script("started_by_hand")),
)
