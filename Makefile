# Two commands do everything: `make demo` and `make test`. `make help` lists the others.
PY ?= python3
BIN := .venv/bin
LOCK := requirements
UV_FLAGS := -q --require-hashes --no-deps

# Where this is set, every process compiles what it imports, each time: half of what a service starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo help test test-all check slow slow-some mutants lowest docs figures wheel sbom bench bench-large bench-peers image system lock clean doctor

demo: .venv/core.done  ## Tell the story in under a minute, on synthetic data.
	@$(BIN)/sfumato demo

# One line for each target that says what it does, from this file itself.
help:  ## List the targets.
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "%-12s  %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# A worker more than processors: close to half of a worker's time is waiting for processes of its own.
WORKERS ?= $(shell expr $$(nproc) + 1)
TOGETHER = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Functions that take under a second, and the cheapest case of the others: tests/support/tiers.py.
test: .venv/test.done  ## Run the quick tests, in minutes. ARGS=... goes to pytest.
	@$(BIN)/python -m pytest $(TOGETHER) --quick -m "not slow" -q $(ARGS)

# In CI, what failed is run once more alone: a flaky test is written to .ci/failed-once.tsv; a skip, a test
# that fails twice, and one that stands there already are red. ARGS=--costs writes tests/costs.tsv anew.
RUNNER = $(if $(CI),tools.ci_tests,pytest)
test-all: .venv/dev.done .venv/torch.done  ## Run all tests but the slow ones, with real services.
	@$(BIN)/python -m $(RUNNER) $(TOGETHER) -m "not slow" -q $(ARGS)

check: .venv/dev.done  ## Check format, lint, types and the house tests.
	@$(BIN)/ruff format --check -q src tests bench tools
	@$(BIN)/ruff check -q src tests bench tools
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/python -m pytest -q -x tests/house

slow: .venv/dev.done .venv/torch.done  ## Run the long statistical and fault tests, and the mutation bench.
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m slow -q $(ARGS)
	@$(BIN)/python -m tools.mutate

# Change the source in one place at a time: a test has to fail. A run that was stopped is continued.
mutants: .venv/dev.done  ## Run the mutation bench alone; a run that was stopped is continued.
	@$(BIN)/python -m tools.mutate $(ARGS)

# The slow tests file by file, oldest result first, for so many minutes; results go to tests/slow-record.tsv.
MINUTES ?= 30
slow-some: .venv/dev.done .venv/torch.done  ## Run slow tests for MINUTES=30 minutes, oldest result first.
	@$(BIN)/python -m tools.slow_tests --minutes $(MINUTES)

bench: .venv/dev.done .venv/torch.done  ## Measure, and write docs/reference/figures.md.
	@$(BIN)/python -m bench --page $(ARGS)

# Up to a hundred million rows: minutes, and 3 GB in SFUMATO_BENCH_DIR or the temporary folder.
bench-large: .venv/dev.done  ## Measure with up to a hundred million rows.
	@$(BIN)/python -m bench.large $(ARGS)

# Beside other libraries, each in an environment of its own under .bench/ (needs a package index).
bench-peers: .venv/dev.done  ## Measure beside other libraries.
	@$(BIN)/python -m bench.peers --page $(ARGS)
	$(if $(ARGS),,@$(BIN)/python -m bench.peers.surveys --page)
	$(if $(ARGS),,@$(BIN)/python -m bench.crowd --peers --page)

# The README's figures, from docs/reference/figures.md.
figures: .venv/dev.done  ## Quote docs/reference/figures.md in the README.
	@$(BIN)/python -m bench.quote

# All pages, the reference and the proofs, as a site that needs no network. A warning or a broken link
# ends the build. (The variable stops a notice of Material about the end of its support, in May 2027.)
docs: .venv/docs.done  ## Build the documentation as a site: dist/docs/index.html.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo dist/docs/index.html

wheel: .venv/build.done  ## Build the wheel, into dist/.
	@$(BIN)/python -m hatchling build -t wheel -d dist

# What it is made of, from the locks, as CycloneDX lists.
sbom: .venv/core.done  ## Write lists of everything that the locks name (CycloneDX), into dist/.
	@$(BIN)/python -m tools.sbom dist

# The image of docs/deploy, built with buildah and tried: as root. BASE=debian where no registry is.
image:  ## Build the image of docs/deploy and try it; as root. BASE=debian without a registry.
	@sh .ci/image $(BASE)

doctor: .venv/core.done  ## Say what this machine lacks, what for, and the command that brings it.
	@$(BIN)/sfumato doctor

# What only the system's package manager can bring; the tests that need it skip without it.
system:  ## Install what only the system's package manager can bring.
	@sh .ci/system

