# lmsshim: any GPU, made to look larger than it is. `make help` lists what this file does.

CXX ?= g++
# What has been compiled before, in this folder or another, is not compiled again.
CCACHE ?= $(notdir $(shell command -v ccache 2>/dev/null))
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1
BUILD := build
PREFIX ?= /usr/local
VERSION := 0.1.0

# The CUDA toolkit: CUDA_HOME, nvcc on PATH, its standard folder, else what tools/setup.sh fetched into build/.
CUDA_HOME ?= $(firstword $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc 2>/dev/null)) \
                         $(wildcard /usr/local/cuda/bin/nvcc)) $(abspath $(BUILD)/cuda))
NVCC := $(CUDA_HOME)/bin/nvcc
CUDA_INC := $(CUDA_HOME)/include

WARN := -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
CXXFLAGS ?= -O2 -g1
ALL_CXXFLAGS = -std=c++20 $(CXXFLAGS) $(WARN) -fPIC -pthread -I. -Iinclude -isystem $(CUDA_INC) \
               -DLMS_VERSION='"$(VERSION)"' -MMD -MP
HIDDEN := -fvisibility=hidden -fvisibility-inlines-hidden
# What is installed runs with glibc 2.28 (tools/glibc) and has libstdc++ linked in and hidden. Sanitizers' runtimes link with this
# machine's glibc.
GLIBC := $(if $(findstring -fsanitize,$(LDFLAGS)),,$(BUILD)/glibc/libc.so)
STATIC_CXX = $(addprefix -L,$(patsubst %/,%,$(dir $(GLIBC)))) -nodefaultlibs -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic $(UNWINDER) \
             -Wl,--no-as-needed -lm -lc -lgcc -l:ld-linux-x86-64.so.2 -Wl,--exclude-libs,ALL -Wl,--as-needed
# Exceptions pass through functions of glibc, which know libgcc's unwinder.
UNWINDER = -lgcc_s
# Of programs (tools/glibc/start.cpp). This machine's libgcc needs this machine's glibc.
START = $(if $(GLIBC),-Wl$(comma)--wrap=__libc_start_main$(comma)--allow-shlib-undefined)
# In test programs libgcc's unwinder throws, as libstdc++.so expects; of LLVM's only what walks call stacks is taken.
# Of its demangler libstdc++.so exports a form that knows no bounds alone; the other is in the archive.
UNWIND := -lgcc_s -l:libunwind.a -lstdc++ -l:libsupc++.a
LIBUNWIND_INC := -isystem /usr/include/libunwind

