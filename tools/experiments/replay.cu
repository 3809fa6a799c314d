// Does what a recorded step does (replay.cuh), several times.
//
//   replay FILE STEPS malloc|async [touch]
//
// `touch`: kernels read and write all bytes of their tensors, for allocators whose buffers the shim may use
// where they are, in host memory. Prints the milliseconds of each step by the GPU's clock, with the simulated
// GPU's report (SIMCUDA_REPORT), and a digest of all that kernels have read. Ends with 3 where memory does
// not suffice.
#include <iostream>

#include <cuda_profiler_api.h>

#include "tools/experiments/replay.cuh"

namespace {

void run(const char* path, int steps, bool async, bool whole) {
    replay::Replay replay(path, async, whole);
    const char* report = std::getenv("SIMCUDA_REPORT");
    for (int step = 0; step < steps; ++step) {
        std::cout << replay.step();
        if (report != nullptr) {
            CHECK(cudaProfilerStop());  // the simulated GPU then writes it
            std::ifstream file(report);
            std::cout << ' ';
            for (std::string line; std::getline(file, line);) std::cout << line;
        }
        std::cout << std::endl;
    }
    std::cout << "digest " << replay.digest() << '\n';
}

}  // namespace

int main(int argc, char** argv) {
    const std::string how = argc > 3 ? argv[3] : "";
    if (argc < 4 || (how != "malloc" && how != "async")) {
        std::cerr << "usage: replay FILE STEPS malloc|async [touch]\n";
        return 2;
    }
    try {
        run(argv[1], std::atoi(argv[2]), how == "async", argc > 4);
    } catch (const replay::OutOfMemory& error) {
        std::cerr << "out of memory: no " << error.bytes << " bytes\n";
        return 3;
    }
}
