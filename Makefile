# Needs python3 (3.10 or newer), make and git; everything else goes into .venv.
#   make run | test | slow | explore | engines | bench | docs | screenshots | check | wheel | package | compiled | clean
# What else there is to run:                                      make run ARGS=--help
# ARGS="..." is passed on to the demo, pytest or the benchmarks:  make test ARGS="-k deadlock"
# PYTHON=... chooses the interpreter:                             make test PYTHON=python3.12

PYTHON ?= python3
ARGS ?=

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
PY := .venv/bin/python
PIP := $(PY) -m pip install --disable-pip-version-check -q -c constraints.txt
MADE := .venv/made-with-python-$(VERSION)
SOURCES := $(wildcard locks locks_leader locks_lab locks_pytest.py examples)

.PHONY: run test slow explore engines bench docs screenshots check wheel package clean

run: .venv/installed-base
	$(PY) -m locks demo $(ARGS)
	$(if $(filter -h --help,$(ARGS)),,$(PY) -m locks_leader demo)

# Tests run side by side, those that share processes one after the other (tests/README.md). They start
# many processes: what these import is compiled once.
# With TESTS=test-all, what the other tests need is installed, too: web frameworks, schedulers, type checkers.
TESTS ?= test
PYTEST := $(PY) -m pytest -n auto --dist loadgroup
test slow explore: export PYTHONDONTWRITEBYTECODE =
test slow explore: export PYTHONPYCACHEPREFIX = $(CURDIR)/.venv/compiled

test: .venv/installed-$(TESTS)
	$(PYTEST) -m "not slow and not explore" $(ARGS)

slow: .venv/installed-$(TESTS)
	$(PYTEST) -m "slow and not explore" $(ARGS)

# `make test` tries the same random cases each time, `make explore` others: LOCKS_SEED=17 chooses them.
explore: export LOCKS_SEED ?= $(shell $(PYTHON) -c 'import random; print(random.randrange(10**6))')
explore: .venv/installed-$(TESTS)
	$(PYTEST) -m explore $(ARGS)

# Locks for Dask and Ray, with the engines that are installed for it: make engines ENGINES=dask,ray
ENGINES ?= dask
engines: .venv/installed-$(TESTS) .venv/installed-$(ENGINES)
	$(PY) -m pytest $(addprefix tests/engines/test_,dask.py ray.py pages.py) $(ARGS)

bench: .venv/installed-bench
	$(PY) -m benchmarks $(ARGS)

# Takes Mermaid, which draws the diagrams, from the npm registry, once; without a network it says so.
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build $(ARGS)

# The pictures of the live page in docs/img; needs Chromium.
screenshots: .venv/installed-test
	$(PY) -m tests.cluster.screenshots

check: .venv/installed-check
	$(PY) -m ruff check .
	$(PY) -m ruff check -q --preview --select RUF027 . # a text that lacks its f
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict $(SOURCES)

# dist: the source distribution, and from it the wheel.
wheel: export PIP_CONSTRAINT = $(CURDIR)/constraints.txt
wheel: .venv/installed-dev
	rm -rf build dist
	$(PY) -m build -o dist . >.venv/build.log 2>&1 || { cat .venv/build.log; exit 1; }
	@ls dist/*

# Checks what would be published, and installs the wheel as a user does: nothing else is there.
FRESH := .venv/fresh
package: export PIP_CONSTRAINT = $(CURDIR)/constraints.txt
package: wheel
	$(PY) -m twine check --strict dist/*
	$(PY) -m check_wheel_contents dist/*.whl
	rm -rf $(FRESH)
	$(PY) -m venv $(FRESH)
	$(FRESH)/bin/python -m pip install --disable-pip-version-check -q dist/*.whl
	LOCKS_INSTALLED=$(FRESH)/bin/python $(PY) -m pytest tests/repo/test_installed.py

clean:
	rm -rf .venv site build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for the interpreter (another version makes a new .venv), one for each set of packages.
$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "locks needs Python 3.10 or newer, but $(PYTHON) is " + sys.version.split()[0] + ". Choose another one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/installed-base: $(MADE) setup.cfg pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

.venv/installed-%: $(MADE) setup.cfg pyproject.toml constraints.txt
	$(PIP) -e ".[$*]"
	@touch $@
