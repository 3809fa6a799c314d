#include "tools/simcuda/driver/ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tools/simcuda/driver/address_space.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/driver/message.h"
#include "tools/simcuda/driver/stream.h"

namespace simcuda::driver {
namespace {

constexpr std::uint64_t kEventMark = 0x31747665636d6973;

// Another process's file, opened here. Throws Failure with CUDA_ERROR_MAP_FAILED.
int open_file(int process, int file) {
    const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(file);
    const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (opened >= 0) return opened;
    message("cannot open the memory of process %d (%s): CUDA_ERROR_MAP_FAILED", process,
            std::strerror(errno));
    throw Failure{CUDA_ERROR_MAP_FAILED};
}

// What is open: by context, process, file and place in it.
using Key = std::tuple<std::uint64_t, int, int, std::uint64_t>;
struct Opened {
    RegionPtr region;
    unsigned references = 0;
};

struct State {
    std::mutex mutex;  // guards what follows
    std::map<Key, Opened> opened;
};

State& state() {
    static auto& state = *new State;
    return state;
}

}  // namespace

SharedMemory describe(const Region& region) {
    const auto& extents = region.physical->extents();
    if (extents.size() > SharedMemory::kExtents) {
        message("an allocation in %zu pieces cannot be shared: CUDA_ERROR_OUT_OF_MEMORY", extents.size());
        throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
    }
    SharedMemory memory;
    memory.mark = SharedMemory::kMark;
    memory.process = ::getpid();
    memory.file = region.physical->file();
    memory.device = static_cast<std::uint32_t>(region.device->ordinal);
    memory.bytes = region.bytes;
    for (const Extent& extent : extents) memory.extent[memory.extents++] = extent;
    return memory;
}

RegionPtr map_shared(Context& context, const SharedMemory& memory, Region::Kind kind,
                     std::shared_ptr<MemoryPool> pool) {
    require(memory.mark == SharedMemory::kMark && memory.extents != 0 &&
                memory.extents <= SharedMemory::kExtents && memory.device < devices().size(),
            CUDA_ERROR_INVALID_HANDLE);
    const auto region = new_region(kind, memory.bytes, devices()[memory.device], context);
    region->pool = std::move(pool);
    // What was cut from a piece may begin and end inside a page.
    std::vector<Extent> pages;
    for (const Extent& extent : std::span(memory.extent, memory.extents)) {
        const std::uint64_t begin = extent.offset / kPage * kPage;
        pages.push_back({begin, round_up(extent.offset + extent.bytes, kPage) - begin});
    }
    region->physical = Physical::of_file(open_file(memory.process, memory.file), std::move(pages));
    const std::uint64_t span = region->physical->bytes() + kPage;
    region->address = address_space().reserve(span, kPage);
    require(region->address != 0, CUDA_ERROR_OUT_OF_MEMORY);
    if (!region->physical->map(other_side(region->address), PROT_READ | PROT_WRITE)) {
        address_space().release(region->address, span);
        throw Failure{CUDA_ERROR_MAP_FAILED};
    }
    region->address += memory.extent[0].offset % kPage;
    memory_map().insert(region);
    return region;
}

CUdeviceptr open_shared(Context& context, const SharedMemory& memory) {
    require(memory.process != ::getpid(), CUDA_ERROR_INVALID_CONTEXT);
    std::lock_guard lock(state().mutex);
    const Key key{context.id(), memory.process, memory.file, memory.extent[0].offset};
    Opened& opened = state().opened[key];
    if (opened.references == 0) {
        try {
            opened.region = map_shared(context, memory, Region::Kind::Imported);
        } catch (const Failure&) {
            state().opened.erase(key);
            throw;
        }
    }
    ++opened.references;
    return opened.region->address;
}

void close_shared(Context& context, CUdeviceptr address) {
    std::lock_guard lock(state().mutex);
    for (auto it = state().opened.begin(); it != state().opened.end(); ++it) {
        const RegionPtr region = it->second.region;
        if (region->address != address || std::get<0>(it->first) != context.id()) continue;
        if (--it->second.references != 0) return;
        state().opened.erase(it);
        finish_work_on(*region);
        memory_map().remove(address);
        dispose(*region);
        return;
    }
    throw Failure{CUDA_ERROR_INVALID_VALUE};
}

void forget_shared(const Context& context) {
    std::lock_guard lock(state().mutex);
    std::erase_if(state().opened,
                  [&](const auto& opened) { return std::get<0>(opened.first) == context.id(); });
}

std::shared_ptr<SharedEvent> SharedEvent::create() {
    const int file = ::memfd_create("simcuda-event", MFD_CLOEXEC);
    require(file >= 0 && ::ftruncate(file, kPage) == 0, CUDA_ERROR_OUT_OF_MEMORY);
    auto event = std::shared_ptr<SharedEvent>(new SharedEvent(file));
    event->page_->mark = kEventMark;
    return event;
}

std::shared_ptr<SharedEvent> SharedEvent::open(const CUipcEventHandle& handle) {
    struct {
        std::uint64_t mark;
        std::int32_t process, file;
    } from;
    std::memcpy(&from, &handle, sizeof from);
    require(from.mark == kEventMark, CUDA_ERROR_INVALID_HANDLE);
    require(from.process != ::getpid(), CUDA_ERROR_INVALID_CONTEXT);
    auto event = std::shared_ptr<SharedEvent>(new SharedEvent(open_file(from.process, from.file)));
    require(event->page_->mark == kEventMark, CUDA_ERROR_INVALID_HANDLE);
    return event;
}

SharedEvent::SharedEvent(int file) : file_(file) {
    void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) ::close(file);
    require(page != MAP_FAILED, CUDA_ERROR_MAP_FAILED);
    page_ = static_cast<Page*>(page);
}

SharedEvent::~SharedEvent() {
    ::munmap(page_, kPage);
    ::close(file_);
}

CUipcEventHandle SharedEvent::handle() const {
    const struct {
        std::uint64_t mark;
        std::int32_t process, file;
    } to{kEventMark, ::getpid(), file_};
    CUipcEventHandle handle{};
    std::memcpy(&handle, &to, sizeof to);
    return handle;
}

std::uint64_t SharedEvent::begin_record() {
    return ++page_->recorded;
}

void SharedEvent::complete(std::uint64_t record) {
    std::uint64_t seen = page_->reached;
    while (seen < record && !page_->reached.compare_exchange_weak(seen, record)) {
    }
}

std::uint64_t SharedEvent::latest() const {
    return page_->recorded;
}

bool SharedEvent::reached(std::uint64_t record) const {
    return page_->reached >= record;
}

std::uint64_t SharedEvent::counter_address() const {
    return to_device(&page_->reached);
}

}  // namespace simcuda::driver
