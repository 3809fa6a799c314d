# tests/e2e: programs with the shim and without.
.PHONY: perverse-check
# DRIVERS=one-queue,all: over these alone.
perverse-check: build-all ## test: every program of tests/apps over drivers that do what real ones may (tests/e2e/perverse_test.cpp)
	DRIVERS=$(DRIVERS) $(BUILD)/tests/e2e --no-skip -tc='perverse: every program*'
