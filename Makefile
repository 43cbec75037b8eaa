# One word runs it all. `make` alone lists the words.

# Asked once, and only where nobody names one.
ifeq ($(strip $(PYTHON)),)
override PYTHON := $(shell scripts/which-python)
endif
# Not .venv: that is what people make for themselves, as the README tells them.
VENV ?= .venv-dev

PY      := $(VENV)/bin/python
SOURCES := $(wildcard src tests bench examples scripts)
# The environment is as new as what it was made from: the key changes with the lock, pyproject.toml and the build of Python.
STAMP   := $(VENV)/.made-from-$(shell (scripts/build-of "$(PYTHON)"; cat requirements.lock pyproject.toml) 2>/dev/null | cksum | cut -d' ' -f1)

# The tests run in one process more than there are cores: many of them wait, and more would only slow each other down.
# A file stays in one process: its tests may share a server.
TESTERS  ?= $(shell $(PY) -c "import os; print(1 + (os.cpu_count() or 1))")
TOGETHER  = -n $(TESTERS) --dist loadfile --no-loadscope-reorder
# They start hundreds of Python processes, and each would compile everything anew where none may keep the result.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-lowest check lint format bench chaos fuzz lock system clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

venv: $(STAMP)  ## Create .venv-dev and install what the lock names (another Python: PYTHON=python3.12 VENV=.venv312)

$(STAMP):
	@PYTHON="$(PYTHON)" VENV="$(VENV)" scripts/make-venv
	@touch $@

demo: $(STAMP)  ## Run the main job from submission to its end, and show what happened
	@$(PY) examples/demo.py

test: system $(STAMP)  ## Run every test; says at the end what it had to skip
	@$(PY) -m pytest $(TOGETHER) -m "not chaos"; rest=$$?; \
	$(PY) -m pytest -q $(TOGETHER) -m chaos && exit $$rest  # afterwards: it must not disturb the others, nor they it

check: lint  ## Format, lint, types and the fast tests: under two minutes
	@$(PY) -m pytest -q $(TOGETHER) -m "not slow and not simulation and not chaos"

test-lowest: $(STAMP)  ## Run the fast tests with the lowest allowed version of every dependency
	@PYTHON="$(PYTHON)" scripts/make-lowest
	@.venv-lowest/bin/python -m pytest -q $(TOGETHER) -m "not slow and not simulation and not chaos" tests/unit tests/conformance

lint: $(STAMP)  ## Format, lint and types only
	@$(PY) -m ruff format --check $(SOURCES)
	@$(PY) -m ruff check $(SOURCES)
	@$(PY) -m mypy $(SOURCES)

format: $(STAMP)  ## Put every file into shape
	@$(PY) -m ruff check --fix-only --quiet $(SOURCES)
	@$(PY) -m ruff format $(SOURCES)

bench: $(STAMP)  ## Measure: JSON lines and tables, of the core and over HTTP
	@$(PY) -m bench.core
	@$(PY) -m bench.dispatch
	@$(PY) -m bench.over_http
	@$(PY) -m bench.search

chaos: system $(STAMP)  ## Eight minutes of killed, frozen and cut-off processes under load (CHAOS_SECONDS, CHAOS_SEED)
	@CHAOS_SECONDS=$${CHAOS_SECONDS:-180} $(PY) -m pytest -q -s tests/chaos/test_stage.py; stage=$$?; \
	CHAOS_SECONDS=$${CHAOS_SECONDS:-300} $(PY) -m pytest -q -s tests/chaos/test_cluster.py && exit $$stage

fuzz: system $(STAMP)  ## Ten minutes of valid, spoiled and senseless messages at the worker protocol (FUZZ_SECONDS, FUZZ_SEED)
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-600} $(PY) -m pytest -q -s tests/fuzz

lock: $(STAMP)  ## Resolve the newest versions of everything into requirements.lock
	@$(PY) scripts/lock.py requirements.lock

system:  ## Install the system packages that the tests use, when we may
	@PYTHON="$(PYTHON)" scripts/install-system

clean:  ## Remove everything that can be made again (of VENV, where there are several)
	rm -rf $(VENV) .venv-lowest .stock dist .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/results
	find src tests bench examples scripts -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
