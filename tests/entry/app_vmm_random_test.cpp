// Reservations, handles and mappings of the program's own in any order, on a GPU that holds a part of them:
// each call answers as it does without the shim on one that holds them all, and every byte is what a naive
// model says.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "tests/entry/rig.h"

using namespace rig;

namespace {

constexpr std::size_t kUnit = 2 * kGranule;

// ---- inside the body

struct Memory {
    explicit Memory(std::size_t size) : bytes(size), known(size) {}
    std::vector<std::uint8_t> bytes;
    std::vector<bool> known;  // whether the program has written it
    bool shared = false;
};

struct Handle {
    CUmemGenericAllocationHandle value;
    std::shared_ptr<Memory> memory;
    unsigned references;
};

struct Mapped {
    CUdeviceptr address;
    std::shared_ptr<Memory> memory;
    CUmemAccess_flags access[2];  // of each GPU; work is the first's
    std::size_t bytes() const { return memory->bytes.size(); }
};

struct Reserved {
    CUdeviceptr address;
    std::size_t bytes;
    std::size_t units() const { return bytes / kUnit - kBeyond; }

    // What begins before is not past the end: what is there differs between the two runs.
    static constexpr std::size_t kBeyond = 7;
};

class Walk {
  public:
    Walk(std::uint32_t seed, std::vector<CUcontext> contexts)
        : random_(seed), contexts_(std::move(contexts)) {
        for (const CUcontext context : contexts_) {
            OK(cuCtxSetCurrent, context);
            for (std::uint32_t i = 0; i < 4; ++i) others_.push_back(std::make_unique<Buffer>(kBuffer, i));
        }
        OK(cuCtxSetCurrent, contexts_[0]);
    }
    ~Walk() {
        OK(cuCtxSynchronize);
        for (const Mapped& view : views_) OK(cuMemUnmap, view.address, view.bytes());
        for (Handle& handle : handles_) {
            while (handle.references-- > 0) OK(cuMemRelease, handle.value);
        }
        for (const Reserved& each : reserved_) OK(cuMemAddressFree, each.address, each.bytes);
        press();
    }
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;

    void step() {
        switch (below(16)) {
            case 0:
                return reserve();
            case 1:
                return create();
            case 2:
            case 3:
                return map();
            case 4:
            case 5:
                return set_access();
            case 6:
                return unmap();
            case 7:
                return release();
            case 8:
                return below(4) ? retain() : free_addresses();
            case 9:
                return below(4) ? ask() : export_handle();
            case 10:
                return press();
            case 11:
                return launch_on();
            case 12:
            case 13:
                return read();
            default:
                return write();
        }
    }

  private:
    int any_gpu() { return static_cast<int>(below(contexts_.size())); }
    std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>(random_() % n); }
    bool tell(const char* what, CUresult result) {
        std::printf("%s: %s\n", what, error_text(result).c_str());
        return result == CUDA_SUCCESS;
    }
    // Any of the reserved addresses, and bytes from there on; mostly what one or two mappings take up.
    std::pair<CUdeviceptr, std::size_t> range() {
        if (!views_.empty() && below(4)) {
            const Mapped& view = views_[below(views_.size())];
            std::size_t bytes = view.bytes();
            if (below(4) == 0) {
                for (const Mapped& next : views_) {
                    if (next.address == view.address + bytes) bytes += next.bytes();
                }
            }
            return {view.address, below(8) ? bytes : bytes / 2};
        }
        if (reserved_.empty()) return {kUnit, kUnit};
        const Reserved& each = reserved_[below(reserved_.size())];
        return {each.address + below(each.units()) * kUnit, (below(3) + 1) * kUnit};
    }

