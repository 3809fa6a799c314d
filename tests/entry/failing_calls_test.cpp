// Calls that the shim makes for a hook's sake fail once: the program does not notice. Its own that fail
// change nothing.
#include "tests/entry/gate.h"
#include "tests/entry/graph_rig.h"

using namespace rig;

// Memory of the driver's own, whose kind cannot be told, is not the CPU's to read.
BODY(failing_kind) {
    const Gpu gpu;
    const Buffer to(kBuffer, 1);
    CUdeviceptr small = 0;
    OK(cuMemAlloc_v2, &small, 4096);
    OK(cuMemsetD8_v2, small, 7, 4096);
    OK(cuMemcpy, to.at(), small, 4096);
    std::vector<std::uint8_t> expected = pattern(kBuffer, 1);
    std::fill_n(expected.begin(), 4096, std::uint8_t{7});
    EXPECT(to.read() == expected);
    OK(cuMemFree_v2, small);
}

TEST_CASE("failing calls: memory whose kind cannot be asked for is not read by the CPU") {
    for (const char* nth : {"1", "2"})
        run_both("failing_kind", Driver::Simulated,
                 {{"SIMCUDA_FAIL", std::string("cuPointerGetAttribute:") + nth + "=201"}});
}

BODY(failing_capture) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    kernel("add");
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    crowd.press();
    CUgraph graph = nullptr;
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    for (int i = 0; i < 3; ++i)
        EXPECT(launch("add", kWords, stream, b.at(), a.at(), 3u, kWords) == CUDA_SUCCESS);
    OK(cuStreamEndCapture, stream, &graph);
    std::size_t nodes = 0;
    OK(cuGraphGetNodes, graph, nullptr, &nodes);
    EXPECT(nodes == 3);
}

TEST_CASE("failing calls: a capture that cannot be asked for is not spoilt") {
    for (const char* nth : {"1", "2", "3", "4", "5", "6"})
        for (const char* error : {"1", "906"})
            run_both("failing_capture", Driver::Simulated,
                     {{"SIMCUDA_FAIL", std::string("cuStreamIsCapturing:") + nth + "=" + error}});
}

BODY(failing_capture_end) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    kernel("add");
    const Buffer a(kBuffer, 1), b(kBuffer, 2);
    Crowd crowd;
    crowd.evict(a);
    CUgraph graph = nullptr;
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuStreamEndCapture, stream, &graph);
    EXPECT(launch("add", kWords, stream, b.at(), a.at(), 3u, kWords) == CUDA_SUCCESS);
    OK(cuStreamEndCapture, stream, &graph);
    EXPECT(a.evicted());
    launch_and_wait(instantiate(graph), stream);
    EXPECT(b.read() == plus(pattern(kBuffer, 1), 3));
}

TEST_CASE("failing calls: a capture whose end fails goes on") {
    run_both("failing_capture_end", Driver::Simulated, {{"SIMCUDA_FAIL", "cuStreamEndCapture:1=2"}});
}

BODY(failing_graph_end) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const CUgraph graph = new_graph();
    add_set(graph, set_of(a.at(), 3), gpu);
    const CUgraphExec exec = instantiate(graph);
    Crowd crowd;
    FAILS(CUDA_ERROR_UNKNOWN, cuGraphExecDestroy, exec);
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(a.resident());
    launch_and_wait(exec, stream);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 3));
    OK(cuGraphExecDestroy, exec);
    crowd.evict(a);
}

BODY(failing_template_end) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const CUgraph graph = new_graph();
    add_set(add_branch(graph, gpu, true), set_of(a.at(), 3), gpu);
    FAILS(CUDA_ERROR_UNKNOWN, cuGraphDestroy, graph);
    const CUgraphExec exec = instantiate(graph);
    Crowd crowd;
    for (int i = 0; i < 3; ++i) crowd.press();
    EXPECT(a.resident());
    launch_and_wait(exec, stream);
    EXPECT(a.read() == std::vector<std::uint8_t>(kBuffer, 3));
}

