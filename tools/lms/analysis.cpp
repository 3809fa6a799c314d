#include "tools/lms/analysis.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "shim/trace/demangle.h"
#include "shim/trace/python_frames.h"

namespace lms::tool {
namespace {

// No more than all of it, whatever a damaged trace tells.
std::uint64_t share_of(std::uint64_t ns, std::uint64_t part, std::uint64_t whole) {
    if (part >= whole) return ns;
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(ns) * part / whole);
}

class Analyst {
  public:
    explicit Analyst(Analysis& all) : all_(all) {}

    void operator()(const trace::Gpu& event) { all_.gpus[event.device].name = event.name; }

    void operator()(const trace::Allocation& event) {
        std::uint64_t bytes = 0;
        for (const trace::Piece& piece : event.pieces) bytes += piece.bytes;
        const auto [at, is_new] =
            group_of_.try_emplace({event.device, bytes, event.call_site}, all_.groups.size());
        if (is_new)
            all_.groups.push_back({.device = event.device,
                                   .bytes = bytes,
                                   .frames = event.call_site,
                                   .call_site = {},
                                   .number = static_cast<std::uint32_t>(at->second)});
        ++all_.groups[at->second].buffers;
        Live& live = live_[key(event.device, event.allocation)] = {at->second, bytes, {}};
        for (const trace::Piece& piece : event.pieces) {
            const std::uint64_t chunk = key(event.device, piece.chunk);
            live.chunks.push_back(chunk);
            pieces_[chunk] = {piece.bytes, at->second, false};
            is_resident(chunk, piece.resident, event.at_ns);
        }
        allocated(event.device, static_cast<std::int64_t>(bytes));
        seen(event.at_ns, event.at_ns);
    }

    void operator()(const trace::Free& event) {
        const auto found = live_.find(key(event.device, event.allocation));
        if (found == live_.end()) return;
        for (const std::uint64_t chunk : found->second.chunks) is_resident(chunk, false, event.at_ns);
        allocated(event.device, -static_cast<std::int64_t>(found->second.bytes));
        live_.erase(found);
        seen(event.at_ns, event.at_ns);
    }

    void operator()(const trace::Launch& event) {
        seen(event.begin_ns, event.end_ns);
        // What comes in without a copy, for it is overwritten, is told by its use alone: the call waits for
        // it.
        for (const trace::Touched& each : event.touched) {
            if (!each.in_place && !each.may_stay)
                is_resident(key(event.device, each.chunk), true, event.end_ns);
        }
        if (event.copied.way != trace::CopyWay::Unknown) {
            LinkUse& own = own_copies(event.copied.way);
            ++own.copies;
            own.bytes += event.copied.bytes;
        }
        if (event.kernel.empty()) return;
        ++all_.launches;
        ++use_of(event.kernel).launches;
        all_.in_place_launches += std::ranges::any_of(event.touched, &trace::Touched::in_place);
    }

    void operator()(const trace::Move& event) {
        const bool in = event.direction == trace::Direction::In;
        LinkUse& link = in ? all_.in : all_.out;
        // What nothing had written went out without one.
        link.copies += event.bytes > 0;
        link.bytes += event.bytes;
        if (event.timed) {
            link.timed_bytes += event.bytes;
            link.timed_ns += event.end_ns - event.begin_ns;
        }
        is_resident(key(event.device, event.chunk), in, event.end_ns);
        if (BufferGroup* const group = group_at(event.device, event.allocation))
            (in ? group->bytes_in : group->bytes_out) += event.bytes;
        seen(event.begin_ns, event.end_ns);
    }

    void operator()(const trace::Stall& event) {
        const std::uint64_t ns = event.end_ns - event.begin_ns;
        ++all_.stalls;
        all_.stall_ns += ns;
        all_.stall_ns_by_cause[static_cast<std::size_t>(event.cause)] += ns;
        all_.stall_ns_by_kernel[event.kernel.empty() ? "(copies and sets)" : name_of(event.kernel)] += ns;
        for (const trace::Touched& each : event.lacked) {
            BufferGroup* const group = group_at(event.device, each.allocation);
            const auto piece = pieces_.find(key(event.device, each.chunk));
            if (!group || piece == pieces_.end() || event.bytes == 0) continue;
            group->stall_ns += share_of(ns, piece->second.bytes, event.bytes);
        }
        seen(event.begin_ns, event.end_ns);
    }

    void operator()(const trace::Residency& event) {
        all_.gpus[event.device].budget_bytes = event.budget_bytes;
        beyond(event.device);
        seen(event.at_ns, event.at_ns);
    }

    void operator()(const trace::KernelTime& event) {
        KernelUse& use = use_of(event.kernel);
        ++use.samples;
        use.sampled_ns += event.end_ns - event.begin_ns;
        seen(event.begin_ns, event.end_ns);
    }

    void operator()(const trace::CopyTime& event) {
        LinkUse& own = own_copies(event.copied.way);
        own.timed_bytes += event.copied.bytes;
        own.timed_ns += event.end_ns - event.begin_ns;
        seen(event.begin_ns, event.end_ns);
    }