# Sources are compiled in units: those of a folder as one, UNITY of them at most, for most of what a source costs is its
# headers. UNITY=0 compiles each by itself, for who works on one. `obj` gives the objects of sources: the units that
# are there whole, else each source's own. `every_obj` gives both, for what is said of their flags.
UNITY ?= 14
# These stay alone: they have flags of their own, are main functions that tests link without, or declare what others do otherwise.
ALONE := shim/device/loader.cpp tools/lms/main.cpp tools/lms/driver.cpp tests/fuzz/fuzz.cpp tests/unit/link_speeds_test.cpp tests/entry/overlay/forward.cpp \
         $(wildcard tests/bench/*.cpp) tools/simcuda/driver/entry_table.cpp tools/simcuda/runtime/unimplemented.cpp tools/simcuda/runtime/driver.cpp
# These are in units of their own, which tests link without the rest of the folder.
ENGINE_SESSION := $(wildcard shim/session/session.cpp shim/session/session_*.cpp shim/session/idle_helper.cpp)
LMS_READERS := $(addprefix tools/lms/,analysis.cpp printable.cpp trace_decoder.cpp trace_file.cpp)
APART := $(ENGINE_SESSION) $(LMS_READERS)
file_obj = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(1))
ifeq ($(UNITY),0)
obj = $(file_obj)
else
UNITS := $(shell sh tools/units.sh $(BUILD) $(UNITY) '$(ALONE)' '$(APART)')
include $(BUILD)/units.mk
units_of = $(foreach folder,$(sort $(dir $(1))),$(UNITS_$(folder)))
whole = $(foreach unit,$(call units_of,$(1)),$(if $(filter-out $(1),$(SOURCES_$(unit))),,$(unit)))
obj = $(call obj_of,$(1),$(call whole,$(1)))
obj_of = $(2) $(call file_obj,$(filter-out $(foreach unit,$(2),$(SOURCES_$(unit))),$(1)))
endif
every_obj = $(sort $(call obj,$(1)) $(call file_obj,$(1)))

# fmt, for everything that is linked here.
FMT := $(BUILD)/libfmt.a

# ---------------------------------------------------------------- the shim
SHIM_SRC := $(sort $(wildcard shim/*/*.cpp shim/entry/interpose/*.cpp))
POLICY_SRC := $(sort $(wildcard policy/*.cpp))
SHIM := $(BUILD)/liblmsshim.so
POLICIES := $(patsubst policy/%.cpp,$(BUILD)/policy/%.so,$(filter-out policy/host.cpp policy/watched.cpp,$(POLICY_SRC)))

# ---------------------------------------------------------------- the simulated GPU
SIM_DRIVER_SRC := $(sort $(wildcard tools/simcuda/ptx/*.cpp tools/simcuda/exec/*.cpp tools/simcuda/driver/*.cpp tools/simcuda/driver/*/*.cpp))
SIM_RUNTIME_SRC := $(sort $(wildcard tools/simcuda/runtime/*.cpp))
# What is not the driver's alone.
SIM_SHARED_SRC := $(addprefix tools/simcuda/driver/,knobs.cpp gpu_model.cpp message.cpp shared/page.cpp shared/process.cpp)
SIM_NVML_SRC := $(sort $(wildcard tools/simcuda/nvml/*.cpp)) $(SIM_SHARED_SRC)
SIM := $(BUILD)/sim/libcuda.so.1 $(BUILD)/sim/libcudart.so.13 $(BUILD)/sim/libnvidia-ml.so.1

# ---------------------------------------------------------------- tools, demo, tests
LMS_SRC := $(sort $(wildcard tools/lms/*.cpp))
LMS_LIB := $(filter-out tools/lms/main.cpp,$(LMS_SRC))
LIBS_lms := -lncurses -ltinfo -lzstd
LMS := $(BUILD)/lms
NVCC_FLAGS := -O2 -std=c++17 -cudart shared -Wno-deprecated-gpu-targets -arch=compute_75 -code=compute_75
NVCC_FLAGS_per_thread := --default-stream per-thread
# At a fixed address below 4 GiB, as is its heap.
NVCC_FLAGS_low_memory := -Xcompiler -fno-pie,-no-pie
NVCC_FLAGS_nested := -rdc=true -lcudadevrt
NVCC_FLAGS_device_streams := $(NVCC_FLAGS_nested)
# What the linked program links when it runs.
DEVICE_RUNTIME := $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudadevrt.a $(CUDA_HOME)/lib/libcudadevrt.a))
NVCC_FLAGS_linked := -DDEVICE_RUNTIME='"$(DEVICE_RUNTIME)"'
DEMO := $(BUILD)/demo
# Beside each other: the program, the script that runs it, what it is trained on. KERNELS is for who has no compiler.
DEMO_ALL := $(DEMO) $(BUILD)/demo.sh $(BUILD)/demo.txt
KERNELS := $(BUILD)/sim/kernels
APPS := $(patsubst tests/apps/%.cu,$(BUILD)/apps/%,$(sort $(wildcard tests/apps/*.cu))) $(BUILD)/apps/separate
# Each folder of tests is one doctest program, build/tests/<folder>.
TEST_DIRS := $(sort $(patsubst tests/%/,%,$(dir $(wildcard tests/*/*_test.cpp))))
TESTS := $(TEST_DIRS:%=$(BUILD)/tests/%)
# Kept per folder: what a test program links beside its own sources.
CORE_SRC := $(filter shim/engine/% shim/util/% shim/trace/% shim/sharing/%,$(SHIM_SRC)) $(POLICY_SRC)
LINK_unit := $(CORE_SRC) $(filter shim/code/%,$(SHIM_SRC)) shim/program/address_book.cpp shim/program/system_gpus.cpp shim/access/placed_access.cpp \
             shim/access/pointer_words.cpp tests/support/fat_binary.cpp $(LMS_LIB)
