#include "tools/lms/trace_file.h"

#include <errno.h>
#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "shim/trace/format.h"
#include "tools/lms/progress.h"

namespace lms::tool {

using namespace trace;

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
        problem = "no trace of lmsshim";
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
    Progress progress("reading the trace", rest.size());
    std::string plain;
    for (const std::size_t whole = rest.size(); !rest.empty() && trace.stopped.empty();) {
        progress.at(whole - rest.size());
        trace.stopped = take_block(rest, decoder, plain);
    }
}

std::string bytes_of_file(const std::string& path, std::string& problem) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    std::string bytes(FileHead::kMagic.size(), '\0');
    const auto take = [&](std::size_t from) {
        file.read(bytes.data() + from, static_cast<std::streamsize>(bytes.size() - from));
        bytes.resize(from + static_cast<std::size_t>(file.gcount()));
    };
    take(0);
    // What is none may be of any size.
    const bool may_be_one = std::ranges::equal(bytes, FileHead::kMagic);
    for (std::size_t more = 1 << 20; may_be_one && file; more = bytes.size()) {
        const std::size_t before = bytes.size();
        bytes.resize(before + more);
        take(before);
    }
    if (file.bad() || !file.is_open()) problem = std::strerror(errno == 0 ? EIO : errno);
    return bytes;
}

// Where a file stands in its trace.
struct PartPlace {
    std::uint64_t part;
    std::uint64_t first_began_ns;
    std::uint64_t repeated;  // events at its beginning

    bool follows(const PartPlace& before) const {
        return part == before.part + 1 && first_began_ns == before.first_began_ns;
    }
};

PartPlace part_place_of(const std::string& about) {
    const auto json = nlohmann::json::parse(about, nullptr, false);
    const auto number = [&json](const char* key, std::uint64_t without) {
        if (!json.is_object() || !json.contains(key) || !json[key].is_number_unsigned()) return without;
        return json[key].get<std::uint64_t>();
    };
    return {number("part", 0), number("first_began_ns", number("began_ns", 0)), number("repeated", 0)};
}

bool tells_what_stands(const Event& event) {
    return std::holds_alternative<Gpu>(event) || std::holds_alternative<Allocation>(event) ||
           std::holds_alternative<StreamFree>(event) || std::holds_alternative<Residency>(event) ||
           std::holds_alternative<LinkSpeeds>(event) || std::holds_alternative<Unmanaged>(event);
}

// Adds the file that goes on where another has ended: false, and nothing is added, if it does not.
bool add_next(const std::string& path, Trace& trace, PartPlace& place) {
    std::string problem;
    const std::string bytes = bytes_of_file(path, problem);
    std::string_view rest = bytes;
    std::string about;
    if (!problem.empty() || !take_description(rest, about, problem)) return false;
    const PartPlace next = part_place_of(about);
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
    PartPlace place = part_place_of(trace.about);
    const std::string ending = place.part == 0 ? "" : fmt::format(".{}", place.part);
    // Under another name it stands by itself.
    if (!path.ends_with(ending)) return;
    const std::string base = path.substr(0, path.size() - ending.size());
    while (trace.stopped.empty() && !trace.ended &&
           add_next(fmt::format("{}.{}", base, place.part + 1), trace, place)) {
    }
}

}  // namespace lms::tool
