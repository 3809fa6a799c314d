// Physical memory: a device's own, or the host's page-locked memory.
//
// A pool is one memory file. An allocation is a list of extents in it, which are mapped wherever the program
// (twice: an alias) or the driver wants them. The driver's own overheads are charged to the same capacity,
// and so is what other processes have that are on the same GPUs (SIMCUDA_SHARED).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace simcuda::driver {

struct Extent {
    std::uint64_t offset;  // bytes into the pool's file
    std::uint64_t bytes;
};

inline constexpr std::uint64_t kPage = 4096;

inline constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

// Fills memory with a pattern that is not zero and differs from one `count` to the next.
void poison(std::byte* memory, std::uint64_t bytes, std::uint32_t count);

// Thread-safe.
class PhysicalPool {
  public:
    enum class Kind { Device, Host };

    // `place` is whose memory it is: the device's number, or shared::kHost. Throws Failure with
    // CUDA_ERROR_OUT_OF_MEMORY if the system gives no memory file or no room to map it.
    PhysicalPool(Kind kind, std::uint64_t capacity, std::size_t place);
    PhysicalPool(const PhysicalPool&) = delete;
    PhysicalPool& operator=(const PhysicalPool&) = delete;

    // Whole pages, poisoned with a pattern that changes from call to call. Empty if there is no room.
    std::vector<Extent> allocate(std::uint64_t bytes);
    void free(const std::vector<Extent>& extents);

    // Bytes of capacity without memory behind them.
    bool charge(std::uint64_t bytes);
    void refund(std::uint64_t bytes);

    std::uint64_t capacity() const { return capacity_; }
    // Of a perverse driver: as far as memory can be used.
    std::uint64_t usable() const { return capacity_ / 4 * 3; }
    std::uint64_t used() const;  // by this process
    std::uint64_t peak() const;
    std::uint64_t free_bytes() const;  // that no process has
    int file() const { return file_; }

    // The driver's own view of the memory, wherever it is mapped or not.
    std::byte* view(std::uint64_t offset) const { return base_ + offset; }

  private:
    bool take(std::uint64_t bytes);  // false: there is no room. mutex_ is held for this and the next
    void give_back(std::uint64_t bytes);

    const Kind kind_;
    const std::uint64_t capacity_;
    const std::size_t place_;
    int file_ = -1;
    std::byte* base_ = nullptr;

    mutable std::mutex mutex_;                      // guards what follows
    std::map<std::uint64_t, std::uint64_t> holes_;  // free: offset -> bytes
    std::uint64_t used_ = 0, peak_ = 0;
    std::uint32_t poison_ = 0;
};

// One allocation of a pool; gives its memory back when the last reference goes.
class Physical {
  public:
    // Null if the pool has no room. `bytes` is rounded up to whole pages.
    static std::shared_ptr<Physical> create(PhysicalPool& pool, std::uint64_t bytes);

    // The same, but in a memory file of its own, called `name`, for others to map and keep.
    static std::shared_ptr<Physical> create_apart(PhysicalPool& pool, std::uint64_t bytes, const char* name);

    // Memory that is another's, of which nobody keeps account here. Takes the file over. Throws nothing.
    static std::shared_ptr<Physical> of_file(int file, std::vector<Extent> extents);

    // Bytes of another allocation, which lives as long as they do. They need not be whole pages.
    static std::shared_ptr<Physical> part_of(std::shared_ptr<const Physical> whole, std::uint64_t offset,
                                             std::uint64_t bytes);

    ~Physical();
    Physical(const Physical&) = delete;
    Physical& operator=(const Physical&) = delete;

    std::uint64_t bytes() const { return bytes_; }
    int file() const { return whole_ != nullptr ? whole_->file() : file_ >= 0 ? file_ : pool_->file(); }
    const std::vector<Extent>& extents() const { return extents_; }  // in the file

    // Maps all of it, which is whole pages, over [address, address + bytes()) of this process. False if the
    // system refuses (then the range is left inaccessible).
    bool map(std::uint64_t address, int protection) const;

    // Copies the contents of memory in a pool's file in from or out to ordinary memory.
    void load(const void* from, std::uint64_t bytes) const;
    void store(void* to, std::uint64_t bytes) const;

  private:
    Physical(PhysicalPool* pool, int file, std::vector<Extent> extents, std::uint64_t bytes)
        : pool_(pool), file_(file), extents_(std::move(extents)), bytes_(bytes) {}

    PhysicalPool* const pool_;  // that it counts against; null: none
    const int file_;            // -1: the pool's
    const std::vector<Extent> extents_;
    const std::uint64_t bytes_;
    std::shared_ptr<const Physical> whole_;  // of which it is a part; null: of none
};

}  // namespace simcuda::driver
