// Inference: the same weights are read step after step, into a result that is small. The second argument is
// the number of steps; with a third, every fourth step something writes weights: "alias" a kernel that is
// given their address by memory that a kernel has written, "both" one that is given them twice, to read and
// to write, "copy" a copy within the device, "graph" a graph of kernels.
#include <string>

#include "check.h"

constexpr std::size_t kBytes = 256 << 10;
constexpr unsigned kWords = kBytes / sizeof(unsigned);
constexpr unsigned kThreads = 256;

__device__ unsigned* hidden;

__global__ void layer(unsigned* result, const unsigned* weights) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = result[i];
    for (unsigned at = i; at < kWords; at += kThreads) sum = sum * 3 + weights[at];
    result[i] = sum;
}

__global__ void publish(unsigned* weights) {
    hidden = weights;
}

__global__ void change_hidden(unsigned step) {
    for (unsigned at = threadIdx.x; at < kWords; at += kThreads) hidden[at] += step;
}

__global__ void change(const unsigned* from, unsigned* to, unsigned step) {
    for (unsigned at = threadIdx.x; at < kWords; at += kThreads) to[at] = from[at] + step;
}

struct Weights {
    std::vector<unsigned*> device;
    std::vector<std::vector<unsigned>> host;
    cudaStream_t stream;

    explicit Weights(std::size_t count) : device(count), host(count, std::vector<unsigned>(kWords)) {
        CHECK(cudaStreamCreate(&stream));
        for (std::size_t i = 0; i < count; ++i) {
            for (unsigned at = 0; at < kWords; ++at) host[i][at] = noise(at, static_cast<unsigned>(i));
            CHECK(cudaMalloc(&device[i], kBytes));
            CHECK(cudaMemcpy(device[i], host[i].data(), kBytes, cudaMemcpyHostToDevice));
        }
    }

    void change_one(const std::string& how, std::size_t i, unsigned step) {
        unsigned* const weights = device[i];
        std::vector<unsigned>& expected = host[i];
        if (how == "alias") {
            publish<<<1, 1, 0, stream>>>(weights);
            change_hidden<<<1, kThreads, 0, stream>>>(step);
        } else if (how == "both") {
            change<<<1, kThreads, 0, stream>>>(weights, weights, step);
        } else if (how == "graph") {
            cudaGraph_t graph;
            cudaGraphExec_t exec;
            CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            change<<<1, kThreads, 0, stream>>>(weights, weights, step);
            CHECK(cudaStreamEndCapture(stream, &graph));
            CHECK(cudaGraphInstantiate(&exec, graph, 0));
            CHECK(cudaGraphLaunch(exec, stream));
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaGraphExecDestroy(exec));
            CHECK(cudaGraphDestroy(graph));
        } else {
            const std::size_t other = (i + 1) % device.size();
            CHECK(cudaMemcpyAsync(weights, device[other], kBytes, cudaMemcpyDeviceToDevice, stream));
            expected = host[other];
            return;
        }
        CHECK_LAUNCH();
        for (unsigned& each : expected) each += step;
    }
};

int main(int argc, char** argv) {
    Weights weights(bytes_to_use(argc, argv, 4) / kBytes);
    const unsigned steps = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 4;
    const std::string how = argc > 3 ? argv[3] : "";
    unsigned* result;
    CHECK(cudaMalloc(&result, kThreads * sizeof(unsigned)));
    CHECK(cudaMemset(result, 0, kThreads * sizeof(unsigned)));
    std::vector<unsigned> expected(kThreads);
    for (unsigned step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < weights.device.size(); ++i) {
            layer<<<1, kThreads, 0, weights.stream>>>(result, weights.device[i]);
            CHECK_LAUNCH();
            for (unsigned at = 0; at < kWords; ++at)
                expected[at % kThreads] = expected[at % kThreads] * 3 + weights.host[i][at];
        }
        if (!how.empty() && step % 4 == 1) weights.change_one(how, step % weights.device.size(), step);
        CHECK(cudaStreamSynchronize(weights.stream));
    }
    std::vector<unsigned> got(kThreads);
    CHECK(cudaMemcpy(got.data(), result, kThreads * sizeof(unsigned), cudaMemcpyDeviceToHost));
    if (got != expected) FAIL("the result is wrong");
    for (std::size_t i = 0; i < weights.device.size(); ++i) {
        std::vector<unsigned> back(kWords);
        CHECK(cudaMemcpy(back.data(), weights.device[i], kBytes, cudaMemcpyDeviceToHost));
        if (back != weights.host[i]) FAIL("weights %zu are wrong", i);
    }
    std::puts("ok");
    return 0;
}
