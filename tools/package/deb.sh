#!/bin/sh
# build/lmsshim_VERSION_ARCHITECTURE.deb: what `make install PREFIX=/usr` installs.
set -eu
build=${BUILD:-build}
tree=$build/deb/lmsshim
architecture=$(dpkg --print-architecture)

rm -rf "$build/deb" "$build"/lmsshim_*.deb
mkdir -p "$tree/DEBIAN"
make --no-print-directory install DESTDIR="$tree" PREFIX=/usr BUILD="$build" CUDA_HOME="$CUDA_HOME" >/dev/null
gzip -9n "$tree"/usr/share/man/man1/*.1
install -D -m 644 LICENSE "$tree/usr/share/doc/lmsshim/copyright"
gzip -9nc CHANGELOG.md >"$tree/usr/share/doc/lmsshim/changelog.gz"

cat >"$tree/DEBIAN/control" <<END
Package: lmsshim
Version: $VERSION
Architecture: $architecture
Maintainer: The lmsshim authors <lmsshim@localhost>
Depends: libc6 (>= 2.28)
Recommends: python3
Section: utils
Priority: optional
Installed-Size: $(du -sk "$tree/usr" | cut -f1)
Description: makes any GPU look larger than it is, for any CUDA program
 A library to preload that moves what a CUDA program does not use just now from the GPU's memory to the host's, and
 back before it is needed; lms, which runs programs with it and shows what it costs; and a simulated GPU.
END
dpkg-deb --root-owner-group --build "$tree" "$build/lmsshim_${VERSION}_$architecture.deb"
