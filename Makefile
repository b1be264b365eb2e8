# Needs make and Python 3.11 or later; everything else is installed into .venv from requirements-dev.lock.
# PYTHON=/path/to/python chooses an interpreter; ARGS="--port 9000" goes to the command behind a target.

.DEFAULT_GOAL := help
.PHONY: help up smoke test lint bench format lock clean checks tests

PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$candidate" && break; \
	done)
PY := .venv/bin/python
INSTALLED := .venv/.installed
# Runs a command on temporary PostgreSQL and Valkey servers, unless DATABASE_URL and REDIS_URL are set.
ON_SERVERS := $(PY) -m otp_service.embedded run
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml
# More workers than two gain nothing on the two cores of a small machine.
PYTEST := $(PY) -m pytest -n 2

help:  ## show this list
	@awk -F ':.*  ## ' '/^[a-z]+:.*  ## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(INSTALLED)  ## run the whole service on this machine, until Ctrl-C
	@$(PY) manage.py up $(ARGS)

smoke: $(INSTALLED)  ## run it, send one code, and succeed only if exactly one copy arrives
	@$(PY) manage.py smoke $(ARGS)

test: $(INSTALLED)  ## run every check and every test
	@$(ON_SERVERS) $(MAKE) --no-print-directory checks tests

lint: $(INSTALLED)  ## run every check, without the tests
	@$(ON_SERVERS) $(MAKE) --no-print-directory checks

bench: $(INSTALLED)  ## measure the hot paths
	@$(PY) -m tests.benchmarks $(ARGS)

format: $(INSTALLED)  ## put the code into its form
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

lock:  ## choose versions anew, within pyproject.toml; needs uv
	@command -v uv >/dev/null || { echo 'make lock needs uv: install it with "pip install uv".' >&2; exit 1; }
	$(LOCK) -o requirements.lock
	$(LOCK) --group dev -o requirements-dev.lock

clean:  ## remove .venv, caches, and the embedded servers with all their data
	@if [ -e $(INSTALLED) ]; then $(PY) -m otp_service.embedded remove; fi
	rm -rf .venv var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache staticfiles
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# `checks` and `tests` are called by lint and test, on servers that run: the settings want addresses, and migrations are read from a database.
checks:
	@echo '== ruff: rules'
	@$(PY) -m ruff check .
	@echo '== ruff: form'
	@$(PY) -m ruff format --check .
	@echo '== mypy: types'
	@$(PY) -m mypy .
	@echo '== import-linter: arrows between apps'
	@.venv/bin/python .venv/bin/lint-imports
	@echo '== deptry: what is imported is declared'
	@$(PY) -m deptry .
	@echo '== migrations: none is missing'
	@$(PY) manage.py makemigrations --check --dry-run
	@echo '== migrations: safe on a busy database'
	@$(PY) -m tests.lint_migrations

tests:
	@echo '== pytest'
	@$(PYTEST) $(ARGS)

$(INSTALLED): requirements-dev.lock | $(PY)
	@echo 'installing requirements-dev.lock into .venv'
	@if command -v uv >/dev/null; then \
		uv pip install --quiet --python $(PY) --require-hashes -r requirements-dev.lock; \
	else \
		$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock; \
	fi
	@touch $@

$(PY):
	@[ -n '$(PYTHON)' ] || { \
		echo 'Python 3.11 or later is needed, and none is on the PATH. Install it, or say PYTHON=/path/to/python.' >&2; \
		exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo '$(PYTHON) is not Python 3.11 or later: say PYTHON=/path/to/python.' >&2; exit 1; }
	@if command -v uv >/dev/null; then \
		uv venv --quiet --clear --python '$(PYTHON)' .venv; \
	elif '$(PYTHON)' -c 'import venv, ensurepip' 2>/dev/null; then \
		'$(PYTHON)' -m venv --clear .venv; \
	else \
		echo '$(PYTHON) has no venv module. On Debian and Ubuntu: apt-get install python3-venv; or install uv.' >&2; \
		exit 1; \
	fi
