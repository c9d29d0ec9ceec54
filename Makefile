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

.PHONY: demo test lone check slow placements bench bench-quick bench-studies gpu-check clean

demo: $(VENV)/installed
	$(BIN)/seedbed run quickstart --home $(or $(SEEDBED_HOME),lab)

test: $(VENV)/installed-dev check
	$(BIN)/pytest

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

slow: $(VENV)/installed-dev
	$(BIN)/pytest -m slow

# A run's numbers in 50 placements of 10 runs of each family: an hour or more.
placements: $(VENV)/installed-dev
	$(BIN)/python benchmarks/placements.py --threads 1
	$(BIN)/python benchmarks/placements.py --reproducible

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench.py

bench-quick: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench.py --quick

bench-studies: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench.py --studies

# Needs a GPU: every shape, precision and mode that a shipped study can ask for.
gpu-check: $(VENV)/installed-dev
	$(BIN)/python benchmarks/combinations.py --device cuda

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
