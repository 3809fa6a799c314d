# tools/experiments: published experiments and steps of today, on modelled machines.
REPLAY := $(BUILD)/experiments/replay
build-all: $(REPLAY)

$(REPLAY): tools/experiments/replay.cu tests/apps/check.h
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -I. -o $@ $<

.PHONY: experiments
experiments: needed ## measure: IBM's experiments and steps of today on modelled GPUs that are too small: docs/experiments.md
	@+$(SUBMAKE) $(SHIM) $(SIM) $(REPLAY)
	@BUILD=$(BUILD) python3 -B tools/experiments/experiments.py
	@BUILD=$(BUILD) python3 -B tools/experiments/page.py
