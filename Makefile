# Two commands are enough: "make demo" and "make test". They need Python 3.11 or newer and make, nothing else;
# what they install goes to .venv in this folder.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
PIP    := $(PY) -m pip --disable-pip-version-check --no-input
OUT    := out
DEV    := $(VENV)/.installed-dev
DOCS   := $(VENV)/.installed-docs
BENCHMARKS := $(filter-out benchmarks/measure.py, $(wildcard benchmarks/*.py))
PYTEST := $(PY) -m pytest
PARALLEL := -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
SPARE  := build dist site $(OUT) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# The tests start hundreds of processes. Without stored bytecode each of them would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all studies lint types bench docs clean

help: ## show this list
	@echo "usage: make TARGET [PYTHON=python3.12]"
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' Makefile

demo: $(DEV) ## solve the quickstart instance, verify the answer, draw it
	@mkdir -p $(OUT)
	$(VENV)/bin/optsched solve @quickstart -f max-min-fairness -o $(OUT)/quickstart-solution.json
	$(VENV)/bin/optsched verify @quickstart $(OUT)/quickstart-solution.json
	$(PY) examples/picture.py @quickstart max-min-fairness $(OUT)/quickstart.png

test: $(DEV) ## run the unit tests, the fast tier (about 90 s on two cores)
	$(PYTEST) $(PARALLEL) -m unit

test-all: $(DEV) ## run all other tests but the studies; those that depend on the clock run last and alone
	$(PYTEST) $(PARALLEL) -m "not unit and not clock and not study"
	$(PYTEST) -m clock

studies: $(DEV) ## run the studies: published tables, storms of events (an hour or more)
	$(PYTEST) $(PARALLEL) -m study

lint: $(DEV) ## check style and formatting
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(DEV) ## check the types
	$(PY) -m mypy

bench: $(DEV) ## run the benchmarks (ratios and peak memory)
	@set -e; for script in $(BENCHMARKS); do echo "== $$script"; $(PY) "$$script"; done

docs: $(DOCS) ## make the page of formulations and the notebooks anew, build the documentation into site/
	cd docs && ../$(PY) -m formulation_gallery && ../$(PY) notebooks.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet --site-dir site
	@echo "site/index.html is the documentation"

clean: ## remove everything that is made here, .venv too
	rm -rf $(VENV) $(SPARE)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is older than pyproject.toml when the dependencies may have changed; then pip looks again.
$(DEV): pyproject.toml | $(PY)
	@echo "installing optsched and its tools into $(VENV) (a minute or two, once)"
	@$(PIP) install --quiet --no-compile --editable '.[dev]'
	@touch $@

$(DOCS): pyproject.toml | $(DEV)
	@$(PIP) install --quiet --no-compile --editable '.[docs]'
	@touch $@

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "optsched needs Python 3.11 or newer; $(PYTHON) is older or missing; try: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
