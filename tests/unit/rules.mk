# tests/unit: code as nvcc makes it.
UNIT_CODE := $(BUILD)/unit/layouts.fatbin $(BUILD)/unit/layouts.cubin
UNIT_NVCC = $(NVCC) -std=c++17 -I. -Wno-deprecated-gpu-targets
$(UNIT_CODE): tests/unit/kernels/layouts.cu tests/unit/kernels/layouts.h
	@mkdir -p $(@D)
	$(if $(filter %.cubin,$@),$(UNIT_NVCC) -cubin -arch=sm_80,$(UNIT_NVCC) -fatbin \
	  -gencode arch=compute_75$(comma)code=[sm_75$(comma)compute_75] -gencode arch=compute_90$(comma)code=sm_90) -o $@ $<

UNIT_FEATURES := $(BUILD)/unit/features.fatbin
$(UNIT_FEATURES): tests/unit/kernels/features.cu
	@mkdir -p $(@D)
	$(STEP)$(UNIT_NVCC) -fatbin -gencode arch=compute_90a$(comma)code=sm_90a -gencode arch=compute_90$(comma)code=compute_90 \
	  -gencode arch=compute_100f$(comma)code=[sm_100f$(comma)compute_100f] -o $@ $<
$(call every_obj,$(wildcard tests/unit/*.cpp)): OBJ_FLAGS = -DUNIT_CODE='"$(abspath $(BUILD))/unit/layouts"' -DUNIT_FEATURES='"$(abspath $(UNIT_FEATURES))"'
$(BUILD)/tests/unit: | $(UNIT_CODE) $(UNIT_FEATURES)
