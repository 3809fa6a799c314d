# lmsshim: any GPU, made to look larger than it is. `make help` lists what this file does.

CXX ?= g++
BUILD := build
PREFIX ?= /usr/local
VERSION := 0.1.0

# The CUDA toolkit: CUDA_HOME, nvcc on PATH, its standard folder, else what tools/setup.sh fetched into build/.
CUDA_HOME ?= $(firstword $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null)) \
                         $(wildcard /usr/local/cuda/bin/nvcc)) $(abspath $(BUILD)/cuda))
NVCC := $(CUDA_HOME)/bin/nvcc
CUDA_INC := $(CUDA_HOME)/include

WARN := -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
CXXFLAGS ?= -O2 -g
ALL_CXXFLAGS = -std=c++20 $(CXXFLAGS) $(WARN) -fPIC -pthread -I. -Iinclude -isystem $(CUDA_INC) \
               -DFMT_HEADER_ONLY -DLMS_VERSION='"$(VERSION)"' -MMD -MP
HIDDEN := -fvisibility=hidden -fvisibility-inlines-hidden
# libstdc++ and LLVM's libunwind (which is libgcc's unwinder too) linked in and hidden.
STATIC_CXX := -nodefaultlibs -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic -l:libunwind.a -lm -lc -lgcc \
              -l:ld-linux-x86-64.so.2 -Wl,--exclude-libs,ALL -Wl,--as-needed
# In programs libgcc's unwinder throws, as libstdc++.so expects; of LLVM's only what walks call stacks is taken.
UNWIND := -lgcc_s -l:libunwind.a
LIBUNWIND_INC := -isystem /usr/include/libunwind

obj = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(1))

