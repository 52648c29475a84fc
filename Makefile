# The one place for the project's commands: `make check test`.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

.PHONY: check test docs golden accuracy bench wheel clean

check:  ## lint, format, types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test:  ## all tests, two at a time
	$(PYTHON) -m pytest -q -n 2 --dist loadfile

docs:  ## the commands and outputs in the documents, with the Triton that they show
	test -d .venv-docs || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install -q -e . pytest 'triton==3.9.*'
	.venv-docs/bin/python -m pytest -q tests/test_docs.py

golden:  ## rewrite the expected reports after a deliberate change; look at the diff
	$(PYTHON) -m pytest -q tests --update-golden

accuracy:  ## rewrite the accuracy tables of the documents from the recorded launches
	$(PYTHON) benchmarks/accuracy.py

bench:  ## speed, as ratios within one run
	$(PYTHON) benchmarks/parse.py
	$(PYTHON) benchmarks/decode.py
	$(PYTHON) benchmarks/names.py
	$(PYTHON) benchmarks/traffic.py

wheel:  ## build the wheel into dist/
	$(PYTHON) -m pip wheel --no-deps -w dist .

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
