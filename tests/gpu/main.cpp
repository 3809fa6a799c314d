// What is made for a real GPU (docs/gpu/README.md), as far as it goes without one.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
