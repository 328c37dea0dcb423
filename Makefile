# Everything a contributor runs. `make` alone lists it; each target installs what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PLUGINS := nvidia hygon mock
EDITABLE := -e '.[testing]' $(foreach plugin,$(PLUGINS),-e plugins/$(plugin))
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench constraints clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install hami, its plugins and the tools into .venv (PYTHON=... to choose one)

# One pip call: the plugins depend on hami, and pip must take it from here, not from an index.
$(STAMP): constraints.txt pyproject.toml $(wildcard plugins/*/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "hami needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1); run make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r constraints.txt $(EDITABLE)
	@touch $@

demo: $(STAMP) ## place examples/demo on paper
	$(BIN)/hami simulate examples/demo/cluster.yaml examples/demo/workload.yaml

test: $(STAMP) ## run the tests on all cores
	$(BIN)/pytest -n auto

check: $(STAMP) ## everything that must hold before a change is merged
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n auto

format: $(STAMP) ## rewrite the sources as ruff wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## measure what docs and README promise about speed
	$(BIN)/python -m benchmarks

constraints: ## take over the newest versions of everything into constraints.txt
	$(PYTHON) -m venv --clear build/constraints
	build/constraints/bin/python -m pip install --quiet --upgrade pip
	build/constraints/bin/python -m pip install --quiet --group dev hatchling $(EDITABLE)
	{ sed -n '/^#/p' constraints.txt; build/constraints/bin/python -m pip freeze --exclude-editable --exclude pip; } > build/constraints.txt
	mv build/constraints.txt constraints.txt

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
