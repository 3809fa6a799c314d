// End to end: programs that know nothing of the shim, on the simulated GPU, with and without it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
