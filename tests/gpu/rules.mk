# What a real GPU is measured and checked with: make gpu-facts, gpu-check, gpu-frameworks (docs/gpu/README.md).
# ON=sim runs them on the simulated GPU as far as it goes; their results then stay below build/. ARGS is passed on.

GPU := $(BUILD)/gpu
GPU_FACTS := $(GPU)/gpu-facts
GPU_FACTS_ALL := $(GPU_FACTS) $(GPU)/runtime_logger.so $(GPU)/runtime_static $(GPU)/runtime_shared
LINK_gpu := tests/support/process.cpp
GPU_RESULTS := $(if $(filter sim,$(ON)),$(GPU)/results,docs/gpu)

$(GPU)/kernels.ptx: tools/gpu_facts/kernels.cu
	@mkdir -p $(@D)
	$(STEP)$(NVCC) -O2 -std=c++17 -Wno-deprecated-gpu-targets -arch=compute_75 -ptx -o $@ $<

$(call every_obj,$(wildcard tools/gpu_facts/*.cpp)): $(GPU)/kernels.ptx
$(call every_obj,$(wildcard tools/gpu_facts/*.cpp)): OBJ_FLAGS = -DKERNELS_PTX='"$(GPU)/kernels.ptx"'
$(GPU_FACTS): $(call obj,$(sort $(wildcard tools/gpu_facts/*.cpp))) $(FMT)
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(LDFLAGS) -pthread -o $@ $^ -ldl

$(GPU)/runtime_logger.so: tools/gpu_facts/runtime/logger.cpp
	@mkdir -p $(@D)
	$(STEP)$(CXX) $(ALL_CXXFLAGS) $(HIDDEN) $(LDFLAGS) -shared -o $@ $< -Wl,-soname,libcuda.so.1 -ldl

$(GPU)/runtime_static $(GPU)/runtime_shared: $(GPU)/runtime_%: tools/gpu_facts/runtime/program.cu
	@mkdir -p $(@D)
	$(STEP)$(NVCC) -O2 -std=c++17 -Wno-deprecated-gpu-targets -arch=compute_75 -code=compute_75 -cudart $* -o $@ $<

# ---------------------------------------------------------------- gpu-check

# tests/apps and the programs of this folder, with NVIDIA's runtime linked in and shared, for the GPU that is there;
# those of this folder that need no more than the simulated GPU has, for it too. cuBLAS and cuDNN where their headers are.
GPU_ARCH ?= native
GPU_LIBRARY_cublas_gemm := cublas
GPU_LIBRARY_cudnn_conv := cudnn
GPU_HEADERS := $(notdir $(wildcard $(addprefix $(CUDA_INC)/,cublas_v2.h cudnn.h) /usr/include/cudnn.h))
GPU_PROGRAMS := own_vmm $(if $(filter cublas_v2.h,$(GPU_HEADERS)),cublas_gemm) $(if $(filter cudnn.h,$(GPU_HEADERS)),cudnn_conv)
GPU_NATIVE := $(APPS:$(BUILD)/apps/%=%) $(GPU_PROGRAMS) $(BENCHES:$(BUILD)/bench/%=%)
GPU_NATIVE_ALL := $(foreach runtime,static shared,$(GPU_NATIVE:%=$(GPU)/$(runtime)/%))
GPU_SIM_ALL := $(GPU)/sim/own_vmm
GPU_LINK = -L$(CUDA_HOME)/lib/stubs -L$(CUDA_HOME)/lib64/stubs -lcuda \
           $(if $(GPU_LIBRARY_$(1)),-L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/lib -l$(GPU_LIBRARY_$(1)))

GPU_NVCC = $(NVCC) -O2 -std=c++17 -I. -Wno-deprecated-gpu-targets -arch=$(GPU_ARCH)

# Compiled once, linked with either runtime.
define GPU_OBJECT_RULES
$(GPU)/objects/%.o: $(1)/%.cu $(wildcard tests/apps/*.h tests/gpu/programs/*.h)
	@mkdir -p $$(@D)
	$$(GPU_NVCC) $$(NVCC_FLAGS_$$*) -c -o $$@ $$<
endef
$(foreach folder,tests/apps tests/gpu/programs tests/bench,$(eval $(call GPU_OBJECT_RULES,$(folder))))

define GPU_NATIVE_RULES
$(GPU)/$(1)/%: $(GPU)/objects/%.o
	@mkdir -p $$(@D)
	$$(GPU_NVCC) $$(NVCC_FLAGS_$$*) -cudart $(1) -o $$@ $$< $$(call GPU_LINK,$$*)
$(GPU)/$(1)/separate: $(wildcard tests/apps/separate/* tests/apps/*.h)
	@mkdir -p $$(@D)
	$$(GPU_NVCC) -cudart $(1) -rdc=true -o $$@ $$(filter %.cu,$$^)
endef
$(foreach runtime,static shared,$(eval $(call GPU_NATIVE_RULES,$(runtime))))

$(GPU)/sim/%: tests/gpu/programs/%.cu $(wildcard tests/apps/*.h tests/gpu/programs/*.h)
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(NVCC_FLAGS) -I. -o $@ $< -Xlinker --allow-shlib-undefined $(call GPU_LINK,$*)

# ---------------------------------------------------------------- the tests of all this, and the commands

$(BUILD)/tests/gpu: | $(GPU_FACTS_ALL) $(GPU_SIM_ALL) $(SHIM) $(SIM) $(APPS)

.PHONY: gpu-facts gpu-check gpu-frameworks
gpu-facts: setup ## measure: what the design assumes of a GPU (docs/gpu/README.md; ON=sim: the simulated one)
	@$(MAKE) --no-print-directory $(GPU_FACTS_ALL) $(if $(filter sim,$(ON)),$(SIM))
	$(if $(filter sim,$(ON)),LD_LIBRARY_PATH=$(BUILD)/sim) $(GPU_FACTS) --out $(GPU_RESULTS) $(ARGS)

gpu-check: setup ## measure: compare programs with and without the shim on a GPU (ON=sim: the simulated one)
	@$(MAKE) --no-print-directory -j$$(nproc) $(GPU_FACTS) $(SHIM) \
	  $(if $(filter sim,$(ON)),$(SIM) $(APPS) $(GPU_SIM_ALL),$(GPU_NATIVE_ALL))
	python3 -B tests/gpu/check.py --build $(BUILD) $(if $(filter sim,$(ON)),--sim) --out $(GPU_RESULTS) \
	  --libraries $(CUDA_HOME)/lib64 --libraries $(CUDA_HOME)/lib $(ARGS)

gpu-frameworks: setup ## measure: PyTorch, JAX, CuPy and Triton with and without the shim (PYTHON=the one that has them; ON=sim: on the CPU)
	@$(MAKE) --no-print-directory $(GPU_FACTS) $(SHIM) $(if $(filter sim,$(ON)),$(SIM))
	python3 -B tests/gpu/frameworks.py --build $(BUILD) $(if $(filter sim,$(ON)),--sim --on-cpu) --python $(or $(PYTHON),python3) --out $(GPU_RESULTS) $(ARGS)
