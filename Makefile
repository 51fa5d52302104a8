# Commands for people and CI. GNU make 3.81 or newer (what macOS ships) and Python 3.11 or newer are all a machine needs.
#
#   PYTHON=python3.12    the interpreter that .venv is made with (otherwise the newest of 3.13, 3.12, 3.11, then python3)
#   TEST_ARGS='-k fold'  passed to pytest; JOBS=3 is how many processes it runs, each with a Kafka and a Redis of its own
#                        for the whole run
#   DEMO_ARGS='--help'   passed to the demo
#   SEEDS=100            how many seeds chaos runs, from FIRST=0 on; SEED=7 runs that one alone; CHAOS_ARGS=--verbose is passed to it
#   FIGURE=projection    the figures that bench measures (otherwise all); BENCH_ARGS=--quick is passed to it

SHELL = /bin/sh
PYTHON ?=
TEST_ARGS ?=
JOBS ?= 3
DEMO_ARGS ?=
SEEDS ?= 10
FIRST ?= 0
SEED ?=
CHAOS_ARGS ?=
FIGURE ?=
BENCH_ARGS ?=
VENV = .venv/bin
# Tests start processes, and each would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE
UV_VERSION = 0.13.8
ADAPTERS = --extra anthropic --extra embeddings --extra eventsourcing --extra langchain --extra langgraph --extra mcp --extra openai --extra openai-agents
# Universal: one lock for every system and Python from 3.11 on, and no address of an index in it.
COMPILE = $(UV) pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-annotate --no-header --constraint requirements/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup test test-all chaos demo bench lint types lock typescript clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv from the hashed lock, with the threadfold command in it; does nothing when it is up to date
	@PYTHON='$(PYTHON)' .ci/setup

# A file's tests stay in one process; the order is that of tests/conftest.py, long files first. At the end: the slowest,
# why which were skipped, and last which failed: who sees only the end of the output knows them.
PYTEST = $(VENV)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=2 -rsfE

test: setup ## run the tests that show that the product works, on the embedded Kafka and Redis; about five minutes
	$(PYTEST) -m 'not long' --hypothesis-profile=fast $(TEST_ARGS)

test-all: setup ## run every test: the long ones, and each with all of its examples
	$(PYTEST) $(TEST_ARGS)

chaos: setup ## kill, freeze, flush, cut and repeat under load, seed by seed; an oracle says what was lost, doubled or different
	@$(VENV)/python -m tests.chaos --first $(FIRST) --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

demo: setup ## play real conversations through the pipeline, wipe Redis, and see every window come back
	$(VENV)/python -m threadfold.demo $(DEMO_ARGS)

bench: setup ## measure figures beside their peers, one JSON line each, and say what moved since the committed ones
	@.ci/setup bench
	@$(VENV)/python -m benchmarks $(FIGURE) $(BENCH_ARGS)

lint: setup ## ruff: rules and formatting; import-linter: which way imports go
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/lint-imports --no-logo

types: setup ## mypy, strict
	$(VENV)/mypy

lock: setup ## write requirements/*.lock again; LOCK_ARGS=--upgrade takes newer versions
	@set -e; uv=`command -v uv || true`; \
	if [ -z "$$uv" ]; then \
		test -x build/uv/bin/uv || { $(VENV)/python -m venv build/uv && build/uv/bin/pip install --quiet uv==$(UV_VERSION); }; \
		uv=build/uv/bin/uv; \
	fi; \
	$(MAKE) --no-print-directory .locks UV="$$uv"

.PHONY: .locks
.locks:
	$(COMPILE) $(LOCK_ARGS) requirements/build.in --output-file requirements/build.lock
	$(COMPILE) $(LOCK_ARGS) pyproject.toml --output-file requirements/runtime.lock
	$(COMPILE) $(LOCK_ARGS) --extra embedded --extra demo --extra dev $(ADAPTERS) pyproject.toml requirements/build.in \
		--output-file requirements/dev.lock
	$(COMPILE) $(LOCK_ARGS) --constraint requirements/dev.lock --extra embedded --extra bench pyproject.toml \
		--output-file requirements/bench.lock

typescript: setup ## make the TypeScript client's types and its dist/ again; needs Node 20 or newer
	cd clients/typescript && npm ci --ignore-scripts
	$(VENV)/threadfold schemas openapi | node clients/typescript/scripts/generate.mjs
	cd clients/typescript && npm run --silent format >/dev/null && npm run --silent build

clean: ## remove .venv, caches and build output; data folders stay
	rm -rf .venv build dist clients/typescript/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find projections streams threadfold clients benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +
