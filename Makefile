# The one place for the project's commands: `make check test`.
PYTHON ?= $(if $(wildcard .venv/bin/python),.venv/bin/python,python3)

.PHONY: check test golden bench wheel clean

check:  ## lint, format, types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test:  ## all tests
	$(PYTHON) -m pytest -q

golden:  ## rewrite the expected reports after a deliberate change; look at the diff
	$(PYTHON) -m pytest -q tests --update-golden

bench:  ## speed, as ratios within one run
	$(PYTHON) benchmarks/parse.py

wheel:  ## build the wheel into dist/
	$(PYTHON) -m pip wheel --no-deps -w dist .

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
