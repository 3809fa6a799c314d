# tests/e2e: programs with the shim and without.
.PHONY: perverse-check
perverse-check: build-all ## test: every program of tests/apps over drivers that do what real ones may (tests/e2e/perverse_test.cpp)
	$(BUILD)/tests/e2e --no-skip -tc='perverse:*'