LIBS_unit := -llz4 $(LIBS_lms)
LINK_locks := shim/util/clock.cpp
LINK_ptx := $(filter tools/simcuda/ptx/% tools/simcuda/exec/%,$(SIM_DRIVER_SRC))
LINK_explore := $(filter shim/engine/%,$(SHIM_SRC))
LINK_contract := $(CORE_SRC) $(filter shim/device/%,$(SHIM_SRC)) tests/support/fake_port.cpp tests/support/fake_memory.cpp
LINK_engine := $(CORE_SRC) $(filter shim/program/% shim/telemetry/% shim/executor/%,$(SHIM_SRC)) $(ENGINE_SESSION) \
               tests/support/fake_port.cpp tests/support/fake_memory.cpp $(LMS_LIB)
LIBS_engine := $(LIBS_lms)
LINK_cli := tests/support/process.cpp
LINK_e2e := tests/support/process.cpp shim/trace/demangle.cpp $(LMS_READERS)
LINK_simcuda := $(SIM_SHARED_SRC) $(addprefix tools/simcuda/driver/,shared/turns.cpp shared/order.cpp clock.cpp random.cpp work_log.cpp)
LINK_simrt := tests/simcuda/sim.cpp tests/support/process.cpp tests/support/fat_binary.cpp
LIBS_simrt := -llz4

# What is installed.
INSTALLED := $(SHIM) $(LMS) $(POLICIES) $(SIM) $(DEMO_ALL) $(KERNELS)

.PHONY: all demo test check hook-map third-party-check third-party-quick bare-check install uninstall format lint help setup clean compile_commands.json
.DELETE_ON_ERROR:
# Objects that only a pattern names are kept, or one changed test would compile its whole folder again.
.SECONDARY:

# In place of a command: which target it makes, and how many of how many there are; V=1 shows commands.
STEP = $(if $(V),,$(eval MADE += x)@printf '[%3s/%s] %s\n' $(words $(MADE)) $(STEPS) $(patsubst $(BUILD)/%,%,$(patsubst $(BUILD)/obj/%,%,$@));)
STEPS = $(eval STEPS := $(shell MAKEFLAGS='$(filter-out --jobserver%,$(MAKEFLAGS))' $(MAKE) -n STEPS=0 V= $(MAKECMDGOALS) 2>/dev/null | grep -c '^printf'))$(STEPS)
Q := $(if $(V),,@)

