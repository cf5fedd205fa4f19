# make demo   a first profile: installs, makes a small data set, profiles ResNet-18 on it
# make test   the tests        make check  style, types, layers, links
# make test-all also the slow ones
# make bench  the benchmarks of docs/benchmarks.md
# make truth  every stall against known truth, on emulated clusters (root); make broken: that broken builds fail it
# make peers  the same faulty jobs given to other tools (root); make headlines: the paper's two effects (root)
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
DATA := data/images

.PHONY: demo test test-all check bench truth broken peers headlines clean

# The pinned torch is the CPU-sized one the tests run with; a GPU build of it serves as well.
$(BIN)/stash: pyproject.toml constraints-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints-dev.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints-dev.txt --editable '.[dev]'
	@touch $@

$(DATA)/stash-dataset.json: | $(BIN)/stash
	$(BIN)/stash dataset make images $(DATA) --count 600

demo: $(BIN)/stash $(DATA)/stash-dataset.json
	$(BIN)/stash profile --workload resnet18 --data $(DATA) --batch 8 --output resnet18.stash.json -- --image-size 112

test: $(BIN)/stash
	$(BIN)/pytest -m "not slow"

test-all: $(BIN)/stash
	$(BIN)/pytest

check: $(BIN)/stash
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/links.py README.md docs

bench: $(BIN)/stash $(DATA)/stash-dataset.json
	$(BIN)/python bench/time_to_answer.py
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/import_time.py
	$(BIN)/python bench/catalog.py

truth: $(BIN)/stash
	$(BIN)/python bench/truth.py
	$(BIN)/python bench/interval_coverage.py

broken: $(BIN)/stash
	$(BIN)/python bench/broken.py

peers: $(BIN)/stash
	$(BIN)/python bench/peers/run.py

headlines: $(BIN)/stash
	$(BIN)/python bench/headlines.py

clean:
	rm -rf $(VENV) data build dist *.egg-info
