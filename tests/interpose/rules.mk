# tests/interpose: drivers that only answer lookups, and the programs that run over them under preload.
LINK_interpose := shim/device/locate.cpp tests/support/process.cpp
INTERPOSE := $(BUILD)/interpose
$(INTERPOSE)/driver/libcuda.so.1: FAKE_VERSION := 13050
$(INTERPOSE)/old_driver/libcuda.so.1: FAKE_VERSION := 11040
$(INTERPOSE)/new_driver/libcuda.so.1: FAKE_VERSION := 14000
$(INTERPOSE)/%/libcuda.so.1: tests/interpose/fake/fake_driver.cpp tests/interpose/fake/fake_driver.h shim/entry_points.def
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) -DFAKE_VERSION=$(FAKE_VERSION) $(LDFLAGS) -shared -o $@ $< -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic
$(INTERPOSE)/neighbour_%.so: tests/interpose/programs/neighbour.cpp
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) -DNEIGHBOUR='"$*"' $(LDFLAGS) -shared -o $@ $<
$(INTERPOSE)/audit.so: tests/interpose/programs/audit.cpp
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) -shared -o $@ $<
$(INTERPOSE)/linked_runpath: LINKED_FLAGS = -Wl,--enable-new-dtags,-rpath,'$$ORIGIN/old_driver'
$(INTERPOSE)/linked_rpath: LINKED_FLAGS = -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/old_driver'
$(addprefix $(INTERPOSE)/,linked linked_runpath linked_rpath): tests/interpose/programs/linked.cpp
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) -o $@ $< -L$(CUDA_HOME)/lib/stubs -L$(CUDA_HOME)/lib64/stubs -lcuda $(LINKED_FLAGS)
$(INTERPOSE)/runtime_%: tests/interpose/programs/runtime.cu
	@mkdir -p $(@D)
	$(STEP)$(NVCC) -cudart $* -Wno-deprecated-gpu-targets -o $@ $<
$(call every_obj,$(wildcard tests/interpose/*.cpp)): OBJ_FLAGS = -DCUDA_INCLUDE='"$(CUDA_INC)"' -DCUDA_HOME='"$(CUDA_HOME)"'
$(BUILD)/tests/interpose: | $(SHIM) $(addprefix $(INTERPOSE)/,driver/libcuda.so.1 old_driver/libcuda.so.1 \
  new_driver/libcuda.so.1 neighbour_first.so neighbour_second.so audit.so linked linked_runpath linked_rpath \
  runtime_static runtime_shared)
