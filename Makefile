# The project's commands; `make` alone lists them. They need python3 (3.11 or newer) and make, nothing else.
# Two environments lie beside the code: .venv (the service, its tests and checks) and .venv-engine (the model server).

SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
BENCHES := $(filter-out __init__,$(notdir $(basename $(wildcard bench/*.py))))
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate $(LOCK_ARGS)

# Where the GPU unit finds the interpreter that runs vLLM.
ANEX_ENGINE_PYTHON ?= $(CURDIR)/.venv-engine/bin/python
export ANEX_ENGINE_PYTHON

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Steps come in the order they are written, with -j too: the tests share two cores as it is.
.NOTPARALLEL:
.PHONY: help setup engine demo up test test-fast test-outside test-engine coverage check format lock bench faults clean distclean

help: ## List these commands
	@$(PYTHON) -c "import re; [print(f'make {name:<14}{text}') for name, text in re.findall(r'^([a-z-]+):.*## (.+)', open('Makefile').read(), re.M)]"

setup: $(VENV)/.installed ## Make the service's environment from the locks (about a minute; later at once)

# Made anew when a lock changes: what the lock no longer names must not stay.
$(VENV)/.locked: requirements/dev.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
	  { echo "anex needs Python 3.11 or newer. Name one: make PYTHON=/path/to/python3.11 setup" >&2; exit 1; }
	@$(PYTHON) -c "import ensurepip, venv" 2>/dev/null || \
	  { echo "This Python cannot make environments. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Making $(VENV) from requirements/dev.txt (about a minute)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --quiet --quiet --require-hashes -r requirements/dev.txt
	@$(PIP) check
	@touch $@

# Editable: puts the project's folder on the environment's path and the command `anex` into its bin.
$(VENV)/.installed: $(VENV)/.locked setup.cfg setup.py requirements/base.in requirements/stack.in requirements/dev.in
	@$(PIP) install --quiet --quiet --no-deps --no-build-isolation --use-pep517 --editable .
	@touch $@

engine: setup ## Make the model server's environment, CPU build (minutes; later at once)
	@$(BIN)/python -m config.stack.engine_env .venv-engine

demo: setup engine ## One real job from file to result, on this machine
	@$(BIN)/anex demo

up: setup engine ## Run the whole service on this machine, until Ctrl-C
	@$(BIN)/anex up

test: test-fast test-engine ## Run every test, in two phases

test-fast: setup ## Phase one: everything that needs neither a model nor a machine to itself, on two processes
	$(PYTEST) -n 2 -m "not engine and not outside" $(PYTEST_ARGS)

test-outside: setup ## The API under faults and as generated clients, curl and raw HTTP use it; some minutes
	$(PYTEST) -m outside $(PYTEST_ARGS)

test-engine: setup engine ## Phase two: tests of a real model server or a whole stack, one after another
	$(PYTEST) -m engine $(PYTEST_ARGS)

coverage: setup ## Phase one with branch coverage
	$(PYTEST) -n 2 -m "not engine and not outside" --cov --cov-report=term-missing $(PYTEST_ARGS)

check: setup ## Formatting, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

format: setup ## Format the code and repair what lint can repair
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup ## Make requirements/{base,stack,dev}.txt from the .in files (LOCK_ARGS=--upgrade for newer versions)
	$(LOCK) requirements/base.in -o requirements/base.txt
	$(LOCK) requirements/base.in requirements/stack.in -c requirements/base.txt -o requirements/stack.txt
	$(LOCK) requirements/base.in requirements/stack.in requirements/dev.in -c requirements/stack.txt \
	  -o requirements/dev.txt

bench: setup ## Run the benchmark BENCH=name, or all
	@test -n "$(BENCH)$(BENCHES)" || { echo "bench/ holds no benchmark." >&2; exit 1; }
	@set -e; for name in $(or $(BENCH),$(BENCHES)); do $(BIN)/python -m bench.$$name; done

faults: setup ## Run the tests that break things on purpose
	$(PYTEST) tests/faults $(PYTEST_ARGS)

clean: ## Remove caches and build leftovers
	rm -rf build *.egg-info .coverage .hypothesis .import_linter_cache .mypy_cache .ruff_cache

distclean: clean ## Remove both environments too; jobs and files in .anex stay
	rm -rf $(VENV) .venv-engine
