#include "tests/engine/program.h"

#include <fmt/core.h>

#include <algorithm>

namespace lms::fake {

Program::Program(Rig& rig, const ProgramOptions& options, std::uint64_t seed)
    : rig_(rig), options_(options), random_(seed) {
    for (std::size_t i = 0; i < options.streams; ++i) streams_.push_back(rig.stream());
}

void Program::complain(std::string what) {
    if (problem_.empty()) problem_ = std::move(what);
}

bool Program::accept(CUresult status, const char* what, bool may_run_out) {
    if (status == CUDA_SUCCESS) return true;
    if (status == CUDA_ERROR_OUT_OF_MEMORY && may_run_out) {
        ++refused_;
    } else {
        complain(fmt::format("{} answered {}", what, static_cast<int>(status)));
    }
    return false;
}

void Program::run(std::size_t steps) {
    for (std::size_t i = 0; i < steps && problem_.empty(); ++i) step();
}

void Program::step() {
    // Sometimes the GPU catches up.
    if (below(16) == 0) rig_.gpu().run(below(200));
    // What others lack, and what a helper finds idle.
    if (below(32) == 0) rig_.session().give_back_host(below(8) * rig_.options().granularity);
    if (below(32) == 0) rig_.session().give_back_idle();
    if (buffers_.size() < 3 || (buffers_.size() < options_.buffers && below(3) == 0)) return allocate();
    const std::uint64_t dice = below(20);
    if (dice < 11) return launch();
    if (dice < 14) return copy();
    if (dice < 17) {
        Buffer& buffer = any_buffer();
        std::uint64_t offset;
        std::uint64_t bytes;
        part_of(buffer, offset, bytes);
        return upload(buffer, offset, bytes, any_stream());
    }
    if (buffers_.size() > options_.buffers / 2) free(below(buffers_.size()));
}

void Program::allocate() {
    const std::uint64_t granularity = rig_.options().granularity;
    std::uint64_t bytes = 1 + below(options_.granules * granularity);
    if (below(2)) bytes = (bytes + granularity - 1) / granularity * granularity;
    const CUstream stream = any_stream();
    Address address = 0;
    const CUresult status = options_.stream_ordered && below(2)
                                ? rig_.session().allocate_on(stream, bytes, address)
                                : rig_.session().allocate(bytes, address);
    if (!accept(status, "allocate", options_.may_run_out)) return;
    buffers_.push_back({{address, bytes}, Bytes(bytes), nullptr, {}});
    upload(buffers_.back(), 0, bytes, stream);
}

void Program::give_up(Address address) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        if (buffers_[i].region.address == address) return free(i);
    }
}

void Program::free(std::size_t index) {
    const Buffer buffer = buffers_[index];
    buffers_.erase(buffers_.begin() + static_cast<std::ptrdiff_t>(index));
    stale_.push_back(buffer.region.address);
    if (options_.stream_ordered && below(2)) {
        const CUstream stream = any_stream();
        order(stream, buffer, true);
        const CUresult status = rig_.session().free_on(stream, buffer.region.address);
        if (accept(status, "free_on", options_.may_run_out)) return;
    }
    if (buffer.written) rig_.gpu().finish(buffer.written);
    for (const MarkerPtr& marker : buffer.read) rig_.gpu().finish(marker);
    accept(rig_.session().free(buffer.region.address), "free", false);
}

void Program::order(CUstream stream, const Buffer& buffer, bool writes) {
    if (buffer.written) rig_.gpu().wait_for(stream, buffer.written);
    if (!writes) return;
    for (const MarkerPtr& marker : buffer.read) rig_.gpu().wait_for(stream, marker);
}

bool Program::submit(Job job, const std::vector<Buffer*>& reads, const std::vector<Buffer*>& writes) {
    const CUstream stream = job.stream;
    for (const Buffer* buffer : reads) order(stream, *buffer, false);
    for (const Buffer* buffer : writes) order(stream, *buffer, true);
    const bool may_run_out = options_.may_run_out || too_large(reads, writes);
    if (!accept(rig_.submit(std::move(job)), "submit", may_run_out)) return false;
    const MarkerPtr marker = rig_.gpu().mark(stream);
    for (Buffer* buffer : reads) buffer->read.push_back(marker);
    for (Buffer* buffer : writes) {
        buffer->written = marker;
        buffer->read.clear();
    }
    return true;
}

