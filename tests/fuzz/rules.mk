# tests/fuzz: what reads bytes from elsewhere. As a test with the inputs that are kept; with clang's libFuzzer (`make fuzz`)
# with a million new ones each.
LINK_fuzz := $(CORE_SRC) $(filter shim/code/%,$(SHIM_SRC)) $(LMS_LIB)
LIBS_fuzz := -llz4 $(LIBS_lms)
FUZZ := $(BUILD)/fuzz/fuzz
FUZZ_CXX ?= clang++
FUZZ_FLAGS := -O1 -g1 -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
FUZZ_OBJ := $(patsubst %.cpp,$(BUILD)/obj/fuzz/%.o,$(LINK_fuzz) tests/fuzz/targets.cpp tests/fuzz/fuzz.cpp tools/fmt.cpp)
$(BUILD)/obj/fuzz/%.o: %.cpp
	@mkdir -p $(@D)
	$(STEP)$(FUZZ_CXX) $(filter-out -Werror,$(ALL_CXXFLAGS)) $(LIBUNWIND_INC) $(FUZZ_FLAGS) -c -o $@ $<
$(FUZZ): $(FUZZ_OBJ)
	@mkdir -p $(@D)
	$(STEP)$(FUZZ_CXX) -fsanitize=address,undefined,fuzzer -o $@ $^ $(UNWIND) $(LIBS_fuzz) -ldl

FUZZ_TARGETS ?= $(notdir $(wildcard tests/fuzz/corpus/*))
FUZZ_RUNS ?= 1000000
FUZZ_UNTIL ?= -runs=$(FUZZ_RUNS)
FUZZ_SEED ?= 1
.PHONY: fuzz
fuzz: $(FUZZ) ## test: a million made-up inputs to each reader of files, code and settings, with clang (FUZZ_RUNS=, FUZZ_TARGETS=)
	@set -e; for target in $(FUZZ_TARGETS); do \
	  mkdir -p $(BUILD)/fuzz/corpus/$$target; echo "fuzz: $$target"; \
	  FUZZ_TARGET=$$target $(FUZZ) $(FUZZ_UNTIL) -max_len=4096 -timeout=60 -entropic=0 -malloc_limit_mb=256 -rss_limit_mb=2048 -seed=$(FUZZ_SEED) \
	    -print_final_stats=1 -verbosity=0 -artifact_prefix=$(BUILD)/fuzz/$$target- $(BUILD)/fuzz/corpus/$$target tests/fuzz/corpus/$$target; done
