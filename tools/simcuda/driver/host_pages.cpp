#include "tools/simcuda/driver/host_pages.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/simcuda/address.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/device.h"
#include "tools/simcuda/exec/fiber.h"

namespace simcuda::driver {
namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;

// A run of shared pages. The first and last page of a registration are runs of their own, since only those
// can belong to two registrations.
struct Run {
    std::shared_ptr<Physical> physical;
    unsigned uses = 0;
};

std::mutex mutex;
std::map<std::uint64_t, Run>& runs() {  // guarded by mutex; by address
    static auto& runs = *new std::map<std::uint64_t, Run>;
    return runs;
}

// The pages may be the caller's own stack, where nothing may be written between the copy of a page and its
// exchange: both are done on a stack apart.
alignas(16) std::array<std::byte, 256 << 10> stack_apart;  // guarded by mutex

struct Detour {
    const std::function<void()>& body;
    std::exception_ptr thrown = nullptr;
    exec::StackPointer caller = nullptr, apart = nullptr;
};

void take(void* argument) {
    auto& detour = *static_cast<Detour*>(argument);
    try {
        detour.body();
    } catch (...) {
        detour.thrown = std::current_exception();
    }
    exec::simcuda_switch_stack(&detour.apart, detour.caller);
}

// A stack grows by the page below its lowest, which must not become another mapping.
[[gnu::noinline]] void grow_stack() {
    [[maybe_unused]] volatile std::byte below[2 * kPage];
    below[0] = std::byte{};
}

// mutex is held.
void on_stack_apart(const std::function<void()>& body) {
    grow_stack();
    Detour detour{body};
    const auto top = reinterpret_cast<std::uint64_t>(stack_apart.data() + stack_apart.size());
    detour.apart = exec::prepare_stack(top, take, &detour);
    exec::simcuda_switch_stack(&detour.caller, detour.apart);
    if (detour.thrown != nullptr) std::rethrow_exception(detour.thrown);
}

struct Piece {
    std::uint64_t address, bytes;
};

std::vector<Piece> pieces(std::uint64_t address, std::uint64_t bytes) {
    const std::uint64_t begin = address / kPage * kPage, end = round_up(address + bytes, kPage);
    const std::uint64_t last = end - kPage;
    std::vector<Piece> result{{begin, kPage}};
    if (last > begin + kPage) result.push_back({begin + kPage, last - begin - kPage});
    if (last > begin) result.push_back({last, kPage});
    return result;
}

// Whether the kernel can read a byte of each page, as it must to pin it.
bool all_readable(std::uint64_t address, std::uint64_t bytes) {
    std::array<std::byte, 512> read;
    std::array<iovec, read.size()> pages;
    for (const std::uint64_t end = address + bytes; address < end;) {
        std::size_t count = 0;
        for (; count < pages.size() && address < end; address += kPage)
            pages[count++] = {reinterpret_cast<void*>(address), 1};
        const iovec here{read.data(), count};
        if (::process_vm_readv(::getpid(), &here, 1, pages.data(), count, 0) != static_cast<ssize_t>(count))
            return false;
    }
    return true;
}

void drop(std::uint64_t address) {
    auto run = runs().find(address);
    if (--run->second.uses != 0) return;
    const Physical& physical = *run->second.physical;
    // Ordinary memory again, filled before it takes the place of the shared pages, so that it is never seen
    // empty.
    void* fresh = ::mmap(nullptr, physical.bytes(), kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh != MAP_FAILED) {
        physical.store(fresh, physical.bytes());
        ::mremap(fresh, physical.bytes(), physical.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED,
                 reinterpret_cast<void*>(address));
    }
    unmap_alias(address, physical.bytes());
    runs().erase(run);
}

void add(const Piece& piece) {
    Run& run = runs()[piece.address];
    if (run.uses++ != 0) return;
    run.physical = Physical::create(host_pool(), piece.bytes);
    bool mapped = false;
    if (run.physical != nullptr) {
        run.physical->load(reinterpret_cast<void*>(piece.address), piece.bytes);
        mapped = run.physical->map(other_side(piece.address), kReadWrite) &&
                 run.physical->map(piece.address, kReadWrite);
    }
    if (mapped) return;
    runs().erase(piece.address);
    unmap_alias(piece.address, piece.bytes);
    throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
}

}  // namespace

void unmap_alias(std::uint64_t address, std::uint64_t bytes) {
    ::munmap(to_host(address), bytes);
}

std::uint64_t map_anywhere(const Physical& physical) {
    void* at =
        ::mmap(nullptr, physical.bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(at != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    const auto address = reinterpret_cast<std::uint64_t>(at);
    if (!physical.map(address, kReadWrite) || !physical.map(other_side(address), kReadWrite)) {
        unmap_both(address, physical.bytes());
        throw Failure{CUDA_ERROR_OUT_OF_MEMORY};
    }
    return address;
}

void unmap_both(std::uint64_t address, std::uint64_t bytes) {
    // Once the address is free another thread's memory may lie there, with its own pages on the kernels'
    // side.
    unmap_alias(address, bytes);
    ::munmap(reinterpret_cast<void*>(address), bytes);
}

void share_pages(std::uint64_t address, std::uint64_t bytes) {
    const auto parts = pieces(address, bytes);
    require(all_readable(parts.front().address, parts.back().address + kPage - parts.front().address),
            CUDA_ERROR_INVALID_VALUE);
    std::lock_guard lock(mutex);
    on_stack_apart([&parts] {
        std::size_t done = 0;
        try {
            for (; done < parts.size(); ++done) add(parts[done]);
        } catch (...) {
            while (done != 0) drop(parts[--done].address);
            throw;
        }
    });
}

void unshare_pages(std::uint64_t address, std::uint64_t bytes) {
    std::lock_guard lock(mutex);
    on_stack_apart([&] {
        for (const Piece& piece : pieces(address, bytes)) drop(piece.address);
    });
}

}  // namespace simcuda::driver
