// Data-parallel training: one process a GPU, each with the step that replay.cuh says, gradients summed in
// host memory.
//
//   mpirun -n RANKS ddl FILE STEPS BATCHES
//
// The BATCHES of a step are divided among the ranks; one that has several adds their gradients up. Each rank
// prints a line of JSON: its milliseconds a step by its GPU's clock, and a digest of its parameters. Where
// one is out of memory, it says so and all end with 3.
#include <iostream>

#include <mpi.h>

#include "tools/experiments/replay.cuh"

namespace {

struct Job {
    int rank = 0, ranks = 1;

    Job() {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    }
};

void step(replay::Replay& replay, const Job& job, int batches) {
    replay::Words sums;
    for (int batch = job.rank; batch < batches; batch += job.ranks) {
        if (batch != job.rank) replay.drop();
        replay.make_gradients(static_cast<replay::Word>(batch), sums);
    }
    MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_UNSIGNED, MPI_SUM,
                  MPI_COMM_WORLD);
    replay.update(sums);
}

void run(const char* path, int steps, int batches, const Job& job) {
    int gpus = 0;
    CHECK(cudaGetDeviceCount(&gpus));
    CHECK(cudaSetDevice(job.rank % gpus));
    replay::Replay replay(path, true, false);
    std::ostringstream told;
    for (int k = 0; k < steps; ++k) {
        told << (k == 0 ? "" : ", ") << replay::Replay::milliseconds([&] { step(replay, job, batches); });
    }
    std::cout << "{\"rank\": " + std::to_string(job.rank) + ", \"ms\": [" + told.str() +
                     "], \"parameters\": " + std::to_string(replay.parameters()) + "}\n";
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const Job job;
    const int steps = argc == 4 ? std::atoi(argv[2]) : 0, batches = argc == 4 ? std::atoi(argv[3]) : 0;
    if (steps < 1 || batches < job.ranks) {
        if (job.rank == 0)
            std::cerr << "usage: mpirun -n RANKS ddl FILE STEPS BATCHES (no fewer than ranks)\n";
        MPI_Finalize();
        return 2;
    }
    try {
        run(argv[1], steps, batches, job);
    } catch (const replay::OutOfMemory& error) {
        std::cerr << "ddl: rank " + std::to_string(job.rank) + " is out of memory: no " +
                         std::to_string(error.bytes) + " bytes; all ranks end\n";
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Finalize();
}
