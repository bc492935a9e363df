# Two commands do everything: `make demo` and `make test`.
PY ?= python3
BIN := .venv/bin
LOCK := requirements
UV_FLAGS := -q --require-hashes --no-deps

.PHONY: demo test check slow bench bench-large bench-peers system lock clean doctor

demo: .venv/core.done
	@$(BIN)/sfumato demo

test: .venv/dev.done
	@$(BIN)/python -m pytest -n 2 -m "not slow" -q $(ARGS)

check: .venv/dev.done
	@$(BIN)/ruff format --check -q src tests bench
	@$(BIN)/ruff check -q src tests bench
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python -m pytest -q -x tests/house

slow: .venv/dev.done
	@$(BIN)/python -m pytest -n 2 -m slow -q $(ARGS)

bench: .venv/dev.done
	@$(BIN)/python -m bench $(ARGS)

# Up to a hundred million rows: minutes, and 3 GB in SFUMATO_BENCH_DIR or the temporary folder.
bench-large: .venv/dev.done
	@$(BIN)/python -m bench.large $(ARGS)

# Beside other libraries, each in an environment of its own under .bench/ (needs a package index).
bench-peers: .venv/dev.done
	@$(BIN)/python -m bench.peers $(ARGS)

doctor: .venv/core.done
	@$(BIN)/sfumato doctor

# What only the system's package manager can bring; the tests that need it skip without it.
system:
	@sh .ci/system

# Make the locked lists anew (needs a package index; no index's name gets into them).
COMPILE = $(BIN)/uv pip compile -q pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
lock: .venv/bin/python
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@$(COMPILE) -o $(LOCK)/core.lock
	@$(COMPILE) --all-extras --group dev -c $(LOCK)/core.lock -o $(LOCK)/dev.lock
	@echo uv | $(BIN)/uv pip compile -q - --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate --no-emit-index-url --no-emit-find-links -c $(LOCK)/dev.lock -o $(LOCK)/uv.lock

.venv/bin/python:
	@$(PY) -m venv .venv

.venv/uv.done: $(LOCK)/uv.lock | .venv/bin/python
	@echo "sfumato: setting up .venv (once) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $(LOCK)/uv.lock
	@touch $@

.venv/core.done: $(LOCK)/core.lock .venv/uv.done pyproject.toml
	@$(BIN)/uv pip install $(UV_FLAGS) --python $(BIN)/python -r $(LOCK)/core.lock
	@$(BIN)/python .ci/link
	@touch $@

.venv/dev.done: $(LOCK)/dev.lock .venv/core.done
	@echo "sfumato: installing what the tests need (once) ..."
	@$(BIN)/uv pip install $(UV_FLAGS) --python $(BIN)/python -r $(LOCK)/dev.lock
	@touch $@

clean:
	@rm -rf .venv .bench .mypy_cache .ruff_cache .pytest_cache
