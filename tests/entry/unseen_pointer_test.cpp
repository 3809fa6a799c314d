// Kernels that compute the addresses of buffers from what leads to none: sections of arrays, halos, a base
// and an offset, tags. What they write is kept, and what leads elsewhere than to managed memory holds nothing
// up.
#include <sys/mman.h>

#include <cstring>

#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"
#include "tests/entry/where.h"
#include "tests/support/kernels.h"

using namespace rig;

namespace {

// name(base, other, k, n): adds k to the words from the address on that `compute` puts into %a1; %a2 holds
// `base`, %a3 `other`.
std::string computing_kernel(const std::string& name, const std::string& compute) {
    return support::word_kernel(name, ".param .u64 base, .param .u64 other, .param .u32 k, .param .u32 n",
                                "ld.param.u64 %a2, [base];\nld.param.u64 %a3, [other];\n"
                                "ld.param.u32 %r1, [k];\nld.param.u32 %n, [n];\n" +
                                    compute,
                                R"(
    add.u64 %a1, %a1, %o;
    ld.global.u32 %r2, [%a1];
    add.u32 %r2, %r2, %r1;
    st.global.u32 [%a1], %r2;
)");
}

// 0, which the code does not show.
const std::string kHiddenZero = "mov.u64 %a5, %clock64; sub.u64 %a5, %a5, %a5; ";

constexpr std::uint64_t kHalo = 4 << 20;
constexpr std::uint64_t kAway = 0x123456789000;

const std::string kText = support::kPtxHead +
                          computing_kernel("section", "shl.b64 %a4, %a3, 2; add.u64 %a1, %a2, %a4;") +
                          computing_kernel("after", "add.s64 %a1, %a2, 4194304;") +
                          computing_kernel("before", "add.s64 %a1, %a2, -4194304;") +
                          computing_kernel("offset", "add.u64 %a1, %a2, %a3;") +
                          computing_kernel("tagged", "and.b64 %a1, %a2, 281474976710655;") +
                          // Nobody follows these.
                          computing_kernel("halved", kHiddenZero + R"(
    shr.u64 %a4, %a3, 1;
    add.u64 %a4, %a4, %a5;
    add.u64 %a1, %a2, %a4;
)") + computing_kernel("if_given", kHiddenZero + R"(
    add.u64 %a1, %a2, %a5;
    cvt.u32.u64 %r3, %a5;
    add.u32 %n, %n, %r3;
    setp.eq.u64 %outside, %a1, 0;
    @%outside bra DONE;
)") + computing_kernel("gathered", R"(
    ld.global.u64 %a4, [%a3];
    shl.b64 %a5, %a4, 2;
    add.u64 %a1, %a2, %a5;
)");

// How a buffer is given to one of the kernels.
struct Given {
    const char* kernel;
    CUdeviceptr base;
    std::uint64_t other;
};

std::vector<Given> shown(CUdeviceptr buffer, CUdeviceptr another) {
    constexpr std::uint64_t kLower = 1 << 24;
    return {{"section", buffer - 4 * kLower, kLower},
            // In the place of another buffer.
            {"section", another, static_cast<std::uint64_t>(static_cast<std::int64_t>(buffer - another) / 4)},
            {"after", buffer - kHalo, 0},
            {"before", buffer + kHalo, 0},
            {"offset", buffer - kAway, kAway},
            {"offset", kAway, buffer - kAway},
            {"offset", another, buffer - another},
            {"tagged", buffer | std::uint64_t{0xa5} << 56, 0}};
}

std::vector<Given> not_shown(CUdeviceptr buffer) {
    return {{"halved", buffer - kHalo, 2 * kHalo}, {"halved", kAway, 2 * (buffer - kAway)}};
}

// A launch of it, as a node. Must stay where it is.
struct Launch {
    Launch(CUmodule module, Given given, unsigned k_) : base(given.base), other(given.other), k(k_) {
        OK(cuModuleGetFunction, &params.func, module, given.kernel);
        params.gridDimX = kWords / 256;
        params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
        params.blockDimX = 256;
        params.kernelParams = arguments;
    }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

