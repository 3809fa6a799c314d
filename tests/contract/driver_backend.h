// DriverPort over the driver that LMS_DRIVER names.
#pragma once

#include <memory>

#include "shim/device/driver_port.h"
#include "tests/contract/backend.h"

namespace lms::contract {

class DriverBackend final : public Backend {
  public:
    DriverBackend();
    Port& port() override { return *port_; }
    CUcontext context() const { return context_; }
    CUstream stream() override;
    void bump(CUstream stream, Address address, std::uint32_t count) override;
    std::function<void()> block(CUstream stream) override;
    void write(Address address, const Words& words) override;
    Words read(Address address, std::uint32_t count) override;
    bool cpu_reads(Address address, std::uint32_t& word) override;

  private:
    CUcontext context_ = nullptr;
    CUfunction bump_ = nullptr;
    std::unique_ptr<device::DriverPort> port_;
};

// The one of this process.
DriverBackend& driver_backend();

}  // namespace lms::contract
