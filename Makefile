# Needs Python 3.11 or newer and make; everything else is fetched into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The tests wait as much as they work: four processes on two cores.
SUITE := $(BIN)/python tests/support/second_chance.py --numprocesses 4 --dist loadfile $(ARGS)
COVERAGE := $(BIN)/python tests/support/unit_coverage.py
NIGHT_MINUTES ?= 480
MINUTES ?= 60

# The tests start hundreds of processes: each would compile all modules, if Python may not keep them compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast coverage check style types collected docs compat bench bench-compare growth profile malformed valid-flood fuzz-security chaos mutants chaos-live chaos-hundredth clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## 336,776 flights through three brokers, one of them killed, while Spark reads them; the result is compared with pandas
	$(BIN)/python -m examples.flights

test: $(READY) ## Run all tests; a test that fails runs once more, alone
	$(SUITE)

test-fast: $(READY) ## Run the short unit tests only: no processes, no network, no simulator
	$(BIN)/pytest --fast --numprocesses 2 --dist loadfile $(ARGS)

coverage: $(READY) ## Run the unit tests under branch coverage: a table by package, pages in build/coverage, and a floor
	rm -f build/coverage.data*
	$(BIN)/pytest --units --measure-units --numprocesses 2 --dist loadfile $(ARGS)
	$(COVERAGE) --pages

check: $(READY) ## What CI runs: ruff, mypy --strict, import contracts, the tests, and the coverage of the unit tests among them
	$(MAKE) --jobs 2 style types collected
	rm -f build/coverage.data*
	$(SUITE) --measure-units
	$(COVERAGE)

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(READY)
	$(BIN)/mypy

# Compiles the tests of a fresh checkout once, beside mypy; the processes of the suite would each do it.
# What cannot be collected is reported by the suite.
collected: $(READY)
	-@$(BIN)/pytest --collect-only -qq > /dev/null

docs: $(READY) ## Build the documentation into build/site
	$(BIN)/python docs/generate
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

compat: $(READY) ## Run the suites of other projects against one broker and three (SUITES="franz_go kafka_tools"; needs Go, Java, Maven)
	$(BIN)/python tests/compat/run.py $(SUITES) $(ARGS)

malformed: $(READY) ## Flood a broker with a million malformed frames beside a client that must not be affected
	$(BIN)/python -m cordwood.chaos.live.malformed --frames 1000000

valid-flood: $(READY) ## Flood a broker with the largest valid requests beside a client that must not be affected (MINUTES=60)
	$(BIN)/python -m cordwood.chaos.live.valid_flood --minutes $(MINUTES)

fuzz-security: $(READY) ## Attack a closed broker, beside a client that must not be affected: authentication, TLS, tokens, logins (MINUTES=60)
	$(BIN)/python -m cordwood.chaos.live.security_fuzz --minutes $(MINUTES)

chaos: $(READY) ## Inject faults, simulated and real, and run the planted bugs (NIGHT_MINUTES=480; as root for all faults)
	$(BIN)/cordwood chaos sim --minutes $$(($(NIGHT_MINUTES) / 3))
	$(BIN)/cordwood chaos run --minutes $$(($(NIGHT_MINUTES) / 3)) --report cordwood-chaos-night.html
	$(BIN)/cordwood chaos mutants --minutes $$(($(NIGHT_MINUTES) / 3))

mutants: $(READY) ## Run the planted bugs of files that differ from a commit, and of their tests (BASE=HEAD~1)
	$(BIN)/cordwood chaos mutants --changed $(or $(BASE),HEAD~1)

chaos-live: $(READY) ## Kill, pause, cut off and damage real brokers, as often as docs/chaos.md requires (root, hours)
	mkdir -p build
	for fault in 'kill --rounds 300' 'kill --rounds 100 --kinds leader --brokers 5' 'pause --rounds 100' 'partition --rounds 50' \
	  'coordinator-kill --rounds 100' 'power-cut --rounds 100' 'bit-flip --rounds 100' 'wipe --rounds 1' 'rolling-restart --rounds 10'; do \
	  echo "$$fault" && $(BIN)/cordwood chaos run --fault $$fault --report build/chaos-fault.html || exit 1; done
	$(BIN)/python -m cordwood.chaos.live.replacements --rounds 300
	$(BIN)/python -m cordwood.chaos.live.thousand_partitions

chaos-hundredth: $(READY) ## Inject a hundredth of the faults that a release must survive, in an hour and a half (root for all faults)
	$(BIN)/cordwood chaos sim --seeds 1..675
	mkdir -p build
	$(BIN)/cordwood chaos run --minutes 10 --seed 1 --report build/chaos-hundredth.html
	for fault in 'kill --rounds 10' 'coordinator-kill --rounds 5' 'pause --rounds 5' 'partition --rounds 10' 'power-cut --rounds 10' 'bit-flip --rounds 10' \
	  'wipe --rounds 2'; do \
	  echo "$$fault" && $(BIN)/cordwood chaos run --fault $$fault --report build/chaos-fault.html || exit 1; done
	for flood in 'malformed --frames 100000' 'valid_flood --only all' 'valid_flood --minutes 1'; do \
	  echo "$$flood" && $(BIN)/python -m cordwood.chaos.live.$$flood || exit 1; done

bench: $(READY) ## Measure one broker and three: throughput, latency, CPU, memory, failover; three minutes (REPLICAS=1: only one; BASELINE=DIR: beside another checkout; TLS=1)
	$(BIN)/python -m cordwood.bench $(if $(COMPARE),--compare --rounds $(or $(ROUNDS),3)) $(if $(REPLICAS),--replication-factor $(REPLICAS)) $(if $(BASELINE),--baseline $(BASELINE)) $(if $(TLS),--tls) $(if $(RECORD),--record $(RECORD))

bench-compare: ## Measure Cordwood and Apache Kafka in turn, with and without fsync, three rounds; some forty minutes (REPLICAS, ROUNDS, RECORD)
	$(MAKE) bench COMPARE=1

growth: $(READY) ## Measure what grows with partitions, connections, consumers, records, logs and brokers (ONLY="connections"; SCALE=0.02; RECORD=FILE)
	$(BIN)/python -m cordwood.bench.growth $(if $(ONLY),--only $(ONLY)) $(if $(SCALE),--scale $(SCALE)) $(if $(RECORD),--record $(RECORD))

profile: $(READY) ## Profile the brokers in a line of the benchmark (LINE="16 connections", REPLICAS=3); flame graphs
	$(BIN)/python -m cordwood.bench.profile --line "$(or $(LINE),16 connections)" $(if $(REPLICAS),--replication-factor $(REPLICAS))

clean: ## Remove everything that these targets create
	rm -rf $(VENV) build dist src/cordwood.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f storage/*.so storage/compaction/*.so

# Made anew only when pyproject.toml, or what is compiled, is newer than the last install.
# --no-compile: of 13,000 modules most are never imported, and those that are get compiled then.
$(READY): pyproject.toml storage/record_walk.c storage/compaction/record_filter.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Cordwood needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@touch $@
