#include "tests/contract/driver_backend.h"

#include <setjmp.h>
#include <signal.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/support/kernels.h"

namespace lms::contract {

using device::driver;

namespace {

// words[i] += 1 for i < n
std::string bump_kernel() {
    return support::kPtxHead + support::word_kernel("bump", ".param .u64 words, .param .u32 n",
                                                    "ld.param.u64 %a1, [words];\nld.param.u32 %n, [n];\n", R"(
    add.u64 %a1, %a1, %o;
    ld.global.u32 %r1, [%a1];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%a1], %r1;
)");
}

sigjmp_buf escape;
void on_fault(int) {
    siglongjmp(escape, 1);
}

}  // namespace

DriverBackend& driver_backend() {
    static DriverBackend& instance = *new DriverBackend;
    return instance;
}

DriverBackend::DriverBackend() {
    CUdevice device = 0;
    CUmodule module = nullptr;
    NEED(driver().cuInit(0) == CUDA_SUCCESS);
    NEED(driver().cuDeviceGet(&device, 0) == CUDA_SUCCESS);
    NEED(driver().cuDevicePrimaryCtxRetain(&context_, device) == CUDA_SUCCESS);
    NEED(driver().cuCtxSetCurrent(context_) == CUDA_SUCCESS);
    NEED(driver().cuModuleLoadData(&module, bump_kernel().c_str()) == CUDA_SUCCESS);
    NEED(driver().cuModuleGetFunction(&bump_, module, "bump") == CUDA_SUCCESS);
    CUresult error = CUDA_ERROR_UNKNOWN;
    port_ = device::DriverPort::create_for(device, context_, error);
    NEED(error == CUDA_SUCCESS);
    NEED(port_ != nullptr);
}

CUstream DriverBackend::stream() {
    CUstream stream = nullptr;
    NEED(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    return stream;
}

void DriverBackend::bump(CUstream stream, Address address, std::uint32_t count) {
    void* parameters[] = {&address, &count};
    EXPECT(driver().cuLaunchKernel(bump_, (count + 63) / 64, 1, 1, 64, 1, 1, 0, stream, parameters,
                                   nullptr) == CUDA_SUCCESS);
}

std::function<void()> DriverBackend::block(CUstream stream) {
    // Lives as long as the process: the driver's thread reads it when the test may be over.
    auto* open = new std::atomic<bool>(false);
    const auto wait = [](void* opened) {
        while (!static_cast<std::atomic<bool>*>(opened)->load()) std::this_thread::yield();
    };
    EXPECT(driver().cuLaunchHostFunc(stream, wait, open) == CUDA_SUCCESS);
    return [open] { *open = true; };
}

void DriverBackend::write(Address address, const Words& words) {
    EXPECT(driver().cuMemcpyHtoD_v2(address, words.data(), 4 * words.size()) == CUDA_SUCCESS);
    // From pageable memory it returns when the words are read, which is before they have arrived.
    EXPECT(driver().cuStreamSynchronize(CU_STREAM_LEGACY) == CUDA_SUCCESS);
}

Words DriverBackend::read(Address address, std::uint32_t count) {
    Words words(count);
    EXPECT(driver().cuMemcpyDtoH_v2(words.data(), address, 4 * words.size()) == CUDA_SUCCESS);
    return words;
}

bool DriverBackend::cpu_reads(Address address, std::uint32_t& word) {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = on_fault;
    ::sigaction(SIGSEGV, &action, &before);
    volatile bool readable = false;
    if (sigsetjmp(escape, 1) == 0) {
        word = *reinterpret_cast<volatile std::uint32_t*>(address);
        readable = true;
    }
    ::sigaction(SIGSEGV, &before, nullptr);
    return readable;
}

}  // namespace lms::contract
