# tests/e2e: programs with the shim and without, and tools that stand before it.
$(BUILD)/e2e/%.so: tests/e2e/tools/%.cpp
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) -shared -o $@ $<
$(BUILD)/tests/e2e: | $(BUILD)/e2e/counting.so
.PHONY: perverse-check
# DRIVERS=one-queue,all: over these alone.
perverse-check: build-all ## test: every program of tests/apps over drivers that do what real ones may (tests/e2e/perverse_test.cpp)
	DRIVERS=$(DRIVERS) $(BUILD)/tests/e2e --no-skip -tc='perverse: every program*'
