#include "tools/lms/trace_file.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "shim/trace/format.h"
#include "tools/lms/printable.h"

namespace lms::tool {

using namespace trace;

// The bytes of a block, from the front. What is not there is 0, and ok() is false from then on.
class TraceDecoder::Input {
  public:
    explicit Input(std::string_view bytes) : rest_(bytes) {}

    bool ok() const { return ok_; }
    bool empty() const { return rest_.empty(); }

    std::uint64_t number() {
        std::uint64_t sum = 0;
        for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
            const auto byte = static_cast<unsigned char>(rest_.front());
            rest_.remove_prefix(1);
            sum |= std::uint64_t{byte & 0x7fu} << shift;
            if (byte < 0x80) return sum;
        }
        ok_ = false;
        return 0;
    }
    // Of things that take a byte each at least.
    std::size_t count(std::uint64_t number) {
        ok_ &= number <= rest_.size();
        return ok_ ? static_cast<std::size_t>(number) : 0;
    }
    std::string_view bytes(std::size_t count) {
        const std::string_view taken = rest_.substr(0, count);
        rest_.remove_prefix(taken.size());
        return taken;
    }

  private:
    std::string_view rest_;
    bool ok_ = true;
};

bool TraceDecoder::add(std::string_view plain) {
    device_ = 0;
    time_ns_ = 0;
    chunk_ = 0;
    writes_unseen_ = false;
    copied_ = {};
    site_room_ += kSiteShare * plain.size();
    Input in(plain);
    while (!in.empty()) {
        if (!record(in) || !in.ok()) return false;
    }
    return true;
}

bool TraceDecoder::record(Input& in) {
    switch (static_cast<Tag>(in.number())) {
        case Tag::End:
            trace_.ended = in.ok();
            return true;
        case Tag::Device: {
            const std::uint64_t device = in.number();
            device_ = static_cast<int>(device % kMostDevices);
            return device < kMostDevices;
        }
        case Tag::String:
            return string(in);
        case Tag::Site:
            return site(in);
        case Tag::Stream: {
            const std::uint64_t number = in.number();
            numbered_.streams[number] = in.number();
            return true;
        }
        case Tag::Gpu: {
            Gpu gpu{.device = device_,
                    .name = {},
                    .total_bytes = 0,
                    .granularity = 0,
                    .maps_host = true,
                    .at_ns = time(in)};
            gpu.name = text(in);
            gpu.total_bytes = in.number();
            gpu.granularity = in.number();
            gpu.maps_host = in.number() != 0;
            trace_.events.emplace_back(gpu);
            return true;
        }
        case Tag::Allocation:
            return allocation(in);
        case Tag::Free: {
            const std::uint64_t at = time(in);
            trace_.events.emplace_back(Free{device_, static_cast<std::uint32_t>(in.number()), at});
            return true;
        }
        case Tag::StreamFree: {
            const std::uint64_t at = time(in);
            const auto allocation = static_cast<std::uint32_t>(in.number());
            trace_.events.emplace_back(StreamFree{device_, allocation, stream(in), at});
            return true;
        }
        case Tag::Launch:
            return launch(in);
        case Tag::Move:
            return move(in);
        case Tag::Stall:
            return stall(in);
        case Tag::Residency: {
            Residency now{.device = device_, .resident_bytes = 0, .host_bytes = 0, .at_ns = time(in)};
            now.resident_bytes = in.number();
            now.host_bytes = in.number();
            now.budget_bytes = in.number();
            trace_.events.emplace_back(now);
            return true;
        }
        case Tag::Dropped:
            trace_.events.emplace_back(Dropped{in.number()});
            trace_.dropped += std::get<Dropped>(trace_.events.back()).events;
            return true;
        case Tag::Region: {
            Region region{.name = {}, .thread = 0, .begin_ns = time(in), .end_ns = 0};
            region.end_ns = region.begin_ns + in.number();
            region.name = text(in);
            region.thread = static_cast<std::uint32_t>(in.number());
            trace_.events.emplace_back(region);
            return true;
        }
        case Tag::KernelTime:
            return kernel_time(in);
        case Tag::LinkSpeeds:
            return link_speeds(in);
        case Tag::CopyTime:
            return copy_time(in);
        case Tag::WritesUnseen:
            writes_unseen_ = true;
            return true;
        case Tag::Copy:
            copied_ = copied(in);
            return true;
        case Tag::ProgramWait: {
            const std::uint64_t begin = time(in);
            trace_.events.emplace_back(ProgramWait{begin, begin + in.number()});
            return true;
        }
        case Tag::Unmanaged: {
            const std::uint64_t at = time(in);
            trace_.events.emplace_back(Unmanaged{device_, in.number(), at});
            return true;
        }
        case Tag::WorkOver: {
            const std::uint64_t at = time(in);
            trace_.events.emplace_back(WorkOver{device_, at - in.number(), at});
            return true;
        }
    }
    return false;
}

bool TraceDecoder::string(Input& in) {
    const std::uint64_t number = in.number();
    const std::size_t size = in.count(in.number());
    numbered_.strings[number] =
        trace_.texts.emplace_back(printable(in.bytes(size).substr(0, kLongestString)));
    return true;
}

bool TraceDecoder::site(Input& in) {
    const std::uint64_t number = in.number();
    const std::size_t frames = in.count(in.number());
    std::vector<std::string>& site = trace_.sites.emplace_back();
    for (std::size_t i = 0; i < frames; ++i) {
        const std::string_view frame = text(in);
        if (site.size() == kMostFrames || frame.size() > site_room_) continue;
        site_room_ -= frame.size();
        site.emplace_back(frame);
    }
    numbered_.sites[number] = &site;
    return true;
}

