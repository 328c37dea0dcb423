# Everything a contributor runs. `make` alone lists it; each target installs what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PLUGINS := nvidia hygon mock
TESTS := pytest -n auto --dist worksteal
STORMS ?= 1000
QUOTA_STORMS ?= 10000
PLUGIN_EDITABLES := $(foreach plugin,$(PLUGINS),-e plugins/$(plugin))
LABORATORY := -e lab -e shim/simgpu
EDITABLE := -e '.[testing]' $(LABORATORY) $(PLUGIN_EDITABLES)
PROJECTS := pyproject.toml lab/pyproject.toml shim/simgpu/pyproject.toml $(wildcard plugins/*/pyproject.toml)
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
HAVE_UV := $(shell uv --version 2>/dev/null)
PROTO_GENERATOR := grpcio-tools==1.72.1
OPENAPI := kubernetes-validate==1.37.0

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-shim test-kubernetes gpu-check check docs format soak bench bench-shim picture monitor-tables protos openapi chart chart-check constraints clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install hami, its plugins and the tools into .venv (PYTHON=... to choose one)

# What hami runs with. One call: the plugins depend on hami, and it must come from here, not from an
# index. Python compiles what it imports; all of it (kubernetes has 76 MB) would take longer.
$(RUNTIME): constraints.txt uv.lock $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "hami needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1); run make PYTHON=python3.11" >&2; exit 1; }
ifneq ($(HAVE_UV),)
	uv venv --quiet --seed --allow-existing --python $(PYTHON) $(VENV)
	env -u VIRTUAL_ENV uv sync --frozen --inexact --no-dev $(foreach extra,lab $(PLUGINS),--extra $(extra))
else
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt -e . $(LABORATORY) $(PLUGIN_EDITABLES)
endif
	@touch $@

# What contributors need too: most of a gigabyte.
$(STAMP): $(RUNTIME)
	$(BIN)/python -m pip install --disable-pip-version-check -r constraints.txt $(EDITABLE)
	@touch $@

# The C compiler works while the packages come.
demo: ## the main job on a cluster without hardware
	@$(MAKE) --no-print-directory --silent -C shim -j"$$(nproc)" simulated & shim=$$!; \
	$(MAKE) --no-print-directory $(RUNTIME) && wait $$shim
	$(BIN)/hami demo

test: $(STAMP) ## run the tests on all cores
	$(BIN)/$(TESTS)

test-shim: ## build and run the C tests (skipped where there is no C compiler)
	@$(MAKE) --no-print-directory -C shim -j"$$(nproc)" test

# SIMULATED=1: on a simulated GPU; QUICK=1: in half a minute, which proves less; WRITE=1: a table into
# docs/benchmarks; PYTORCH=...: the Python that has PyTorch.
gpu-check: $(STAMP) ## check the enforcing library on this machine's NVIDIA GPU (SIMULATED=1: on none)
	@$(MAKE) --no-print-directory --silent -C shim gpu-programs
	@$(BIN)/python -m shim.gpu $(if $(SIMULATED),--simulated) $(if $(QUICK),--quick) $(if $(WRITE),--write) \
	  --pytorch '$(PYTORCH)'

# binaries.py prints the folder with a real Kubernetes, and builds it the first time: with kubelet and
# containerd where this machine can be a node. It ends with 3 where there is no Go to build it with,
# and says so: that is no failure.
test-kubernetes: $(STAMP) ## run the tests on a real Kubernetes (Go 1.26 builds it, once)
	@bin=$$($(BIN)/python tests/kubernetes/binaries.py possible); code=$$?; \
	if [ $$code -eq 3 ]; then echo "test-kubernetes: skipped" >&2; exit 0; fi; \
	[ $$code -eq 0 ] || exit $$code; \
	exec $(BIN)/pytest tests/kubernetes --kubernetes "$$bin" -n 2 -rs

check: $(STAMP) test-shim ## everything that must hold before a change is merged
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/$(TESTS)

format: $(STAMP) ## rewrite the sources as ruff wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# It is read from the repository's root, so that a link leads where it leads in the repository.
docs: $(STAMP) ## build the documentation site into build/docs, offline; a warning is an error
	$(BIN)/python -m sphinx -W --keep-going --quiet --jobs auto -c docs . build/docs
	@echo "open build/docs/index.html"

soak: $(STAMP) ## storms over a node (STORMS=1000) and over quotas (QUOTA_STORMS=10000): an hour
	HAMI_NODE_STORMS=$(STORMS) $(BIN)/pytest -n auto tests/node/test_interleavings.py
	HAMI_QUOTA_STORMS=$(QUOTA_STORMS) $(BIN)/pytest -n auto tests/policy/quota/elastic/test_plan_storms.py

picture: $(RUNTIME) ## draw the README's picture from a run of now
	$(BIN)/python -m docs.picture

monitor-tables: $(RUNTIME) ## write the tables of docs/monitor.md from the code
	$(BIN)/python -m docs.monitor_tables

bench: $(STAMP) ## measure what docs and README promise about speed
	$(BIN)/python -m benchmarks

bench-shim: $(STAMP) ## the part of it that libvgpu.so must keep
	$(BIN)/python -m benchmarks shim

# The protobuf library takes code of its own generation and of the one before, never of a newer one;
# so the generator is the first of the generation before the newest. pyproject.toml says the same range.
protos: ## generate the messages of kubelet's API from hami/node/kubelet/api/v1beta1.proto
	$(PYTHON) -m venv --clear build/protos
	build/protos/bin/python -m pip install --quiet --disable-pip-version-check $(PROTO_GENERATOR)
	build/protos/bin/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. hami/node/kubelet/api/v1beta1.proto

openapi: $(STAMP) ## generate the types of the embedded API server from Kubernetes' OpenAPI definitions
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target build/openapi $(OPENAPI)
	PYTHONPATH=build/openapi $(BIN)/python lab/openapi.py

chart: $(STAMP) ## write what follows from the chart: its settings in values.schema.json, the goldens
	$(BIN)/python -m docs.chart_settings
	$(BIN)/python -m tests.chart.goldens

# Kubernetes' schemas of several versions are 100 MB; so they stay out of .venv.
chart-check: $(STAMP) ## check the chart's objects against the schemas of Kubernetes 1.30 and later
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target build/openapi $(OPENAPI)
	PYTHONPATH=build/openapi $(BIN)/pytest tests/chart/test_versions.py -rs

constraints: ## take over the newest versions of everything into constraints.txt and uv.lock
	$(PYTHON) -m venv --clear build/constraints
	build/constraints/bin/python -m pip install --quiet --upgrade pip
	build/constraints/bin/python -m pip install --quiet uv
	build/constraints/bin/uv lock --upgrade --default-index https://pypi.org/simple
	build/constraints/bin/python -m pip uninstall --quiet --yes uv
	build/constraints/bin/python -m pip install --quiet --group dev hatchling $(EDITABLE)
	{ sed -n '/^#/p' constraints.txt; build/constraints/bin/python -m pip freeze --exclude-editable --exclude pip; } > build/constraints.txt
	mv build/constraints.txt constraints.txt

clean: ## remove what the other targets made
	rm -rf $(VENV) build shim/build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
