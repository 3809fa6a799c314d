// Memory that a test maps itself.
#pragma once

#include <unistd.h>

#include "tests/entry/rig.h"

namespace rig {

inline CUmemAllocationProp on_gpu(int device = 0) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return properties;
}

inline CUmemGenericAllocationHandle create(std::size_t bytes,
                                           const CUmemAllocationProp& properties = on_gpu()) {
    CUmemGenericAllocationHandle handle = 0;
    OK(cuMemCreate, &handle, bytes, &properties, 0);
    return handle;
}

inline CUmemGenericAllocationHandle create_shareable(std::size_t bytes) {
    CUmemAllocationProp properties = on_gpu();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return create(bytes, properties);
}

// Makes it the driver's.
inline CUresult share(CUmemGenericAllocationHandle handle) {
    int file = -1;
    const CUresult result =
        CU(cuMemExportToShareableHandle)(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) ::close(file);
    return result;
}

inline CUdeviceptr reserve(std::size_t bytes) {
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve, &address, bytes, 0, 0, 0);
    return address;
}

inline void let_in(CUdeviceptr address, std::size_t bytes, int device = 0,
                   CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    OK(cuMemSetAccess, address, bytes, &access, 1);
}

inline void map(CUdeviceptr address, std::size_t bytes, CUmemGenericAllocationHandle handle) {
    OK(cuMemMap, address, bytes, 0, handle, 0);
    let_in(address, bytes);
}

inline void write(CUdeviceptr address, std::size_t bytes, std::uint32_t seed) {
    OK(cuMemcpyHtoD_v2, address, pattern(bytes, seed).data(), bytes);
    OK(cuStreamSynchronize, nullptr);
}

inline bool reads(CUdeviceptr address, std::size_t bytes, std::uint32_t seed) {
    std::vector<std::uint8_t> data(bytes);
    OK(cuMemcpyDtoH_v2, data.data(), address, bytes);
    return data == pattern(bytes, seed);
}

// Memory as a framework's allocator has it: one handle, mapped once, at addresses of its own.
class Own {
  public:
    explicit Own(std::size_t bytes) : bytes_(bytes), handle_(create(bytes)), address_(reserve(bytes)) {
        map(address_, bytes_, handle_);
    }
    Own(std::size_t bytes, std::uint32_t seed) : Own(bytes) { write(address_, bytes_, seed); }
    ~Own() {
        OK(cuMemUnmap, address_, bytes_);
        OK(cuMemRelease, handle_);
        OK(cuMemAddressFree, address_, bytes_);
    }
    Own(const Own&) = delete;
    Own& operator=(const Own&) = delete;
    CUdeviceptr at() const { return address_; }
    CUmemGenericAllocationHandle handle() const { return handle_; }
    bool holds(std::uint32_t seed) const { return reads(address_, bytes_, seed); }

  private:
    std::size_t bytes_;
    CUmemGenericAllocationHandle handle_;
    CUdeviceptr address_;
};

inline std::size_t free_on_gpu() {
    std::size_t free = 0;
    std::size_t total = 0;
    SIM(cuMemGetInfo_v2)(&free, &total);
    return free;
}

inline void evict(Crowd& crowd, CUdeviceptr address, std::size_t bytes) {
    for (int i = 0; i < 4 && !off_device(address, bytes); ++i) crowd.press();
    EXPECT(off_device(address, bytes));
}

inline void copy_by_kernel(CUdeviceptr to, CUdeviceptr from, std::uint32_t words = kWords) {
    const std::uint32_t zero = 0;
    EXPECT(launch("add", words, nullptr, to, from, zero, words) == CUDA_SUCCESS);
}

}  // namespace rig
