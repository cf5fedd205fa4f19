# make demo   a first profile: installs, makes a small data set, profiles SqueezeNet on it
# make test   installs the development tools and runs the tests; make check: style, types, layers, links, the site
# make test-all also the slow ones
# make bench  what Stash costs and how right it is
# make truth  every stall against known truth, on emulated clusters (root); make broken: that broken builds fail it
# make cases  bug reports as scripts: row, line and remedy named, or wrong (1/2 h)
# make faults what goes wrong on real machines, done to real profiles, and a table of every case (root)
# make compat real projects (timm, keras, transformers …) under Stash, and a table of them
# make docs   the documentation as a site, with the reference of every command, function and field: build/site
# make house  how large the house is, in syntax, and bench/house.json, above which nothing may rise unseen
# make validate every prediction against measurements it was not fitted to, and build/validation.md (root)
# make choices what recommended machines cost more than the best ones, and build/recommendation.md (20 min)
# make study  the paper's grid of models and machines on an emulated fleet, and build/study.md (root; 20 min)
# make spot   how well fleets and losses are predicted
# make spot-truth how well speeds of fleets are predicted that trained on emulated hosts
# make remedies what `stash fix` promises against what its patches bring (5 h)
# make noise  profiles beside other work on the machine, against the quiet truth (root; 3 h, can be interrupted)
# make gpu    what a GPU can show, against truth made on it: MINUTES=8, tables in gpu.md
# make peers  the same faulty jobs given to other tools (root)
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
DATA := data/images
# Seconds at most: it ends as soon as the verdict holds.
DEMO_BUDGET ?= 120

# Every launch imports Stash again, and every session of tests rewrites its asserts unless it finds them rewritten.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all check bench truth cases broken faults validate choices study spot spot-truth remedies noise gpu peers compat docs house clean

# Python compiles what is imported, when it is: of all that is installed little ever is.
PIP := $(BIN)/pip --disable-pip-version-check --quiet install --no-compile --constraint constraints-dev.txt

# A plain install with the models that come with Stash: all that a first profile needs. The pinned torch is the
# CPU-sized one the tests run with; a GPU build of it serves as well.
$(BIN)/stash: pyproject.toml constraints-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable '.[zoo]'
	@touch $@

# What tests, checks and benchmarks need beside it, in the same environment.
DEV := $(BIN)/pytest
$(DEV): $(BIN)/stash
	$(PIP) --editable '.[dev]'
	@touch $@

$(DATA)/stash-dataset.json: | $(BIN)/stash
	$(BIN)/stash lab dataset make images $(DATA) --count 600

demo: $(BIN)/stash $(DATA)/stash-dataset.json
	$(BIN)/stash profile --workload squeezenet1_0 --data $(DATA) --batch 8 --budget $(DEMO_BUDGET) \
		--output squeezenet1_0.stash.json -- --image-size 112

# Two at a time: a profile waits as much as it computes. Whoever is done first takes tests from the other. Then those
# whose truth other tests would change, which take all of a disk.
test: $(DEV)
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not alone"
	$(BIN)/pytest tests/truth -m "alone and not slow"

test-all: $(DEV)
	$(BIN)/pytest -n 2 --dist worksteal --hypothesis-profile nightly

check: $(DEV)
	$(BIN)/ruff check src tests bench examples
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m bench.house --check
	$(BIN)/python tests/links.py README.md CONTRIBUTING.md SECURITY.md docs examples/README.md bench/RESULTS.md
	$(MAKE) --no-print-directory docs

bench: $(DEV)
	$(BIN)/python -m bench.overhead
	$(BIN)/python -m bench.import_time
	$(BIN)/python -m bench.interval_coverage
	$(BIN)/python -m bench.scale

truth: $(DEV)
	$(BIN)/python -m bench.truth
	$(BIN)/python -m bench.truth.pipelines
	$(BIN)/python -m bench.truth.groups
	$(BIN)/python -m bench.truth.zero
	$(BIN)/python -m bench.truth.computing

cases: $(DEV)
	$(BIN)/python -m bench.cases

broken: $(DEV)
	$(BIN)/python -m bench.truth.broken

faults: $(DEV)
	$(BIN)/python -m tests.faults
	$(BIN)/python -m tests.faults.fuzz --mutations 10000
	$(BIN)/python -m tests.faults.kills --kills 40 --requests 60
	$(BIN)/pytest -q tests/browser/test_payloads.py
	$(BIN)/python -m tests.faults.soak --profiles 50 --at-once 8

validate: $(DEV)
	$(BIN)/python -m bench.predict.testbed
	$(BIN)/python -m bench.predict

choices: $(DEV)
	$(BIN)/python -m bench.plan

study: $(DEV)
	$(BIN)/python -m bench.study

spot: $(DEV)
	$(BIN)/python -m bench.spot.speeds
	$(BIN)/python -m bench.spot.paper_loss
	$(BIN)/python -m bench.spot.learned

spot-truth: $(DEV)
	$(BIN)/python -m bench.spot.truth

remedies: $(DEV)
	$(BIN)/python -m bench.fix

NOISE ?= build/noise
noise: $(DEV)
	$(BIN)/python -m bench.noise.record --out $(NOISE)
	$(BIN)/python -m bench.noise.play $(NOISE)

# Needs no installation beside torch, numpy, scipy and what else `python bench/gpu.py` asks for.
MINUTES ?= 8
GPU_PYTHON ?= $(PYTHON)
gpu:
	PYTHONPATH=src $(GPU_PYTHON) bench/gpu.py --minutes $(MINUTES) --out gpu.md

peers: $(DEV)
	$(BIN)/python -m bench.peers

# Environments of its own, outside the repository; ONLY="timm keras" renews those rows.
compat: $(DEV)
	$(BIN)/python -m tests.compat $(if $(ONLY),--only $(ONLY))

docs: $(DEV)
	$(BIN)/python -m bench.docs.llms
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

house: $(BIN)/stash
	$(BIN)/python -m bench.house

clean:
	rm -rf $(VENV) data build dist *.egg-info
