// Several threads, each with a default stream of its own (built with --default-stream per-thread).
#include "threads.h"

int main(int argc, char** argv) {
    // The streams are distinct from the legacy one, and waiting for one's own does not need the others.
    cudaStream_t explicit_handle = cudaStreamPerThread;
    CHECK(cudaMemsetAsync(nullptr, 0, 0, explicit_handle));
    CHECK(cudaStreamSynchronize(explicit_handle));
    return run_threads(bytes_to_use(argc, argv, 8));
}
