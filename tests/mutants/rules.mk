# tests/mutants: faults made on purpose, one at a time, and whether the tests notice them.
.PHONY: mutants
mutants: all ## test: make each fault of tests/mutants/mutants.txt, and see whether the tests fail (ONLY=regex)
	@BUILD=$(BUILD) python3 -B tests/mutants/mutants.py run $(if $(ONLY),--only '$(ONLY)')
