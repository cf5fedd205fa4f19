# `make` or `make help` lists what there is; every other benchmark is a module of bench/ (docs/how-we-know.md).
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
DATA := data/images
# Seconds at most: it ends as soon as the verdict holds.
DEMO_BUDGET ?= 120

# Every launch imports Stash again, and every session of tests rewrites its asserts unless it finds them rewritten.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check docs house truth faults validate choices spot-truth gpu

# Python compiles what is imported, when it is: of all that is installed little ever is.
PIP := $(BIN)/pip --disable-pip-version-check --quiet install --no-compile --constraint constraints-dev.txt

# A plain install with the models that come with Stash: all that a first profile needs. The pinned torch is the
# CPU-sized one the tests run with; a GPU build of it serves as well.
STASH_EXTRA ?= zoo
$(BIN)/stash: pyproject.toml constraints-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable '.[$(STASH_EXTRA)]'
	@touch $@

# What tests, checks and benchmarks need beside it, in the same environment; STASH_EXTRA=dev has installed it at once.
DEV := $(BIN)/pytest
$(DEV): $(BIN)/stash
	@test '$(STASH_EXTRA)' = dev -a -x $@ || $(PIP) --editable '.[dev]'
	@touch $@

$(DATA)/stash-dataset.json: | $(BIN)/stash
	$(BIN)/stash lab dataset make images $(DATA) --count 600

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-10s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(BIN)/stash $(DATA)/stash-dataset.json  ## a first profile: installs, makes a small data set, profiles SqueezeNet on it (two minutes)
	$(BIN)/stash profile --workload squeezenet1_0 --data $(DATA) --batch 8 --budget $(DEMO_BUDGET) \
		--output squeezenet1_0.stash.json -- --image-size 112

# Two at a time: a profile waits as much as it computes. Whoever is done first takes tests from the other. Then those
# whose truth other tests would change, which take all of a disk.
test: $(DEV)  ## the tests, without slow ones (six minutes on two cores)
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not alone"
	$(BIN)/pytest tests/truth -m "alone and not slow"

check: $(DEV)  ## style, types, layers, size, links, the site (two minutes)
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m bench.house --check
	$(BIN)/python tests/links.py README.md CONTRIBUTING.md SECURITY.md docs examples/README.md bench/RESULTS.md
	$(MAKE) --no-print-directory docs

truth: $(DEV)  ## every stall against known truth, on emulated clusters (root; half an hour)
	$(BIN)/python -m bench.truth
	$(BIN)/python -m bench.truth.pipelines
	$(BIN)/python -m bench.truth.groups
	$(BIN)/python -m bench.truth.zero
	$(BIN)/python -m bench.truth.computing

faults: $(DEV)  ## what goes wrong on real machines, done to real profiles (root)
	$(BIN)/python -m tests.faults
	$(BIN)/python -m tests.faults.fuzz --mutations 10000
	$(BIN)/python -m tests.faults.kills --kills 40 --requests 60
	$(BIN)/pytest -q tests/browser/test_payloads.py
	$(BIN)/python -m tests.faults.soak --profiles 50 --at-once 8

validate: $(DEV)  ## predictions against measurements they were not fitted to: build/validation.md (root)
	$(BIN)/python -m bench.predict.testbed
	$(BIN)/python -m bench.predict

choices: $(DEV)  ## what recommended machines cost more than the best: build/recommendation.md (20 min)
	$(BIN)/python -m bench.plan

spot-truth: $(DEV)  ## speeds of fleets against fleets trained on emulated hosts (root)
	$(BIN)/python -m bench.spot.truth

# Needs no installation beside torch, numpy and what else `python bench/gpu.py` asks for.
MINUTES ?= 8
GPU_PYTHON ?= $(PYTHON)
gpu:  ## what a GPU can show, against truth made on it: MINUTES=8, tables in gpu.md
	PYTHONPATH=src $(GPU_PYTHON) bench/gpu.py --minutes $(MINUTES) --out gpu.md

docs: $(DEV)  ## the site, with the reference of commands, functions and fields: build/site
	$(BIN)/python -m bench.docs.llms
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

house: $(BIN)/stash  ## how large the house is, in syntax; renews bench/house.json
	$(BIN)/python -m bench.house
