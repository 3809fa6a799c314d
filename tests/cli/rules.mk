# tests/cli: programs that have Python in them, and a library that starts a thread before `main`.
CLI := $(BUILD)/cli
$(CLI)/lib%.so: tests/cli/programs/%.cpp
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) -shared -o $@ $< -Wl,-soname,$(@F)
$(CLI)/python_%: tests/cli/programs/python_%.cpp $(CLI)/libpython_library.so
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN'
$(BUILD)/tests/cli: | $(CLI)/python_launcher $(CLI)/python_embedder $(CLI)/libearly_thread.so
