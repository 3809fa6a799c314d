# tests/random: programs from seeds, run with the shim and without (tests/random/README.md).
RANDOM_PROGRAM := $(BUILD)/random/program
$(RANDOM_PROGRAM): $(call obj,$(sort $(wildcard tests/random/*.cpp)))
	@mkdir -p $(@D)
	$(CXX) -pthread -o $@ $^ -ldl
$(call obj,$(wildcard tests/random/*.cpp)): CXXFLAGS = -O2 -g1
