# NVIDIA's own drivers without a device (tests/real_drivers/check.py says what is compared). ARGS is passed on:
# --record writes what they answer, --wheels adds frameworks (or those it is given), one at a time.
.PHONY: real-drivers-check
real-drivers-check: setup ## test: compare NVIDIA's own drivers with and without the shim (downloads; needs no GPU)
	@+$(SUBMAKE) $(SHIM) $(INTERPOSE)/runtime_static $(INTERPOSE)/runtime_shared
	@mkdir -p $(BUILD)/real_drivers
	@python3 -B tests/real_drivers/check.py --build $(BUILD) --cuda-home $(CUDA_HOME) $(ARGS)
