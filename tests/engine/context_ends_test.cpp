// Contexts that end in one thread while another is given a new one.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "shim/program/contexts.h"

using namespace lms::program;

namespace {

CUcontext context(std::uintptr_t number) {
    return reinterpret_cast<CUcontext>(number << 8);
}

// Whether who does that waits until `end` is over.
template <typename Other>
bool waits_for(std::optional<ContextEnd>& end, Other other) {
    std::atomic<bool> back = false;
    std::thread thread([&] {
        other();
        back = true;
    });
    for (int i = 0; i < 100 && !back; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool waited = !back;
    end.reset();
    thread.join();
    return waited;
}

// Who is given that one.
bool waits_for(std::optional<ContextEnd>& end, CUcontext given, CUdevice device) {
    const bool was_known = is_known(given);
    const bool waited = waits_for(end, [&] { new_context_seen(given, device); });
    CHECK(is_known(given));
    if (!was_known) forget_context(given);
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

TEST_CASE("contexts: one ends after another of its GPU, and knows what that left") {
    constexpr CUdevice kGpu = 92, kOther = 93;
    const CUcontext one = context(4), two = context(5), three = context(6);
    for (const CUcontext each : {one, two}) context_seen(each, kGpu);
    std::optional<ContextEnd> end;
    end.emplace(one, kGpu);
    CHECK(end->successor() == two);
    CHECK_FALSE(is_left_to_end(one));
    CHECK(waits_for(end, [&] { const ContextEnd other(two, kGpu); }));
    end.emplace(one, kGpu);
    CHECK_FALSE(waits_for(end, [&] { const ContextEnd other(three, kOther); }));
    {
        // One within another, as green contexts'.
        const ContextEnd outer(one, kGpu);
        ContextEnd inner(two, kGpu);
        context_seen(three, kGpu);
        CHECK(inner.successor() == three);
    }
    for (const CUcontext each : {two, three}) forget_context(each);
    {
        ContextEnd last(one, kGpu);
        CHECK_FALSE(last.successor());
        CHECK(is_left_to_end(one));
    }
    CHECK_FALSE(is_left_to_end(one));
    forget_context(one);
}

TEST_CASE("contexts: one that is about to go is not used, nor while what it had is forgotten") {
    constexpr CUdevice kGpu = 95;
    const CUcontext goes = context(9), unseen = context(10);
    context_seen(goes, kGpu);
    for (const CUcontext each : {goes, unseen}) {
        CAPTURE(each);
        CHECK(static_cast<bool>(ContextUse(each)));
        {
            ContextEnd end(each, kGpu);
            CHECK(static_cast<bool>(ContextUse(each)));
            end.close();
            CHECK_FALSE(static_cast<bool>(ContextUse(each)));
        }
        // The driver has refused.
        CHECK(static_cast<bool>(ContextUse(each)));
        ContextEnd end(each, kGpu);
        end.close();
        end.is_gone();
        forget_context(each);
        CHECK_FALSE(is_known(each));
        CHECK_FALSE(static_cast<bool>(ContextUse(each)));
    }
    // Another may have the handle now.
    context_seen(goes, kGpu);
    CHECK(static_cast<bool>(ContextUse(goes)));
    forget_context(goes);
}

// However long that takes.
TEST_CASE("contexts: a new one waits while the last of its GPU is forgotten") {
    constexpr CUdevice kGpu = 94;
    const CUcontext goes = context(7), made = context(8);
    context_seen(goes, kGpu);
    std::optional<ContextEnd> end;
    end.emplace(goes, kGpu);
    end->is_gone();
    std::atomic<bool> back = false;
    std::thread thread([&] {
        new_context_seen(made, kGpu);
        back = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    CHECK_FALSE(back);
    end.reset();
    thread.join();
    for (const CUcontext each : {goes, made}) forget_context(each);
}