std::string_view TraceDecoder::text(Input& in) {
    const auto found = numbered_.strings.find(in.number());
    return found == numbered_.strings.end() ? std::string_view() : found->second;
}

std::uint64_t TraceDecoder::stream(Input& in) {
    const auto found = numbered_.streams.find(in.number());
    return found == numbered_.streams.end() ? 0 : found->second;
}

std::uint64_t TraceDecoder::time(Input& in) {
    return time_ns_ += static_cast<std::uint64_t>(unzigzag(in.number()));
}

std::uint32_t TraceDecoder::chunk(Input& in) {
    return chunk_ += static_cast<std::uint32_t>(unzigzag(in.number()));
}

template <typename Element>
std::span<Element> TraceDecoder::room_for(std::size_t count) {
    auto* const at = static_cast<Element*>(trace_.memory.allocate(count * sizeof(Element), alignof(Element)));
    std::uninitialized_default_construct_n(at, count);
    return {at, count};
}

std::span<const Touched> TraceDecoder::touched(Input& in) {
    const std::uint64_t head = in.number();
    const std::span<Touched> all = room_for<Touched>(in.count(head / 2));
    for (Touched& each : all) {
        each = {.chunk = chunk(in), .allocation = 0};
        const std::uint64_t flags = head % 2 ? in.number() : 0;
        const auto known = allocation_of_.find(std::uint64_t(device_) << 32 | each.chunk);
        each.allocation = known == allocation_of_.end() ? ~0u : known->second;
        each.overwritten = flags & kOverwritten;
        each.may_stay = flags & kMayStay;
        each.in_place = flags & kInPlace;
        each.only_read = flags & kOnlyRead;
    }
    return all;
}

bool TraceDecoder::allocation(Input& in) {
    Allocation event{
        .device = device_, .allocation = 0, .address = 0, .bytes = 0, .at_ns = time(in), .call_site = {}};
    event.allocation = static_cast<std::uint32_t>(in.number());
    event.address = in.number();
    event.bytes = in.number();
    if (const auto site = numbered_.sites.find(in.number()); site != numbered_.sites.end())
        event.call_site = *site->second;
    const std::span<Piece> pieces = room_for<Piece>(in.count(in.number()));
    for (Piece& piece : pieces) {
        piece.chunk = chunk(in);
        const std::uint64_t size = in.number();
        piece.bytes = size / 2;
        piece.resident = size % 2 != 0;
        allocation_of_[std::uint64_t(device_) << 32 | piece.chunk] = event.allocation;
    }
    event.pieces = pieces;
    trace_.events.emplace_back(event);
    return true;
}

bool TraceDecoder::launch(Input& in) {
    Launch event{};
    event.device = device_;
    event.begin_ns = time(in);
    event.end_ns = event.begin_ns + in.number();
    event.kernel = text(in);
    event.stream = stream(in);
    event.touched = touched(in);
    event.writes_unseen = std::exchange(writes_unseen_, false);
    event.copied = std::exchange(copied_, {});
    trace_.events.emplace_back(event);
    return true;
}

bool TraceDecoder::move(Input& in) {
    const std::uint64_t flags = in.number();
    Move event{};
    event.device = device_;
    event.direction = flags & kOut ? Direction::Out : Direction::In;
    event.reason = flags & kMakeRoom ? MoveReason::MakeRoom : MoveReason::Needed;
    event.timed = flags & kTimed;
    event.begin_ns = time(in);
    event.end_ns = event.begin_ns + in.number();
    event.chunk = chunk(in);
    event.allocation = static_cast<std::uint32_t>(in.number());
    event.bytes = in.number();
    trace_.events.emplace_back(event);
    return true;
}

bool TraceDecoder::stall(Input& in) {
    Stall event{};
    event.device = device_;
    event.cause = static_cast<StallCause>(std::min<std::uint64_t>(in.number(), kStallCauses - 1));
    event.begin_ns = time(in);
    event.end_ns = event.begin_ns + in.number();
    event.kernel = text(in);
    event.bytes = in.number();
    event.lacked = touched(in);
    trace_.events.emplace_back(event);
    return true;
}

bool TraceDecoder::kernel_time(Input& in) {
    KernelTime event{};
    event.device = device_;
    event.begin_ns = time(in);
    event.end_ns = event.begin_ns + in.number();
    event.kernel = text(in);
    event.one_in = static_cast<std::uint32_t>(in.number());
    trace_.events.emplace_back(event);
    return true;
}

Copied TraceDecoder::copied(Input& in) {
    const std::uint64_t way = in.number();
    return {.way = way < kCopyWays ? static_cast<CopyWay>(way) : CopyWay::Unknown, .bytes = in.number()};
}

bool TraceDecoder::copy_time(Input& in) {
    CopyTime event{};
    event.device = device_;
    event.begin_ns = time(in);
    event.end_ns = event.begin_ns + in.number();
    event.copied = copied(in);
    trace_.events.emplace_back(event);
    return true;
}

bool TraceDecoder::link_speeds(Input& in) {
    LinkSpeeds event{};
    event.device = device_;
    event.at_ns = time(in);
    event.in_bytes_per_s = in.number();
    event.out_bytes_per_s = in.number();
    trace_.events.emplace_back(event);
    return true;
}

}  // namespace lms::tool
