# make quickstart   train an encoder on the docstrings of this Python, show it
# make test         run the tests
# make lint         ruff
# Each sets up .venv/ first, with the exact versions of constraints.txt; a
# second run installs nothing. Another interpreter: make PYTHON=python3.12 ...

FOUND := $(shell for p in python3.11 python3.12 python3 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3,11),(3,12)))' \
  >/dev/null 2>&1 && echo $$p && break; done)
PYTHON ?= $(FOUND)
PY := .venv/bin/python
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: help setup quickstart test lint
help:
	@sed -n '1,4s/^# //p' Makefile

setup: .venv/installed
.venv/installed: setup.py pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 was not found:" \
	  "install one, or name it with make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -e '.[test]'
	@touch $@

quickstart: setup
	$(PY) -m infoword_tf.train --flagfile=tasks/flags/quickstart.flags

test: setup
	$(PY) -m pytest -n 2 --dist=worksteal

lint: setup
	$(PY) -m ruff check .
