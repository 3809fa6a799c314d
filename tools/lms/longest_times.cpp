#include "tools/lms/longest_times.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lms::tool {
namespace {

constexpr std::size_t kEnough = 4;        // samples
constexpr double kBeyond = 1.1;           // what was not sampled may take a little longer
constexpr double kSlowSet = 50;           // bytes a ns, of a GPU's memory
constexpr std::uint64_t kBegin = 20'000;  // ns, of any set or copy

// Nine of ten are no larger. The first, which may have waited for its code, does not count.
double ninth_tenth(std::vector<double> values) {
    values.erase(values.begin());
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 9 / 10);
    std::ranges::nth_element(values, at);
    return *at;
}

}  // namespace

LongestTimes::LongestTimes(const Trace& trace, int device) {
    std::unordered_map<std::string_view, std::vector<double>> kernels;
    std::map<trace::CopyWay, std::vector<double>> copies;  // ns a byte
    for (const trace::Event& event : trace.events) {
        if (const auto* const ran = std::get_if<trace::KernelTime>(&event)) {
            if (ran->device == device && ran->end_ns > ran->begin_ns && !ran->kernel.empty())
                kernels[ran->kernel].push_back(static_cast<double>(ran->end_ns - ran->begin_ns));
        } else if (const auto* const copy = std::get_if<trace::CopyTime>(&event)) {
            if (copy->device == device && copy->end_ns > copy->begin_ns && copy->copied.bytes > 0)
                copies[copy->copied.way].push_back(static_cast<double>(copy->end_ns - copy->begin_ns) /
                                                   static_cast<double>(copy->copied.bytes));
        }
    }
    for (const auto& [kernel, times] : kernels) {
        if (times.size() >= kEnough)
            kernels_[kernel] = static_cast<std::uint64_t>(kBeyond * ninth_tenth(times));
    }
    for (const auto& [way, times] : copies) {
        if (times.size() >= kEnough) bytes_per_ns_[way] = 1 / (kBeyond * ninth_tenth(times));
    }
}

std::uint64_t LongestTimes::of(const trace::Launch& work, std::uint64_t bytes) const {
    // What a kernel uses in host memory makes it as slow as the link.
    if (std::ranges::any_of(work.touched, [](const trace::Touched& each) { return each.in_place; }))
        return kUnknown;
    if (!work.kernel.empty()) {
        const auto known = kernels_.find(work.kernel);
        return known == kernels_.end() ? kUnknown : known->second;
    }
    // A set, or a copy that is not told of: where kernels have no names it may be one.
    if (work.copied.way == trace::CopyWay::Unknown)
        return kernels_.empty() ? kUnknown
                                : kBegin + static_cast<std::uint64_t>(static_cast<double>(bytes) / kSlowSet);
    const auto speed = bytes_per_ns_.find(work.copied.way);
    if (speed == bytes_per_ns_.end()) return kUnknown;
    return kBegin + static_cast<std::uint64_t>(static_cast<double>(work.copied.bytes) / speed->second);
}

}  // namespace lms::tool
