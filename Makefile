# `make demo` and `make test` set up .venv themselves; a second run reinstalls nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SPEC := pyproject.toml constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo unit test lint type docs check bench scale search slow fuzz browser spark clean help

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

$(VENV)/.base: $(SPEC)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evenhand needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[excel]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.base  ## train a plain network on credit-card accounts, audit it, write the report to demo/ and open it
	$(BIN)/evenhand demo --out demo

# Each process starts with its own run of files, so that a module's fixtures are made once, and takes from another when it
# is done.
TESTS := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

unit: $(VENV)/.dev  ## tests and doctests that start no process: about a minute on two cores
	$(TESTS) -m "not integration and not slow and not browser"

test: $(VENV)/.dev  ## all default tests: unit, and processes, clusters, commands, pages and examples; five minutes on two cores
	$(TESTS)

slow: $(VENV)/.dev  ## the minutes-long tests: five-fold figures on real data, hundreds of damaged files
	$(BIN)/python -m pytest -m slow -s

fuzz: $(VENV)/.dev  ## 5,000 spoiled tables: an answer or a sentence, in memory as in batches
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow or not slow" tests/fuzz

$(VENV)/.browser: $(VENV)/.dev
	@test -n "$$EVENHAND_CHROMIUM" || command -v chromium >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq chromium poppler-utils; \
	  else echo "make browser needs Chromium: install it, or give its path in EVENHAND_CHROMIUM." >&2; exit 1; fi; }
	@touch $@

browser: $(VENV)/.browser  ## the report in Chromium: layout, keyboard, explorer, print, speed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

$(VENV)/.spark: $(VENV)/.dev
	@command -v java >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && { apt-get install -y -qq openjdk-17-jre-headless || apt-get install -y -qq default-jre-headless; }; \
	  else echo "make spark needs Java 17 or newer: install a runtime, such as OpenJDK's, with java on the path." >&2; exit 1; fi; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,spark]'
	@touch $@

spark: $(VENV)/.spark  ## audits by two executors of Spark, also through Spark Connect: a minute or two on two cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m spark tests/auditing/streaming

lint: $(VENV)/.dev  ## ruff format and check, and who imports whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

type: $(VENV)/.dev  ## mypy --strict on src
	$(BIN)/mypy

# The banner that the variable turns off is advice on another site generator; it would stand on top of every build.
docs: $(VENV)/.dev  ## the documentation site in site/; any warning, or anything fetched from elsewhere, stops it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: lint type docs test browser spark  ## everything CI runs

bench: $(VENV)/.dev  ## benchmarks as ratios measured in one run
	$(BIN)/python benchmarks/run.py

scale: $(VENV)/.dev  ## audits of 1 and 10 million people, and two Dask workers against one: hours on two cores
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/bench_scale.py

search: $(VENV)/.dev  ## the targets of the search for an alternative: minutes on a GPU
	$(BIN)/python benchmarks/search_targets.py --out docs/results/search

clean:  ## remove what the commands above made
	rm -rf $(VENV) demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
