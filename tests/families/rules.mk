# tests/families: a driver before the simulated one, for what that lacks.
LINK_families := tests/support/process.cpp
FAMILIES_DRIVER := $(BUILD)/families/libcuda.so.1
$(FAMILIES_DRIVER): $(call obj,$(wildcard tests/families/overlay/*.cpp))
	@mkdir -p $(@D)
	$(CXX) $(LDFLAGS) -shared -o $@ $^ -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic -ldl
$(call obj,tests/families/overlay/forward.cpp): OBJ_FLAGS = -DOVERLAY_VERSION=99999
# The simulated driver with the entry points of CUDA 12.2 alone.
OLD_DRIVER := $(BUILD)/families/old/libcuda.so.1
$(OLD_DRIVER): tests/families/overlay/forward.cpp tests/families/overlay/record.h tests/families/where.h shim/entry_points.def
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) -DOVERLAY_VERSION=12020 $(LDFLAGS) -shared -o $@ $< -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -ldl
# Kernels as PTX, and as native code with PTX beside it, which is what the simulated GPU runs.
FAMILIES_KERNELS := $(BUILD)/families/kernels.ptx $(BUILD)/families/kernels.fatbin
$(FAMILIES_KERNELS): tests/families/programs/kernels.cu
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -Wno-deprecated-gpu-targets $(if $(filter %.ptx,$@),-ptx -arch=compute_75,-fatbin \
	  -gencode arch=compute_75$(comma)code=[sm_75$(comma)compute_75]) -o $@ $<
# The same library by a name that LMS_EXEMPT has and by another.
EXEMPT_LIBRARIES := $(BUILD)/families/libnccl.so.2 $(BUILD)/families/libother.so.2
$(EXEMPT_LIBRARIES): tests/families/programs/library.cpp
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) -shared -o $@ $< -Wl,-soname,$(@F)
$(BUILD)/tests/families: | $(EXEMPT_LIBRARIES) $(SHIM) $(SIM) $(FAMILIES_DRIVER) $(OLD_DRIVER) \
  $(FAMILIES_KERNELS)