    void reserve() {
        if (reserved_.size() > 4) return;
        const std::size_t bytes = (below(10) + 2 + Reserved::kBeyond) * kUnit;
        CUdeviceptr address = 0;
        if (tell("reserve", CU(cuMemAddressReserve)(&address, bytes, 0, 0, 0)))
            reserved_.push_back({address, bytes});
    }
    void free_addresses() {
        if (reserved_.empty()) return;
        const std::uint32_t i = below(reserved_.size());
        if (tell("free", CU(cuMemAddressFree)(reserved_[i].address, reserved_[i].bytes)))
            reserved_.erase(reserved_.begin() + i);
    }
    void create() {
        if (handles_.size() > 9) return;
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, any_gpu()};
        if (below(3) == 0) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        const std::size_t bytes = (below(6) + 1) * kUnit + (below(20) ? 0 : 7);
        CUmemGenericAllocationHandle value = 0;
        if (tell("create", CU(cuMemCreate)(&value, bytes, &properties, 0)))
            handles_.push_back({value, std::make_shared<Memory>(bytes), 1});
    }
    void release() {
        if (handles_.empty()) return;
        const std::uint32_t i = below(handles_.size());
        if (tell("release", CU(cuMemRelease)(handles_[i].value)) && --handles_[i].references == 0)
            handles_.erase(handles_.begin() + i);
    }
    void retain() {
        const auto [address, bytes] = range();
        CUmemGenericAllocationHandle value = 0;
        if (!tell("retain",
                  CU(cuMemRetainAllocationHandle)(&value, reinterpret_cast<void*>(address + bytes / 3))))
            return;
        const auto memory = at(address + bytes / 3)->memory;
        const auto known =
            std::ranges::find_if(handles_, [&](const Handle& handle) { return handle.memory == memory; });
        if (known == handles_.end()) {
            handles_.push_back({value, memory, 1});
        } else {
            EXPECT(known->value == value);
            ++known->references;
        }
    }
    // Shared it stays on the GPU, which is to hold all that is.
    void export_handle() {
        if (handles_.empty()) return;
        Handle& handle = handles_[below(handles_.size())];
        std::size_t shared = handle.memory->shared ? 0 : handle.memory->bytes.size();
        for (const std::weak_ptr<Memory>& each : shared_) {
            if (const auto memory = each.lock()) shared += memory->bytes.size();
        }
        if (shared > kBuffer) return;
        OK(cuCtxSynchronize);
        int file = -1;
        if (!tell("export", CU(cuMemExportToShareableHandle)(&file, handle.value,
                                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)))
            return;
        ::close(file);
        if (!handle.memory->shared) shared_.push_back(handle.memory);
        handle.memory->shared = true;
    }
    void map() {
        if (handles_.empty() || reserved_.empty()) return;
        const Handle& handle = handles_[below(handles_.size())];
        const Reserved& where = reserved_[below(reserved_.size())];
        const CUdeviceptr address = where.address + below(where.units()) * kUnit + (below(20) ? 0 : 512);
        const std::size_t offset = below(20) ? 0 : kUnit;
        const std::size_t bytes = handle.memory->bytes.size();
        if (tell("map", CU(cuMemMap)(address, bytes, offset, handle.value, below(30) ? 0 : 1)))
            views_.push_back({address, handle.memory, {}});
    }
    void set_access() {
        const auto [address, bytes] = range();
        // The simulated GPU takes a write to what is to be read alone for a kernel's fault, so there is
        // little.
        constexpr CUmemAccess_flags kFlags[] = {
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_NONE};
        std::vector<CUmemAccessDesc> access;
        for (std::size_t n = below(contexts_.size()) + 1; n > 0; --n)
            access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, any_gpu()}, kFlags[below(5)]});
        if (below(20) == 0) access.back().location.id = 7;
        if (below(20) == 0) access.back().location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
        OK(cuCtxSynchronize);
        if (!tell("set access", CU(cuMemSetAccess)(address, bytes, access.data(), access.size()))) return;
        for (Mapped& view : views_) {
            if (view.address < address || view.address >= address + bytes) continue;
            for (const CUmemAccessDesc& each : access) view.access[each.location.id] = each.flags;
        }
    }
    void unmap() {
        const auto chosen = range();
        OK(cuCtxSynchronize);
        if (!tell("unmap", CU(cuMemUnmap)(chosen.first, chosen.second))) return;
        std::erase_if(views_, [&](const Mapped& view) {
            return view.address >= chosen.first && view.address < chosen.first + chosen.second;
        });
    }
    void ask() {
        const auto [address, bytes] = range();
        unsigned long long flags = 9;
        const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(below(2))};
        tell("get access", CU(cuMemGetAccess)(&flags, &location, address));
        CUdeviceptr base = 0;
        std::size_t size = 0;
        tell("address range", CU(cuMemGetAddressRange_v2)(&base, &size, address + bytes / 2));
        std::printf("%llu, [%lld, +%zu)\n", flags, base ? static_cast<long long>(address - base) : 0, size);
        for (const CUpointer_attribute which :
             {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
              CU_POINTER_ATTRIBUTE_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
              CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
              CU_POINTER_ATTRIBUTE_HOST_POINTER}) {
            std::uint64_t value = 0;
            tell("attribute", CU(cuPointerGetAttribute)(&value, which, address + bytes / 2));
            std::printf("%d: %llu\n", static_cast<int>(which), static_cast<unsigned long long>(value));
        }
    }
    void press() {
        for (std::uint32_t i = 0; i < others_.size(); ++i) {
            OK(cuCtxSetCurrent, contexts_[i / 4]);
            bring_in(others_[i]->at(), kBuffer, nullptr);
            EXPECT(others_[i]->holds(i % 4));
        }
        OK(cuCtxSetCurrent, contexts_[0]);
    }

    Mapped* at(CUdeviceptr address) {
        const auto found = std::ranges::find_if(
            views_, [&](const Mapped& view) { return address - view.address < view.bytes(); });
        return found == views_.end() ? nullptr : &*found;
    }
    // Whether all of a range can be written.
    bool writable(CUdeviceptr address, std::size_t bytes) {
        for (CUdeviceptr to = address; to < address + bytes; to += kGranule) {
            const Mapped* const view = at(to);
            if (!view || view->access[0] != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return false;
        }
        return true;
    }
    template <typename Visit>
    void each_byte(CUdeviceptr address, std::size_t bytes, Visit&& visit) {
        for (std::size_t i = 0; i < bytes;) {
            Mapped& view = *at(address + i);
            for (std::size_t j = address + i - view.address; j < view.bytes() && i < bytes; ++i, ++j)
                visit(*view.memory, j, i);
        }
    }

    void write() {
        const auto [begin, all] = range();
        const std::size_t offset = below(all / 8) * 4;
        const CUdeviceptr address = begin + offset;
        const std::size_t bytes = all - offset;
        bool may_write = true;
        for (CUdeviceptr to = address; to < address + bytes; to += kGranule) {
            if (const Mapped* view = at(to)) may_write &= view->access[0] != CU_MEM_ACCESS_FLAGS_PROT_READ;
        }
        if (const Mapped* view = at(address + bytes - 1))
            may_write &= view->access[0] != CU_MEM_ACCESS_FLAGS_PROT_READ;
        if (!may_write) return;
        const auto data = pattern(bytes, below(1000));
        if (!tell("write", CU(cuMemcpyHtoD_v2)(address, data.data(), bytes))) return;
        OK(cuStreamSynchronize, nullptr);
        each_byte(address, bytes, [&](Memory& memory, std::size_t j, std::size_t i) {
            memory.bytes[j] = data[i];
            memory.known[j] = true;
        });
        forget_doubles(address, bytes);
    }
    void read() {
        const auto [address, bytes] = range();
        std::vector<std::uint8_t> data(bytes);
        if (!tell("read", CU(cuMemcpyDtoH_v2)(data.data(), address, bytes))) return;
        bool same = true;
        each_byte(address, bytes, [&](const Memory& memory, std::size_t j, std::size_t i) {
            same &= !memory.known[j] || memory.bytes[j] == data[i];
        });
        EXPECT(same);
    }
    // A kernel that is given the beginning alone adds to all of a range, which may lie on several handles.
    void launch_on() {
        const auto [address, bytes] = range();
        if (!writable(address, bytes)) return;
        const std::uint32_t one = 1;
        const auto words = static_cast<std::uint32_t>(bytes / 4);
        if (!tell("launch", launch("add", words, nullptr, address, address, one, words))) return;
        each_byte(address, bytes & ~std::size_t{3}, [&](Memory& memory, std::size_t j, std::size_t i) {
            if (i % 4 != 0) return;
            std::uint32_t word = 0;
            std::memcpy(&word, &memory.bytes[j], 4);
            ++word;
            std::memcpy(&memory.bytes[j], &word, 4);
        });
        forget_doubles(address, bytes);
    }
    // Of several mappings of one handle in a range that was written, nobody knows which came last.
    void forget_doubles(CUdeviceptr address, std::size_t bytes) {
        std::vector<const Memory*> seen;
        for (const Mapped& view : views_) {
            if (view.address + view.bytes() <= address || view.address >= address + bytes) continue;
            if (std::ranges::count(seen, view.memory.get())) view.memory->known.assign(view.bytes(), false);
            seen.push_back(view.memory.get());
        }
    }

    std::minstd_rand random_;
    std::vector<CUcontext> contexts_;  // of each GPU
    std::vector<std::unique_ptr<Buffer>> others_;
    std::vector<Reserved> reserved_;
    std::vector<Handle> handles_;
    std::vector<Mapped> views_;
    std::vector<std::weak_ptr<Memory>> shared_;
};

}  // namespace

