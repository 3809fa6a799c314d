# tests/families: a driver before the simulated one, for what that lacks.
LINK_families := tests/support/process.cpp
FAMILIES_DRIVER := $(BUILD)/families/libcuda.so.1
$(FAMILIES_DRIVER): $(call obj,$(wildcard tests/families/overlay/*.cpp))
	@mkdir -p $(@D)
	$(CXX) -shared -o $@ $^ -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic -ldl
# The same library by a name that LMS_EXEMPT has and by another.
EXEMPT_LIBRARIES := $(BUILD)/families/libnccl.so.2 $(BUILD)/families/libother.so.2
$(EXEMPT_LIBRARIES): tests/families/programs/library.cpp
	@mkdir -p $(@D)
	$(CXX) $(ALL_CXXFLAGS) -shared -o $@ $< -Wl,-soname,$(@F)
$(BUILD)/tests/families: | $(EXEMPT_LIBRARIES) $(SHIM) $(SIM) $(FAMILIES_DRIVER)
