// The table of handles: what a thread uses is not destroyed under it, and what is destroyed is not used.
#include "shim/program/handles.h"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace lms::program {
namespace {

using Table = program::Handles<int, std::string>;

void enter(Table& all, int handle, std::string value) {
    const util::Lock lock(all.mutex);
    all.enter(handle, std::move(value));
}

std::string value_of(Table& all, int handle) {
    const util::Lock lock(all.mutex);
    const std::string* const value = all.find(handle);
    return value ? *value : "";
}

bool can_be_used(Table& all, int handle) {
    return static_cast<bool>(Table::Use(all, handle));
}

// Whether `thread`, which sets `done`, has gone on by itself. Who does not wait comes back in this time.
bool comes_back(const std::atomic<bool>& done) {
    for (int i = 0; i < 50 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return done;
}

}  // namespace

TEST_CASE("handles: one is known from its entry until it is forgotten") {
    Table all;
    CHECK_FALSE(can_be_used(all, 1));
    enter(all, 1, "one");
    enter(all, 2, "two");
    enter(all, 3, "three");
    CHECK(can_be_used(all, 1));
    CHECK(value_of(all, 1) == "one");
    const util::Lock lock(all.mutex);
    CHECK(all.take(1) == "one");
    CHECK_FALSE(all.take(1));
    CHECK_FALSE(all.find(1));
    CHECK(all.find_or_enter(2) == "two");
    CHECK(all.find_or_enter(4).empty());
    CHECK(all.forget_if([](int handle, const std::string&) { return handle < 4; }).size() == 2);
    int left = 0;
    all.each([&](int handle, std::string&) { left += handle; });
    CHECK(left == 4);
    CHECK(all.forget(4));
    CHECK_FALSE(all.forget(4));
}

TEST_CASE("handles: a retirement waits for those who use the handle, and nobody uses it from then on") {
    Table all;
    enter(all, 1, "one");
    std::optional<Table::Use> first(std::in_place, all, 1);
    std::optional<Table::Use> second(std::in_place, all, 1);
    std::atomic<bool> retired = false, over = false;
    std::thread destroying([&] {
        const Table::Retire retire(all, 1);
        CHECK(static_cast<bool>(retire));
        retired = true;
        while (!over) std::this_thread::yield();
    });
    while (can_be_used(all, 1)) std::this_thread::yield();
    first.reset();
    CHECK_FALSE(comes_back(retired));
    second.reset();
    while (!retired) std::this_thread::yield();
    // It is known until the call that destroys it is over.
    CHECK(value_of(all, 1) == "one");
    CHECK_FALSE(can_be_used(all, 1));
    over = true;
    destroying.join();
    CHECK(value_of(all, 1).empty());
}

TEST_CASE("handles: one that the driver does not destroy is known again") {
    Table all;
    enter(all, 1, "one");
    {
        Table::Retire retire(all, 1);
        retire.keep();
        CHECK(can_be_used(all, 1));
    }
    CHECK(can_be_used(all, 1));
    {
        Table::Retire retire(all, 1);
        retire.forget();
        CHECK(value_of(all, 1).empty());
        retire.keep();
    }
    CHECK(can_be_used(all, 1));
    CHECK(value_of(all, 1) == "one");
}

TEST_CASE("handles: one that another thread has destroyed is not known again") {
    Table all;
    enter(all, 1, "one");
    Table::Retire refused(all, 1);
    { const Table::Retire destroyed(all, 1); }
    refused.keep();
    CHECK(value_of(all, 1).empty());
}

TEST_CASE("handles: one that is given out again before the end of the last is another") {
    Table all;
    enter(all, 1, "old");
    SUBCASE("which the end of the last does not forget") {
        std::optional<Table::Retire> retire(std::in_place, all, 1);
        enter(all, 1, "new");
        CHECK(can_be_used(all, 1));
        SUBCASE("") {
            retire.reset();
        }
        SUBCASE("early") {
            retire->forget();
        }
        SUBCASE("nor a refusal replace") {
            retire->keep();
        }
        retire.reset();
    }
    SUBCASE("whose end does not wait for who uses the last") {
        const Table::Use use(all, 1);
        enter(all, 1, "new");
        std::atomic<bool> done = false;
        std::thread destroying([&] {
            { const Table::Retire retire(all, 1); }
            done = true;
        });
        CHECK(comes_back(done));
        destroying.join();
        enter(all, 1, "new");
    }
    CHECK(can_be_used(all, 1));
    CHECK(value_of(all, 1) == "new");
}

// Else it would wait for ever: the driver's call may come back to the program, which may destroy what it
// uses.
TEST_CASE("handles: a thread that destroys what it uses itself goes on after a while") {
    Table all;
    enter(all, 1, "one");
    {
        const Table::Use use(all, 1);
        const Table::Retire retire(all, 1);
        CHECK(static_cast<bool>(retire));
    }
    CHECK(value_of(all, 1).empty());
    const Table::Retire again(all, 1);
    CHECK_FALSE(static_cast<bool>(again));
}

TEST_CASE("handles: who has one alone keeps others off however long that takes") {
    Table all;
    enter(all, 1, "one");
    enter(all, 2, "two");
    std::optional<Table::Alone> mine(std::in_place, all, 1);
    mine->get()->append(" more");
    const Table::Alone other(all, 2);
    CHECK(static_cast<bool>(other));
    std::atomic<bool> done = false;
    std::string seen;
    std::thread waiting([&] {
        const Table::Alone theirs(all, 1);
        if (theirs) seen = *theirs.get();
        done = true;
    });
    CHECK_FALSE(comes_back(done));
    SUBCASE("and leaves what it noted") {
        mine.reset();
        waiting.join();
        CHECK(seen == "one more");
    }
    SUBCASE("and may forget it") {
        mine->forget();
        mine.reset();
        waiting.join();
        CHECK(seen.empty());
        CHECK_FALSE(static_cast<bool>(Table::Alone(all, 1)));
    }
}

TEST_CASE("handles: many threads use, destroy and make many handles") {
    constexpr int kHandles = 200, kThreads = 4, kSteps = 5'000;
    struct Object {
        std::atomic<int> users = 0;
        std::atomic<bool> alive = true;
    };
    program::Handles<int, std::shared_ptr<Object>> all;
    std::array<std::atomic_flag, kHandles> destroying{};  // a program destroys a handle once
    std::atomic<int> wrong = 0, destroyed = 0, used = 0;
    const auto run = [&](unsigned seed) {
        std::mt19937 random(seed);
        for (int step = 0; step < kSteps; ++step) {
            const int handle = static_cast<int>(random() % kHandles);
            const auto object = [&]() -> std::shared_ptr<Object> {
                const util::Lock lock(all.mutex);
                const std::shared_ptr<Object>* const known = all.find(handle);
                return known ? *known : nullptr;
            };
            switch (random() % 4) {
                case 0: {
                    const util::Lock lock(all.mutex);
                    if (!all.find(handle)) all.enter(handle, std::make_shared<Object>());
                    break;
                }
                case 1: {
                    if (destroying[handle].test_and_set()) break;
                    if (decltype(all)::Retire retire(all, handle); retire) {
                        const std::shared_ptr<Object> mine = object();
                        wrong += mine->users > 0;
                        if (random() % 3 == 0) {
                            retire.keep();
                        } else {
                            mine->alive = false;
                            ++destroyed;
                        }
                    }
                    destroying[handle].clear();
                    break;
                }
                default: {
                    const decltype(all)::Use use(all, handle);
                    if (!use) break;
                    const std::shared_ptr<Object> mine = object();
                    ++mine->users;
                    ++used;
                    std::this_thread::yield();
                    wrong += !mine->alive;
                    --mine->users;
                }
            }
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(run, i + 1);
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(used > 0);
    CHECK(destroyed > 0);
}

}  // namespace lms::program
