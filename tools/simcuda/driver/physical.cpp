#include "tools/simcuda/driver/physical.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tools/simcuda/driver/address_space.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/knobs.h"
#include "tools/simcuda/driver/shared/page.h"

namespace simcuda::driver {

// A NaN as a float, out of range as an index, and never the same twice in a row.
void poison(std::byte* memory, std::uint64_t bytes, std::uint32_t count) {
    const std::uint32_t word = 0xFFA0'0001u + (count % 0x0F'FFFFu);
    auto* words = reinterpret_cast<std::uint32_t*>(memory);
    std::fill(words, words + bytes / sizeof word, word);
}

PhysicalPool::PhysicalPool(Kind kind, std::uint64_t capacity, std::size_t place)
    : kind_(kind), capacity_(capacity / kPage * kPage), place_(place) {
    file_ = ::memfd_create(kind == Kind::Device ? "simcuda-device" : "simcuda-host", MFD_CLOEXEC);
    require(file_ >= 0, CUDA_ERROR_OUT_OF_MEMORY);
    require(::ftruncate(file_, static_cast<off_t>(capacity_)) == 0, CUDA_ERROR_OUT_OF_MEMORY);
    void* base = ::mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    require(base != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    base_ = static_cast<std::byte*>(base);
    holes_.emplace(0, capacity_);
}

bool PhysicalPool::take(std::uint64_t bytes) {
    const std::uint64_t limit = kind_ == Kind::Device && is(Perverse::LessThanFree) ? usable() : capacity_;
    if (shared::page() != nullptr) {
        if (!shared::take(place_, bytes, limit)) return false;
    } else if (used_ > limit || bytes > limit - used_) {
        return false;
    }
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return true;
}

void PhysicalPool::give_back(std::uint64_t bytes) {
    used_ -= bytes;
    if (shared::page() != nullptr) shared::give_back(place_, bytes);
}

std::vector<Extent> PhysicalPool::allocate(std::uint64_t bytes) {
    bytes = round_up(bytes, kPage);
    std::vector<Extent> extents;
    std::uint32_t count = 0;
    {
        std::lock_guard lock(mutex_);
        if (bytes == 0 || !take(bytes)) return extents;
        // In one piece where there is such a hole, else from the holes in order: a GPU's pages need not touch
        // either.
        auto hole =
            std::find_if(holes_.begin(), holes_.end(), [&](const auto& h) { return h.second >= bytes; });
        if (hole == holes_.end()) hole = holes_.begin();
        for (std::uint64_t missing = bytes; missing != 0; hole = holes_.begin()) {
            const Extent extent{hole->first, std::min(hole->second, missing)};
            const Extent rest{extent.offset + extent.bytes, hole->second - extent.bytes};
            holes_.erase(hole);
            if (rest.bytes != 0) holes_.emplace(rest.offset, rest.bytes);
            extents.push_back(extent);
            missing -= extent.bytes;
        }
        count = ++poison_;
    }
    for (const Extent& extent : extents) poison(view(extent.offset), extent.bytes, count);
    return extents;
}

void PhysicalPool::free(const std::vector<Extent>& extents) {
    // The host's memory goes back to the system; a device's stays, to be recycled, unless others may have it.
    if (kind_ == Kind::Host || shared::page() != nullptr) {
        for (const Extent& extent : extents) {
            ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.offset),
                        static_cast<off_t>(extent.bytes));
        }
    }
    std::lock_guard lock(mutex_);
    for (Extent extent : extents) {
        give_back(extent.bytes);
        auto next = holes_.lower_bound(extent.offset);
        if (next != holes_.end() && extent.offset + extent.bytes == next->first) {
            extent.bytes += next->second;
            next = holes_.erase(next);
        }
        if (next != holes_.begin()) {
            auto previous = std::prev(next);
            if (previous->first + previous->second == extent.offset) {
                previous->second += extent.bytes;
                continue;
            }
        }
        holes_.emplace(extent.offset, extent.bytes);
    }
}

bool PhysicalPool::charge(std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    return take(bytes);
}

void PhysicalPool::refund(std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    give_back(bytes);
}