# On all cores, unless make was told how many (-j). Lines with it begin with +, or make runs them on one.
SUBMAKE = $(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

all: needed ## build: everything (shim, lms, policies, simulated GPU, demo, tests)
	@+$(SUBMAKE) build-all

.PHONY: build-all needed
build-all: $(INSTALLED) $(APPS) $(TESTS)

setup: ## build: install what is missing (Debian packages, as root; a CUDA toolkit goes into build/)
	@BUILD=$(BUILD) CUDA_HOME=$(CUDA_HOME) sh tools/setup.sh install

# Only names the packages.
needed:
	@BUILD=$(BUILD) CUDA_HOME=$(CUDA_HOME) sh tools/setup.sh

$(BUILD)/obj/%.o: %.cpp
	@mkdir -p $(@D)
	$(STEP)$(CCACHE) $(CXX) $(ALL_CXXFLAGS) $(OBJ_FLAGS) -c -o $@ $<

# (A local type of a source seems here to be one that others see.)
$(BUILD)/obj/%.o: $(BUILD)/obj/%.cpp
	$(STEP)$(CCACHE) $(CXX) $(ALL_CXXFLAGS) $(OBJ_FLAGS) -Wno-subobject-linkage -c -o $@ $<

# Tests are compiled more often than they run.
$(BUILD)/obj/tests/%.o: CXXFLAGS = -O1 -g1
# The program's threads may have small stacks. Sanitizers make frames larger.
SMALL_FRAMES := $(if $(findstring -fsanitize,$(LDFLAGS)),,-Wframe-larger-than=8192 -fstack-clash-protection)
$(call every_obj,$(SHIM_SRC) $(POLICY_SRC)): OBJ_FLAGS = $(HIDDEN) $(LIBUNWIND_INC) $(SMALL_FRAMES)
# A sanitizer's runtime looks names up before it is ready for code that it has made.
$(call every_obj,shim/device/loader.cpp $(wildcard shim/entry/interpose/*.cpp)): OBJ_FLAGS += $(UNSANITIZED)
$(call every_obj,$(SIM_DRIVER_SRC) $(SIM_RUNTIME_SRC) $(SIM_NVML_SRC)): OBJ_FLAGS = $(HIDDEN)

$(FMT): $(call file_obj,tools/fmt.cpp)
	$(STEP)$(AR) rcs $@ $^
$(call file_obj,tools/fmt.cpp): OBJ_FLAGS = $(HIDDEN)

# The shim and policies bring no other library into a process, so theirs is LLVM's.
$(SHIM) $(POLICIES): UNWINDER = -l:libunwind.a
# -Bsymbolic: the addresses the shim hands out are its own functions, whatever else a process has preloaded.
$(SHIM): $(call obj,$(SHIM_SRC) $(POLICY_SRC)) $(FMT) $(GLIBC) shim/exports.map
	$(STEP)$(CXX) $(LDFLAGS) -shared -o $@ $(filter %.o %.a,$^) -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic \
	  -Wl,--version-script=shim/exports.map -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/alias' \
	  -l:libzstd.a -l:liblz4.a $(STATIC_CXX)
	@mkdir -p $(@D)/alias
	$(Q)ln -sf ../$(@F) $(@D)/alias/libcuda.so

$(BUILD)/policy/%.so: policy/%.cpp $(FMT) $(GLIBC)
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(HIDDEN) -DLMS_POLICY_PLUGIN $(LDFLAGS) -shared -o $@ $< $(FMT) $(STATIC_CXX)

# Of the simulated GPU's libraries only what a CUDA program knows is seen.
LINK_SIM = $(CXX) $(LDFLAGS) -shared -o $@ $(filter %.o %.a,$^) -Wl,-soname,$(@F) -Wl,-z,defs -Wl,--version-script=$(filter %.map,$^)
$(BUILD)/sim/libcuda.so.1: $(call obj,$(SIM_DRIVER_SRC)) $(call file_obj,shim/code/nv_info.cpp) $(FMT) $(GLIBC) tools/simcuda/driver/libcuda.map
	@mkdir -p $(@D)
	$(STEP)$(LINK_SIM) -Wl,-Bsymbolic -l:libzstd.a -l:liblz4.a $(STATIC_CXX)
	$(Q)ln -sf $(@F) $(@D)/libcuda.so

$(BUILD)/sim/libcudart.so.13: $(call obj,$(SIM_RUNTIME_SRC)) $(GLIBC) tools/simcuda/runtime/libcudart.map
	@mkdir -p $(@D)
	$(STEP)$(LINK_SIM) $(STATIC_CXX)

$(BUILD)/sim/libnvidia-ml.so.1: $(call obj,$(SIM_NVML_SRC)) $(GLIBC) tools/simcuda/nvml/libnvidia-ml.map
	@mkdir -p $(@D)
	$(STEP)$(LINK_SIM) -Wl,-Bsymbolic $(STATIC_CXX)

$(LMS): $(call obj,$(LMS_SRC) $(CORE_SRC)) $(FMT) $(GLIBC)
	$(STEP)$(CXX) $(LDFLAGS) -o $@ $(filter %.o %.a,$^) $(START) $(LIBS_lms:-l%=-l:lib%.a) $(STATIC_CXX)
$(LMS): UNWINDER = -lgcc_s -l:libunwind.a

$(BUILD)/apps/%: tests/apps/%.cu $(wildcard tests/apps/*.h tests/apps/*.cuh)
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(NVCC_FLAGS) $(NVCC_FLAGS_$*) -o $@ $< -Xlinker --allow-shlib-undefined -L$(CUDA_HOME)/lib/stubs -L$(CUDA_HOME)/lib64/stubs -lcuda

# Both came with compute capability 9.0.
$(BUILD)/apps/clusters $(BUILD)/apps/dependent_launch: NVCC_FLAGS := $(subst compute_75,compute_90,$(NVCC_FLAGS))
$(BUILD)/apps/separate: $(wildcard tests/apps/separate/* tests/apps/*.h)
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(NVCC_FLAGS) -rdc=true -I. -o $@ $(filter %.cu,$^)

$(BUILD)/examples/%: examples/%.cu include/lms/lms.h
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(NVCC_FLAGS) -Iinclude -o $@ $<

$(BUILD)/asan/%: tests/apps/%.cu $(wildcard tests/apps/*.h tests/apps/*.cuh)
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(NVCC_FLAGS) -Xcompiler -fsanitize=address -o $@ $<

$(call every_obj,$(wildcard tests/simrt/*.cpp)): OBJ_FLAGS = -DCUDA_INCLUDE='"$(CUDA_INC)"'

RULES := $(sort $(wildcard tests/*.mk tests/*/rules.mk tools/*/rules.mk))
include $(RULES)

.SECONDEXPANSION:
$(BUILD)/tests/simrt: | $(SIM) $(APPS) $(BUILD)/asan/reduce
$(BUILD)/tests/unit: | $(POLICIES)
$(BUILD)/tests/cli: | $(LMS) $(SHIM) $(SIM) $(BUILD)/examples/layers
DOCTEST = tests/support/doctest.cpp $(if $(wildcard tests/$(1)/main.cpp),,tests/support/main.cpp)
$(BUILD)/tests/%: $$(call obj,$$(wildcard tests/$$*/*.cpp) $$(LINK_$$*) $$(call DOCTEST,$$*)) $(FMT)
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(LDFLAGS) -pthread -o $@ $^ $(if $(LINK_$*),$(UNWIND)) $(LIBS_$*) -lzstd -ldl

demo: setup ## test: train a model on a big GPU, a small one (out of memory), and that with the shim
	@+$(SUBMAKE) $(SHIM) $(SIM) $(DEMO_ALL)
	@CUDA_HOME=$(CUDA_HOME) sh $(BUILD)/demo.sh

test: setup ## test: run every test
	@+$(SUBMAKE) build-all
	@CUDA_HOME=$(CUDA_HOME) python3 -B tests/run.py

# Cases by doctest's filter: C='capture*'.
check: needed ## test: build and run one folder's tests: T=engine, of them C='capacity*'
	$(if $(filter $(T),$(TEST_DIRS)),,$(error T=$(T): expected one of $(TEST_DIRS)))
	@+$(SUBMAKE) $(BUILD)/tests/$(T)
	$(BUILD)/tests/$(T) $(if $(C),-tc='$(C)')

third-party-check: $(SHIM) $(SIM) ## test: run programs that nobody here wrote (installs, downloads; tests/third_party)
	@CUDA_HOME=$(CUDA_HOME) BUILD=$(BUILD) sh tests/third_party.sh $(PROGRAMS)

third-party-quick: $(SHIM) $(SIM) ## test: the quickest of them, as make test does
	@CUDA_HOME=$(CUDA_HOME) BUILD=$(BUILD) sh tests/third_party/quick.sh

bare-check: ## test: the README's commands in a Debian 12 root with g++ and make alone, which is made and removed (root; COMMANDS="demo test")
	@BUILD=$(BUILD) COMMANDS="$(COMMANDS)" sh tests/bare.sh

hook-map: all ## develop: find, for each hook that has none in tests/hook_mutation/held.tsv, a test that fails without it
	@python3 -B tests/hook_mutation/held.py map

install: $(INSTALLED) install-extras ## install: put all of it under PREFIX (the shim goes to PREFIX/lib/lmsshim, which ldconfig never reads)
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin include/lms lib/lmsshim/policy lib/lmsshim/sim/kernels)
	install -m 755 $(LMS) $(DESTDIR)$(PREFIX)/bin/lms
	install -m 755 $(SHIM) $(DESTDIR)$(PREFIX)/lib/lmsshim/
	install -d $(DESTDIR)$(PREFIX)/lib/lmsshim/alias
	ln -sf ../liblmsshim.so $(DESTDIR)$(PREFIX)/lib/lmsshim/alias/libcuda.so
	install -m 755 $(POLICIES) $(DESTDIR)$(PREFIX)/lib/lmsshim/policy/
	install -m 755 $(SIM) $(DESTDIR)$(PREFIX)/lib/lmsshim/sim/
	ln -sf libcuda.so.1 $(DESTDIR)$(PREFIX)/lib/lmsshim/sim/libcuda.so
	install -m 755 $(KERNELS)/*.so $(DESTDIR)$(PREFIX)/lib/lmsshim/sim/kernels/
	install -m 755 $(DEMO) $(BUILD)/demo.sh $(DESTDIR)$(PREFIX)/lib/lmsshim/
	install -m 644 $(BUILD)/demo.txt $(DESTDIR)$(PREFIX)/lib/lmsshim/
	install -m 644 include/lms/* $(DESTDIR)$(PREFIX)/include/lms/
	strip --strip-debug $(DESTDIR)$(PREFIX)/bin/lms \
	  $(addprefix $(DESTDIR)$(PREFIX)/lib/lmsshim/,$(notdir $(SHIM) $(DEMO)) $(patsubst $(BUILD)/%,%,$(POLICIES) $(SIM)))

uninstall: ## install: remove it from there
	rm -rf $(addprefix $(DESTDIR)$(PREFIX)/,bin/lms lib/lmsshim include/lms lib/pkgconfig/lmsshim.pc share/man/man1/lms.1 \
	  share/man/man1/lms-*.1 share/bash-completion/completions/lms share/zsh/site-functions/_lms share/fish/vendor_completions.d/lms.fish)

FORMATTED = $(shell git ls-files '*.cpp' '*.h' '*.cu' '*.cuh')
format: ## develop: clang-format all sources
	clang-format -i $(FORMATTED)

# All checks of FILES; of the tree, or of FOLDERS, those that take a third of the time.
LINT_QUICK := -clang-analyzer-*,-bugprone-assert-side-effect,-bugprone-misplaced-widening-cast,\
-bugprone-multiple-statement-macro,-bugprone-not-null-terminated-result,-bugprone-stringview-nullptr,\
-bugprone-suspicious-semicolon,-bugprone-suspicious-string-compare,-bugprone-unused-raii
lint: compile_commands.json ## develop: check formatting and prose, and run clang-tidy (part of CI; FOLDERS='shim/engine ...', or FILES='...' with all checks)
	@clang-format --dry-run -Werror $(FORMATTED)
	@python3 -B tests/layout/prose.py
	@python3 -B tests/layout/guarded.py
ifdef FILES
	@printf '%s\n' $(FILES) | xargs -P$(shell nproc) -n1 clang-tidy -quiet -p .
else
	@python3 -B tests/layout/lint.py $< $(BUILD)/lint '$(subst $(space),,$(LINT_QUICK))' $(FOLDERS)
endif
comma := ,
space := $(subst ,, )

clean: ## build: remove build/
	rm -rf $(BUILD)

compile_commands.json: needed ## develop: what each source is compiled with, for editors and clang's tools
	@$(MAKE) --no-print-directory UNITY=0 CCACHE= V=1 -Bn build-all $(BENCH_ALL) | \
	  sed -nE 's/[\\"]/\\&/g; s|^(.* -c -o [^ ]+ ([^ ]+))$$|{"directory": "$(CURDIR)", "file": "\2", "command": "\1"}|p' | \
	  sed '1s/^/[/; $$!s/$$/,/; $$s/$$/]/' >$@

# Targets say their group and what they do: "name: ... ## group: what".
help: ## develop: this list
	@for group in build test measure install develop; do \
	  echo "$$group"; \
	  grep -hE "^[a-z_.-]+:.*## $$group: " Makefile $(RULES) | \
	    sed -E "s/^([a-z_.-]+):.*## $$group: (.*)/  make \1\t\2/" | expand -t 32; \
	done

-include $(shell find $(BUILD)/obj $(BUILD)/policy -name '*.d' 2>/dev/null)