bool Program::too_large(const std::vector<Buffer*>& reads, const std::vector<Buffer*>& writes) const {
    if (rig_.options().maps_host) return false;
    const std::uint64_t granularity = rig_.options().granularity;
    std::uint64_t sum = 0;
    for (const auto* buffers : {&reads, &writes}) {
        for (const Buffer* buffer : *buffers) {
            sum += (buffer->region.bytes + granularity - 1) / granularity * granularity;
        }
    }
    return sum > rig_.budget();
}

void Program::launch() {
    Buffer& target = any_buffer();
    Job job;
    job.stream = any_stream();
    job.names.push_back(target.region.address + below(target.region.bytes));
    std::vector<Buffer*> reads;
    std::vector<Region> regions;
    std::vector<const Bytes*> contents;
    for (std::uint64_t count = below(4); count > 0; --count) {
        Buffer& source = any_buffer();
        if (&source == &target) continue;
        // Code that cannot be seen may write by all that it is given.
        (below(4) ? job.reads : job.names).push_back(source.region.address);
        reads.push_back(&source);
        regions.push_back(source.region);
        contents.push_back(&source.expected);
    }
    if (below(4) == 0) job.reads.push_back(target.region.address);
    job.unseen = below(8) == 0;
    if (options_.stale_names && !stale_.empty()) job.names.push_back(stale_[below(stale_.size())]);
    const std::uint64_t seed = random_();
    job.kernel = mix_kernel(target.region, regions, seed);

    std::vector<Buffer*> writes{&target};
    Buffer& hidden = any_buffer();
    const bool hides = options_.hidden && below(3) == 0 && &hidden != &target &&
                       std::find(reads.begin(), reads.end(), &hidden) == reads.end();
    if (hides) {
        job.opaque = rig_.options().safety == Safety::Opaque;
        job.kernel = both(job.kernel, mix_kernel(hidden.region, {target.region}, seed + 1));
        writes.push_back(&hidden);
    }
    if (!submit(std::move(job), reads, writes)) return;
    mix(target.expected, contents, seed);
    if (hides) mix(hidden.expected, {&target.expected}, seed + 1);
}

void Program::part_of(const Buffer& buffer, std::uint64_t& offset, std::uint64_t& bytes) {
    offset = below(3) ? 0 : below(buffer.region.bytes);
    bytes = below(3) ? buffer.region.bytes - offset : 1 + below(buffer.region.bytes - offset);
}

void Program::upload(Buffer& buffer, std::uint64_t offset, std::uint64_t bytes, CUstream stream) {
    const Bytes fresh = noise(random_(), bytes);
    Job job{stream,
            {},
            {{buffer.region.address + offset, bytes, true}},
            false,
            write_kernel(buffer.region.address + offset, fresh)};
    if (!submit(std::move(job), {}, {&buffer})) return give_up(buffer.region.address);
    std::copy(fresh.begin(), fresh.end(), buffer.expected.begin() + static_cast<std::ptrdiff_t>(offset));
}

void Program::copy() {
    Buffer& source = any_buffer();
    Buffer& target = any_buffer();
    if (&source == &target) return;
    std::uint64_t from;
    std::uint64_t to;
    std::uint64_t bytes;
    std::uint64_t room;
    part_of(source, from, bytes);
    part_of(target, to, room);
    bytes = std::min(bytes, room);
    Job job{any_stream(),
            {},
            {{source.region.address + from, bytes, false, false, true},
             {target.region.address + to, bytes, true}},
            false,
            copy_kernel(target.region.address + to, source.region.address + from, bytes)};
    if (!submit(std::move(job), {&source}, {&target})) return give_up(target.region.address);
    std::copy_n(source.expected.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                target.expected.begin() + static_cast<std::ptrdiff_t>(to));
}

void Program::verify() {
    for (Buffer& buffer : buffers_) {
        const CUstream stream = any_stream();
        order(stream, buffer, false);
        Bytes bytes;
        if (!accept(rig_.read(stream, buffer.region, bytes), "read", false)) continue;
        const auto wrong = std::mismatch(bytes.begin(), bytes.end(), buffer.expected.begin());
        if (wrong.first != bytes.end()) {
            complain(fmt::format("byte {} of {} at {:#x} is {}, not {}", wrong.first - bytes.begin(),
                                 bytes.size(), buffer.region.address, *wrong.first, *wrong.second));
        }
    }
}

void Program::finish() {
    while (!buffers_.empty() && problem_.empty()) free(buffers_.size() - 1);
}

}  // namespace lms::fake
