// Names what it does by NVTX, in each of the ways there are, around kernels on more memory than fits.
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "check.h"

constexpr std::size_t kBytes = 512 << 10;

__global__ void add(unsigned* words, unsigned what) {
    for (unsigned at = threadIdx.x; at < kBytes / sizeof(unsigned); at += blockDim.x) words[at] += what;
}

int main(int argc, char**) {
    // With an argument, as a program does whose workers alone use the GPU.
    nvtxRangePushA("whole");
    if (argc > 1) {
        const nvtxRangeId_t start = nvtxRangeStartA("start");
        nvtxRangeEnd(start);
        if (const pid_t child = fork(); child != 0) {
            int status = 1;
            nvtxRangePop();
            return waitpid(child, &status, 0) != child || status != 0;
        }
    }
    std::vector<unsigned*> buffers(8);
    for (unsigned*& buffer : buffers) {
        CHECK(cudaMalloc(&buffer, kBytes));
        CHECK(cudaMemset(buffer, 0, kBytes));
    }
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = nvtxDomainRegisterStringA(domain, "backward");
    const nvtxRangeId_t whole = nvtxRangeStartA("run");
    for (unsigned step = 0; step < 3; ++step) {
        nvtxRangePushA("forward");
        for (unsigned* buffer : buffers) add<<<1, 128>>>(buffer, step);
        CHECK_LAUNCH();
        nvtxDomainRangePushEx(domain, &attributes);
        for (unsigned* buffer : buffers) add<<<1, 128>>>(buffer, 1);
        CHECK(cudaDeviceSynchronize());
        nvtxDomainRangePop(domain);
        nvtxRangePop();
    }
    std::thread([&] { nvtxRangeEnd(whole); }).join();
    for (const unsigned* buffer : buffers) {
        std::vector<unsigned> words(kBytes / sizeof(unsigned));
        CHECK(cudaMemcpy(words.data(), buffer, kBytes, cudaMemcpyDeviceToHost));
        for (const unsigned word : words) {
            if (word != 6) FAIL("%u, not 6", word);
        }
    }
    nvtxRangePop();
    std::puts("ok");
    return 0;
}
