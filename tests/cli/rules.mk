# tests/cli: programs that have Python in them, a library that starts a thread before `main`, a program without PTX.
CLI := $(BUILD)/cli
$(CLI)/lib%.so: tests/cli/programs/%.cpp
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) -shared -o $@ $< -Wl,-soname,$(@F)
$(CLI)/python_%: tests/cli/programs/python_%.cpp $(CLI)/libpython_library.so
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN'
$(CLI)/weights_native: tests/apps/weights.cu $(wildcard tests/apps/*.h tests/apps/*.cuh)
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(subst -code=compute_75,-code=sm_75,$(NVCC_FLAGS)) -o $@ $<
$(BUILD)/tests/cli: | $(CLI)/weights_native $(CLI)/python_launcher $(CLI)/python_embedder $(CLI)/libearly_thread.so
