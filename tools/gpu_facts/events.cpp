// Fact 12: what recording an event per launch costs.
#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

constexpr int kEventRounds = 9;
constexpr int kLaunches = 500;  // below the depth of a launch queue, so that no call waits for the GPU

}  // namespace

void event_cost(const Card& card, Record& record) {
    const Stream stream, waiting;
    const CUfunction kernel = card.kernel("nothing");
    std::vector<CUevent> events(kLaunches);
    for (CUevent& event : events) CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    const auto measure = [&](const std::string& name, auto&& each) {
        Samples host, all;
        for (int round = 0; round < kEventRounds; ++round) {
            double enqueued = 0;
            const double done = microseconds([&] {
                enqueued = microseconds([&] {
                    for (int i = 0; i < kLaunches; ++i) each(i);
                });
                stream.wait();
            });
            if (round == 0) continue;  // the first loads the kernel
            host.add(1e3 * enqueued / kLaunches);
            all.add(1e3 * done / kLaunches);
        }
        record.samples(name + "/host time", host, "ns");
        record.samples(name + "/until done", all, "ns");
    };
    measure("launch", [&](int) { launch(kernel, {1, 1}, stream); });
    measure("launch and record", [&](int i) {
        launch(kernel, {1, 1}, stream);
        CU(cuEventRecord, events[static_cast<std::size_t>(i)], stream);
    });
    measure("launch, record every 16th", [&](int i) {
        launch(kernel, {1, 1}, stream);
        if (i % 16 == 0) CU(cuEventRecord, events[static_cast<std::size_t>(i)], stream);
    });
    measure("query of a passed event", [&](int i) { CU(cuEventQuery, events[static_cast<std::size_t>(i)]); });
    measure("wait for a passed event in a stream",
            [&](int i) { CU(cuStreamWaitEvent, waiting, events[static_cast<std::size_t>(i)], 0); });
    waiting.wait();
    for (const CUevent event : events) CU(cuEventDestroy_v2, event);
}

}  // namespace facts
