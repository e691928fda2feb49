# Everything happens in a virtual environment that the first target makes.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/installed
OUTPUT ?= runs/demo
SEED ?= 0

.PHONY: demo test test-all lint bench clean

demo: $(STAMP)
	$(BIN)/agentfly demo --output $(OUTPUT) --seed $(SEED)

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	scripts/typecheck $(BIN)

bench: $(STAMP)
	for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

$(STAMP): setup.cfg pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "installing AgentFly and what it needs into $(VENV): this takes some minutes, once"
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[native,openai,sandbox,tensorboard,test,dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist *.egg-info runs
