// Calls that only take memory of the GPU: where there is none left, room is made and they are tried again.
#include <dlfcn.h>

#include <cstdlib>

#include "tests/families/overlay/record.h"
#include "tests/families/rig.h"

using namespace rig;

namespace {

enum class Action { HOOK, TRACK, PASS };
struct Row {
    const char* symbol;
    Action action;
};
constexpr Row kRows[] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) {#symbol, Action::action},
#include "shim/entry_points.def"
};

using Call = CUresult (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                          std::uint64_t, std::uint64_t, std::uint64_t);

void want_room(const char* name) {
    void* const driver = dlopen(std::getenv("LMS_DRIVER"), RTLD_NOW | RTLD_LOCAL);
    const auto found = reinterpret_cast<decltype(&overlay_want_room)>(dlsym(driver, "overlay_want_room"));
    found(name);
}

}  // namespace

OVERLAY_TEST("room: is made for every tracked call that finds none") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    int tracked = 0;
    for (const Row& row : kRows) {
        if (row.action != Action::TRACK) continue;
        crowd.press();
        want_room(row.symbol);
        EXPECT(overlay::free_bytes() < overlay::kWanted);
        const auto call = reinterpret_cast<Call>(function(row.symbol));
        const CUresult result = call(overlay::kAsked, 0, 0, 0, 0, 0, 0, 0);
        if (result != CUDA_SUCCESS) failed(__FILE__, __LINE__, row.symbol + (" -> " + error_text(result)));
        ++tracked;
    }
    EXPECT(tracked > 40);
    EXPECT(a.holds(1));
}
