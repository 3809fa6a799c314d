// What libFuzzer calls: FUZZ_TARGET says which target.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/targets.h"

static const fuzz::Target& chosen() {
    const char* const name = std::getenv("FUZZ_TARGET");
    const fuzz::Target* const target = fuzz::find(name ? name : "");
    if (target) return *target;
    std::fprintf(stderr, "FUZZ_TARGET: expected one of");
    for (const fuzz::Target& each : fuzz::targets()) std::fprintf(stderr, " %s", each.name.data());
    std::fprintf(stderr, "\n");
    std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
    static const fuzz::Target& target = chosen();
    target.run({reinterpret_cast<const char*>(bytes), count});
    return 0;
}
