# Every target installs what it needs into .venv by itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
USABLE := $(VENV)/.usable

.PHONY: demo test check docs docs-serve reference bench soak soak-lives soak-faults mutations load format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    show what Holdfast does, on a local cluster over HTTP (DEMO='--keep' keeps the cluster)"
	@echo "make test    run all tests"
	@echo "make check   lint, types, layers"
	@echo "make docs    build the documentation site into site/; docs-serve shows it while you write"
	@echo "make reference  write docs/reference from the code"
	@echo "make bench   the core benchmark table (BENCH='SchedulingBasic' narrows it)"
	@echo "make soak    many random lives with the capacity audit (LIVES=100000 FROM=0 JOBS=2 SOAK='--tight --claims --calendar'),"
	@echo "             then lives of scheduler processes with faults (FAULT_SEEDS=1000000 FAULT_FROM=0)"
	@echo "make mutations  make deliberate mistakes one by one and see which test notices"
	@echo "make load    an hour of random load on \`holdfast up\` (MODE=run: on a real API server; MINUTES=60)"
	@echo "make format  let ruff rewrite the code"

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Without what tests need: holdfast and kubectl, in a fraction of the time.
$(USABLE): pyproject.toml
	@echo "installing holdfast and kubectl into $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[kubectl]'
	@touch $@

demo: $(USABLE)
	@$(BIN)/holdfast demo $(DEMO)

test: $(STAMP)
	$(BIN)/pytest -n auto

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

reference: $(STAMP)
	$(BIN)/python tools/write_reference.py

bench: $(STAMP)
	$(BIN)/holdfast bench --mode core $(BENCH)

LIVES ?= 100000
FROM  ?= 0
JOBS  ?= $(shell nproc)

soak: soak-lives soak-faults

soak-lives: $(STAMP)
	PYTHONPATH=src:tests $(BIN)/python -m mixtures.soak --lives $(LIVES) --from $(FROM) --jobs $(JOBS) $(SOAK)

FAULT_SEEDS ?= 1000000
FAULT_FROM  ?= 0
FAULT_FLAGS ?=

soak-faults: $(STAMP)
	PYTHONPATH=src:tests $(BIN)/python -m faults --seeds $(FAULT_SEEDS) --from $(FAULT_FROM) --jobs $(JOBS) $(FAULT_FLAGS)

mutations: $(STAMP)
	PYTHONPATH=src:tests $(BIN)/python -m mutations

MODE    ?= up
MINUTES ?= 60

load: $(STAMP)
	PYTHONPATH=src:tests $(BIN)/python -m load $(MODE) --minutes $(MINUTES)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
