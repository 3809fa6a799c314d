# tests/simrt: device code in an archive, for the driver's linker.
$(BUILD)/simrt/libparts.a: $(sort $(wildcard tests/simrt/parts/*.cu))
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(NVCC_FLAGS) -rdc=true -lib -o $@ $^
$(BUILD)/simrt/libcudadevrt.a: $(DEVICE_RUNTIME)
	@mkdir -p $(@D)
	$(Q)ln -sf $< $@
$(BUILD)/tests/simrt: | $(BUILD)/simrt/libparts.a $(BUILD)/simrt/libcudadevrt.a
