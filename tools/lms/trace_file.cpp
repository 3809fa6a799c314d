#include "tools/lms/trace_file.h"

#include <errno.h>
#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "shim/trace/format.h"

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
        case Tag::Device:
            device_ = static_cast<int>(std::min<std::uint64_t>(in.number(), 1u << 20));
            return true;
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
        case Tag::WritesUnseen:
            writes_unseen_ = true;
            return true;
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
    numbered_.strings[number] = trace_.texts.emplace_back(in.bytes(size));
    return true;
}

bool TraceDecoder::site(Input& in) {
    const std::uint64_t number = in.number();
    const std::size_t frames = in.count(in.number());
    std::vector<std::string>& site = trace_.sites.emplace_back();
    for (std::size_t i = 0; i < frames; ++i) site.emplace_back(text(in));
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

namespace {

template <typename Head>
bool take_head(std::string_view& rest, Head& head) {
    if (rest.size() < sizeof head) return false;
    std::memcpy(&head, rest.data(), sizeof head);
    rest.remove_prefix(sizeof head);
    return true;
}

bool take_description(std::string_view& rest, std::string& about, std::string& problem) {
    FileHead head;
    if (!take_head(rest, head) || head.magic != FileHead::kMagic) {
        problem = "no trace of lmsshim (one that LMS_TRACE wrote as *.json opens in ui.perfetto.dev)";
    } else if (head.version == 0 || head.version > FileHead::kVersion) {
        problem = fmt::format("has version {} of the format; this lms reads 1 to {}", head.version,
                              FileHead::kVersion);
    } else if (head.bytes > rest.size() || XXH3_64bits(rest.data(), head.bytes) != head.checksum) {
        problem = "its beginning is damaged";
    } else {
        about = rest.substr(0, head.bytes);
        rest.remove_prefix(head.bytes);
    }
    return problem.empty();
}

// Empty: it was whole, and is taken.
std::string take_block(std::string_view& rest, TraceDecoder& decoder, std::string& plain) {
    BlockHead head;
    const std::string_view before = rest;
    if (!take_head(rest, head)) return "it ends within a block";
    if (head.magic != BlockHead::kMagic || head.plain_bytes > BlockHead::kMostPlainBytes)
        return "a block is damaged";
    if (head.packed_bytes > rest.size()) return "it ends within a block";
    const std::string_view packed = rest.substr(0, head.packed_bytes);
    if (XXH3_64bits(packed.data(), packed.size()) != head.checksum) return "a block is damaged";
    plain.resize(head.plain_bytes);
    if (ZSTD_decompress(plain.data(), plain.size(), packed.data(), packed.size()) != plain.size())
        return "a block is damaged";
    if (!decoder.add(plain)) return "a block has what this lms does not know";
    rest.remove_prefix(head.packed_bytes);
    return before.size() == rest.size() ? "a block is damaged" : "";
}

void take_blocks(std::string_view rest, Trace& trace) {
    TraceDecoder decoder(trace);
    std::string plain;
    while (!rest.empty() && trace.stopped.empty()) trace.stopped = take_block(rest, decoder, plain);
}

std::string bytes_of_file(const std::string& path, std::string& problem) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) problem = std::strerror(errno == 0 ? EIO : errno);
    return bytes;
}

// Where a file stands in its trace.
struct Place {
    std::uint64_t part;
    std::uint64_t first_began_ns;
    std::uint64_t repeated;  // events at its beginning

    bool follows(const Place& before) const {
        return part == before.part + 1 && first_began_ns == before.first_began_ns;
    }
};

Place place_of(const std::string& about) {
    const auto json = nlohmann::json::parse(about, nullptr, false);
    const auto number = [&json](const char* key, std::uint64_t without) {
        if (!json.is_object() || !json.contains(key) || !json[key].is_number_unsigned()) return without;
        return json[key].get<std::uint64_t>();
    };
    return {number("part", 0), number("first_began_ns", number("began_ns", 0)), number("repeated", 0)};
}

bool tells_what_stands(const Event& event) {
    return std::holds_alternative<Gpu>(event) || std::holds_alternative<Allocation>(event) ||
           std::holds_alternative<StreamFree>(event) || std::holds_alternative<Residency>(event);
}

// Adds the file that goes on where another has ended: false, and nothing is added, if it does not.
bool add_next(const std::string& path, Trace& trace, Place& place) {
    std::string problem;
    const std::string bytes = bytes_of_file(path, problem);
    std::string_view rest = bytes;
    std::string about;
    if (!problem.empty() || !take_description(rest, about, problem)) return false;
    const Place next = place_of(about);
    if (!next.follows(place)) return false;
    place = next;
    const auto before = static_cast<std::ptrdiff_t>(trace.events.size());
    take_blocks(rest, trace);
    const auto first = trace.events.begin() + before;
    auto end = first;
    while (end != trace.events.end() && static_cast<std::uint64_t>(end - first) < next.repeated &&
           tells_what_stands(*end))
        ++end;
    trace.events.erase(first, end);
    return true;
}

}  // namespace

void read_trace(std::string_view bytes, Trace& trace, std::string& problem) {
    problem.clear();
    std::string_view rest = bytes;
    if (take_description(rest, trace.about, problem)) take_blocks(rest, trace);
}

void read_trace_file(const std::string& path, Trace& trace, std::string& problem) {
    const std::string bytes = bytes_of_file(path, problem);
    if (problem.empty()) read_trace(bytes, trace, problem);
    if (!problem.empty()) {
        problem = fmt::format("{}: {}", path, problem);
        return;
    }
    Place place = place_of(trace.about);
    const std::string ending = place.part == 0 ? "" : fmt::format(".{}", place.part);
    // Under another name it stands by itself.
    if (!path.ends_with(ending)) return;
    const std::string base = path.substr(0, path.size() - ending.size());
    while (trace.stopped.empty() && !trace.ended &&
           add_next(fmt::format("{}.{}", base, place.part + 1), trace, place)) {
    }
}

}  // namespace lms::tool
