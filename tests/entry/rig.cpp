#include "tests/entry/rig.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/support/kernels.h"
#include "tests/support/process.h"

namespace rig {

namespace {

// out[i] = what texel i of the texture holds.
std::string fetch_kernel() {
    return support::word_kernel(
        "fetch", ".param .u64 out, .param .u64 texture, .param .u32 n",
        "ld.param.u64 %a1, [out];\nld.param.u64 %a2, [texture];\nld.param.u32 %n, [n];\n",
        R"(
    tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%a2, {%i}];
    add.u64 %a1, %a1, %o;
    st.global.u32 [%a1], %r1;
)");
}

// Puts the word at that byte of a parameter into %a2.
std::string bytes_of_parameter(const std::string& name, int at) {
    std::string text = "mov.u64 %a2, 0;\n";
    for (int byte = 7; byte >= 0; --byte) {
        text += "shl.b64 %a2, %a2, 8;\nld.param.u8 %a3, [" + name + "+" + std::to_string(at + byte) +
                "];\nor.b64 %a2, %a2, %a3;\n";
    }
    return text;
}

std::string ptx() {
    using support::add_kernel;
    return support::kPtxHead + add_kernel("add") +
           // The buffer's address is word 2 of an opaque struct of 128 bytes, with every bit flipped.
           add_kernel("add_through", ".param .align 64 .b8 map[128]",
                      "ld.param.u64 %a2, [map+16]; not.b64 %a2, %a2;") +
           // The buffer's address is at byte 3 of a packed struct, which is read byte by byte.
           add_kernel("add_packed", ".param .align 1 .b8 packed[16]", bytes_of_parameter("packed", 3)) +
           // The buffer begins just after, far after and before what it is given as.
           add_kernel("add_just_after", ".param .u64 in", "ld.param.u64 %a2, [in]; add.u64 %a2, %a2, 4;") +
           add_kernel("add_far_after", ".param .u64 in", "ld.param.u64 %a2, [in]; add.u64 %a2, %a2, 49152;") +
           add_kernel("add_before", ".param .u64 in", "ld.param.u64 %a2, [in]; sub.u64 %a2, %a2, 524288;") +
           fetch_kernel();
}

std::map<std::string, Body>& bodies() {
    static std::map<std::string, Body> all;
    return all;
}

int failures = 0;

}  // namespace

Registration::Registration(const char* name, Body body) {
    bodies()[name] = body;
}

Outcome run(const std::string& body, Driver driver, const Environment& environment) {
    const std::string build = support::build_dir();
    const std::string sim = build + "/sim/libcuda.so.1";
    Environment all = {{"LD_PRELOAD", support::preloaded_shim()},
                       {"LMS_DRIVER", driver == Driver::Overlay ? build + "/entry/libcuda.so.1"
                                      : driver == Driver::Old   ? build + "/entry/old/libcuda.so.1"
                                                                : sim},
                       {"ENTRY_KERNELS", build + "/entry/kernels"},
                       {"ENTRY_SIMULATED", sim},
                       {"SIMCUDA_MEMORY", "4M"},
                       {"SIMCUDA_GRANULARITY", "64K"},
                       {"LMS_HOST_MAPPING", "on"},
                       // What is where then follows from what was used last alone.
                       {"LMS_POLICY", "lru"},
                       {"LMS_THRESHOLD", "16K"}};
    for (const auto& [name, value] : environment) all[name] = value;
    const support::Result result = support::run({"/proc/self/exe", "--body", body}, all, 60);
    std::string text = result.out;
    if (result.status > 1) text += "ended with status " + std::to_string(result.status) + "\n";
    if (!text.empty()) text += result.err;
    return {text, result.err};
}

std::string run_both(const std::string& body, Driver driver, const Environment& environment) {
    std::string err;
    // What is amiss shows sooner where memory that was not brought in cannot be reached.
    for (const char* host_mapping : {"0", "1"}) {
        CAPTURE(host_mapping);
        Environment all = environment;
        all["SIMCUDA_HOST_VMM"] = host_mapping;
        const Outcome outcome = run(body, driver, all);
        CHECK(outcome.failures == "");
        err += outcome.err;
    }
    return err;
}

int run_here(const std::string& name) {
    const auto body = bodies().find(name);
    if (body == bodies().end()) failed(__FILE__, __LINE__, "no body " + name);
    if (failures == 0) body->second();
    return failures != 0;
}

