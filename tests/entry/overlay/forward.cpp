// A libcuda.so.1 before the simulated one: every entry point jumps on to it, but for those that answers.cpp
// defines, and those that are newer than OVERLAY_VERSION, which it lacks.
#include <cstddef>
#include <cstring>
#include <iterator>

#include "tests/entry/overlay/record.h"
#include "tests/entry/where.h"

#define OVERLAY_TEXT_(x) #x
#define OVERLAY_TEXT(x) OVERLAY_TEXT_(x)

asm(R"(
        .set    overlay_row, 0
        .macro  OVERLAY_FORWARD symbol, introduced
        .if     \introduced <= )" OVERLAY_TEXT(OVERLAY_VERSION) R"(
        .text
        .weak   \symbol
        .type   \symbol, @function
\symbol:
        jmp     *overlay_slots + 8 * overlay_row(%rip)
        .size   \symbol, . - \symbol
        .endif
        .set    overlay_row, overlay_row + 1
        .endm
)"
#define LMS_ENTRY(symbol, base, introduced, stream, action) "OVERLAY_FORWARD " #symbol ", " #introduced "\n"
#include "shim/entry_points.def"
                                                                ".purgem OVERLAY_FORWARD\n");

namespace {

constexpr const char* kNames[] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) #symbol,
#include "shim/entry_points.def"
};

}  // namespace

extern "C" __attribute__((visibility("hidden"))) void* overlay_slots[std::size(kNames)];
void* overlay_slots[std::size(kNames)];

static CUresult deinitialized() {
    return CUDA_ERROR_DEINITIALIZED;
}

bool overlay_deinitialized = false;

void overlay_deinitialize() {
    overlay_deinitialized = true;
    for (void*& slot : overlay_slots) slot = reinterpret_cast<void*>(&deinitialized);
}

// Whether other processes may use its GPUs.
extern "C" __attribute__((visibility("default"))) int simcuda_is_shared() {
    return reinterpret_cast<int (*)()>(where::simulated("simcuda_is_shared"))();
}

// ---- a function that needs room

// As many integers and pointers as any of these functions takes.
using Integers = CUresult (*)(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                              std::uint64_t, std::uint64_t, std::uint64_t);

static void** wanting_slot;
static void* wanting_function;
static std::size_t wanted_bytes;

CUresult overlay::answer_as_asked() {
    return free_bytes() < wanted_bytes ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult needs_room(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d,
                           std::uint64_t e, std::uint64_t f, std::uint64_t g, std::uint64_t h) {
    // The shim may call it too.
    if (static_cast<std::uint32_t>(a) != overlay::kAsked)
        return reinterpret_cast<Integers>(wanting_function)(a, b, c, d, e, f, g, h);
    return overlay::answer_as_asked();
}

void overlay_want_room(const char* name, std::size_t wanted) {
    wanted_bytes = wanted;
    if (wanting_slot) *wanting_slot = wanting_function;
    for (std::size_t i = 0; i < std::size(kNames); ++i) {
        if (std::strcmp(kNames[i], name) == 0) wanting_slot = &overlay_slots[i];
    }
    wanting_function = *wanting_slot;
    *wanting_slot = reinterpret_cast<void*>(&needs_room);
}

__attribute__((constructor)) static void find_the_simulated_driver() {
    for (std::size_t i = 0; i < std::size(kNames); ++i) overlay_slots[i] = where::simulated(kNames[i]);
}
