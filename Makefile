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

.PHONY: demo test check slow bench bench-quick bench-studies clean

demo: $(VENV)/installed
	$(BIN)/seedbed run quickstart --home $(or $(SEEDBED_HOME),lab)

test: $(VENV)/installed-dev check
	$(BIN)/pytest

check: $(VENV)/installed-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

slow: $(VENV)/installed-dev
	$(BIN)/pytest -m slow

bench: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench.py

bench-quick: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench.py --quick

bench-studies: $(VENV)/installed-dev
	$(BIN)/python benchmarks/bench.py --studies

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
