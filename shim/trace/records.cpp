#include "shim/trace/records.h"

#include <algorithm>

namespace lms::trace {
namespace {

unsigned flags_of(const Touched& touched) {
    return (touched.overwritten ? kOverwritten : 0) | (touched.may_stay ? kMayStay : 0) |
           (touched.in_place ? kInPlace : 0) | (touched.only_read ? kOnlyRead : 0);
}

}  // namespace

void Records::put(const Event& event) {
    const std::size_t before = bytes_.size();
    const Last last = last_;
    try {
        std::visit([this](const auto& one) { record(one); }, event);
    } catch (...) {
        // A number may have been given to what is taken out of the file here.
        bytes_.resize(before);
        last_ = last;
        forget();
        throw;
    }
}

void Records::put_end() {
    begin(Tag::End);
}

void Records::begin_block() {
    bytes_.clear();
    last_ = {};
    if (strings_.size() + sites_.size() + streams_.size() > kMostNumbered) forget();
}

// Numbers begin anew; readers take the latest meaning of one.
void Records::forget() {
    strings_.clear();
    sites_.clear();
    streams_.clear();
}

void Records::on(int device) {
    if (device == last_.device) return;
    begin(Tag::Device);
    put_number(bytes_, static_cast<std::uint64_t>(device));
    last_.device = device;
}

void Records::at(std::uint64_t time_ns) {
    put_number(bytes_, zigzag(static_cast<std::int64_t>(time_ns - last_.time_ns)));
    last_.time_ns = time_ns;
    now_ns_ = std::max(now_ns_, time_ns);
}

void Records::during(std::uint64_t begin_ns, std::uint64_t end_ns) {
    at(begin_ns);
    put_number(bytes_, end_ns - begin_ns);
    now_ns_ = std::max(now_ns_, end_ns);
}

void Records::chunk(std::uint32_t id) {
    put_number(bytes_, zigzag(std::int64_t{id} - std::int64_t{last_.chunk}));
    last_.chunk = id;
}

void Records::copied(const Copied& copy) {
    put_number(bytes_, static_cast<std::uint64_t>(copy.way));
    put_number(bytes_, copy.bytes);
}

// Flags are rare: they are there for all chunks or for none.
void Records::touched(std::span<const Touched> chunks) {
    const bool flagged = std::ranges::any_of(chunks, flags_of);
    put_number(bytes_, chunks.size() * 2 + (flagged ? 1 : 0));
    for (const Touched& each : chunks) {
        chunk(each.chunk);
        if (flagged) put_number(bytes_, flags_of(each));
    }
}

std::uint64_t Records::string(std::string_view text) {
    text = text.substr(0, kLongestString);
    if (text.empty()) return 0;
    if (const auto known = strings_.find(text); known != strings_.end()) return known->second;
    begin(Tag::String);
    put_number(bytes_, strings_.size() + 1);
    put_number(bytes_, text.size());
    bytes_ += text;
    return strings_.emplace(text, strings_.size() + 1).first->second;
}

std::uint64_t Records::site(std::span<const std::string> frames) {
    if (frames.empty()) return 0;
    std::vector<std::uint64_t> numbers;
    for (const std::string& frame : frames) numbers.push_back(string(frame));
    if (const auto known = sites_.find(numbers); known != sites_.end()) return known->second;
    begin(Tag::Site);
    put_number(bytes_, sites_.size() + 1);
    put_number(bytes_, numbers.size());
    for (const std::uint64_t number : numbers) put_number(bytes_, number);
    return sites_.emplace(std::move(numbers), sites_.size() + 1).first->second;
}

std::uint64_t Records::stream(std::uint64_t handle) {
    if (const auto known = streams_.find(handle); known != streams_.end()) return known->second;
    begin(Tag::Stream);
    put_number(bytes_, streams_.size() + 1);
    put_number(bytes_, handle);
    return streams_.emplace(handle, streams_.size() + 1).first->second;
}

void Records::record(const Gpu& event) {
    const std::uint64_t name = string(event.name);
    on(event.device);
    begin(Tag::Gpu);
    at(event.at_ns);
    put_number(bytes_, name);
    put_number(bytes_, event.total_bytes);
    put_number(bytes_, event.granularity);
    put_number(bytes_, event.maps_host ? 1 : 0);
}

void Records::record(const Allocation& event) {
    const std::uint64_t caller = site(event.call_site);
    on(event.device);
    begin(Tag::Allocation);
    at(event.at_ns);
    put_number(bytes_, event.allocation);
    put_number(bytes_, event.address);
    put_number(bytes_, event.bytes);
    put_number(bytes_, caller);
    put_number(bytes_, event.pieces.size());
    for (const Piece& piece : event.pieces) {
        chunk(piece.chunk);
        put_number(bytes_, piece.bytes * 2 + (piece.resident ? 1 : 0));
    }
}

void Records::record(const Free& event) {
    on(event.device);
    begin(Tag::Free);
    at(event.at_ns);
    put_number(bytes_, event.allocation);
}

void Records::record(const StreamFree& event) {
    const std::uint64_t in = stream(event.stream);
    on(event.device);
    begin(Tag::StreamFree);
    at(event.at_ns);
    put_number(bytes_, event.allocation);
    put_number(bytes_, in);
}

void Records::record(const Launch& event) {
    const std::uint64_t kernel = string(event.kernel);
    const std::uint64_t in = stream(event.stream);
    on(event.device);
    if (event.writes_unseen) begin(Tag::WritesUnseen);
    if (event.copied.way != CopyWay::Unknown) {
        begin(Tag::Copy);
        copied(event.copied);
    }
    begin(Tag::Launch);
    during(event.begin_ns, event.end_ns);
    put_number(bytes_, kernel);
    put_number(bytes_, in);
    touched(event.touched);
}

void Records::record(const Move& event) {
    on(event.device);
    begin(Tag::Move);
    put_number(bytes_, (event.direction == Direction::Out ? kOut : 0) |
                           (event.reason == MoveReason::MakeRoom ? kMakeRoom : 0) |
                           (event.timed ? kTimed : 0));
    during(event.begin_ns, event.end_ns);
    chunk(event.chunk);
    put_number(bytes_, event.allocation);
    put_number(bytes_, event.bytes);
}

void Records::record(const Stall& event) {
    const std::uint64_t kernel = string(event.kernel);
    on(event.device);
    begin(Tag::Stall);
    put_number(bytes_, static_cast<std::uint64_t>(event.cause));
    during(event.begin_ns, event.end_ns);
    put_number(bytes_, kernel);
    put_number(bytes_, event.bytes);
    touched(event.lacked);
}

void Records::record(const Residency& event) {
    on(event.device);
    begin(Tag::Residency);
    at(event.at_ns);
    put_number(bytes_, event.resident_bytes);
    put_number(bytes_, event.host_bytes);
    put_number(bytes_, event.budget_bytes);
}

void Records::record(const KernelTime& event) {
    const std::uint64_t kernel = string(event.kernel);
    on(event.device);
    begin(Tag::KernelTime);
    during(event.begin_ns, event.end_ns);
    put_number(bytes_, kernel);
    put_number(bytes_, event.one_in);
}

void Records::record(const CopyTime& event) {
    on(event.device);
    begin(Tag::CopyTime);
    during(event.begin_ns, event.end_ns);
    copied(event.copied);
}

void Records::record(const LinkSpeeds& event) {
    on(event.device);
    begin(Tag::LinkSpeeds);
    at(event.at_ns);
    put_number(bytes_, event.in_bytes_per_s);
    put_number(bytes_, event.out_bytes_per_s);
}

void Records::record(const Dropped& event) {
    begin(Tag::Dropped);
    put_number(bytes_, event.events);
}

void Records::record(const Region& event) {
    const std::uint64_t name = string(event.name);
    begin(Tag::Region);
    during(event.begin_ns, event.end_ns);
    put_number(bytes_, name);
    put_number(bytes_, event.thread);
}

void Records::record(const ProgramWait& event) {
    begin(Tag::ProgramWait);
    during(event.begin_ns, event.end_ns);
}

void Records::record(const Unmanaged& event) {
    on(event.device);
    begin(Tag::Unmanaged);
    at(event.at_ns);
    put_number(bytes_, event.bytes);
}

void Records::record(const WorkOver& event) {
    on(event.device);
    begin(Tag::WorkOver);
    at(event.at_ns);
    put_number(bytes_, event.at_ns - event.launched_ns);
}

}  // namespace lms::trace
