# Two commands to know: `make demo` (train and show something) and `make test` (everything that must hold).
# Both do all their own set-up; they need Python 3.11 or newer with pip, nothing else.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The real corpora, where they lie beside the project; tests that need them say so and are skipped elsewhere.
ifneq ($(wildcard ../shared/data),)
SEEDBED_DATA ?= $(abspath ../shared/data)
export SEEDBED_DATA
endif

.PHONY: demo test lone check cluster cluster-trials scale slow faults soak placements bench bench-quick bench-studies gpu-check reference docs \
  package sbom clean

demo: $(VENV)/installed
	$(BIN)/seedbed run quickstart --home $(or $(SEEDBED_HOME),lab)

# Two files at a time: most of a test file is one process, and two share the cores of the smallest machines.
test: $(VENV)/installed-dev check
	$(BIN)/pytest -n 2 --dist loadfile

# What a clone that stands alone could miss: no corpora beside it, an empty cache, and no network where that can be cut off.
LONE := tests/data tests/study/test_library.py tests/stats/test_copying.py tests/training/test_text_training.py tests/test_docs.py
OFFLINE := unshare -rn sh -c 'ip link set lo up && exec "$$@"' sh
lone: $(VENV)/installed-dev
	rm -rf $(VENV)/lone && git clone -q . $(VENV)/lone/seedbed && mkdir $(VENV)/lone/cache
	cd $(VENV)/lone/seedbed && unset SEEDBED_DATA && export XDG_CACHE_HOME=../cache PYTHONPATH=src && \
	  if $(OFFLINE) true 2>/dev/null; then set -- $(OFFLINE); else set --; fi && \
	  "$$@" $(abspath $(BIN))/pytest -p no:cacheprovider $(LONE)
	rm -rf $(VENV)/lone

check: $(VENV)/installed-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

# A Ray cluster of two nodes on this machine: the engine's contract, and with a home and PostgreSQL the same bytes, a lost
# worker and a lost node.
cluster: $(VENV)/installed-cluster
	$(BIN)/pytest -m 'cluster and not slow' tests/contracts/test_engine.py tests/engines/test_ray.py

# With a home and with PostgreSQL: workers and nodes killed in 10 trials each, overhead per pack, 1,000 packs; 16 writers and
# 20 x 2 commands on PostgreSQL. An hour.
cluster-trials: $(VENV)/installed-cluster
	$(BIN)/python benchmarks/cluster.py
	$(BIN)/python benchmarks/shared_store.py

# What each transaction costs, up to 16 writers at once, 10⁶ runs simulated with these costs, and 10,000 tiny runs trained
# beside what the simulation says of them (docs/scale.md); needs PostgreSQL's programs. A quarter of an hour.
SCALE := $(BIN)/python benchmarks/scale.py
scale: $(VENV)/installed-cluster
	$(SCALE) measure --out $(VENV)/costs.json
	$(SCALE) saturate
	$(SCALE) simulate --costs $(VENV)/costs.json
	$(SCALE) check --costs $(VENV)/costs.json

slow: $(VENV)/installed-dev
	$(BIN)/pytest -m slow

# The long part of tests/faults: kills, errors, lost homes and power losses at every operation on the disk (EVERY=9: at every
# ninth), 100 signals over all phases, 100,000 study files, 10,000 tables and corpora. An hour or more.
faults: $(VENV)/installed-dev
	FAULTS_EVERY=$(or $(EVERY),1) $(BIN)/pytest -m slow -s tests/faults tests/store

# Train, interrupt, resume, read and remove for an hour (MINUTES=5: for five minutes); memory and handles must stay flat.
soak: $(VENV)/installed-dev
	$(BIN)/python benchmarks/soak.py --minutes $(or $(MINUTES),60)

# A run's numbers in 50 placements (PLACEMENTS=4: in four) of 10 runs of each family: an hour or more.
placements: $(VENV)/installed-dev
	$(BIN)/python benchmarks/placements.py --threads 1 --placements $(or $(PLACEMENTS),50)
	$(BIN)/python benchmarks/placements.py --reproducible --placements $(or $(PLACEMENTS),50)

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench.py

bench-quick: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench.py --quick

bench-studies: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench.py --studies

# Needs a GPU: every shape, precision and mode that a shipped study can ask for.
gpu-check: $(VENV)/installed-dev
	$(BIN)/python benchmarks/combinations.py --device cuda

# The pages that are written from the code: settings, study file, verbs, metrics, JSON.
reference: $(VENV)/installed-dev
	$(BIN)/python docs/build.py

# The documentation as a site that needs no network, in site/.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -q

# The sdist and the wheel that is built from it, in dist/, and the wheel tried where nothing else is installed.
package: $(VENV)/installed-release
	rm -rf dist $(VENV)/clean && $(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv $(VENV)/clean && $(VENV)/clean/bin/$(PIP) dist/*.whl
	cd $(VENV)/clean && unset PYTHONPATH && export SEEDBED_RATES=rates.json && bin/seedbed --version && \
	  bin/seedbed run quickstart train.steps=20 seeds=2 --home lab && bin/seedbed report quickstart --home lab

# What installing that wheel brings with it, as a CycloneDX bill of materials.
sbom: package
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/seedbed.cdx.json \
	  $(VENV)/clean/bin/python

# What is tested is pinned by constraints.txt; what is accepted stands in pyproject.toml.
PIP := python -m pip install -q --disable-pip-version-check -c constraints.txt

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP) -e .
	touch $@

$(VENV)/installed-%: $(VENV)/installed
	$(BIN)/$(PIP) -e '.[$*]'
	touch $@

$(VENV)/installed-cluster: $(VENV)/installed-dev

clean:
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache
