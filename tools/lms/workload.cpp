#include "tools/lms/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "shim/util/units.h"
#include "tools/lms/open_trace.h"

namespace lms::tool {
namespace {

// Not of none. Of an even number the lower one of the two in the middle.
double median_of(std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

// Null: the trace does not tell.
const trace::Gpu* gpu_of(const Trace& trace, int device) {
    for (const trace::Event& event : trace.events) {
        const auto* const gpu = std::get_if<trace::Gpu>(&event);
        if (gpu && gpu->device == device) return gpu;
    }
    return nullptr;
}

class GivenTimes final : public KernelTimes {
  public:
    explicit GivenTimes(double milliseconds) : ms_(milliseconds) {}
    double kernel_ns(std::size_t, const TargetGpu&) const override { return ms_ * 1e6; }
    std::string source() const override { return fmt::format("given: {} ms each", ms_); }

  private:
    double ms_;
};

class MeasuredTimes final : public KernelTimes {
  public:
    MeasuredTimes(const Trace& trace, int device) {
        if (const trace::Gpu* const gpu = gpu_of(trace, device)) {
            name_ = gpu->name;
            on_ = find_gpu(gpu->name);
        }
        std::unordered_map<std::string_view, std::vector<double>> samples;
        for (const trace::Event& event : trace.events) {
            const auto* const time = std::get_if<trace::KernelTime>(&event);
            if (!time || time->device != device || time->end_ns < time->begin_ns) continue;
            samples[time->kernel].push_back(static_cast<double>(time->end_ns - time->begin_ns));
            ++samples_;
        }
        // The first launch of a kernel may have waited for its code to be loaded.
        std::unordered_map<std::string_view, double> usual;
        for (auto& [kernel, each] : samples) usual[kernel] = median_of(each);
        for (const trace::Event& event : trace.events) {
            const auto* const launch = std::get_if<trace::Launch>(&event);
            if (!launch || launch->device != device) continue;
            const auto known = launch->kernel.empty() ? usual.end() : usual.find(launch->kernel);
            ns_.push_back(known == usual.end() ? -1 : known->second);
        }
    }

    double kernel_ns(std::size_t launch, const TargetGpu& gpu) const override {
        if (launch >= ns_.size() || ns_[launch] < 0) return -1;
        const bool scales = on_ && gpu.speed;
        return ns_[launch] * (scales ? on_->speed->bytes_per_s / gpu.speed->bytes_per_s : 1);
    }
    std::string source() const override {
        if (samples_ == 0) return "none measured: as far as the trace shows when work ended";
        return fmt::format(
            "measured on {} ({} samples), {}", name_.empty() ? "a GPU without name" : name_, samples_,
            on_ ? "scaled by the speed of the GPU's memory" : "taken to be the same on others");
    }

  private:
    std::vector<double> ns_;  // by launch; less than 0: no sample
    std::uint64_t samples_ = 0;
    std::string name_;
    const TargetGpu* on_ = nullptr;
};

// The name of the simulated GPU, on which contexts take no memory (tools/simcuda/driver/identity.h).
constexpr std::string_view kSimulated = "Simulated GPU";

// The most that the trace tells of, if it does.
std::optional<std::uint64_t> unmanaged_of(const Trace& trace, int device) {
    std::optional<std::uint64_t> most;
    for (const trace::Event& event : trace.events) {
        const auto* const now = std::get_if<trace::Unmanaged>(&event);
        if (now && now->device == device) most = std::max(most.value_or(0), now->bytes);
    }
    return most;
}

// What of the GPU was neither the shim's to fill nor kept free, for traces that do not tell.
std::uint64_t held_beside(const Trace& trace, int device) {
    const trace::Gpu* const gpu = gpu_of(trace, device);
    std::uint64_t total = gpu ? gpu->total_bytes : 0;
    const std::uint64_t limit = util::parse_bytes(setting_of(trace, "LMS_LIMIT")).value_or(total);
    total = std::min(total, limit);
    const auto reserve = util::parse_bytes(setting_of(trace, "LMS_RESERVE")).value_or(default_reserve(total));
    const std::uint64_t filled = budget_of(trace, device).value_or(total) + reserve;
    return total - std::min(total, filled);
}

// Of the GPU with most work in the trace; less than 0: none has any.
int busiest(const Trace& trace) {
    std::unordered_map<int, std::size_t> launches;
    int best = -1;
    for (const trace::Event& event : trace.events) {
        const auto* const launch = std::get_if<trace::Launch>(&event);
        if (launch && ++launches[launch->device] > launches[best]) best = launch->device;
    }
    return best;
}

// What tells one launch from another: its kernel, and the sizes of what it touches.
std::vector<std::size_t> signatures_of(const Trace& trace, int device) {
    std::unordered_map<std::uint32_t, std::uint64_t> sizes;
    std::vector<std::size_t> signatures;
    for (const trace::Event& event : trace.events) {
        if (const auto* const made = std::get_if<trace::Allocation>(&event); made && made->device == device)
            sizes[made->allocation] = made->bytes;
        const auto* const launch = std::get_if<trace::Launch>(&event);
        if (!launch || launch->device != device) continue;
        std::size_t signature = std::hash<std::string_view>{}(launch->kernel);
        std::uint32_t last = ~0u;
        for (const trace::Touched& each : launch->touched) {
            if (each.allocation != last) signature = signature * 1'000'003 + sizes[each.allocation];
            last = each.allocation;
        }
        signatures.push_back(signature);
    }
    return signatures;
}

// Launches in which the program repeats itself.
struct Repeated {
    std::size_t period = 0;  // 0: it does not
    std::size_t begin = 0, end = 0;
};

// The stretch that takes longest, and of several periods the least. Three times is often enough.
Repeated repeated_in(const std::vector<std::size_t>& signatures, const std::vector<std::size_t>& took) {
    constexpr std::size_t kMostCompared = 400'000'000;
    const std::size_t count = signatures.size();
    std::vector<std::size_t> before(count + 1);  // that launches before it took
    for (std::size_t i = 0; i < count; ++i) before[i + 1] = before[i] + took[i] + 1;
    Repeated best;
    std::size_t most = 0;
    const std::size_t longest = std::min(count / 4, kMostCompared / std::max<std::size_t>(1, count));
    for (std::size_t period = 1; period <= longest; ++period) {
        std::size_t begin = 0;
        for (std::size_t i = period; i <= count; ++i) {
            if (i < count && signatures[i] == signatures[i - period]) continue;
            const std::size_t sum = before[i] - before[begin];
            // A multiple of a period repeats itself as long, or a little longer.
            if (i - begin >= 3 * period && sum > most + most / 20) {
                best = {period, begin, i};
                most = sum;
            }
            begin = i + 1 - period;
        }
    }
    // Less is one part of the program among others.
    return most * 5 < before[count] * 2 ? Repeated{} : best;
}

}  // namespace

std::unique_ptr<const KernelTimes> given_times(double milliseconds) {
    return std::make_unique<GivenTimes>(milliseconds);
}

std::unique_ptr<const KernelTimes> measured_times(const Trace& trace, int device) {
    return std::make_unique<MeasuredTimes>(trace, device);
}

std::uint64_t default_reserve(std::uint64_t total_bytes) {
    return std::min<std::uint64_t>(total_bytes / 64, 512ull << 20);
}

std::vector<std::size_t> steps_of(const Trace& trace, int device, const KernelTimes& times) {
    std::vector<std::size_t> took;
    const std::vector<std::size_t> signatures = signatures_of(trace, device);
    for (std::size_t i = 0; i < signatures.size(); ++i)
        took.push_back(static_cast<std::size_t>(std::max(0.0, times.kernel_ns(i, *find_gpu("a100")))));
    const Repeated found = repeated_in(signatures, took);
    std::vector<std::size_t> ends;
    if (found.period == 0) return ends;
    for (std::size_t end = found.end; end >= found.begin + found.period; end -= found.period)
        ends.push_back(end - 1);
    std::ranges::reverse(ends);
    return ends;
}

Workload workload_of(std::unique_ptr<Trace> trace, std::string& problem) {
    Workload load;
    load.trace = std::move(trace);
    load.device = busiest(*load.trace);
    if (load.device < 0) {
        problem = "no work with managed buffers is in it";
        return load;
    }
    const bool has_buffers = std::ranges::any_of(load.trace->events, [&](const trace::Event& event) {
        const auto* const made = std::get_if<trace::Allocation>(&event);
        return made && made->device == load.device;
    });
    if (!has_buffers) {
        problem = "no managed buffers are in it: none reaches LMS_THRESHOLD, which is 2M where it is not set";
        return load;
    }
    load.times = measured_times(*load.trace, load.device);
    const auto told = unmanaged_of(*load.trace, load.device);
    load.unmanaged_bytes = told ? *told : held_beside(*load.trace, load.device);
    const trace::Gpu* const gpu = gpu_of(*load.trace, load.device);
    load.has_context = told && gpu && gpu->name != kSimulated;
    load.remap_seconds = remap_of(*load.trace).value_or(0);
    load.step_ends = steps_of(*load.trace, load.device, *load.times);
    return load;
}

}  // namespace lms::tool
