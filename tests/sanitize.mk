# Tests under sanitizers, each with a build folder of its own. The simulated driver switches stacks and stays as it is.
# Those whose program is the code under test, and those that preload it: then the shim alone is made so.
SANITIZED := contract engine unit
PRELOADING := e2e entry
SANITIZE_address := -fsanitize=address -fno-omit-frame-pointer
SANITIZE_thread := -fsanitize=thread
SANITIZE_undefined := -fsanitize=undefined -fno-sanitize-recover=undefined
LIB_address := asan
LIB_undefined := ubsan
# AddressSanitizer keeps freed memory back: no handle of the simulated driver's is given out again. And one looks for bytes in all
# memory of its process. Two preload a malloc() of their own.
NOT_PRELOADING_address := exhaustion: host memory that the shim allocates,exhaustion: threads*,code: what is unloaded*,code: a driver that*,code: variables go*,graphs: what is known*,guards: what changes*
# What they add to the code makes GCC see variables that nobody sets.
SANITIZE_WARN := -Wno-maybe-uninitialized
# What is made for the life of the process is never given back; a child of fork may make threads.
SANITIZE_ENV := ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 TSAN_OPTIONS=die_after_fork=0:second_deadlock_stack=1

# sanitized_build(SANITIZER, TARGETS): locks are checked (shim/util/mutex.h). The policies are the other build's, which must not get
# a sanitizer: -o.
define sanitized_build
@mkdir -p $(BUILD)/sanitize/$(1)
@for each in apps demo e2e entry faults lms policy sim; do ln -sfn ../../$$each $(BUILD)/sanitize/$(1)/$$each; done
@+$(SUBMAKE) BUILD=$(BUILD)/sanitize/$(1) CUDA_HOME=$(CUDA_HOME) CXXFLAGS='-O1 -g1 -DLMS_CHECK_LOCKS $(SANITIZE_$(1))' WARN='$(WARN) $(SANITIZE_WARN)' \
  LDFLAGS='$(SANITIZE_$(1)) $(LIB_$(1):%=-l%)' UNSANITIZED=-fno-sanitize=all \
  $(POLICIES:$(BUILD)/%=-o $(BUILD)/sanitize/$(1)/%) $(2:%=$(BUILD)/sanitize/$(1)/%)
endef

# sanitize(SANITIZER, TESTS, CASES): builds and runs those of SANITIZED; preloading(SANITIZER, TESTS, CASES): of PRELOADING.
define sanitize
$(call sanitized_build,$(1),$(2:%=tests/%))
@echo "$(1): $(2)"
$(if $(3),@set -e; for folder in $(2); do $(SANITIZE_ENV) $(BUILD)/sanitize/$(1)/tests/$$folder -tc='$(3)'; done,\
  @$(SANITIZE_ENV) BUILD=$(BUILD)/sanitize/$(1) python3 -B tests/run.py $(2))
endef
define preloading
$(call sanitized_build,$(1),liblmsshim.so)
@set -e; for folder in $(2); do echo "$(1): tests/$$folder"; \
  ASAN_OPTIONS=detect_leaks=0 BUILD=$(BUILD)/sanitize/$(1) SANITIZER_RUNTIME=$(if $(LIB_$(1)),$$($(CXX) -print-file-name=lib$(LIB_$(1)).so)) \
  $(BUILD)/tests/$$folder $(if $(3),-tc='$(3)') $(if $(NOT_PRELOADING_$(1)),-tce='$(NOT_PRELOADING_$(1))'); done
endef
# sanitize_all(SANITIZER)
define sanitize_all
$(if $(filter $(or $(T),$(SANITIZED)),$(SANITIZED)),$(call sanitize,$(1),$(filter $(or $(T),$(SANITIZED)),$(SANITIZED)),$(C)))
$(if $(filter $(or $(T),$(PRELOADING)),$(PRELOADING)),$(call preloading,$(1),$(filter $(or $(T),$(PRELOADING)),$(PRELOADING)),$(C)))
endef

.PHONY: test-asan test-tsan test-ubsan sanitize-slice slice-address slice-thread slice-locks
test-asan: all ## test: tests/contract, engine and unit with AddressSanitizer, e2e and entry with a shim that has it (T and C as for check)
	$(call sanitize_all,address)
test-ubsan: all ## test: the same with UndefinedBehaviorSanitizer
	$(call sanitize_all,undefined)
test-tsan: needed $(POLICIES) $(SIM) ## test: tests/contract, engine and unit with ThreadSanitizer
	$(call sanitize,thread,$(or $(T),$(SANITIZED)),$(C))

# What threads share, what lives and dies in a session, what reads files and code; without the simulated driver, which
# would be built first. One compiles while the other runs. And with a shim that checks its locks and the engine's rules alone (no
# sanitizer: `locks`), what has a program's own memory, contexts, captures and graphs come and go.
LOCKS_CASES := own mappings*,contexts*,capture*,earlier work*,graph*,pools*,peers*
sanitize-slice: slice-address slice-thread slice-locks ## test: a part of these, for every change
slice-locks: all
	$(call preloading,locks,entry,$(LOCKS_CASES))
slice-thread: needed $(POLICIES)
	$(call sanitize,thread,engine,*threads*)
slice-address: needed $(POLICIES)
	$(call sanitize,address,engine unit)