std::uint64_t PhysicalPool::used() const {
    std::lock_guard lock(mutex_);
    return used_;
}

std::uint64_t PhysicalPool::peak() const {
    std::lock_guard lock(mutex_);
    return peak_;
}

std::uint64_t PhysicalPool::free_bytes() const {
    const std::uint64_t all = shared::page() != nullptr ? shared::used_by_all(place_) : used();
    return capacity_ - std::min(capacity_, all);
}

std::shared_ptr<Physical> Physical::create(PhysicalPool& pool, std::uint64_t bytes) {
    if (bytes == 0 || bytes > pool.capacity()) return nullptr;
    auto extents = pool.allocate(bytes);
    if (extents.empty()) return nullptr;
    return std::shared_ptr<Physical>(new Physical(&pool, -1, std::move(extents), round_up(bytes, kPage)));
}

std::shared_ptr<Physical> Physical::create_apart(PhysicalPool& pool, std::uint64_t bytes, const char* name) {
    bytes = round_up(bytes, kPage);
    if (bytes == 0 || !pool.charge(bytes)) return nullptr;
    const int file = ::memfd_create(name, MFD_CLOEXEC);
    void* view = MAP_FAILED;
    if (file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0)
        view = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (view == MAP_FAILED) {
        if (file >= 0) ::close(file);
        pool.refund(bytes);
        return nullptr;
    }
    poison(static_cast<std::byte*>(view), bytes, static_cast<std::uint32_t>(file));
    ::munmap(view, bytes);
    return std::shared_ptr<Physical>(new Physical(&pool, file, {{0, bytes}}, bytes));
}

std::shared_ptr<Physical> Physical::of_file(int file, std::vector<Extent> extents) {
    std::uint64_t bytes = 0;
    for (const Extent& extent : extents) bytes += extent.bytes;
    return std::shared_ptr<Physical>(new Physical(nullptr, file, std::move(extents), bytes));
}

std::shared_ptr<Physical> Physical::part_of(std::shared_ptr<const Physical> whole, std::uint64_t offset,
                                            std::uint64_t bytes) {
    std::vector<Extent> extents;
    std::uint64_t left = bytes;
    for (const Extent& extent : whole->extents_) {
        if (offset < extent.bytes && left != 0) {
            extents.push_back({extent.offset + offset, std::min(left, extent.bytes - offset)});
            left -= extents.back().bytes;
        }
        offset -= std::min(offset, extent.bytes);
    }
    auto part = std::shared_ptr<Physical>(new Physical(whole->pool_, -1, std::move(extents), bytes));
    part->whole_ = std::move(whole);
    return part;
}

Physical::~Physical() {
    if (whole_ != nullptr) return;
    if (file_ < 0) {
        pool_->free(extents_);
        return;
    }
    ::close(file_);
    if (pool_ != nullptr) pool_->refund(bytes_);
}

bool Physical::map(std::uint64_t address, int protection) const {
    std::uint64_t at = address;
    for (const Extent& extent : extents_) {
        void* mapped = ::mmap(reinterpret_cast<void*>(at), extent.bytes, protection, MAP_SHARED | MAP_FIXED,
                              file(), static_cast<off_t>(extent.offset));
        if (mapped == MAP_FAILED) {
            make_inaccessible(address, bytes_);
            return false;
        }
        at += extent.bytes;
    }
    return true;
}

void Physical::load(const void* from, std::uint64_t bytes) const {
    const auto* source = static_cast<const std::byte*>(from);
    for (const Extent& extent : extents_) {
        const std::uint64_t part = std::min(bytes, extent.bytes);
        std::memcpy(pool_->view(extent.offset), source, part);
        source += part;
        bytes -= part;
    }
}

void Physical::store(void* to, std::uint64_t bytes) const {
    auto* target = static_cast<std::byte*>(to);
    for (const Extent& extent : extents_) {
        const std::uint64_t part = std::min(bytes, extent.bytes);
        std::memcpy(target, pool_->view(extent.offset), part);
        target += part;
        bytes -= part;
    }
}

}  // namespace simcuda::driver
