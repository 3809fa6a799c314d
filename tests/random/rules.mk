# tests/random: programs from seeds, run with the shim and without (tests/random/README.md).
RANDOM_PROGRAM := $(BUILD)/random/program
$(RANDOM_PROGRAM): $(call obj,$(sort $(wildcard tests/random/*.cpp)))
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(LDFLAGS) -pthread -o $@ $^ -ldl
$(call every_obj,$(wildcard tests/random/*.cpp)): CXXFLAGS = -O2 -g1

RECKLESS := $(BUILD)/random/reckless.so
$(RECKLESS): tests/random/reckless.c include/lms/policy.h
	@mkdir -p $(@D)
	$(STEP)$(CC) -O2 -Wall -Wextra -Werror $(LDFLAGS) -Iinclude -shared -fPIC -o $@ $<

YIELDS := $(BUILD)/random/yields.so
$(YIELDS): tests/random/yields.c
	@mkdir -p $(@D)
	$(STEP)$(CC) -O2 -Wall -Wextra -Werror $(LDFLAGS) -shared -fPIC -ftls-model=initial-exec -o $@ $<

# The simulated driver, and functions that the shim does not know.
RANDOM_DRIVER := $(BUILD)/random/libcuda.so.1
$(RANDOM_DRIVER): $(call file_obj,tests/entry/overlay/forward.cpp tests/entry/overlay/later.cpp)
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(LDFLAGS) -shared -o $@ $^ -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic -ldl

SEEDS ?= 1-1000
OPS ?= 200
MINUTES ?= 60
OPERATIONS ?= 2000000
.PHONY: random crowd soak random-programs
random-programs: $(SHIM) $(SIM) $(RANDOM_PROGRAM) $(RANDOM_DRIVER) $(RECKLESS) $(YIELDS)
random: random-programs ## test: random programs with the shim and without, compared (SEEDS=1-1000 OPS=200 ARGS=...)
	@BUILD=$(BUILD) python3 -B tests/random/run.py run --seeds $(SEEDS) --ops $(OPS) $(ARGS)
crowd: random-programs $(LMS) ## test: random programs of several processes at once on the same GPUs, some of them killed or stopped (OPERATIONS=2000000)
	@BUILD=$(BUILD) python3 -B tests/random/crowd.py --rounds 1 --operations $(OPERATIONS)
soak: random-programs $(BUILD)/fuzz/fuzz ## test: for a time random programs (with yields, guards, calls that fail), made-up inputs, and one process all along that may not grow (MINUTES=60)
	@BUILD=$(BUILD) sh tests/soak.sh $(MINUTES)
build-all: $(RANDOM_PROGRAM) $(RANDOM_DRIVER) $(RECKLESS) $(YIELDS)
# They run under that policy too.
$(BUILD)/tests/engine $(BUILD)/tests/e2e: | $(RECKLESS)
