# Everything runs in .venv, which the first target that needs it makes; it is rebuilt only when its inputs change.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test lint bench docs clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## a real search on the embedded data: a trained network that meets its budget
	$(BIN)/budgetnet search

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## lint, types, and every test
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

bench: $(STAMP)  ## every benchmark, results in benchmarks/results
	$(BIN)/python -m benchmarks

docs: $(STAMP)  ## the documentation, built into site/ without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf .venv
