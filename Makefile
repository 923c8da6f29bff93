# `make demo` and `make test` set up .venv themselves; a second run reinstalls nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SPEC := pyproject.toml constraints.txt
TORCH := $(shell grep '^torch==' constraints.txt)
CPU_BUILDS := https://download.pytorch.org/whl/cpu
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo unit test lint type docs check bench growth scale search defaults calibrate power gaps epochs slow fuzz browser spark coverage oldest newest package sbom lock clean help

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

# For Linux, the usual index has torch with gigabytes of GPU packages. Where there is no NVIDIA card, the build without them
# comes from PyTorch's own index; if that does not answer within five seconds, pip takes what its own index has.
$(VENV)/.base: $(SPEC)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "evenhand needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test "$$(uname -s)" != Linux || command -v nvidia-smi >/dev/null || { \
	  timeout 5 $(BIN)/python -c 'from urllib.request import urlopen; urlopen("$(CPU_BUILDS)/torch/", timeout=4)' 2>/dev/null && \
	  $(BIN)/python -m pip install --quiet --retries 1 --no-deps --index-url $(CPU_BUILDS) $(TORCH); } || true
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.base  ## train a plain network on credit-card accounts, audit it, write the report to demo/ and open it
	$(BIN)/evenhand demo --out demo

# Each process starts with its own files, so that a module's fixtures are made once, and takes files from others when it is
# done. Bytecode is kept, also where the environment says otherwise: compiling tests and package takes each process seconds.
TESTS := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal

unit: $(VENV)/.dev  ## tests of functions, and doctests; no processes, commands or pages: under a minute on two cores
	$(TESTS) -m "not integration and not slow and not browser"

test: $(VENV)/.dev  ## all default tests: also audits, searches, training, commands, pages, examples; about five minutes on two cores
	$(TESTS)

slow: $(VENV)/.dev  ## what takes longer, as every night: simulations, long pages and examples, killed workers, damaged files: an hour
	$(TESTS) -m "slow and not spark"

# The run continues where an earlier one was stopped; build/fuzz/found keeps the files that caused a failure.
fuzz: $(VENV)/.dev  ## 20,000 damaged or hostile models, tables, lakes, settings, packs and templates, then 5,000 spoiled tables: each gives an answer or a sentence
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/many.py --inputs 20000 --out build/fuzz
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow or not slow" tests/fuzz/test_fuzz_tables.py

browser: $(VENV)/.dev  ## the report and the app in Chromium: layout, keyboard, explorer, print, speed: four minutes
	@test -n "$$EVENHAND_CHROMIUM" || command -v chromium >/dev/null || { \
	  echo "make browser needs Chromium: install the packages chromium and poppler-utils, or set EVENHAND_CHROMIUM to its path." >&2; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "browser and not slow" tests/browser

$(VENV)/.spark: $(VENV)/.dev
	@command -v java >/dev/null || { \
	  echo "make spark needs Java 17 or newer: install a runtime, such as the package openjdk-17-jre-headless, with java on the path." >&2; exit 1; }
	@java -version 2>&1 | awk -F'"' 'NR == 1 && $$2 + 0 < 17 { print "make spark needs Java 17 or newer, got " $$2 "."; exit 1 }' >&2
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,spark]'
	@touch $@

SPARK_TESTS ?= spark and not slow
spark: $(VENV)/.spark  ## audits on two Spark executors, also through Spark Connect: a few minutes on two cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "$(SPARK_TESTS)" --basetemp $(VENV)/spark-tests tests/auditing/streaming/test_spark.py

lint: $(VENV)/.dev  ## ruff format and check, and the layers of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

type: $(VENV)/.dev  ## mypy --strict on src
	$(BIN)/mypy

# The variable turns off a banner that recommends a different site generator in every build.
docs: $(VENV)/.dev  ## the documentation site in site/; stops at any warning and anything fetched from elsewhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: lint type docs test browser spark  ## everything CI runs

bench: $(VENV)/.dev  ## benchmarks in one table, each with its target and whether it is met; updates docs/benchmarks.md
	$(BIN)/python benchmarks/run.py

growth: $(VENV)/.dev  ## time and memory against people, features, groups and trees; updates docs/growth.md: most of an hour
	$(BIN)/python benchmarks/bench_growth.py

scale: $(VENV)/.dev  ## audits of 1 and 10 million people, Dask workers, and the same JSON in every way: hours on two cores
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py scale
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/same_json.py

search: $(VENV)/.dev  ## the targets of the search for an alternative: minutes on a GPU
	$(BIN)/python benchmarks/search_targets.py --out docs/results/search

defaults: $(VENV)/.dev  ## what the defaults of training keep and remove on four datasets: minutes on a GPU with many cores
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/training_defaults.py --out docs/results/training

