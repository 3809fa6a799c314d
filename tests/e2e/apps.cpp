#include "tests/e2e/apps.h"

#include <doctest/doctest.h>

namespace e2e {

namespace {

const App kApps[] = {
    {"arithmetic", 4},
    {"atomics", 4},
    {"callbacks", 8},
    {"calls", 4},
    {"clusters", 8, {{"SIMCUDA_ARCH", "90"}}},
    {"cooperative_groups", 4},
    {"copies_2d", 8},
    {"cub_device", 6},
    {"dependent_launch", 8, {{"SIMCUDA_ARCH", "90"}}},
    {"device_malloc", 4},
    {"device_output", 4},
    {"device_streams", 8},
    {"devices", 16, {{"SIMCUDA_DEVICES", "2"}}},
    {"events", 4},
    {"graph_loops", 16},
    {"graph_memory", 8},
    {"graphs", 16},
    {"half", 4},
    {"host_memory", 4},
    {"libcudacxx", 4},
    {"linked", 4},
    {"low_memory", 4},
    {"malloc_async", 16},
    {"mipmaps", 8},
    {"nested", 16},
    {"per_thread", 8},
    {"pointer_tables", 16},
    {"pools", 4},
    {"priorities", 4},
    {"reduce", 16},
    {"separate", 4},
    {"sgemm", 8},
    {"shared_memory", 4},
    {"streams", 8},
    {"symbols", 8},
    {"textured_buffers", 4},
    {"threads", 8},
    {"thrust_algorithms", 6},
    {"vector_add", 16},
    {"warps", 4},
};

}  // namespace

std::span<const App> apps() {
    return kApps;
}

std::string memory_of(const App& app, double share) {
    return std::to_string(static_cast<unsigned>(share * app.mib * 1024)) + "K";
}

std::string reference_of(const App& app) {
    const support::Result reference =
        run_bare({app.name, std::to_string(app.mib)}, memory_of(app, 4), app.environment);
    REQUIRE_MESSAGE(reference.status == 0, reference.err);
    return reference.out;
}

}  // namespace e2e
