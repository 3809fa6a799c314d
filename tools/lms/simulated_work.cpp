#include "tools/lms/simulated_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

namespace lms::tool {
namespace {

constexpr std::uint64_t kCallNs = 2000;  // of the program (tools/simcuda/driver/clock.cpp)
// The shim's own calls (docs/measurements/2026-11-28-driver-calls.md): to remap a chunk and enqueue its copy,
// on the average of in and out.
constexpr double kRemapSeconds = 5.5 * kCallNs / 1e9;
// Of a launch where not all fits, beside those of one that is traced, as in the run that is planned by.
constexpr double kLaunchSeconds = 2 * kCallNs / 1e9;
// Threads of a multiprocessor with which it is at its best (tools/simcuda/driver/cost.cpp).
constexpr double kBusyThreads = 1024;

struct CountedKernel {
    std::uint64_t at_ns = 0;  // by the machine's clock, when it was submitted
    std::uint64_t submitted_ns = 0, ended_ns = 0;
    double operations = 0, bytes = 0, threads = 0;
    std::string name;
};

struct HostWait {
    std::uint64_t from_ns, until_ns;
};

struct WorkLog {
    std::vector<CountedKernel> kernels;  // in the order in which they were submitted
    std::vector<HostWait> waits;
    std::uint64_t unmanaged_bytes = 0;  // at most
};

WorkLog read_log(const std::string& path, int device) {
    WorkLog log;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream in(line);
        std::string what;
        in >> what;
        if (what == "wait") {
            HostWait wait{};
            if (in >> wait.from_ns >> wait.until_ns) log.waits.push_back(wait);
            continue;
        }
        if (what == "memory") {
            int of = -1;
            std::uint64_t bytes = 0;
            if (in >> of >> bytes && of == device) log.unmanaged_bytes = std::max(log.unmanaged_bytes, bytes);
            continue;
        }
        CountedKernel one;
        if (in >> one.at_ns >> one.submitted_ns >> one.ended_ns >> one.operations >> one.bytes >>
            one.threads >> one.name)
            log.kernels.push_back(std::move(one));
    }
    std::ranges::stable_sort(log.kernels, {}, &CountedKernel::at_ns);
    std::ranges::sort(log.waits, {}, &HostWait::from_ns);
    return log;
}

// By the model that the simulated GPU has of one (tools/simcuda/driver/cost.cpp).
class CountedTimes final : public KernelTimes {
  public:
    CountedTimes(std::vector<std::vector<CountedKernel>> launches, double least_ns)
        : launches_(std::move(launches)), least_ns_(least_ns) {}

    double kernel_ns(std::size_t launch, const TargetGpu& gpu) const override {
        double sum = 0;
        for (const CountedKernel& each : launches_[launch]) sum += one(each, gpu);
        return sum;
    }
    std::string source() const override {
        return "modelled: counted operations and bytes, at the GPU's published speeds";
    }

  private:
    double one(const CountedKernel& kernel, const TargetGpu& gpu) const {
        if (!gpu.speed) return least_ns_;
        const double busy = kernel.operations / (gpu.speed->f32_per_s / 2) * 1e9;
        const double share = std::min(1.0, kernel.threads / (gpu.speed->multiprocessors * kBusyThreads));
        return std::max({least_ns_, busy / share, kernel.bytes / gpu.speed->bytes_per_s * 1e9});
    }

    std::vector<std::vector<CountedKernel>> launches_;  // of each, its kernels: those of a graph are many
    double least_ns_;
};

struct Submitted {
    std::uint64_t at_ns = 0;  // in simulated time; 0: not known
    std::uint64_t ended_ns = 0;
};

// What the program did between its launches. What is not known of a copy is taken for a call.
std::vector<HostPace> pace_of(const std::vector<Submitted>& launches, const std::vector<HostWait>& waits) {
    std::vector<HostPace> pace(launches.size());
    auto wait = waits.begin();
    std::size_t over = 0;  // launches that had ended when the program last waited
    for (std::size_t i = 0; i < launches.size(); ++i) {
        HostPace& own = pace[i];
        own.took_ns = kCallNs;
        const bool last = i + 1 == launches.size();
        if (launches[i].at_ns == 0 || (!last && launches[i + 1].at_ns == 0)) continue;
        const std::uint64_t next = last ? ~std::uint64_t{0} : launches[i + 1].at_ns;
        while (wait != waits.end() && wait->from_ns < launches[i].at_ns) ++wait;
        std::uint64_t waited = 0, first = 0, until = 0;
        for (; wait != waits.end() && wait->until_ns <= next; ++wait) {
            if (waited == 0) first = wait->from_ns;
            waited += wait->until_ns - wait->from_ns;
            until = wait->until_ns;
        }
        if (waited == 0) {
            if (!last) own.took_ns = next > launches[i].at_ns ? next - launches[i].at_ns : kCallNs;
            continue;
        }
        own.waits = true;
        own.took_ns = first - launches[i].at_ns;
        own.after_ns = last ? 0 : next - std::min(next, first + waited);
        while (over < launches.size() && launches[over].ended_ns <= until) ++over;
        own.over = static_cast<std::uint32_t>(std::min(over, i + 1));
    }
    return pace;
}

}  // namespace

void use_simulated_work(Workload& load, const std::string& path) {
    WorkLog log = read_log(path, load.device);
    // The trace has what there was when the shim looked; the simulated GPU knows of every moment.
    load.unmanaged_bytes = std::max(load.unmanaged_bytes, log.unmanaged_bytes);
    std::vector<const trace::Launch*> events;
    for (const trace::Event& event : load.trace->events) {
        const auto* const launch = std::get_if<trace::Launch>(&event);
        if (launch && launch->device == load.device) events.push_back(launch);
    }
    std::vector<std::vector<CountedKernel>> launches(events.size());
    std::vector<Submitted> submitted(events.size());
    std::size_t at = 0;
    for (CountedKernel& kernel : log.kernels) {
        while (at + 1 < events.size() && events[at + 1]->begin_ns <= kernel.at_ns) ++at;
        // Kernels that touch nothing managed are not in the trace: they come behind what is.
        if (events.empty() || kernel.at_ns < events[at]->begin_ns) continue;
        const bool own = kernel.at_ns <= events[at]->end_ns && !events[at]->kernel.empty();
        if (own && submitted[at].at_ns == 0) submitted[at].at_ns = kernel.submitted_ns;
        submitted[at].ended_ns = std::max(submitted[at].ended_ns, kernel.ended_ns);
        launches[at].push_back(std::move(kernel));
    }
    std::uint64_t ended = 0, began = 0;
    for (Submitted& each : submitted) {
        each.ended_ns = ended = std::max(ended, each.ended_ns);
        // Each thread has a time of its own, and what one submits after another comes after that.
        if (each.at_ns != 0) each.at_ns = began = std::max(began, each.at_ns);
    }
    const char* const least = std::getenv("SIMCUDA_KERNEL_US");
    load.times =
        std::make_unique<CountedTimes>(std::move(launches), least ? 1000 * std::strtod(least, nullptr) : 0);
    load.pace = pace_of(submitted, log.waits);
    load.remap_seconds = kRemapSeconds;
    load.launch_seconds = kLaunchSeconds;
    load.step_ends = steps_of(*load.trace, load.device, *load.times);
}

}  // namespace lms::tool
