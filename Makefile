# Everything happens in a virtual environment that the first target makes.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/installed
OUTPUT ?= runs/demo
SEED ?= 0

.PHONY: demo test test-verl test-vllm test-all lint bench clean

demo: $(STAMP)
	$(BIN)/agentfly demo --output $(OUTPUT) --seed $(SEED)

# All but slow tests and those of the verl backend and the vllm engine, which need verl and vLLM.
test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow"
	@echo "left out: slow tests, and those of the verl backend and the vllm engine; make test-all runs everything"

# The verl backend, with the unmodified verl, in an environment of its own.
test-verl:
	venv=$$(scripts/verl-env) && $$venv/bin/python -m pytest -c tests/verl/pytest.ini tests/verl

# The vllm engine, with the real vLLM on the CPU, in an environment of its own.
test-vllm:
	venv=$$(scripts/vllm-env) && $$venv/bin/python -m pytest -c tests/vllm/pytest.ini tests/vllm

test-all: $(STAMP) test-verl test-vllm
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	scripts/typecheck $(BIN)

bench: $(STAMP)
	for file in $(filter-out benchmarks/verl_% benchmarks/vllm_%,$(wildcard benchmarks/*.py)); do \
		echo "== $$file"; $(BIN)/python $$file || exit 1; done
	venv=$$(scripts/verl-env) && $$venv/bin/python benchmarks/verl_overhead.py
	venv=$$(scripts/vllm-env) && $$venv/bin/python benchmarks/vllm_rollouts.py

$(STAMP): setup.cfg pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "installing AgentFly and what it needs into $(VENV): this takes some minutes, once"
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[native,openai,sandbox,tensorboard,test,dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .venv-verl .venv-vllm build dist *.egg-info runs