    void run(CUstream stream) {
        OK(cuLaunchKernel, params.func, kWords / 256, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
    }

    CUdeviceptr base;
    std::uint64_t other;
    unsigned k;
    unsigned n = kWords;
    void* arguments[4] = {&base, &other, &k, &n};
    CUDA_KERNEL_NODE_PARAMS params{};
};

CUmodule load() {
    CUmodule module = nullptr;
    OK(cuModuleLoadData, &module, kText.c_str());
    return module;
}

// Brings `buffer` in by a kernel that only reads it, so that its host copy would do.
void read_by_kernel(const Buffer& buffer, const Buffer& into) {
    EXPECT(launch("add", kWords, nullptr, into.at(), buffer.at(), 0u, kWords) == CUDA_SUCCESS);
    OK(cuStreamSynchronize, nullptr);
    EXPECT(buffer.resident());
}

// Whether what the kernel writes into a clean buffer goes out with that, launched and from a graph.
void is_kept(CUmodule module, Buffer& a, const Buffer& into, Crowd& crowd, Given given) {
    const CUstream stream = new_stream();
    Launch work(module, given, 5);
    const CUgraph graph = new_graph();
    add_kernel(graph, work.params);
    const CUgraphExec exec = instantiate(graph);
    for (const bool by_graph : {false, true}) {
        a.fill(1);
        crowd.evict(a);
        read_by_kernel(a, into);
        if (by_graph) {
            OK(cuGraphLaunch, exec, stream);
        } else {
            work.run(stream);
        }
        OK(cuStreamSynchronize, stream);
        crowd.evict(a);
        EXPECT(a.read() == plus(into.read(), 5));
    }
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    OK(cuStreamDestroy_v2, stream);
}

}  // namespace

FAMILY_TEST("unseen pointers: what is written by an address that is computed goes out with that") {
    const Gpu gpu;
    const Buffer another(kBuffer, 3);
    Buffer a(kBuffer, 1);
    const Buffer into(kBuffer, 2);
    Crowd crowd;
    const CUmodule module = load();
    for (const Given& given : shown(a.at(), another.at())) is_kept(module, a, into, crowd, given);
    for (const Given& given : not_shown(a.at())) is_kept(module, a, into, crowd, given);
    EXPECT(another.holds(3));
}

FAMILY_TEST("unseen pointers: what is written by nothing but what was loaded goes out with that") {
    const Gpu gpu;
    Buffer a(kBuffer, 1);
    const Buffer into(kBuffer, 2);
    Crowd crowd;
    CUdeviceptr table = 0;
    OK(cuMemAlloc_v2, &table, 8);  // small, so none that is managed
    const std::uint64_t quarter = a.at() / 4;
    OK(cuMemcpyHtoD_v2, table, &quarter, sizeof quarter);
    is_kept(load(), a, into, crowd, {"gathered", 0, table});
    OK(cuMemFree_v2, table);
}

FAMILY_TEST("unseen pointers: where the arithmetic shows the buffer it is brought in") {
    const Gpu gpu;
    const Buffer another(kBuffer, 3);
    Buffer a(kBuffer, 1);
    Crowd crowd;
    const CUmodule module = load();
    std::vector<std::uint8_t> expected = pattern(kBuffer, 1);
    for (const Given& given : shown(a.at(), another.at())) {
        crowd.evict(a);
        Launch work(module, given, 7);
        work.run(nullptr);
        OK(cuStreamSynchronize, nullptr);
        EXPECT(a.resident());
        expected = plus(expected, 7);
        EXPECT(a.read() == expected);
    }
}

namespace {

// Whether another buffer comes in while what `submit` gives a stream is unfinished.
template <typename Submit>
bool moves_beside(Crowd& crowd, const Buffer& c, Submit&& submit) {
    const CUstream stream = new_stream();
    const CUstream other = new_stream();
    crowd.evict(c);
    Gate gate;
    gate.hold_up(stream);
    submit(stream);
    rig::bring_in(c.at(), kBuffer, other);
    OK(cuStreamSynchronize, other);
    const bool moved = c.resident();
    gate.open();
    OK(cuStreamSynchronize, stream);
    return moved;
}

bool moves_beside(CUmodule module, Given given, Crowd& crowd, const Buffer& c, unsigned words = kWords) {
    Launch work(module, given, 1);
    work.n = words;
    return moves_beside(crowd, c, [&](CUstream stream) { work.run(stream); });
}

// Loaded past the shim, which so knows as much of it as of code without PTX.
CUmodule load_unseen() {
    CUmodule module = nullptr;
    EXPECT(SIM(cuModuleLoadData)(&module, kText.c_str()) == CUDA_SUCCESS);
    return module;
}

constexpr unsigned kFewWords = 1024;

// Memory that is not managed, of every kind.
class Others {
  public:
    Others() : registered_(kBuffer) {
        OK(cuMemAlloc_v2, &small_, kFewWords * 4);
        OK(cuMemAllocManaged, &managed_, kBuffer, CU_MEM_ATTACH_GLOBAL);
        OK(cuMemHostAlloc, &pinned_, kBuffer, CU_MEMHOSTALLOC_DEVICEMAP);
        OK(cuMemHostRegister_v2, registered_.data(), kBuffer, CU_MEMHOSTREGISTER_DEVICEMAP);
    }
    ~Others() {
        OK(cuMemFree_v2, small_);
        OK(cuMemHostUnregister, registered_.data());
    }
    Others(const Others&) = delete;
    Others& operator=(const Others&) = delete;

