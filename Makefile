# Everything a person or a build server needs. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

PYTHON ?= python3
# Each test process has servers of its own; two of them keep two cores busy while one waits for a disk or a JVM.
TEST_PROCESSES ?= 2
ARGS ?=

# Run once more without fast paths. The rest of the suite differs in nothing that they touch.
PLAIN_TESTS := $(addprefix tests/contract/test_,commits.py tables.py transactions.py namespaces.py warehouses.py)

BIN := .venv/bin
SOURCES := $(wildcard calve catalog ingest maintenance query spark_jobs tests bench scripts)
PYTEST := $(BIN)/pytest -q -n $(TEST_PROCESSES) --dist loadgroup --no-loadscope-reorder

# One line for each stage with its time; the output of a command is shown only if it fails.
define stage
@printf '%-14s' '$(1)'; if output="$$($(2) 2>&1)"; then echo "ok, $$SECONDS s"; else echo failed; echo "$$output"; exit 1; fi
endef

.PHONY: help setup run test check format bench bench-ingest proof openapi components proof-components pins clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.installed ## make .venv with everything in it, the command .venv/bin/calve included
	@scripts/spark.sh

.venv/.installed: requirements.txt requirements-dev.txt pyproject.toml scripts/setup.sh
	@PYTHON=$(PYTHON) scripts/setup.sh
	@touch $@

run: setup ## serve on http://127.0.0.1:8181 with everything under ./lake
	@exec $(BIN)/calve serve $(ARGS)

test: setup components check ## check, then run all tests on SQLite + files and on PostgreSQL + S3
	@echo 'tests         on SQLite with files and on PostgreSQL with S3, $(TEST_PROCESSES) processes'
	@$(PYTEST) $(ARGS)
	@echo 'tests         of the core contract without fast paths'
	@CALVE_TEST_FAST_PATHS=false $(PYTEST) $(PLAIN_TESTS)

check: setup ## lint, format, types, import direction, dependencies
	$(call stage,lint,$(BIN)/ruff check .)
	$(call stage,format,$(BIN)/ruff format --check .)
	$(call stage,types,$(BIN)/mypy --strict $(SOURCES))
	$(call stage,imports,$(BIN)/lint-imports --no-cache)
	$(call stage,dependencies,$(BIN)/deptry --no-ansi .)

format: setup ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup components ## measure the catalog beside Iceberg's own REST server (changes: make bench-ingest)
	$(BIN)/python -m bench.catalog $(ARGS)

bench-ingest: setup components ## measure how quickly changes are acknowledged and become visible
	$(BIN)/python -m bench.ingest $(ARGS)

proof: setup components proof-components ## run the long forms of the proofs (hours)
	$(BIN)/pytest -m proof --timeout 7200 $(ARGS)

openapi: setup ## write openapi/*.yaml anew from the code
	$(BIN)/calve openapi

components: setup ## bring what the tests run against: PostgreSQL, an S3 server, Java and jars, promtool, wrk
	@scripts/components.sh

proof-components: setup components ## bring what only the proofs run against: Debezium Server, MariaDB, Trino, PyIceberg's tests (2.5 GB)
	@scripts/debezium.sh
	@scripts/trino.sh
	@scripts/pyiceberg_tests.sh
	@command -v debootstrap >/dev/null || scripts/debian.sh debootstrap
	@[ -x /usr/sbin/mariadbd ] || command -v mariadbd >/dev/null || scripts/debian.sh mariadb-server

pins: setup ## write requirements*.txt anew from what .venv has installed
	$(BIN)/python scripts/pin.py

clean: ## remove what was built and cached, but not ./lake
	rm -rf .venv .cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