TEST_CASE("failing calls: a graph that the driver does not destroy keeps what it has") {
    run_both("failing_graph_end", Driver::Simulated, {{"SIMCUDA_FAIL", "cuGraphExecDestroy:1=999"}});
    run_both("failing_template_end", Driver::Simulated, {{"SIMCUDA_FAIL", "cuGraphDestroy:1=999"}});
}

// A context that ends while something about it cannot be found out.
BODY(failing_end) {
    for (int life = 0; life < 3; ++life) {
        const Gpu gpu;
        std::size_t free_bytes = 0, total = 0;
        SIM(cuMemGetInfo_v2)(&free_bytes, &total);
        EXPECT(free_bytes > total / 2);
        {
            const Buffer a(kBuffer, 1);
            Crowd crowd;
            crowd.press();
            EXPECT(a.holds(1));
        }
        const CUresult result = CU(cuDevicePrimaryCtxRelease_v2)(gpu.device);
        if (result != CUDA_SUCCESS) OK(cuDevicePrimaryCtxRelease_v2, gpu.device);
    }
}

TEST_CASE("failing calls: whatever fails at a context's end, its memory comes back") {
    for (const char* call : {"cuDevicePrimaryCtxGetState:1", "cuDevicePrimaryCtxRelease:1",
                             "cuCtxGetCurrent:1", "cuCtxGetDevice:1"}) {
        CAPTURE(call);
        run_both("failing_end", Driver::Simulated, {{"SIMCUDA_FAIL", std::string(call) + "=101"}});
    }
}

BODY(failing_for_good) {
    const auto error = static_cast<CUresult>(std::atoi(std::getenv("FAILS_WITH")));
    const Gpu gpu;
    std::vector<CUdeviceptr> buffers(12);
    CUresult result = CUDA_SUCCESS;
    for (CUdeviceptr& buffer : buffers) {
        if (result == CUDA_SUCCESS) result = CU(cuMemAlloc_v2)(&buffer, kBuffer);
        if (result == CUDA_SUCCESS) result = CU(cuMemsetD8_v2)(buffer, 1, kBuffer);
    }
    EXPECT(result == error);
    CUdeviceptr none = 0;
    FAILS(error, cuMemAlloc_v2, &none, kBuffer);
    FAILS(error, cuCtxSynchronize);
    OK(cuDevicePrimaryCtxReset_v2, gpu.device);
    const Gpu anew;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(1));
}

TEST_CASE(
    "failing calls: a context that has failed for good says so, with a line about what moved, until there is "
    "another") {
    // Of its own, of an MPS server that is gone, and of one that has ended this client.
    for (const std::string error : {"700", "806", "810"}) {
        CAPTURE(error);
        const std::string err =
            run_both("failing_for_good", Driver::Simulated,
                     {{"SIMCUDA_FAIL", "cuMemcpyAsync:9=" + error}, {"FAILS_WITH", error}});
        CHECK(err.find("GPU 0: its context has failed (error " + error + "), and all calls say so; ") !=
              std::string::npos);
    }
}

BODY(fills_the_gpu) {
    const Gpu gpu;
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(1));
    OK(cuCtxSynchronize);
}

// Work of the trial's own that is still to come would find its memory gone, and end the program's context.
TEST_CASE("failing calls: a trial of moves that fails takes nothing away that it still uses") {
    const auto check = [](const char* host_mapping, int copies) {
        CAPTURE(host_mapping);
        for (int nth = 1; nth <= copies; ++nth) {
            CAPTURE(nth);
            CHECK(run("fills_the_gpu", Driver::Simulated,
                      {{"SIMCUDA_HOST_VMM", host_mapping},
                       {"SIMCUDA_DELAY_US", "3000"},
                       {"LMS_RESERVE", "1M"},  // of which it takes its memory
                       {"SIMCUDA_FAIL", "cuMemcpyAsync:" + std::to_string(nth) + "=201"}})
                      .failures == "");
        }
    };
    check("0", 4);
    check("1", 10);
}
