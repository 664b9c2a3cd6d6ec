# Everything runs in .venv, which is made when it is missing and brought up to date when pyproject.toml or
# constraints.txt has changed. Nothing else than make and a Python of version 3.11 or later has to be there.

VENV := .venv
BIN := $(VENV)/bin
PYTHONS ?= python3.11 python3.12 python3.13 python3.14 python3 python

# What `make run` reads, and where it writes.
RUN_INPUTS ?= data/generated data/generated/front_end/sg00 data/samples/klr009 data/samples/bir_json_example.json
OUT ?= out
PYTEST_ARGS ?=
# Processes that tests are spread over: as many as there are cores.
PYTEST_WORKERS ?= auto
PYTEST_SPREAD = --numprocesses $(PYTEST_WORKERS) --dist worksteal
BENCH_ARGS ?=

# The stamps carry a checksum of what they were made from: a change makes them stale, a mere touch does not.
KEY := $(shell cat pyproject.toml constraints.txt | cksum | cut -d ' ' -f 1)
CLI_READY := $(VENV)/.ready-cli-$(KEY)
DEV_READY := $(VENV)/.ready-dev-$(KEY)
# An environment that can do everything can run the command too.
RUN_READY := $(if $(wildcard $(DEV_READY)),$(DEV_READY),$(CLI_READY))

# A user's settings for other projects must not leak into this environment.
unexport PYTHONHOME PYTHONPATH PIP_PREFIX PIP_TARGET
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export NO_MKDOCS_2_WARNING := 1

# Twice quiet: errors alone are shown.
PIP_INSTALL := $(BIN)/python -m pip install -q -q --constraint constraints.txt
# pip does not compile what is installed as editable, and some environments keep Python from doing it at start.
COMPILE := $(BIN)/python -m compileall -q arrowir kernels

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-all lint format docs bench clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

run: $(RUN_READY) ## set up, then run the default pipeline over the modules in data/ into out/
	$(BIN)/arrowir run $(RUN_INPUTS) -o $(OUT)

test: $(DEV_READY) ## set up, then run the tests, the slow ones left out
	$(BIN)/python -m pytest $(PYTEST_SPREAD) $(PYTEST_ARGS)

test-all: $(DEV_READY) ## run all tests, the slow ones too
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest --timeout 1800 -m "slow or not slow" $(PYTEST_SPREAD) $(PYTEST_ARGS)

lint: $(DEV_READY) ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(DEV_READY) ## rewrite the code in the project's format and mend what can be mended by rule
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(DEV_READY) ## renew the generated pages and outputs, build the documentation into site/, every warning an error
	$(BIN)/python -m docs.generator
	$(BIN)/mkdocs build --quiet --strict

bench: $(DEV_READY) ## run the benchmarks
	@$(COMPILE)
	$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

clean: ## remove what the other targets wrote, the environment excepted
	rm -rf build dist site out .hypothesis .pytest_cache .ruff_cache .numba_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## remove the environment too
	rm -rf $(VENV)

# A Python is good when it is new enough and can make environments with pip in them. (Linux distributions
# often leave `ensurepip` out.)
$(BIN)/python:
	@for python in $(PYTHONS); do \
	    if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "making $(VENV) with $$($$python --version)"; \
	        $$python -m venv --clear $(VENV) && exit 0; \
	        exit 1; \
	    fi; \
	done; \
	echo "no Python that can make the environment was found among: $(PYTHONS)" >&2; \
	echo "install Python 3.11 or later with its venv and ensurepip modules (on Debian and Ubuntu:" >&2; \
	echo "\`apt-get install python3 python3-venv\`), or name one: \`make PYTHONS=/path/to/python3 ...\`" >&2; \
	exit 1

$(CLI_READY): $(BIN)/python
	@echo "installing arrowir into $(VENV) (about a minute the first time)"
	@$(PIP_INSTALL) --editable '.[cli]'
	@$(COMPILE)
	@rm -f $(VENV)/.ready-* && touch $@

$(DEV_READY): $(BIN)/python
	@echo "installing arrowir and its development tools into $(VENV) (a minute or two the first time)"
	@$(PIP_INSTALL) --editable '.[dev]'
	@$(COMPILE)
	@rm -f $(VENV)/.ready-* && touch $@
