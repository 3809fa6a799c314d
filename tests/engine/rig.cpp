#include "tests/engine/rig.h"

#include <doctest/doctest.h>

#include "policy/host.h"
#include "shim/engine/chunking.h"
#include "shim/executor/budget.h"
#include "shim/program/streams.h"

namespace lms::fake {

Rig::Rig(const RigOptions& options) : options_(options) {
    settings_.safety = options.safety;
    settings_.retain = true;
    settings_.frac = options.frac;
    settings_.host_limit_bytes = options.host_granules * options.granularity;
    settings_.reserve_bytes = options.reserve_granules * options.granularity;
    if (options.limit_granules) settings_.limit_bytes = *options.limit_granules * options.granularity;
    if (options.soft_limit_granules)
        settings_.soft_limit_bytes = *options.soft_limit_granules * options.granularity;
    settings_.meminfo = options.meminfo;
    settings_.check = options.check;
    auto port = std::make_unique<FakePort>(
        Options{options.granularity, options.granules * options.granularity, options.maps_host, options.seed,
                options.address_granules * options.granularity, options.remaps_wait});
    gpu_ = port.get();
    CUresult error = CUDA_ERROR_UNKNOWN;
    session_ =
        session::Session::open({0, nullptr}, std::move(port),
                               policy::Host::create(options.policy, settings_.frac, 0), settings_, error);
    REQUIRE(error == CUDA_SUCCESS);
    REQUIRE(session_);
}

Rig::~Rig() {
    for (const CUstream stream : streams_) const program::StreamEnd end(stream);
}

CUstream Rig::stream() {
    const CUstream stream = gpu_->create_stream();
    program::stream_created(stream, nullptr);
    streams_.push_back(stream);
    return stream;
}

void Rig::destroy(CUstream stream) {
    program::StreamEnd end(stream);
    session_->stream_ends(stream, false);
    end.forget();
    session_->stream_ended(stream);
    std::erase(streams_, stream);
    gpu_->destroy_stream(stream);
}

void Rig::destroy_streams() {
    while (!streams_.empty()) destroy(streams_.back());
}

CUresult Rig::submit(Job job) {
    if (program::fast_path_gate.enter()) {
        gpu_->launch(job.stream, std::move(job.kernel));
        program::fast_path_gate.leave();
        return CUDA_SUCCESS;
    }
    session::WorkingSet reach;
    reach.addresses.assign(job.names.begin(), job.names.end());
    reach.only_read.assign(job.reads.begin(), job.reads.end());
    reach.ranges.assign(job.ranges.begin(), job.ranges.end());
    reach.stream = job.stream;
    reach.opaque = job.opaque;
    reach.unseen = job.unseen;
    reach.code = job.code;
    session::Work work(reach);
    const CUresult status = session_->acquire(work);
    if (status != CUDA_SUCCESS) return status;
    gpu_->launch(job.stream, std::move(job.kernel));
    session_->submitted(work);
    return CUDA_SUCCESS;
}

CUresult Rig::write(CUstream stream, Region buffer, const Bytes& bytes) {
    const CUresult status = submit(
        {stream, {}, {{buffer.address, buffer.bytes, true}}, false, write_kernel(buffer.address, bytes)});
    gpu_->finish(gpu_->mark(stream));
    return status;
}

CUresult Rig::read(CUstream stream, Region buffer, Bytes& bytes) {
    const auto result = std::make_shared<Bytes>(buffer.bytes);
    const CUresult status = submit({stream, {}, {}, false, read_kernel(buffer, result), {buffer.address}});
    gpu_->finish(gpu_->mark(stream));
    bytes = *result;
    return status;
}

void Rig::drain() {
    gpu_->finish_all();
}

CUresult Rig::map(Address home, Address address) {
    const CUresult status = session_->map(home, address);
    const CUmemAccessDesc all{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return status == CUDA_SUCCESS ? session_->set_access(home, address, {&all, 1}) : status;
}

std::uint64_t Rig::on_device(Region region) {
    return gpu_->with_memory([&](const Memory& memory) {
        std::uint64_t sum = 0;
        for (std::uint64_t at = 0; at < region.bytes; at += options_.granularity) {
            Place place = Place::Host;
            if (memory.where(region.address + at, place) && place == Place::Device)
                sum += options_.granularity;
        }
        return sum;
    });
}

std::uint64_t Rig::budget() const {
    const std::uint64_t granules = options_.limit_granules.value_or(options_.granules);
    return (granules - options_.reserve_granules) * options_.granularity;
}

std::uint64_t Rig::capacity() const {
    return budget() + options_.host_granules * options_.granularity -
           2 * engine::largest_chunk(budget(), options_.granularity);
}

}  // namespace lms::fake
