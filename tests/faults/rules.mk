# tests/faults: driver calls that are made to fail under random programs (tests/faults/README.md).
NO_MEMORY := $(BUILD)/faults/no_memory.so
$(NO_MEMORY): tests/faults/no_memory.c
	@mkdir -p $(@D)
	$(STEP)$(CC) -O2 -Wall -Wextra -Werror $(LDFLAGS) -shared -fPIC -o $@ $< -ldl
build-all: $(NO_MEMORY)
$(BUILD)/tests/entry: | $(NO_MEMORY)

FAULTS ?= --seeds 1-4
.PHONY: faults
faults: random-programs $(NO_MEMORY) ## test: every driver call fails at every position with every error it documents (FAULTS='--seeds 1-4')
	@BUILD=$(BUILD) python3 -B tests/faults/sweep.py run $(FAULTS)
	@BUILD=$(BUILD) python3 -B tests/faults/sweep.py run $(FAULTS) --lasting 40
	@BUILD=$(BUILD) python3 -B tests/faults/sweep.py run $(FAULTS) --pairs 2000
