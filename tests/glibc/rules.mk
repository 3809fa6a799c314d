# tests/glibc: its program has the definitions of what is newer than glibc 2.28 in place of this machine's.
LINK_glibc := tools/glibc/newer.cpp tests/support/process.cpp