# Make the locked lists anew (needs a package index; no index's name gets into them).
EXTRAS = --extra lab --extra databases --extra files --extra postgres --extra frames --extra plot --extra serve --extra spark
COMPILE_ANY = $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links --exclude-newer $(COOLED)
COMPILE = $(COMPILE_ANY) pyproject.toml
COMPILE_GROUP = $(COMPILE_ANY) -c $(LOCK)/dev.lock
# Nothing that was published within a week: what is malicious is mostly found by then.
COOLED = $$($(PY) -c 'import datetime as d; print(d.date.today() - d.timedelta(7))')
lock: .venv/bin/python  ## Make the locked lists in requirements/ anew.
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv
	@$(COMPILE) -o $(LOCK)/core.lock
	@$(COMPILE) $(EXTRAS) --group dev -c $(LOCK)/core.lock -o $(LOCK)/dev.lock
	@$(COMPILE) --extra databases --extra files --extra frames --extra postgres --extra serve --group test -c $(LOCK)/dev.lock \
		-o $(LOCK)/test.lock
	@$(COMPILE) --extra databases --extra files --extra serve --extra postgres --group build -c $(LOCK)/dev.lock -o $(LOCK)/serve.lock
	@$(COMPILE_GROUP) --group build -o $(LOCK)/build.lock
	@$(COMPILE_GROUP) --group docs -o $(LOCK)/docs.lock
	@grep -ohE '^(hypothesis|pytest|pytest-xdist)==[^ ]+' $(LOCK)/dev.lock | $(COMPILE) $(LEAST) --resolution \
		lowest-direct - -o $(LOCK)/lowest.lock
	@echo uv | $(COMPILE_GROUP) - -o $(LOCK)/uv.lock

# Tests of questions, prices, charges and answers with the oldest versions that pyproject.toml admits.
LEAST = --extra frames --extra lab --extra postgres --extra serve
LOWEST = .venv/lowest
lowest: .venv/lowest.done  ## Run the quick core tests with the oldest versions that pyproject.toml admits.
	@$(LOWEST)/bin/python -m pytest $(TOGETHER) --quick -m "not slow" -q tests/query tests/release \
		tests/client tests/cli/test_main.py tests/cli/test_first_words.py tests/cli/test_json_contract.py $(ARGS)

OLD = sfumato: this needs Python 3.11 or later, and $(PY) is %d.%d; name another: make PY=python3.12
.venv/bin/python:
	@$(PY) -c 'import sys; v = sys.version_info[:2]; sys.exit("$(OLD)" % v if v < (3, 11) else 0)'
	@$(PY) -m venv .venv || { rm -rf .venv; exit 1; }

.venv/uv.done: $(LOCK)/uv.lock | .venv/bin/python
	@echo "sfumato: setting up .venv (once) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $(LOCK)/uv.lock
	@touch $@

# uv knows nothing of pip's own settings: where they alone name an index, pip brings the same, more slowly.
INSTALL = install() { $(BIN)/uv pip install $(UV_FLAGS) --python $(BIN)/python -r $$1 \
	|| { echo "sfumato: trying again with pip ..."; \
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r $$1; }; }; install

.venv/core.done: $(LOCK)/core.lock .venv/uv.done pyproject.toml
	@$(INSTALL) $(LOCK)/core.lock
	@$(BIN)/python .ci/link
	@$(BIN)/python -m compileall -qq src || :  # a checkout that is read-only is only slower
	@touch $@

# A wheel needs neither sfumato's own dependencies nor those of the tests.
.venv/build.done: $(LOCK)/build.lock .venv/uv.done
	@$(INSTALL) $(LOCK)/build.lock
	@touch $@

# The reference is read from the code, so the pages need what sfumato itself needs.
.venv/docs.done: $(LOCK)/docs.lock .venv/core.done
	@$(INSTALL) $(LOCK)/docs.lock
	@touch $@

.venv/test.done: $(LOCK)/test.lock .venv/core.done
	@echo "sfumato: installing what the quick tests need (once) ..."
	@$(INSTALL) $(LOCK)/test.lock
	@touch $@

.venv/dev.done: $(LOCK)/dev.lock .venv/core.done
	@echo "sfumato: installing what the tests need (once) ..."
	@$(INSTALL) $(LOCK)/dev.lock
	@touch $@

# PyTorch, for remote tensors: large, and another build on each platform, so outside the hash lock.
# Where it is not to be had, the tests that need it skip, and say so.
TORCH = torch==2.13.0
.venv/torch.done: .venv/dev.done
	@echo "sfumato: installing $(TORCH) (once) ..."
	@if $(BIN)/python -m pip install -q --disable-pip-version-check "$(TORCH)"; then touch $@; \
	else echo "sfumato: $(TORCH) is not to be had here; its tests skip"; fi

.venv/lowest.done: $(LOCK)/lowest.lock .venv/uv.done
	@echo "sfumato: installing the oldest versions (once) ..."
	@$(PY) -m venv --without-pip $(LOWEST)
	@$(BIN)/uv pip install $(UV_FLAGS) --python $(LOWEST)/bin/python -r $(LOCK)/lowest.lock
	@$(LOWEST)/bin/python .ci/link
	@touch $@

clean:  ## Remove everything that make made.
	@rm -rf .venv .bench dist .mypy_cache .ruff_cache .pytest_cache
