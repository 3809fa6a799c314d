# tests/faults: driver calls that are made to fail under random programs (tests/faults/README.md).
FAULTS ?= --seeds 1-4
.PHONY: faults
faults: random-programs ## test: every driver call fails at every position with every error it documents (FAULTS='--seeds 1-4')
	@BUILD=$(BUILD) python3 -B tests/faults/sweep.py run $(FAULTS)
	@BUILD=$(BUILD) python3 -B tests/faults/sweep.py run $(FAULTS) --lasting 40
	@BUILD=$(BUILD) python3 -B tests/faults/sweep.py run $(FAULTS) --pairs 2000
