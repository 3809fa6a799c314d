#include "shim/program/system_gpus.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/scratch.h"

namespace {

// The kernel's files of a GPU, as driver 580 and sysfs write them.
void add(const Scratch& root, const std::string& address, const std::string& model,
         const std::string& device) {
    root.put("proc/driver/nvidia/gpus/" + address + "/information",
             "Model: \t\t " + model + "\nIRQ:   \t\t 120\nBus Type: \t PCIe\nGPU Excluded:\t No\n");
    if (!device.empty()) root.put("sys/bus/pci/devices/" + address + "/device", device + "\n");
}

bool lacks(const std::string& model, const std::string& device) {
    const Scratch root;
    add(root, "0000:01:00.0", "NVIDIA L4", "0x27b8");
    add(root, "0000:81:00.0", model, device);
    return lms::program::may_lack_pools(root.path().c_str());
}

}  // namespace

TEST_CASE("system GPUs: virtual ones may lack memory pools") {
    for (const char* model :
         {"NVIDIA A40-48C", "NVIDIA L4-3Q", "GRID T4-2B", "GRID V100D-8A", "NVIDIA A100-1-5C"}) {
        CAPTURE(model);
        CHECK(lacks(model, "0x27b8"));
        CHECK(lacks(model, ""));
    }
    for (const char* model :
         {"NVIDIA L4", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090",
          "Tesla T4", "NVIDIA A10", "NVIDIA RTX 4000 SFF Ada Generation", "NVIDIA GB200", "Quadro P400",
          "NVIDIA -C", "C", ""}) {
        CAPTURE(model);
        CHECK_FALSE(lacks(model, "0x27b8"));
        CHECK_FALSE(lacks(model, ""));
    }
}

TEST_CASE("system GPUs: those older than Pascal lack memory pools") {
    for (const char* device :
         {"0x1380", "0x13c0", "0x1401", "0x17c8", "0x17fd", "0x102d", "0x15ef", "0x1600", "0x1aff"}) {
        CAPTURE(device);
        CHECK(lacks("NVIDIA", device));
    }
    for (const char* device : {"0x15f0", "0x15f8", "0x15ff", "0x1b00", "0x1db4", "0x20b0", "0x2330", "0x2b85",
                               "x", "0x", "1380"}) {
        CAPTURE(device);
        CHECK_FALSE(lacks("NVIDIA", device));
    }
}

TEST_CASE("system GPUs: of what the kernel does not list nothing is known") {
    const Scratch root;
    CHECK_FALSE(lms::program::may_lack_pools(root.path().c_str()));
    root.put("proc/driver/nvidia/gpus/0000:01:00.0/power", "");
    CHECK_FALSE(lms::program::may_lack_pools(root.path().c_str()));
}
