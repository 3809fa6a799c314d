// What a modelled GPU is capable of: SIMCUDA_GPU.
#pragma once

namespace simcuda::driver {

struct GpuModel {
    const char* name;
    unsigned multiprocessors;
    double tera_flops;   // of 32-bit floats
    double memory_gbps;  // 1e9 bytes a second
    double link_gbps;    // one way
};

const GpuModel* find_gpu(const char* name);  // null: there is none of that name
const GpuModel* modelled_gpu();              // null: none is

}  // namespace simcuda::driver
