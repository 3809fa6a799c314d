// Events as the records of a trace file. docs/reference/trace-format.md has the grammar.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shim/trace/events.h"
#include "shim/trace/format.h"

namespace lms::trace {

// Not thread-safe. What an event refers to (names, call sites, streams) is written before the first that
// does, mostly once in a file, and referred to by its number. If put() throws std::bad_alloc, nothing was
// put.
class Records {
  public:
    static constexpr std::size_t kMostNumbered = 16 << 10;  // at the beginning of a block

    void put(const Event& event);
    void put_end();

    const std::string& bytes() const { return bytes_; }
    // The latest time of any event.
    std::uint64_t now_ns() const { return now_ns_; }
    // Begins a block: what is put from now on needs no record before it, except for the numbers. bytes() is
    // empty.
    void begin_block();

  private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };

    void begin(Tag tag) { bytes_.push_back(static_cast<char>(tag)); }
    void on(int device);
    void at(std::uint64_t time_ns);
    void during(std::uint64_t begin_ns, std::uint64_t end_ns);
    void chunk(std::uint32_t id);
    void copied(const Copied& copy);
    void touched(std::span<const Touched> chunks);
    std::uint64_t string(std::string_view text);
    std::uint64_t site(std::span<const std::string> frames);
    std::uint64_t stream(std::uint64_t handle);
    void forget();

    void record(const Gpu& event);
    void record(const Allocation& event);
    void record(const Free& event);
    void record(const Launch& event);
    void record(const Move& event);
    void record(const Stall& event);
    void record(const Residency& event);
    void record(const Dropped& event);
    void record(const Region& event);
    void record(const WorkOver& event);
    void record(const KernelTime& event);
    void record(const StreamFree& event);
    void record(const LinkSpeeds& event);
    void record(const CopyTime& event);
    void record(const ProgramWait& event);
    void record(const Unmanaged& event);

    std::string bytes_;
    std::uint64_t now_ns_ = 0;
    // As of the last record of this block: what the next is written relative to.
    struct Last {
        int device = 0;
        std::uint64_t time_ns = 0;
        std::uint32_t chunk = 0;
    } last_;
    // What has been numbered, from 1, in the file or since forget(): a program may name each of its steps.
    std::unordered_map<std::string, std::uint64_t, Hash, std::equal_to<>> strings_;
    std::map<std::vector<std::uint64_t>, std::uint64_t> sites_;
    std::unordered_map<std::uint64_t, std::uint64_t> streams_;
};

}  // namespace lms::trace