    std::vector<CUdeviceptr> all() const {
        return {small_, managed_, reinterpret_cast<CUdeviceptr>(pinned_),
                reinterpret_cast<CUdeviceptr>(registered_.data())};
    }

  private:
    CUdeviceptr small_ = 0;
    CUdeviceptr managed_ = 0;
    void* pinned_ = nullptr;
    std::vector<std::uint8_t> registered_;
};

}  // namespace

// Ordinary programs are not slowed down.
FAMILY_TEST("unseen pointers: memory that is not managed, null and numbers hold no moves up") {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    const CUmodule module = load();
    // The driver's answers are kept, and dropped when memory is freed.
    for (int i = 0; i < 2; ++i) {
        const Others others;
        std::vector<CUdeviceptr> bases = others.all();
        bases.push_back(a.at());
        for (const CUdeviceptr base : bases) {
            EXPECT(moves_beside(module, {"if_given", base, 12345}, crowd, c, kFewWords));
            EXPECT(moves_beside(module, {"section", base - 4096, 1024}, crowd, c, kFewWords));
            EXPECT(moves_beside(load_unseen(), {"if_given", base, 12345}, crowd, c, kFewWords));
        }
    }
    EXPECT(moves_beside(module, {"if_given", 0, 12345}, crowd, c));
    EXPECT(moves_beside(module, {"if_given", 0, ~std::uint64_t{0}}, crowd, c));
}

FAMILY_TEST("unseen pointers: memory of a graph holds no moves up") {
    const Gpu gpu;
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    const CUmodule module = load();
    const CUgraph graph = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS made{};
    made.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    made.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    made.bytesize = kFewWords * 4;
    CUgraphNode allocation = nullptr;
    OK(cuGraphAddMemAllocNode, &allocation, graph, nullptr, 0, &made);
    Launch work(module, {"if_given", made.dptr, 0}, 1);
    work.n = kFewWords;
    const CUgraphNode kernel_node = add_kernel(graph, work.params, allocation);
    CUgraphNode freed = nullptr;
    OK(cuGraphAddMemFreeNode, &freed, graph, &kernel_node, 1, made.dptr);
    const CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 2; ++i)
        EXPECT(moves_beside(crowd, c, [&](CUstream stream) { OK(cuGraphLaunch, exec, stream); }));
}

BODY(nothing_moves_beside_unseen_pointers) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    const CUmodule module = load();
    for (const Given& given : not_shown(a.at())) EXPECT(!moves_beside(module, given, crowd, c));
}

BODY(nothing_moves_beside_unseen_pointers_of_native_code) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    const CUmodule module = load_unseen();
    EXPECT(!moves_beside(module, {"after", a.at() - kHalo, 0}, crowd, c));
    EXPECT(moves_beside(module, {"tagged", a.at() | std::uint64_t{0xa5} << 56, 0}, crowd, c));
}

BODY(nothing_moves_beside_what_was_host_memory) {
    const Gpu gpu;
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    const CUmodule module = load();
    const auto moves_beside_access_to = [&](void* host) {
        const auto address = reinterpret_cast<CUdeviceptr>(host);
        return moves_beside(module, {"if_given", address, 12345}, crowd, c, 0);
    };
    void* pinned = nullptr;
    OK(cuMemHostAlloc, &pinned, kBuffer, CU_MEMHOSTALLOC_DEVICEMAP);
    EXPECT(moves_beside_access_to(pinned));
    OK(cuMemFreeHost, pinned);
    EXPECT(!moves_beside_access_to(pinned));
    void* const mapped = mmap(nullptr, kBuffer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(cuMemHostRegister_v2, mapped, kBuffer, CU_MEMHOSTREGISTER_DEVICEMAP);
    EXPECT(moves_beside_access_to(mapped));
    OK(cuMemHostUnregister, mapped);
    munmap(mapped, kBuffer);
    EXPECT(!moves_beside_access_to(mapped));
}

TEST_CASE("unseen pointers: nothing moves beside an access that leads nowhere") {
    CHECK(run("nothing_moves_beside_unseen_pointers", Driver::Simulated, {{"SIMCUDA_HOST_VMM", "1"}})
              .failures == "");
}

TEST_CASE("unseen pointers: native code that is given an address near managed memory which leads nowhere") {
    CHECK(run("nothing_moves_beside_unseen_pointers_of_native_code", Driver::Simulated,
              {{"SIMCUDA_HOST_VMM", "1"}})
              .failures == "");
}

TEST_CASE("unseen pointers: memory that was the host's is nobody's when that is gone" *
          doctest::test_suite("host-memory-gone")) {
    CHECK(run("nothing_moves_beside_what_was_host_memory", Driver::Simulated, {{"SIMCUDA_HOST_VMM", "1"}})
              .failures == "");
}
