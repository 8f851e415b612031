# Two commands do all the set-up: `make demo` and `make test`. Each works alone in a fresh clone.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format bench clean

demo: .venv/demo
	$(BIN)/hush simulate

test: .venv/dev lint
	$(BIN)/pytest

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hush needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' # for dependency groups

.venv/demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[simulations]'
	touch $@

.venv/dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[simulations]' --group dev
	touch $@ .venv/demo
