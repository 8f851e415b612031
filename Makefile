# Two commands do all the set-up: `make demo` and `make test`. Each works alone in a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# An environment stays with the Python that made it: rather than test another than was asked for, say so.
MINOR = -c 'import sys; print(sys.version_info[:2])'
ifneq ($(origin PYTHON),file)
ifneq ($(wildcard $(BIN)/python),)
ifneq ($(MAKECMDGOALS),clean)
ifneq ($(shell $(PYTHON) $(MINOR)),$(shell $(BIN)/python $(MINOR)))
$(error $(VENV) was made by another Python than $(PYTHON); run make clean first)
endif
endif
endif
endif

.PHONY: demo quick test test-all faces started coverage lint format docs slides bench locked clean

demo: $(VENV)/demo
	$(BIN)/hush simulate

# Four files of tests at a time, for many wait more than they work (two of the small tests, six of the large ones);
# `make test PARALLEL=` takes one test after the other.
# In the order of the folders.
PARALLEL ?= -n 4 --dist loadfile --no-loadscope-reorder

# The tests start commands hundreds of times: each module is compiled once, not each time.
unexport PYTHONDONTWRITEBYTECODE

# While you work: no process, no socket, less than a minute. `make test` before you hand on.
quick: $(VENV)/dev
	$(BIN)/pytest $(subst -n 4,-n 2,$(PARALLEL)) -m "not medium and not large and not soak"

# What a newcomer runs: needs nothing but Python, and mosquitto for the tests on a real broker.
test: $(VENV)/dev lint
	$(BIN)/pytest $(PARALLEL) -m "not large and not soak"

# `make test`, then what needs a browser, PostgreSQL, a proxy, a compiler, an emulator, a notebook or pip, or takes long.
test-all: test
	$(BIN)/pytest $(subst -n 4,-n 6,$(PARALLEL)) -m "large and not soak"

# What .ci/run asks of every further Python: quick, and what people import, type, request and send.
faces: $(VENV)/dev
	$(BIN)/pytest $(PARALLEL) -m "(face or not medium) and not large and not soak"

# As root: builds the image, runs its containers, and boots the units of systemd. Four minutes the first time.
started: $(VENV)/dev
	$(BIN)/python -m pip install --quiet --group started
	$(BIN)/pytest -m soak tests/install/test_started.py

# Which lines of the product no test runs. Everything takes longer so.
coverage: $(VENV)/dev
	mkdir -p out/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PARALLEL) --timeout 300
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev
	$(BIN)/python -m sphinx --quiet --fresh-env --builder html --fail-on-warning --keep-going docs $(CURDIR)/out/docs
	@echo 'open out/docs/index.html'

slides: $(VENV)/dev
	$(BIN)/python docs/slides.py out/slides.html
	@echo 'open out/slides.html'

# bench_audit.py takes a quarter of an hour, and what it finds is written to tests/tools/audits.json: it is run by hand.
bench: $(VENV)/bench
	status=0; for file in $(filter-out %/bench_audit.py,$(sort $(wildcard tests/benchmarks/bench_*.py))); do \
		echo "== $$file"; $(BIN)/python $$file || status=1; \
	done; exit $$status

LOCK = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
LOCKED = aggregator/packaging/requirements

# What the image installs: the newest versions that pyproject.toml allows, with their hashes.
locked: $(VENV)/pip
	$(BIN)/python -m pip install --quiet --group locked
	$(LOCK) pyproject.toml --extra service --extra postgres --output-file $(LOCKED).txt
	$(LOCK) --group build --output-file $(LOCKED)-build.txt

clean:
	rm -rf .venv .venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hush needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

# Whoever made the environment: the pip that a Python brings may not know dependency groups.
$(VENV)/pip: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	touch $@

$(VENV)/demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[simulations]'
	touch $@

$(VENV)/dev: pyproject.toml | $(VENV)/pip
	$(BIN)/python -m pip install --quiet --editable '.[simulations]' --group dev
	touch $@ $(VENV)/demo

$(VENV)/bench: pyproject.toml | $(VENV)/dev
	$(BIN)/python -m pip install --quiet --group bench
	touch $@
