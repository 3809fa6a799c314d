# tools/experiments: published experiments and steps of today, on modelled machines.
REPLAY := $(BUILD)/experiments/replay
build-all: $(REPLAY)

$(REPLAY): tools/experiments/replay.cu tools/experiments/replay.cuh tests/apps/check.h
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -I. -o $@ $<

# Several processes: built where Open MPI is.
DDL := $(BUILD)/experiments/ddl
build-all: $(if $(shell command -v mpicxx),$(DDL))

$(DDL): tools/experiments/ddl.cu tools/experiments/replay.cuh tests/apps/check.h
	@mkdir -p $(@D)
	OMPI_CXX='$(CXX)' $(NVCC) $(NVCC_FLAGS) -ccbin mpicxx -I. -o $@ $<

.PHONY: experiments
experiments: export MPI := 1
experiments: needed ## measure: IBM's experiments and steps of today on modelled GPUs that are too small: docs/experiments.md
	@+$(SUBMAKE) $(SHIM) $(SIM) $(REPLAY) $(DDL)
	@BUILD=$(BUILD) python3 -B tools/experiments/experiments.py
	@BUILD=$(BUILD) python3 -B tools/experiments/ddl.py
	@BUILD=$(BUILD) python3 -B tools/experiments/page.py
