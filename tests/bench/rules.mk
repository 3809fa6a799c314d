# tests/bench: what is measured, as ratios inside one run; tests/bench.sh runs it.
BENCHES := $(patsubst tests/bench/%.cu,$(BUILD)/bench/%,$(sort $(wildcard tests/bench/*.cu)))
BENCH_ALL := $(BENCHES) $(BUILD)/bench/simcuda_bench $(BUILD)/bench/calls $(BUILD)/bench/write_trace

$(BUILD)/bench/simcuda_bench: $(call obj,tests/bench/simcuda_bench.cpp tests/ptx/device.cpp tests/ptx/coverage.cpp $(LINK_ptx)) $(FMT)
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(LDFLAGS) -pthread -o $@ $^ -lbenchmark -ldl
$(BUILD)/bench/simcuda.ptx: tests/bench/kernels/simcuda.cu
	@mkdir -p $(@D)
	$(STEP)$(NVCC) -O2 -std=c++17 -arch=compute_75 -ptx -o $@ $<
$(call every_obj,tests/bench/simcuda_bench.cpp): OBJ_FLAGS = -DSIMCUDA_BENCH_PTX='"$(abspath $(BUILD))/bench/simcuda.ptx"'
$(call obj,tests/bench/simcuda_bench.cpp): | $(BUILD)/bench/simcuda.ptx

$(BUILD)/bench/null/libcuda.so.1: $(call obj,tests/bench/null_driver.cpp tests/bench/null_rest.cpp)
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(LDFLAGS) -shared -o $@ $^ -Wl,-soname,libcuda.so.1 -Wl,-z,defs
$(BUILD)/bench/calls: $(call obj,tests/bench/calls.cpp) | $(BUILD)/bench/null/libcuda.so.1
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(LDFLAGS) -pthread -o $@ $^ -L$(CUDA_HOME)/lib/stubs -L$(CUDA_HOME)/lib64/stubs -lcuda

$(BUILD)/bench/write_trace: $(call obj,tests/bench/write_trace.cpp $(CORE_SRC)) $(FMT)
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(LDFLAGS) -pthread -o $@ $^ $(UNWIND) -ldl -lzstd

$(BUILD)/bench/%: tests/bench/%.cu
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(NVCC_FLAGS) -I. -Iinclude -o $@ $<

.PHONY: bench
bench: export BENCH := 1
bench: needed ## measure: what the shim costs, as ratios inside one run
	@+$(SUBMAKE) build-all $(BENCH_ALL)
	@CUDA_HOME=$(CUDA_HOME) sh tests/bench.sh
