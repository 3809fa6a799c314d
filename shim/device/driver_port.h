// The port over the CUDA driver.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "shim/device/driver_table.h"
#include "shim/device/port.h"

namespace lms::device {

class DriverPort final : public Port {
  public:
    // For `device`, through `context` (the app's; borrowed, and current in every call made here). Null, and
    // the driver's error, when the device lacks virtual memory management or a stream cannot be created.
    static std::unique_ptr<DriverPort> create_for(CUdevice device, CUcontext context, CUresult& error);
    // Destroys nothing on the device: it lives as long as the context, and the driver may be gone before us.
    ~DriverPort() override = default;

    std::uint64_t granularity() const override { return granularity_; }
    bool maps_host_memory() const override { return host_location_.type != CU_MEM_LOCATION_TYPE_INVALID; }
    CUresult memory_info(MemoryInfo& info) override;
    CUresult reserve(std::uint64_t bytes, Address& address) override;
    CUresult unreserve(Address address, std::uint64_t bytes) override;
    CUresult create(std::uint64_t bytes, Place place, CUmemGenericAllocationHandle& handle) override;
    CUresult release(CUmemGenericAllocationHandle handle) override;
    CUresult map(Address address, std::uint64_t bytes, CUmemGenericAllocationHandle handle,
                 Place place) override;
    CUresult unmap(Address address, std::uint64_t bytes) override;
    CUresult pin(std::uint64_t bytes, Address& host) override;
    CUresult unpin(Address host) override;
    CUresult copy(Address destination, Address source, std::uint64_t bytes, Direction direction) override;
    CUstream stream(Direction direction) const override { return direction == Direction::In ? in_ : out_; }
    CUresult record(CUstream stream, CUevent& event) override;
    CUresult query(CUevent event) override;
    void recycle(CUevent event) override;
    CUresult wait_in_stream(CUstream stream, CUevent event) override;
    CUresult health() override;
    CUresult synchronize() override;

  private:
    DriverPort(CUdevice device, CUcontext context) : device_(device), context_(context) {}
    CUresult probe();
    bool probe_host_location(CUmemLocationType type, CUdevice_attribute attribute);
    CUmemAllocationProp properties(Place place) const;

    CUdevice device_;
    CUcontext context_;
    std::uint64_t granularity_ = 0;
    CUmemLocation host_location_{CU_MEM_LOCATION_TYPE_INVALID, 0};
    bool decompress_ = false;
    CUstream in_ = nullptr;
    CUstream out_ = nullptr;
    std::mutex events_lock_;
    std::vector<CUevent> events_;  // free ones
};

}  // namespace lms::device
