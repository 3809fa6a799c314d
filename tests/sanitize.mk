# Tests under sanitizers, each with a build folder of its own: those whose program is the code under test. The simulated
# driver, which some of them load, switches stacks and stays as it is.
SANITIZED := contract engine unit
SANITIZE_address := -fsanitize=address -fno-omit-frame-pointer
SANITIZE_thread := -fsanitize=thread
SANITIZE_undefined := -fsanitize=undefined -fno-sanitize-recover=undefined
# What they add to the code makes GCC see variables that nobody sets.
SANITIZE_WARN := -Wno-maybe-uninitialized
# What is made for the life of the process is never given back; a child of fork may make threads.
SANITIZE_ENV := ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1 TSAN_OPTIONS=die_after_fork=0:second_deadlock_stack=1

# sanitize(SANITIZER, TESTS, CASES): builds and runs them; locks are checked (shim/util/mutex.h).
define sanitize
@mkdir -p $(BUILD)/sanitize/$(1)
@ln -sfn ../../sim $(BUILD)/sanitize/$(1)/sim
@+$(SUBMAKE) BUILD=$(BUILD)/sanitize/$(1) CUDA_HOME=$(CUDA_HOME) CXXFLAGS='-O1 -g1 -DLMS_CHECK_LOCKS $(SANITIZE_$(1))' WARN='$(WARN) $(SANITIZE_WARN)' \
  LDFLAGS='$(SANITIZE_$(1))' $(2:%=$(BUILD)/sanitize/$(1)/tests/%)
@set -e; for folder in $(2); do echo "$(1): tests/$$folder"; \
  $(SANITIZE_ENV) $(BUILD)/sanitize/$(1)/tests/$$folder $(if $(3),-tc='$(3)'); done
endef

.PHONY: test-asan test-tsan test-ubsan sanitize-slice
test-asan: needed $(POLICIES) $(SIM) ## test: tests/contract, engine and unit with AddressSanitizer (T and C as for check)
	$(call sanitize,address,$(or $(T),$(SANITIZED)),$(C))
test-tsan: needed $(POLICIES) $(SIM) ## test: the same with ThreadSanitizer
	$(call sanitize,thread,$(or $(T),$(SANITIZED)),$(C))
test-ubsan: needed $(POLICIES) $(SIM) ## test: the same with UndefinedBehaviorSanitizer
	$(call sanitize,undefined,$(or $(T),$(SANITIZED)),$(C))

# What threads share, what lives and dies in a session, what reads files and code; without the simulated driver, which
# would be built first.
sanitize-slice: needed $(POLICIES) ## test: a part of these, for every change
	$(call sanitize,thread,engine,*threads*)
	$(call sanitize,address,engine unit)