    void operator()(const trace::LinkSpeeds&) {}
    void operator()(const trace::ProgramWait&) {}
    void operator()(const trace::Unmanaged&) {}
    void operator()(const trace::Dropped&) {}
    void operator()(const trace::WorkOver&) {}
    void operator()(const trace::StreamFree&) {}

    void operator()(const trace::Region& event) { seen(event.begin_ns, event.end_ns); }

  private:
    struct Live {
        std::size_t group;
        std::uint64_t bytes;
        std::vector<std::uint64_t> chunks;
    };
    struct Piece {
        std::uint64_t bytes;
        std::size_t group;
        bool resident;
    };

    struct Alike {
        int device;
        std::uint64_t bytes;
        std::span<const std::string> frames;

        bool operator<(const Alike& other) const {
            if (device != other.device) return device < other.device;
            if (bytes != other.bytes) return bytes < other.bytes;
            return std::ranges::lexicographical_compare(frames, other.frames);
        }
    };

    LinkUse& own_copies(trace::CopyWay way) { return all_.own_copies[static_cast<std::size_t>(way)]; }

    static std::uint64_t key(int device, std::uint32_t number) {
        return static_cast<std::uint64_t>(device) << 32 | number;
    }

    void is_resident(std::uint64_t chunk, bool now, std::uint64_t at_ns) {
        const auto found = pieces_.find(chunk);
        if (found == pieces_.end() || std::exchange(found->second.resident, now) == now) return;
        const auto bytes = static_cast<std::int64_t>(found->second.bytes);
        all_.resident_changes.push_back(
            {at_ns, static_cast<std::uint32_t>(found->second.group), now ? bytes : -bytes});
    }

    void seen(std::uint64_t begin_ns, std::uint64_t end_ns) {
        if (all_.begin_ns == 0 || begin_ns < all_.begin_ns) all_.begin_ns = begin_ns;
        all_.end_ns = std::max(all_.end_ns, end_ns);
    }

    void allocated(int device, std::int64_t more) {
        std::uint64_t& now = allocated_[device];
        now += static_cast<std::uint64_t>(more);
        GpuUse& gpu = all_.gpus[device];
        gpu.peak_allocated_bytes = std::max(gpu.peak_allocated_bytes, now);
        beyond(device);
    }

    void beyond(int device) {
        GpuUse& gpu = all_.gpus[device];
        const std::uint64_t now = allocated_[device];
        if (gpu.budget_bytes > 0 && now > gpu.budget_bytes)
            gpu.most_beyond_bytes = std::max(gpu.most_beyond_bytes, now - gpu.budget_bytes);
    }

    // Demangled once.
    const std::string& name_of(std::string_view kernel) {
        const auto [known, is_new] = names_.try_emplace(kernel);
        if (is_new) known->second = trace::demangled(std::string(kernel));
        return known->second;
    }
    KernelUse& use_of(std::string_view kernel) {
        const auto [known, is_new] = kernels_.try_emplace(kernel, nullptr);
        if (is_new) known->second = &all_.kernels[name_of(kernel)];
        return *known->second;
    }

    BufferGroup* group_at(int device, std::uint32_t allocation) {
        const auto found = live_.find(key(device, allocation));
        return found == live_.end() ? nullptr : &all_.groups[found->second.group];
    }

    Analysis& all_;
    std::map<Alike, std::size_t> group_of_;
    std::unordered_map<std::uint64_t, Live> live_;
    std::unordered_map<std::uint64_t, Piece> pieces_;  // by chunk
    std::map<int, std::uint64_t> allocated_;
    // The trace has what they are called in it.
    std::unordered_map<std::string_view, KernelUse*> kernels_;
    std::unordered_map<std::string_view, std::string> names_;
};

// Something that adds up, by when it began.
class Sums {
  public:
    void add(std::uint64_t at_ns, std::uint64_t amount) { all_.push_back({at_ns, amount}); }
    void close() {
        std::ranges::sort(all_);
        std::uint64_t sum = 0;
        for (auto& [at_ns, amount] : all_) amount = sum += amount;
    }
    std::uint64_t between(std::uint64_t begin_ns, std::uint64_t end_ns) const {
        return before(end_ns) - before(begin_ns);
    }

  private:
    std::uint64_t before(std::uint64_t at_ns) const {
        const auto next =
            std::ranges::lower_bound(all_, at_ns, {}, &std::pair<std::uint64_t, std::uint64_t>::first);
        return next == all_.begin() ? 0 : std::prev(next)->second;
    }

