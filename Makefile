# Everything happens in a virtual environment that the first target makes.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/installed
OUTPUT ?= runs/demo
SEED ?= 0

.PHONY: demo test test-verl test-all lint bench clean

demo: $(STAMP)
	$(BIN)/agentfly demo --output $(OUTPUT) --seed $(SEED)

# All but slow tests and those of the verl backend, which need verl.
test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow"
	@echo "left out: slow tests, and those of the verl backend; make test-all runs everything"

# The verl backend, with the unmodified verl, in an environment of its own.
test-verl:
	venv=$$(scripts/verl-env) && $$venv/bin/python -m pytest -c tests/verl/pytest.ini tests/verl

test-all: $(STAMP) test-verl
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	scripts/typecheck $(BIN)

bench: $(STAMP)
	for file in $(filter-out benchmarks/verl_overhead.py,$(wildcard benchmarks/*.py)); do \
		echo "== $$file"; $(BIN)/python $$file || exit 1; done
	venv=$$(scripts/verl-env) && $$venv/bin/python benchmarks/verl_overhead.py

$(STAMP): setup.cfg pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "installing AgentFly and what it needs into $(VENV): this takes some minutes, once"
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[native,openai,sandbox,tensorboard,test,dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .venv-verl build dist *.egg-info runs
