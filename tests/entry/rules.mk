# tests/entry: a driver before the simulated one, for what that lacks.
LINK_entry := tests/support/process.cpp shim/trace/demangle.cpp $(LMS_READERS)
ENTRY_DRIVER := $(BUILD)/entry/libcuda.so.1
$(ENTRY_DRIVER): $(call obj,$(wildcard tests/entry/overlay/*.cpp))
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(LDFLAGS) -shared -o $@ $^ -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic -ldl
$(call every_obj,$(wildcard tests/entry/overlay/*.cpp)): OBJ_FLAGS = -DOVERLAY_VERSION=99999
# The simulated driver with the entry points of CUDA 12.2 alone.
OLD_DRIVER := $(BUILD)/entry/old/libcuda.so.1
$(OLD_DRIVER): tests/entry/overlay/forward.cpp tests/entry/overlay/record.h tests/entry/where.h shim/entry_points.def
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) -DOVERLAY_VERSION=12020 $(LDFLAGS) -shared -o $@ $< -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -ldl
# Kernels as PTX, and as native code with PTX beside it, which is what the simulated GPU runs.
ENTRY_KERNELS := $(BUILD)/entry/kernels.ptx $(BUILD)/entry/kernels.fatbin
$(ENTRY_KERNELS): tests/entry/programs/kernels.cu
	@mkdir -p $(@D)
	$(STEP)$(NVCC) -std=c++17 -Wno-deprecated-gpu-targets $(if $(filter %.ptx,$@),-ptx -arch=compute_75,-fatbin \
	  -gencode arch=compute_75$(comma)code=[sm_75$(comma)compute_75]) -o $@ $<
# The same library by a name that LMS_EXEMPT has and by another.
EXEMPT_LIBRARIES := $(BUILD)/entry/libnccl.so.2 $(BUILD)/entry/libother.so.2
$(EXEMPT_LIBRARIES): tests/entry/programs/library.cpp
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) -shared -o $@ $< -Wl,-soname,$(@F)
$(BUILD)/tests/entry: | $(EXEMPT_LIBRARIES) $(SHIM) $(SIM) $(LMS) $(ENTRY_DRIVER) $(OLD_DRIVER) \
  $(ENTRY_KERNELS)
