# tools/experiments: published experiments and steps of today, on modelled machines.
REPLAY := $(BUILD)/experiments/replay
build-all: $(REPLAY)

$(REPLAY): tools/experiments/replay.cu tests/apps/check.h
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -I. -o $@ $<
