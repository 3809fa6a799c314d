// Contexts that end in one thread while another is given a new one.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "shim/app/contexts.h"

using namespace lms::engine;

namespace {

CUcontext context(std::uintptr_t number) {
    return reinterpret_cast<CUcontext>(number << 8);
}

// Whether who is given that one waits until `end` is over.
bool waits_for(std::optional<ContextEnd>& end, CUcontext given, CUdevice device) {
    std::atomic<bool> back = false;
    std::thread thread([&] {
        await_end_of_last(given, device);
        back = true;
    });
    for (int i = 0; i < 100 && !back; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool waited = !back;
    end.reset();
    thread.join();
    return waited;
}

}  // namespace

TEST_CASE(
    "contexts: a new one waits for the end of one that had its handle, and of the only one of its GPU") {
    constexpr CUdevice kGpu = 90, kOther = 91;
    const CUcontext goes = context(1), stays = context(2), made = context(3);
    context_seen(goes, kGpu);
    std::optional<ContextEnd> end;
    end.emplace(goes, kGpu);
    CHECK(waits_for(end, goes, kGpu));
    end.emplace(goes, kGpu);
    CHECK(waits_for(end, made, kGpu));
    end.emplace(goes, kGpu);
    CHECK_FALSE(waits_for(end, made, kOther));
    // The shim works through another then.
    context_seen(stays, kGpu);
    end.emplace(goes, kGpu);
    CHECK_FALSE(waits_for(end, made, kGpu));
    end.emplace(goes, kGpu);
    CHECK(waits_for(end, goes, kGpu));
    forget_context(goes);
    forget_context(stays);
    CHECK_FALSE(waits_for(end, goes, kGpu));
}