# OPTIONS such as --quick, --minutes 10 or --cells german; a second run adds the missing audits.
calibrate: $(VENV)/.dev  ## false alarms and coverage of every test of the audit; updates docs/calibration.md: five core-hours
	$(BIN)/python -m studies calibration --n-jobs $$(nproc) --out build/calibration --page docs/calibration.md $(OPTIONS)

power: $(VENV)/.dev  ## how often the audit finds planted biases; updates docs/power.md: two core-hours
	$(BIN)/python -m studies power --n-jobs $$(nproc) --out build/power --page docs/power.md $(OPTIONS)

gaps: $(VENV)/.dev  ## how every method of the comparison changes score gap and weighing on German Credit: about 10 minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m studies gaps --dataset german --repeats 2 --out docs/results/reproduction/gaps

epochs: $(VENV)/.dev  ## which number of epochs gives the paper's rows of three methods: about half an hour
	OMP_NUM_THREADS=1 $(BIN)/python -m studies epochs --out docs/results/reproduction/epochs

coverage: $(VENV)/.dev  ## the default tests with their coverage of lines and branches, and its floor
	$(TESTS) --cov=evenhand --cov-report=term

# The lower bounds of pyproject.toml are promises: the default tests run with exactly them.
# Old versions among new ones warn of each other; that is not ours to mend, so warnings are no errors here.
WHEELS = $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS)) $(if $(PIP_EXTRA_INDEX_URL),--extra-index-url $(PIP_EXTRA_INDEX_URL) --index-strategy unsafe-best-match)
oldest: $(VENV)/.release  ## the default tests with the oldest versions that pyproject.toml allows, in .venv-oldest
	$(PYTHON) -m venv --clear $(VENV)-oldest
	$(PYTHON) tools/oldest.py > $(VENV)-oldest/oldest.txt
	$(BIN)/uv pip install --quiet --python $(VENV)-oldest/bin/python $(WHEELS) --override tools/no_gpu.txt \
	  --constraint $(VENV)-oldest/oldest.txt --editable '.[all,test]' $(if $(OLDEST_TORCH),,$(TORCH))
	OMP_NUM_THREADS=1 $(VENV)-oldest/bin/python -m pytest -n auto --dist worksteal -p no:cacheprovider -W default

newest: $(VENV)/.release  ## the default tests with the newest versions there are, pre-releases of none, in .venv-newest
	$(PYTHON) -m venv --clear $(VENV)-newest
	$(BIN)/uv pip install --quiet --python $(VENV)-newest/bin/python $(WHEELS) --override tools/no_gpu.txt \
	  --upgrade --editable '.[dev]' $(if $(NEWEST_TORCH),,$(TORCH))
	OMP_NUM_THREADS=1 $(VENV)-newest/bin/python -m pytest -n auto --dist worksteal -p no:cacheprovider

$(VENV)/.release: $(VENV)/.base
	$(BIN)/python -m pip install --quiet build cyclonedx-bom twine uv
	@touch $@

# A wheel can miss files that the checkout has: both distributions are installed elsewhere, and the demo runs from there.
package: $(VENV)/.release  ## wheel and source distribution in dist/, checked, installed outside the checkout and tried
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	for built in dist/*.whl dist/*.tar.gz; do \
	  away=$$(mktemp -d) && $(PYTHON) -m venv $$away/venv && \
	  $$away/venv/bin/python -m pip install --quiet --constraint constraints.txt "$$built[torch]" && \
	  (cd $$away && venv/bin/evenhand demo --no-open --out demo && test -s demo/report.html) || exit 1; \
	  rm -rf $$away; \
	done

# From an environment that holds the wheel and what it needs, and none of the tools that make a release.
sbom: $(VENV)/.release  ## what the wheel in dist/ and its extras depend on, as CycloneDX, beside it
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) $(VENV)-sbom
	$(BIN)/uv pip install --quiet --python $(VENV)-sbom/bin/python $(WHEELS) --override tools/no_gpu.txt \
	  --constraint constraints.txt "$$(ls dist/*.whl)[all]"
	version=$$($(VENV)-sbom/bin/python -c 'from importlib.metadata import version; print(version("evenhand"))') && \
	  sed "s/^dynamic = .*/version = \"$$version\"/" pyproject.toml > $(VENV)-sbom/pyproject.toml
	$(BIN)/cyclonedx-py environment --pyproject $(VENV)-sbom/pyproject.toml --mc-type library --output-reproducible \
	  --of JSON -o dist/evenhand.cdx.json $(VENV)-sbom

lock: $(VENV)/.release  ## versions that development works with, in requirements-dev.lock
	$(BIN)/uv pip compile --quiet pyproject.toml --extra dev --constraint constraints.txt --override tools/no_gpu.txt \
	  $(shell sed -n 's/^\([a-z0-9-]*\);.*/--no-emit-package \1/p' tools/no_gpu.txt) --universal --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock" -o requirements-dev.lock

clean:  ## remove what the commands above made
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest $(VENV)-sbom dist demo site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
