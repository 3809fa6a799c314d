# tools/glibc: released files are linked here and run with glibc 2.28, which machines with GPUs have. They link with stand-ins for this
# machine's libraries, and with definitions of what is newer.
$(call file_obj,tools/glibc/newer.cpp tools/glibc/start.cpp): OBJ_FLAGS = $(HIDDEN)
$(BUILD)/glibc/libnewer.a: $(call file_obj,tools/glibc/newer.cpp tools/glibc/start.cpp)
	@mkdir -p $(@D)
	$(STEP)$(AR) rcs $@ $^

# Until glibc 2.34 there were libraries beside libc.so.6 for what is in it now.
$(BUILD)/glibc/libc.so: tools/glibc/stand_in.py $(BUILD)/glibc/libnewer.a
	$(STEP)set -e; for library in c m; do python3 -B $< $$($(CXX) -print-file-name=lib$$library.so.6) 2.28 $(@D)/lib$$library.so.6; done
	$(Q)set -e; for library in libpthread.so.0 libdl.so.2 librt.so.1; do $(CXX) -shared -nostdlib -Wl,-soname,$$library -o $(@D)/$$library -x c /dev/null; done
	$(Q)ln -sf libm.so.6 $(@D)/libm.so
	$(Q)echo 'GROUP($(addprefix $(abspath $(@D))/,libc.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libnewer.a) libc_nonshared.a)' >$@