void failed(const char* file, int line, const std::string& what) {
    ++failures;
    std::printf("%s:%d: %s\n", file, line, what.c_str());
    std::fflush(stdout);
}

std::string error_text(CUresult result) {
    const char* name = nullptr;
    CU(cuGetErrorName)(result, &name);
    return name ? name : std::to_string(result);
}

void stop() {
    // An orderly end would wait for what a test holds up.
    std::_Exit(1);
}

void* function(const char* name) {
    void* found = dlsym(RTLD_DEFAULT, name);
    if (found) return found;
    failed(__FILE__, __LINE__, std::string("no function ") + name);
    stop();
}

Gpu::Gpu() {
    OK(cuInit, 0);
    OK(cuDeviceGet, &device, 0);
    OK(cuDevicePrimaryCtxRetain, &context, device);
    OK(cuCtxSetCurrent, context);
}

std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint32_t seed) {
    std::vector<std::uint8_t> data(bytes);
    std::uint32_t x = seed * 2654435761u + 1;
    for (std::uint8_t& byte : data) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        byte = static_cast<std::uint8_t>(x);
    }
    return data;
}

bool on_device(CUdeviceptr address, std::size_t bytes) {
    return where::all_on_device(address, bytes);
}

bool off_device(CUdeviceptr address, std::size_t bytes) {
    return where::granules_on_device(address, bytes).first == 0;
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
    OK(cuMemAlloc_v2, &address_, bytes);
}

Buffer::Buffer(std::size_t bytes, std::uint32_t seed) : Buffer(bytes) {
    fill(seed);
}

Buffer::~Buffer() {
    CU(cuMemFree_v2)(address_);
}

void Buffer::fill(std::uint32_t seed) {
    OK(cuMemcpyHtoD_v2, address_, pattern(bytes_, seed).data(), bytes_);
    // What comes from pageable memory may arrive later, and not all streams wait for the default one.
    OK(cuStreamSynchronize, nullptr);
}

std::vector<std::uint8_t> Buffer::read() const {
    std::vector<std::uint8_t> data(bytes_);
    OK(cuMemcpyDtoH_v2, data.data(), address_, bytes_);
    return data;
}

bool Buffer::holds(std::uint32_t seed) const {
    return read() == pattern(bytes_, seed);
}

Crowd::Crowd() {
    for (int i = 0; i < 12; ++i) {
        buffers_.push_back(0);
        OK(cuMemAlloc_v2, &buffers_.back(), kBuffer);
    }
}

Crowd::~Crowd() {
    for (const CUdeviceptr buffer : buffers_) CU(cuMemFree_v2)(buffer);
}

void Crowd::press() {
    for (const CUdeviceptr buffer : buffers_) OK(cuMemsetD8_v2, buffer, 1, kBuffer);
    OK(cuStreamSynchronize, nullptr);
}

void bring_in(CUdeviceptr address, std::size_t bytes, CUstream stream) {
    // Of the simulated GPU a copy of itself is well defined.
    OK(cuMemcpyDtoDAsync_v2, address, address, bytes, stream);
}

void Crowd::evict(const Buffer& buffer) {
    for (int i = 0; i < 4 && !buffer.evicted(); ++i) press();
    EXPECT(buffer.evicted());
}

void Crowd::bring_in(const Buffer& buffer) {
    rig::bring_in(buffer.at(), buffer.bytes(), nullptr);
    OK(cuStreamSynchronize, nullptr);
    EXPECT(buffer.resident());
}

void Crowd::evict_half(const Buffer& buffer) {
    evict(buffer);
    const std::size_t half = buffer.bytes() / 2;
    rig::bring_in(buffer.at(), half, nullptr);
    OK(cuStreamSynchronize, nullptr);
    EXPECT(on_device(buffer.at(), half));
    EXPECT(off_device(buffer.at(half), half));
}

CUmodule load_kernels() {
    CUmodule loaded = nullptr;
    OK(cuModuleLoadData, &loaded, ptx().c_str());
    return loaded;
}

CUfunction kernel(const char* name) {
    static const CUmodule module = load_kernels();
    CUfunction found = nullptr;
    OK(cuModuleGetFunction, &found, module, name);
    return found;
}

}  // namespace rig