# ---------------------------------------------------------------- the shim
SHIM_SRC := $(sort $(wildcard shim/*/*.cpp))
POLICY_SRC := $(sort $(wildcard policy/*.cpp))
SHIM := $(BUILD)/liblmsshim.so
POLICIES := $(patsubst policy/%.cpp,$(BUILD)/policy/%.so,$(filter-out policy/host.cpp,$(POLICY_SRC)))

# ---------------------------------------------------------------- the simulated GPU
SIM_DRIVER_SRC := $(sort $(wildcard tools/simcuda/ptx/*.cpp tools/simcuda/exec/*.cpp tools/simcuda/driver/*.cpp))
SIM_RUNTIME_SRC := $(sort $(wildcard tools/simcuda/runtime/*.cpp))
SIM := $(BUILD)/sim/libcuda.so.1 $(BUILD)/sim/libcudart.so.13

# ---------------------------------------------------------------- tools, demo, tests
LMS_SRC := $(sort $(wildcard tools/lms/*.cpp))
LMS := $(BUILD)/lms
NVCC_FLAGS := -O2 -std=c++17 -cudart shared -Wno-deprecated-gpu-targets -arch=compute_75 -code=compute_75
NVCC_FLAGS_per_thread := --default-stream per-thread
NVCC_FLAGS_nested := -rdc=true -lcudadevrt
DEMO := $(BUILD)/demo
APPS := $(patsubst tests/apps/%.cu,$(BUILD)/apps/%,$(sort $(wildcard tests/apps/*.cu))) $(BUILD)/apps/separate
# Each folder of tests is one doctest program, build/tests/<folder>.
TEST_DIRS := $(sort $(patsubst tests/%/,%,$(dir $(wildcard tests/*/*_test.cpp))))
TESTS := $(TEST_DIRS:%=$(BUILD)/tests/%)
BENCHES := $(patsubst tests/bench/%.cu,$(BUILD)/bench/%,$(sort $(wildcard tests/bench/*.cu)))
# Kept per folder: what a test program links beside its own sources.
CORE_SRC := $(filter shim/core/% shim/util/% shim/trace/%,$(SHIM_SRC)) $(POLICY_SRC)
LINK_unit := $(CORE_SRC) $(patsubst %,shim/engine/%.cpp,code_layouts fat_binary nv_info opaque pointer_words \
             ptx_taint ptx_text working_set)
LIBS_unit := -lzstd -llz4
LINK_ptx := $(filter tools/simcuda/ptx/% tools/simcuda/exec/%,$(SIM_DRIVER_SRC))
LINK_contract := $(CORE_SRC) $(filter shim/device/%,$(SHIM_SRC)) tests/support/fake_port.cpp tests/support/fake_memory.cpp
LINK_engine := $(CORE_SRC) $(patsubst %,shim/engine/%.cpp,blocks budget contexts fences leaving mover moves notices observe \
               release room session session_contexts session_names session_work streams) \
               tests/support/fake_port.cpp tests/support/fake_memory.cpp
LINK_cli := tests/support/process.cpp
LINK_e2e := tests/support/process.cpp
LINK_simrt := tests/simcuda/sim.cpp tests/support/process.cpp
LIBS_simrt := -lzstd -llz4
LINK_interpose := shim/device/locate.cpp

.PHONY: all demo test hook-map bench programs-check install uninstall format lint help setup clean
.DELETE_ON_ERROR:
# Objects that only a pattern names are kept, or one changed test would compile its whole folder again.
.SECONDARY:

# On all cores, unless make was told how many (-j).
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

all: setup ## build everything: shim, lms, policies, simulated GPU, demo, tests
	@$(SUBMAKE) build-all

.PHONY: build-all
build-all: $(SHIM) $(LMS) $(POLICIES) $(SIM) $(DEMO) $(APPS) $(TESTS)

setup: ## install missing packages and, if there is no CUDA toolkit, fetch one into build/
	@BUILD=$(BUILD) CUDA_HOME=$(CUDA_HOME) sh tools/setup.sh

$(BUILD)/obj/%.o: %.cpp
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) $(OBJ_FLAGS) -c -o $@ $<

# Tests are compiled more often than they run.
$(BUILD)/obj/tests/%.o: CXXFLAGS = -O1 -g1
$(call obj,$(SHIM_SRC) $(POLICY_SRC)): OBJ_FLAGS = $(HIDDEN) $(LIBUNWIND_INC)
$(call obj,$(SIM_DRIVER_SRC) $(SIM_RUNTIME_SRC)): OBJ_FLAGS = $(HIDDEN)

# -Bsymbolic: the addresses the shim hands out are its own functions, whatever else a process has preloaded.
$(SHIM): $(call obj,$(SHIM_SRC) $(POLICY_SRC)) shim/exports.map
	$(CXX) -shared -o $@ $(filter %.o,$^) -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic \
	  -Wl,--version-script=shim/exports.map -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/alias' \
	  -l:libzstd.a -l:liblz4.a $(STATIC_CXX)
	@mkdir -p $(@D)/alias
	ln -sf ../$(@F) $(@D)/alias/libcuda.so

$(BUILD)/policy/%.so: policy/%.cpp
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) $(HIDDEN) -DLMS_POLICY_PLUGIN -shared -o $@ $< $(STATIC_CXX)

$(BUILD)/sim/libcuda.so.1: $(call obj,$(SIM_DRIVER_SRC))
	@mkdir -p $(@D)
	$(CXX) -shared -pthread -o $@ $^ -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic -lzstd -llz4 -ldl
	ln -sf $(@F) $(@D)/libcuda.so

$(BUILD)/sim/libcudart.so.13: $(call obj,$(SIM_RUNTIME_SRC)) $(wildcard tools/simcuda/runtime/*.map)
	@mkdir -p $(@D)
	$(CXX) -shared -pthread -o $@ $(filter %.o,$^) -Wl,-soname,libcudart.so.13 -Wl,-z,defs \
	  $(patsubst %,-Wl$(comma)--version-script=%,$(filter %.map,$^)) -ldl
comma := ,

$(LMS): $(call obj,$(LMS_SRC)) $(call obj,$(CORE_SRC))
	$(CXX) -pthread -o $@ $^ $(UNWIND) -ldl

$(DEMO): $(sort $(wildcard tools/demo/*.cu tools/demo/*.h tools/demo/*.cuh))
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -o $@ $(filter %.cu,$^)

$(BUILD)/apps/%: tests/apps/%.cu $(wildcard tests/apps/*.h tests/apps/*.cuh)
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) $(NVCC_FLAGS_$*) -o $@ $< -Xlinker --allow-shlib-undefined -L$(CUDA_HOME)/lib/stubs -L$(CUDA_HOME)/lib64/stubs -lcuda

$(BUILD)/apps/separate: $(wildcard tests/apps/separate/* tests/apps/*.h)
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -rdc=true -I. -o $@ $(filter %.cu,$^)

$(BUILD)/asan/%: tests/apps/%.cu $(wildcard tests/apps/*.h tests/apps/*.cuh)
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -Xcompiler -fsanitize=address -o $@ $<

# tests/interpose: drivers that only answer lookups, and the programs that run over them under preload.
INTERPOSE := $(BUILD)/interpose
$(INTERPOSE)/driver/libcuda.so.1: FAKE_VERSION := 13000
$(INTERPOSE)/old_driver/libcuda.so.1: FAKE_VERSION := 11040
$(INTERPOSE)/new_driver/libcuda.so.1: FAKE_VERSION := 14000
$(INTERPOSE)/%/libcuda.so.1: tests/interpose/fake/fake_driver.cpp tests/interpose/fake/fake_driver.h shim/entry_points.def
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) -DFAKE_VERSION=$(FAKE_VERSION) -shared -o $@ $< -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic
$(INTERPOSE)/neighbour_%.so: tests/interpose/programs/neighbour.cpp
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) -DNEIGHBOUR='"$*"' -shared -o $@ $<
$(INTERPOSE)/audit.so: tests/interpose/programs/audit.cpp
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) -shared -o $@ $<
$(INTERPOSE)/linked_runpath: LINKED_FLAGS = -Wl,--enable-new-dtags,-rpath,'$$ORIGIN/old_driver'
$(INTERPOSE)/linked_rpath: LINKED_FLAGS = -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/old_driver'
$(addprefix $(INTERPOSE)/,linked linked_runpath linked_rpath): tests/interpose/programs/linked.cpp
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) -o $@ $< -L$(CUDA_HOME)/lib/stubs -L$(CUDA_HOME)/lib64/stubs -lcuda $(LINKED_FLAGS)
$(INTERPOSE)/runtime_%: tests/interpose/programs/runtime.cu
	@mkdir -p $(@D)
	$(NVCC) -cudart $* -Wno-deprecated-gpu-targets -o $@ $<
$(call obj,$(wildcard tests/interpose/*.cpp)): OBJ_FLAGS = -DCUDA_INCLUDE='"$(CUDA_INC)"' -DCUDA_HOME='"$(CUDA_HOME)"'
$(BUILD)/tests/interpose: | $(SHIM) $(addprefix $(INTERPOSE)/,driver/libcuda.so.1 old_driver/libcuda.so.1 \
  new_driver/libcuda.so.1 neighbour_first.so neighbour_second.so audit.so linked linked_runpath linked_rpath \
  runtime_static runtime_shared)

$(BUILD)/bench/simcuda_bench: $(call obj,tests/bench/simcuda_bench.cpp tests/ptx/device.cpp tests/ptx/coverage.cpp $(LINK_ptx))
	@mkdir -p $(@D)
	$(CXX) -pthread -o $@ $^ -lbenchmark -ldl
$(BUILD)/bench/simcuda.ptx: tests/bench/kernels/simcuda.cu
	@mkdir -p $(@D)
	$(NVCC) -O2 -std=c++17 -arch=compute_75 -ptx -o $@ $<
$(call obj,tests/bench/simcuda_bench.cpp): OBJ_FLAGS = -DSIMCUDA_BENCH_PTX='"$(abspath $(BUILD))/bench/simcuda.ptx"'
$(call obj,tests/bench/simcuda_bench.cpp): | $(BUILD)/bench/simcuda.ptx

$(BUILD)/bench/still/libcuda.so.1: $(call obj,tests/bench/still_driver.cpp tests/bench/still_rest.cpp)
	@mkdir -p $(@D)
	$(CXX) -shared -o $@ $^ -Wl,-soname,libcuda.so.1 -Wl,-z,defs
$(BUILD)/bench/calls: $(call obj,tests/bench/calls.cpp) | $(BUILD)/bench/still/libcuda.so.1
	@mkdir -p $(@D)
	$(CXX) -o $@ $^ -L$(CUDA_HOME)/lib/stubs -L$(CUDA_HOME)/lib64/stubs -lcuda

$(BUILD)/bench/%: tests/bench/%.cu
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -I. -o $@ $<

$(call obj,$(wildcard tests/simrt/*.cpp)): OBJ_FLAGS = -DCUDA_INCLUDE='"$(CUDA_INC)"'

include tests/gpu/rules.mk tests/families/rules.mk tests/unit/rules.mk tests/random/rules.mk

.SECONDEXPANSION:
$(BUILD)/tests/simrt: | $(SIM) $(APPS) $(BUILD)/asan/reduce
$(BUILD)/tests/unit: | $(POLICIES)
$(BUILD)/tests/cli: | $(LMS) $(SHIM) $(SIM)
$(BUILD)/tests/%: $$(call obj,$$(wildcard tests/$$*/*.cpp) $$(LINK_$$*))
	@mkdir -p $(@D)
	$(CXX) -pthread -o $@ $^ $(if $(LINK_$*),$(UNWIND)) $(LIBS_$*) -ldl

demo: setup ## train the demo model: big GPU, small GPU (out of memory), small GPU with the shim
	@$(SUBMAKE) $(SHIM) $(SIM) $(DEMO)
	@CUDA_HOME=$(CUDA_HOME) sh tools/demo/run.sh

test: all ## run every test
	@sh tests/run.sh

programs-check: $(SHIM) $(SIM) ## run programs that nobody here wrote (installs, downloads; tests/programs)
	@CUDA_HOME=$(CUDA_HOME) BUILD=$(BUILD) sh tests/programs.sh $(PROGRAMS)

hook-map: all ## find, for each hook that has none in tests/hooks/held.tsv, a test that fails without it
	@python3 -B tests/hooks/held.py map

bench: all $(BENCHES) $(BUILD)/bench/simcuda_bench $(BUILD)/bench/calls ## measure, as ratios inside one run
	@CUDA_HOME=$(CUDA_HOME) sh tests/bench.sh

install: $(SHIM) $(LMS) $(POLICIES) $(SIM) ## install to PREFIX (the shim goes to PREFIX/lib/lmsshim, which ldconfig never reads)
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin include/lms lib/lmsshim/policy lib/lmsshim/sim)
	install -m 755 $(LMS) $(DESTDIR)$(PREFIX)/bin/lms
	install -m 755 $(SHIM) $(DESTDIR)$(PREFIX)/lib/lmsshim/
	install -d $(DESTDIR)$(PREFIX)/lib/lmsshim/alias
	ln -sf ../liblmsshim.so $(DESTDIR)$(PREFIX)/lib/lmsshim/alias/libcuda.so
	install -m 755 $(POLICIES) $(DESTDIR)$(PREFIX)/lib/lmsshim/policy/
	install -m 755 $(SIM) $(DESTDIR)$(PREFIX)/lib/lmsshim/sim/
	ln -sf libcuda.so.1 $(DESTDIR)$(PREFIX)/lib/lmsshim/sim/libcuda.so
	install -m 644 include/lms/*.h $(DESTDIR)$(PREFIX)/include/lms/
	strip --strip-debug $(DESTDIR)$(PREFIX)/bin/lms \
	  $(addprefix $(DESTDIR)$(PREFIX)/lib/lmsshim/,$(notdir $(SHIM)) $(patsubst $(BUILD)/%,%,$(POLICIES) $(SIM)))

uninstall: ## remove what install put under PREFIX
	rm -rf $(DESTDIR)$(PREFIX)/bin/lms $(DESTDIR)$(PREFIX)/lib/lmsshim $(DESTDIR)$(PREFIX)/include/lms

FORMATTED = $(shell git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
format: ## clang-format all sources
	clang-format -i $(FORMATTED)

lint: ## check formatting and run clang-tidy
	@clang-format --dry-run -Werror $(FORMATTED)
	@printf '%s\n' $(filter %.cpp,$(FORMATTED)) | xargs -P$(shell nproc) -I{} \
	  clang-tidy -quiet {} -- -std=c++20 -I. -Iinclude -isystem $(CUDA_INC) $(LIBUNWIND_INC) -DFMT_HEADER_ONLY \
	  -DLMS_VERSION='"$(VERSION)"'

clean: ## remove build/
	rm -rf $(BUILD)

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

-include $(shell find $(BUILD)/obj $(BUILD)/policy -name '*.d' 2>/dev/null)
