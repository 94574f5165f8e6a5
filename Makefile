# Every target sets up what it needs: a virtual environment in .venv, from Python 3.11 or later and nothing else.

VENV := .venv
# The one that is asked for, else the one the environment was made with, else the first that is found.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for name in $(VENV)/bin/python python3 python3.13 python3.12 python3.11 python3.14; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$name; break; fi; done)
endif
VERSION := $(if $(PYTHON),$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null))
TESTED := $(shell sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml)
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Test processes side by side, two more than two cores since many tests wait; 0 runs all in one, which a debugger wants.
WORKERS ?= 4
PARALLEL := -n $(WORKERS) --dist worksteal
# What was compiled is kept, whatever the shell says: each test process and replica would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE
RUN := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
TOOLS := $(VENV)/.installed-tools
# Exact versions with their hashes (requirements/, renewed by `make lock`): the same is installed everywhere, and always.
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
LOCKED := $(PIP) install --require-hashes --no-deps --requirement requirements/build.txt --requirement
THIS := $(PIP) install --no-deps --no-index --no-build-isolation --editable .
# Told by its name: another version asked for is another environment.
MADE := $(VENV)/.python-$(VERSION)

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint format types proto client bench scaling faults soak screenshots secrets lock audit manifests check wheel \
	environment version clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(RUN) ## the main job, live, on the embedded ledger
	@$(BIN)/agentenv-scheduler demo $(ARGS)

test: $(DEV) ## every test but long faults and soak; on redis-server from the PATH, else on a bundled server
	@$(PYTEST) $(PARALLEL) -m "(not faults or brief) and not soak" $(ARGS)

quick: $(DEV) ## the tests that are quick
	@$(PYTEST) $(PARALLEL) -m "not slow and not faults and not soak" $(ARGS)

scaling: $(DEV) ## placements a second for 1, 2 and 3 replicas, and what one costs Redis
	@$(BIN)/python -m tests.replicas.scaling $(ARGS)

faults: $(DEV) ## break real servers and replicas on purpose
	@$(PYTEST) -m faults $(ARGS)

soak: $(DEV) ## twenty minutes of hostile input
	@SCHEDULER_TEST_HYPOTHESIS=soak $(PYTEST) -m soak --timeout 3600 $(ARGS)

screenshots: $(DEV) ## the console's pictures in docs/images; needs Chromium
	@$(BIN)/python -m tests.console.screenshots

lint: $(DEV) ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(DEV) ## let ruff put it right
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(DEV) ## mypy, strict
	@$(BIN)/mypy

proto: $(DEV) ## generate the gRPC code from proto/
	@$(BIN)/python -m scheduler.api.grpc.generate

client: $(DEV) ## write the blocking half of the Python client from the other one
	@$(BIN)/python clients/python/generate_sync.py

bench: $(DEV) ## what a placement costs inside Redis
	@$(BIN)/agentenv-scheduler bench schedule $(ARGS)

# Passwords of throw-away loopback servers are part of the tests; keys of a known form belong nowhere.
ENTROPY := --disable-plugin HexHighEntropyString --disable-plugin Base64HighEntropyString
secrets: $(DEV) ## look for secrets in what git tracks
	@git ls-files -z | xargs -0 $(BIN)/detect-secrets-hook $(ENTROPY) --disable-plugin KeywordDetector \
		--disable-plugin BasicAuthDetector
	@git ls-files -z -- . ':!tests' ':!docs' | xargs -0 $(BIN)/detect-secrets-hook $(ENTROPY) \
		--exclude-lines 'secretName: '

lock: $(TOOLS) ## put versions for pyproject.toml into requirements/; ARGS=--upgrade takes the newest
	@UV=$(BIN)/uv requirements/lock.sh $(ARGS)

audit: $(TOOLS) ## known weaknesses in what we depend on; needs the internet
	@$(BIN)/pip-audit --disable-pip --require-hashes --requirement requirements/dev.txt

check: lint types test ## what must pass before a commit

manifests: $(TOOLS) ## what deploy/kubernetes builds, against the schemas of Kubernetes
	@$(PYTEST) -q tests/deploy/test_kubernetes.py $(ARGS)

wheel: $(DEV) ## dist/*.whl: the server, and the client by itself
	@$(PIP) wheel --no-deps --no-index --no-build-isolation --wheel-dir dist . ./clients/python

environment: $(DEV) ## .venv with all that the tests need; the other targets make it when it is not there

version: ## the Python that it is made of
	@echo "$(VERSION)"

clean: ## forget the environment and what was built
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Kept as files so that an environment is made once, and brought up to date when what it is made from changes.
$(RUN): pyproject.toml requirements/build.txt requirements/run.txt $(MADE)
	@echo "Installing agentenv-scheduler into $(VENV) …"
	@$(LOCKED) requirements/run.txt
	@$(THIS)
	@touch $@

$(DEV): pyproject.toml requirements/build.txt requirements/dev.txt $(MADE)
	@echo "Installing agentenv-scheduler and its tools into $(VENV) …"
	@$(LOCKED) requirements/dev.txt
	@$(THIS)
	@touch $(RUN) $@

$(TOOLS): requirements/tools.txt $(DEV)
	@echo "Installing what few targets need into $(VENV) …"
	@$(LOCKED) requirements/tools.txt
	@touch $@

$(MADE):
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or later is needed; none was found (make PYTHON=/path/to/python3)."; exit 1; fi
	@if [ -z "$(VERSION)" ]; then echo "$(PYTHON) is no Python that runs here (make PYTHON=/path/to/python3)."; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is Python $(VERSION); 3.11 or later is needed, tested are $(TESTED)."; exit 1; }
	@case " $(TESTED) " in *" $(VERSION) "*) ;; *) \
		echo "Not tested with Python $(VERSION); the versions tested are $(TESTED). Going on with it.";; esac
	@if ! $(BIN)/python -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "$(VERSION)")' 2>/dev/null; then \
		if [ -d $(VENV) ]; then echo "$(VENV) is not of Python $(VERSION): making it anew."; rm -rf $(VENV); fi; \
		$(PYTHON) -m venv $(VENV) >$(VENV).log 2>&1 && rm -f $(VENV).log || { \
			cat $(VENV).log; rm -rf $(VENV) $(VENV).log; \
			echo; echo "$(PYTHON) could not make a virtual environment. On Debian and Ubuntu: apt install python3-venv"; \
			exit 1; }; \
	fi
	@touch $@
