# tools/demo: what `make demo` runs, and `lms demo` where it is installed.
$(BUILD)/demo.a: $(sort $(wildcard tools/demo/*.cu tools/demo/*.h tools/demo/*.cuh))
	@mkdir -p $(@D)
	$(STEP)$(NVCC) $(NVCC_FLAGS) --lib -o $@ $(filter %.cu,$^)
$(DEMO): $(BUILD)/demo.a $(GLIBC)
	$(STEP)$(CXX) $(LDFLAGS) -o $@ $(filter %.a,$^) -L$(CUDA_HOME)/lib -L$(CUDA_HOME)/lib64 -lcudart $(START) $(STATIC_CXX)

$(BUILD)/demo.sh: tools/demo/run.sh
	$(Q)cp $< $@

# The project's documents and headers, as they are now.
$(BUILD)/demo.txt: FORCE
	@find . \( -path ./build -o -path './.?*' \) -prune -o \( -name '*.md' -o -name '*.h' \) -print | LC_ALL=C sort | xargs cat >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
.PHONY: FORCE

$(KERNELS): tools/demo/kernels.sh $(DEMO) $(SHIM) $(SIM) $(LMS)
	$(STEP)BUILD=$(BUILD) sh $<
