// The fake GPU of the engine's tests, held to the same rules as the driver.
#pragma once

#include "tests/contract/backend.h"
#include "tests/support/fake_port.h"

namespace lms::contract {

class FakeBackend final : public Backend {
  public:
    explicit FakeBackend(bool maps_host);
    Port& port() override { return gpu_; }
    CUstream stream() override { return gpu_.create_stream(); }
    void bump(CUstream stream, Address address, std::uint32_t count) override;
    std::function<void()> block(CUstream stream) override;
    void write(Address address, const Words& words) override;
    Words read(Address address, std::uint32_t count) override;
    bool cpu_reads(Address address, std::uint32_t& word) override;

  private:
    fake::FakePort gpu_;
};

}  // namespace lms::contract