BODY(own_walk) {
    const Gpu gpu;
    std::vector<CUcontext> contexts = {gpu.context};
    int gpus = 0;
    OK(cuDeviceGetCount, &gpus);
    if (gpus > 1) OK(cuDevicePrimaryCtxRetain, &contexts.emplace_back(), 1);
    const auto first = static_cast<std::uint32_t>(std::atoi(std::getenv("OWN_SEED")));
    for (std::uint32_t seed = first; seed < first + 10; ++seed) {
        std::printf("seed %u\n", seed);
        Walk walk(seed, contexts);
        for (int i = 0; i < 200; ++i) walk.step();
    }
    std::printf("free %d\n", CU(cuCtxSynchronize)());
}

TEST_CASE("own mappings: any order of calls answers and holds what it does without the shim") {
    const int first = std::getenv("OWN_SEED") ? std::atoi(std::getenv("OWN_SEED")) : 1;
    for (int seed = first; seed < first + 40; seed += 10) {
        for (const char* host_mapping : {"0", "1"}) {
            CAPTURE(seed);
            CAPTURE(host_mapping);
            Environment environment = {{"LMS_LOG", "off"},
                                       {"SIMCUDA_HOST_VMM", host_mapping},
                                       {"SIMCUDA_DEVICES", seed / 10 % 2 ? "2" : "1"},
                                       {"OWN_SEED", std::to_string(seed)}};
            const std::string with = run("own_walk", Driver::Simulated, environment).failures;
            environment["LD_PRELOAD"] = environment["ENTRY_SIMULATED"] =
                std::string(std::getenv("BUILD") ? std::getenv("BUILD") : "build") + "/sim/libcuda.so.1";
            environment["SIMCUDA_MEMORY"] = "64M";
            const std::string without = run("own_walk", Driver::Simulated, environment).failures;
            CHECK(without.find("free 0\n") != std::string::npos);
            CHECK(without.find("app_vmm_random_test") == std::string::npos);
            const auto differ = std::mismatch(with.begin(), with.end(), without.begin(), without.end());
            const auto at = static_cast<std::size_t>(differ.first - with.begin());
            const std::size_t from = with.rfind('\n', at > 300 ? at - 300 : 0) + 1;
            if (with != without)
                CHECK(with.substr(from, at - from + 200) == without.substr(from, at - from + 200));
        }
    }
}
