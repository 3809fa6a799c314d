# tests/families: a driver before the simulated one, for what that lacks.
LINK_families := tests/support/process.cpp
FAMILIES_DRIVER := $(BUILD)/families/libcuda.so.1
$(FAMILIES_DRIVER): $(call obj,$(wildcard tests/families/overlay/*.cpp))
	@mkdir -p $(@D)
	$(CXX) -shared -o $@ $^ -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-Bsymbolic -ldl
$(BUILD)/tests/families: | $(SHIM) $(SIM) $(FAMILIES_DRIVER)
