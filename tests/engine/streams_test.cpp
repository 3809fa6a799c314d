// The program's streams: a handle that the driver is given is not destroyed under it.
#include "shim/program/streams.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

namespace lms::program {
namespace {

bool is_known(CUstream stream) {
    return static_cast<bool>(program::StreamUse(stream));
}

}  // namespace

TEST_CASE("streams: one that is about to go waits for those who use its handle, and is gone for others") {
    int any = 0;
    const auto stream = reinterpret_cast<CUstream>(&any);
    stream_created(stream, nullptr);
    std::optional<program::StreamUse> use(std::in_place, stream);
    REQUIRE(static_cast<bool>(*use));
    std::atomic<bool> in_use{true};
    std::atomic<bool> ended{false};
    std::thread destroying([&] {
        const program::StreamEnd end(stream);
        CHECK(static_cast<bool>(end));
        CHECK(!in_use);
        ended = true;
    });
    while (is_known(stream)) std::this_thread::yield();
    // Who does not wait comes back in this time.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    in_use = false;
    use.reset();
    destroying.join();
    CHECK(ended);
    CHECK(!is_known(stream));
}

TEST_CASE("streams: one that the driver does not destroy is known again") {
    int any = 0;
    const auto stream = reinterpret_cast<CUstream>(&any);
    stream_created(stream, nullptr);
    {
        program::StreamEnd end(stream);
        CHECK(!is_known(stream));
        end.forget();
        end.keep();
    }
    CHECK(is_known(stream));
    const program::StreamEnd end(stream);
    CHECK(static_cast<bool>(end));
}

}  // namespace lms::program