    std::vector<std::pair<std::uint64_t, std::uint64_t>> all_;
};

// An event is in all regions in which it began.
void look_at_regions(const Trace& trace, Analysis& all) {
    Sums stalls, in, out;
    for (const trace::Event& event : trace.events) {
        if (const auto* const stall = std::get_if<trace::Stall>(&event))
            stalls.add(stall->begin_ns, stall->end_ns - stall->begin_ns);
        if (const auto* const move = std::get_if<trace::Move>(&event))
            (move->direction == trace::Direction::In ? in : out).add(move->begin_ns, move->bytes);
    }
    for (Sums* const sums : {&stalls, &in, &out}) sums->close();
    for (const trace::Event& event : trace.events) {
        const auto* const region = std::get_if<trace::Region>(&event);
        if (!region) continue;
        RegionUse& use = all.regions[std::string(region->name)];
        ++use.times;
        use.ns += region->end_ns - region->begin_ns;
        use.stall_ns += stalls.between(region->begin_ns, region->end_ns);
        use.bytes_in += in.between(region->begin_ns, region->end_ns);
        use.bytes_out += out.between(region->begin_ns, region->end_ns);
    }
}

std::vector<BufferGroup*> groups_of(Analysis& all) {
    std::vector<BufferGroup*> groups;
    for (BufferGroup& group : all.groups) groups.push_back(&group);
    return groups;
}

// The frames that a group is named by.
std::span<const std::string> telling(const BufferGroup& group) {
    return group.frames.subspan(trace::first_telling(group.frames));
}

// The user's own line says more than that of an installed package which it called.
bool is_of_package(std::string_view frame) {
    return trace::is_python(frame) &&
           std::ranges::any_of(std::array{"/site-packages/", "/dist-packages/", "/lib/python3"},
                               [&](const char* part) { return frame.find(part) != frame.npos; });
}

void name_by_frames(const std::vector<BufferGroup*>& groups) {
    std::span<const std::string> some;
    std::size_t common = ~std::size_t{0};
    bool differ = false;
    for (const BufferGroup* group : groups) {
        const std::span<const std::string> frames = telling(*group);
        if (frames.empty()) continue;
        if (some.empty()) some = frames;
        const auto [mine, theirs] = std::ranges::mismatch(frames, some);
        common = std::min(common, static_cast<std::size_t>(mine - frames.begin()));
        differ |= !std::ranges::equal(frames, some);
    }
    for (BufferGroup* group : groups) {
        const std::span<const std::string> frames = telling(*group);
        if (frames.empty()) continue;
        const auto first = frames.begin() + (differ ? std::min(common, frames.size() - 1) : 0);
        const auto own = std::find_if_not(first, frames.end(), is_of_package);
        group->call_site = own == frames.end() ? *first : *own;
    }
}

// Python's frames and others have none in common.
void name_places(const std::vector<BufferGroup*>& groups) {
    std::vector<BufferGroup*> of_python, others;
    for (BufferGroup* group : groups)
        (!telling(*group).empty() && trace::is_python(telling(*group)[0]) ? of_python : others)
            .push_back(group);
    name_by_frames(of_python);
    name_by_frames(others);
}

// Stacks that differ further out only.
void add_up_places(Analysis& all) {
    std::map<std::tuple<int, std::string, std::uint64_t>, std::size_t> known;
    for (const BufferGroup& group : all.groups) {
        const auto [at, is_new] =
            known.try_emplace({group.device, group.call_site, group.bytes}, all.places.size());
        if (is_new) {
            all.places.push_back(group);
            continue;
        }
        BufferGroup& place = all.places[at->second];
        place.buffers += group.buffers;
        place.bytes_in += group.bytes_in;
        place.bytes_out += group.bytes_out;
        place.stall_ns += group.stall_ns;
    }
    std::ranges::stable_sort(all.places, std::ranges::greater{}, &BufferGroup::moved);
}

}  // namespace

void name_places(std::span<BufferGroup> groups) {
    std::vector<BufferGroup*> all;
    for (BufferGroup& group : groups) all.push_back(&group);
    name_places(all);
}

void name_alike(Analysis& one, Analysis& other) {
    std::vector<BufferGroup*> groups = groups_of(one);
    std::ranges::copy(groups_of(other), std::back_inserter(groups));
    name_places(groups);
}

Analysis analyse(const Trace& trace) {
    Analysis all;
    Analyst analyst(all);
    for (const trace::Event& event : trace.events) std::visit(analyst, event);
    look_at_regions(trace, all);
    name_places(all.groups);
    std::ranges::stable_sort(all.groups, std::ranges::greater{}, &BufferGroup::moved);
    add_up_places(all);
    return all;
}

std::vector<std::pair<std::string, KernelUse>> kernels_by_time(const Analysis& all) {
    std::vector<std::pair<std::string, KernelUse>> kernels(all.kernels.begin(), all.kernels.end());
    std::ranges::stable_sort(kernels, std::ranges::greater{},
                             [](const auto& one) { return one.second.ns(); });
    return kernels;
}

std::vector<std::pair<std::string, RegionUse>> regions_by_time(const Analysis& all) {
    std::vector<std::pair<std::string, RegionUse>> regions(all.regions.begin(), all.regions.end());
    std::ranges::stable_sort(regions, std::ranges::greater{}, [](const auto& one) { return one.second.ns; });
    return regions;
}

std::optional<double> busy_share(const Analysis& all) {
    double ns = 0;
    for (const auto& [name, use] : all.kernels) ns += use.ns();
    return ns > 0 && all.seconds() > 0 ? std::optional(ns / 1e9 / all.seconds()) : std::nullopt;
}

}  // namespace lms::tool
