# tools/package: what is installed beside the programs, and packages: man pages, completion, a Debian package, a wheel.

# From what the program says of itself, so that no page tells of another one.
.PHONY: man
man: needed $(LMS)
	@BUILD=$(BUILD) sh tools/package/man.sh

.PHONY: install-extras
install-extras: man
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,share/man/man1 lib/pkgconfig share/bash-completion/completions \
	  share/zsh/site-functions share/fish/vendor_completions.d)
	install -m 644 $(BUILD)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' tools/package/lmsshim.pc.in >$(DESTDIR)$(PREFIX)/lib/pkgconfig/lmsshim.pc
	install -m 644 tools/package/completion/lms.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/lms
	install -m 644 tools/package/completion/_lms $(DESTDIR)$(PREFIX)/share/zsh/site-functions/
	install -m 644 tools/package/completion/lms.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/

.PHONY: deb wheel bare-wheel
deb: needed $(INSTALLED) ## install: make a Debian package, build/lmsshim_VERSION_ARCHITECTURE.deb
	@BUILD=$(BUILD) VERSION=$(VERSION) CUDA_HOME=$(CUDA_HOME) sh tools/package/deb.sh
wheel: needed $(INSTALLED) ## install: make a Python wheel, build/lmsshim-VERSION-py3-none-PLATFORM.whl
	@BUILD=$(BUILD) VERSION=$(VERSION) CUDA_HOME=$(CUDA_HOME) sh tools/package/wheel.sh
bare-wheel: wheel ## test: install the wheel in a Debian 11 root without a compiler, and show the demo there (root)
	@BUILD=$(BUILD) COMMANDS=wheel sh tests/bare.sh
