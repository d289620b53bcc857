# Every target sets up .venv by itself; nothing is downloaded when pyproject.toml and
# constraints.txt are unchanged. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One more than there are cores: the tests on Spark mostly wait for the JVM.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 5)))
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

# Processes that the tests start read the sources' bytecode; without it each compiles them all anew.
unexport PYTHONDONTWRITEBYTECODE

# Scripts and the editable install hold absolute paths, so a copied or moved clone would run the
# code of the old place: the stamp records where it was made, and a mismatch starts afresh.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

.DEFAULT_GOAL := help
.PHONY: help .venv demo stream-demo serve-demo broker-soak check test lint typecheck test-compiled test-nojit test-quick test-without-kernels test-plain-kernels test-bounds test-lowest coverage integration docs bench experiments soak fuzz format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv: $(STAMP) ## create or refresh .venv with every extra

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "rangecast needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null || echo not there): name another with make PYTHON=/path/to/python3.11." >&2; \
	  exit 1; }
	@echo "setting up $(VENV) (a few minutes the first time)"
	@[ "$$(cat $(STAMP) 2>/dev/null)" = "$(CURDIR)" ] && $(BIN)/python -c pass 2>/dev/null \
	  || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[spark,kafka,buckets,delta,serve,bench,docs,dev]' -c constraints.txt
	@echo "$(CURDIR)" > $(STAMP)

demo: $(STAMP) ## generate subscriptions and events, match them, write Parquet
	$(BIN)/rangecast demo

stream-demo: $(STAMP) ## ticks flow while alerts come and go; about a minute
	$(BIN)/rangecast stream-demo

serve-demo: $(STAMP) ## a broker with 100,000 alerts and a made-up market, for two minutes; prints the page's address
	$(BIN)/rangecast serve-demo

# Types need one core, so tests run beside them.
check: lint ## what is quick, for daily work: rules, types, tests without compiling, but for the papers' indexes
	@$(MAKE) --no-print-directory -j 2 typecheck test-quick

# Each test runs once: with compiled kernels, or as plain Python where it calls hardly any. .ci/run repeats those of
# kernels as plain Python, most of which are in `make check` too, and with checked indexes.
test: lint ## what must pass before a push: rules, types, every test once; .ci/run adds the other legs
	@$(MAKE) --no-print-directory -j 2 typecheck test-compiled
	@$(MAKE) --no-print-directory test-without-kernels

lint: $(STAMP) ## ruff: rules and formatting; and a report of long and of short modules, which does not fail
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/python tests/house/report.py

typecheck: $(STAMP) ## mypy --strict on src
	$(BIN)/mypy --strict src

# What hardly calls a kernel runs with the kernels as plain Python, unless that leg leaves it out.
test-compiled: $(STAMP) ## tests and doctests with compiled kernels
	$(PYTEST) -m 'not integration and (not without_kernels or slow or once or spark)'

# Each of these starts servers of its own, so they run one after the other. What cannot be had here (a browser, a
# message broker's jars) is skipped with a word.
integration: $(STAMP) ## tests with a cluster, a message broker, a bucket, a browser: the real ones, on loopback
	$(BIN)/python -m pytest -n 0 tests -m integration || [ $$? -eq 5 ]

PLAINLY = not slow and not spark and not once and not integration
PLAIN = NUMBA_DISABLE_JIT=1 $(PYTEST) -m
test-nojit: $(STAMP) ## tests with the kernels as plain Python
	$(PLAIN) '$(PLAINLY)'

test-quick: $(STAMP) ## the same without those of the papers' indexes
	$(PLAIN) '$(PLAINLY) and not papers'

test-without-kernels: $(STAMP) ## of these the ones that call hardly any kernel
	$(PLAIN) '$(PLAINLY) and without_kernels'

test-plain-kernels: $(STAMP) ## and the others, which the compiled leg has as well
	$(PLAIN) '$(PLAINLY) and not without_kernels'

coverage: $(STAMP) ## the same with coverage, which takes twice as long
	$(PLAIN) '$(PLAINLY)' --cov --cov-report=term:skip-covered

# Little optimised: this leg looks for a wrong index, and compiling is most of it.
test-bounds: $(STAMP) ## tests with kernels that check every array index
	NUMBA_BOUNDSCHECK=1 NUMBA_OPT=1 $(PYTEST) tests -m 'not slow and not spark and not once and not without_kernels and not integration'

docs: $(STAMP) ## the pages as a site with search and a reference made from the code, in build/website/site
	$(BIN)/python website/build_site.py

# In an environment of its own: the bounds of pyproject.toml are a promise, and this is who keeps it.
LOWEST := .cache/lowest
test-lowest: ## tests with the lowest versions that pyproject.toml allows, kernels as plain Python
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python tests/packaging/lowest.py spark kafka buckets delta serve > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[spark,kafka,buckets,delta,serve,dev]' -c $(LOWEST)/constraints.txt
	NUMBA_DISABLE_JIT=1 $(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist loadgroup -m '$(PLAINLY)'

bench: $(STAMP) ## the benchmark tables
	$(BIN)/python benchmarks/run.py

# seeds last: it settles the verdicts of all pages
EXPERIMENTS := covering vci vcr ubtree batch seeds
experiments: $(STAMP) ## the papers' experiments and their pages, all in one go, about an hour; QUICK=1: small sizes, some minutes, into experiment-output
	@begun=$$(date +%s); k=0; for name in $(EXPERIMENTS); do k=$$((k + 1)); \
	  echo "experiment $$k of $(words $(EXPERIMENTS)), $$name: $$((($$(date +%s) - begun) / 60)) minutes so far"; \
	  $(BIN)/rangecast experiment $$name $(if $(QUICK),--quick,--docs) || exit 1; \
	done; echo "all experiments in $$((($$(date +%s) - begun) / 60)) minutes"

soak: $(STAMP) ## kill the processes of streams at random, count what is lost or doubled; damage every file
	$(BIN)/python tests/spark/stream_soak.py --kills 24
	$(BIN)/python tests/spark/stream_soak.py --kills 12 --kinds worker,jvm,driver,daemon --schemes T
	$(BIN)/python tests/faults/sweep.py --full
	RANGECAST_FULL=1 $(BIN)/python -m pytest -q -n 0 tests/faults/test_file_operations.py tests/faults/test_power_loss.py

broker-soak: $(STAMP) ## kill the broker 20 times in 10 minutes, count what consumers lost; 100,000 hostile requests
	$(BIN)/python tests/broker/soak.py --seconds 600 --kills 20
	$(BIN)/python tests/broker/hostile.py --requests 100000

# Each draws a seed and prints it: one that finds something goes into its SEEDS. RANGECAST_SEED=7 gives it.
FUZZ_SECONDS ?= 600
FUZZ = --seconds $(FUZZ_SECONDS)
fuzz: $(STAMP) ## arbitrary values, conditions, files of events and index files, ten minutes each
	$(BIN)/python tests/fuzz/fuzz_values.py $(FUZZ)
	$(BIN)/python tests/fuzz/fuzz_conditions.py $(FUZZ)
	$(BIN)/python tests/fuzz/fuzz_files.py $(FUZZ)
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=.cache/numba/fuzz $(BIN)/python tests/fuzz/fuzz_indexes.py $(FUZZ)

format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
