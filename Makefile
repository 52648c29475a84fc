# The one place for the project's commands: `make check test`.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

# Each process begins with one half of the tests and helps the other when it is done.
TWO_AT_A_TIME = -m pytest -q -n 2 --dist worksteal

.PHONY: check test test-fast docs golden accuracy bench wheel clean

check:  ## lint, format, types; tests are called the same in every folder and at any time
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) tests/names_of_tests.py

test:  ## all tests but those of the documents, two at a time
	$(PYTHON) $(TWO_AT_A_TIME) --ignore tests/test_docs.py

test-fast:  ## what is not marked as slow, for daily work
	$(PYTHON) $(TWO_AT_A_TIME) -m "not slow"

docs:  ## the commands and outputs in the documents, with the Triton that they show
	if $(PYTHON) -c "import triton as t; exit(not t.__version__.startswith('3.9.'))"; then \
	  $(PYTHON) $(TWO_AT_A_TIME) tests/test_docs.py; \
	else \
	  $(PYTHON) -m venv .venv-docs && \
	  .venv-docs/bin/python -m pip install -q -e . pytest pytest-xdist 'triton==3.9.*' && \
	  .venv-docs/bin/python $(TWO_AT_A_TIME) tests/test_docs.py; \
	fi

golden:  ## rewrite the expected reports after a deliberate change; look at the diff
	$(PYTHON) -m pytest -q tests --update-golden

accuracy:  ## rewrite the accuracy tables of the documents from the recorded launches
	$(PYTHON) benchmarks/accuracy.py

bench:  ## speed, as ratios within one run
	$(PYTHON) benchmarks/parse.py
	$(PYTHON) benchmarks/decode.py
	$(PYTHON) benchmarks/names.py
	$(PYTHON) benchmarks/traffic.py
	$(PYTHON) benchmarks/interactive.py

wheel:  ## build the wheel into dist/
	$(PYTHON) -m pip wheel --no-deps -w dist .

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
