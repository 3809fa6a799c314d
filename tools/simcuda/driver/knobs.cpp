#include "tools/simcuda/driver/knobs.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string_view>

#include "tools/simcuda/driver/gpu_model.h"
#include "tools/simcuda/driver/message.h"

namespace simcuda::driver {
namespace {

// A parser returns false if the text is not a value it accepts.
bool parse_count(std::string_view text, std::uint64_t& out) {
    if (text.empty() || text.size() > 18) return false;
    std::uint64_t value = 0;
    for (char c : text) {
        if (c < '0' || c > '9') return false;
        value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    out = value;
    return true;
}

bool parse_size(std::string_view text, std::uint64_t& out) {
    static constexpr std::string_view kUnits = "KMGT";
    unsigned shift = 0;
    if (!text.empty()) {
        const auto unit =
            kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text.back()))));
        if (unit != std::string_view::npos) {
            shift = 10 * (static_cast<unsigned>(unit) + 1);
            text.remove_suffix(1);
        }
    }
    std::uint64_t value = 0;
    if (!parse_count(text, value) || value > (std::uint64_t{1} << 46 >> shift)) return false;
    out = value << shift;
    return true;
}

bool parse_fail(std::string_view text, std::vector<FailRule>& out) {
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        const auto colon = item.find(':');
        FailRule rule;
        if (colon == 0 || colon == std::string_view::npos) return false;
        const std::string_view number = item.substr(colon + 1);
        const auto equals = number.find('=');
        const std::string_view calls = number.substr(0, equals);
        const auto dash = calls.find('-');
        if (!parse_count(calls.substr(0, dash), rule.nth) || rule.nth == 0) return false;
        rule.last = rule.nth;
        if (dash != std::string_view::npos &&
            (!parse_count(calls.substr(dash + 1), rule.last) || rule.last < rule.nth))
            return false;
        if (equals != std::string_view::npos &&
            (!parse_count(number.substr(equals + 1), rule.error) || rule.error == 0))
            return false;
        rule.name = item.substr(0, colon);
        out.push_back(rule);
    }
    return true;
}

// In the order of Perverse.
constexpr std::string_view kPerverse[] = {
    "host-create-crashes", "host-copies-fail",  "host-sets-lost",      "moves-lose",      "copies-queue",
    "unmap-drains",        "access-not-ready",  "launches-overlap",    "one-queue",       "host-copies-early",
    "host-writes-lost",    "host-atomics-lost", "copies-block",        "one-bus-address", "less-than-free",
    "less-accessible",     "mixed-copies-fail", "mapped-copies-early", "mappings-apart"};

bool parse_perverse(std::string_view text, unsigned& out) {
    unsigned found = 0;
    while (!text.empty()) {
        const std::string_view name = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), name.size() + 1));
        const auto* const it = std::find(std::begin(kPerverse), std::end(kPerverse), name);
        if (it == std::end(kPerverse) && name != "all") return false;
        found |= name == "all" ? (1u << std::size(kPerverse)) - 1 : 1u << (it - std::begin(kPerverse));
    }
    out = found;
    return true;
}

class KnobReader {
  public:
    void count(const char* name, std::uint64_t& knob, std::uint64_t least, std::uint64_t most) {
        read(name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most),
             [&](auto text) {
                 std::uint64_t value = 0;
                 if (!parse_count(text, value) || value < least || value > most) return false;
                 knob = value;
                 return true;
             });
    }

    void size(const char* name, std::uint64_t& knob, std::uint64_t least) {
        read(name, "bytes, or a number with K, M, G or T; at least " + std::to_string(least), [&](auto text) {
            std::uint64_t value = 0;
            if (!parse_size(text, value) || value < least) return false;
            knob = value;
            return true;
        });
    }

    void granularity(const char* name, std::uint64_t& knob) {
        read(name, "a power of two from 4K to 1G", [&](auto text) {
            std::uint64_t value = 0;
            if (!parse_size(text, value)) return false;
            if (value < 4096 || value > (1u << 30) || (value & (value - 1)) != 0) return false;
            knob = value;
            return true;
        });
    }

    void speed(const char* name, double& knob) {
        read(name, "GB/s above 0 (1e9 bytes each), or 0 for no limit", [&](auto text) {
            const std::string copy(text);
            char* end = nullptr;
            const double value = std::strtod(copy.c_str(), &end);
            if (*end != '\0' || !(value >= 0 && value < 1e6)) return false;
            knob = value;
            return true;
        });
    }

    void flag(const char* name, bool& knob) {
        read(name, "0 or 1", [&](auto text) {
            if (text != "0" && text != "1") return false;
            knob = text == "1";
            return true;
        });
    }

    void gpu(const char* name, const GpuModel*& model) {
        read(name, "v100, a100, h100 or rtx4090", [&](auto text) {
            model = find_gpu(std::string(text).c_str());
            return model != nullptr;
        });
    }

    void clock(const char* name, bool& simulated) {
        read(name, "real or simulated", [&](auto text) {
            if (text != "real" && text != "simulated") return false;
            simulated = text == "simulated";
            return true;
        });
    }

    void host_vmm(const char* name, HostVmm& knob) {
        read(name, "0, 1 or numa", [&](auto text) {
            if (text != "0" && text != "1" && text != "numa") return false;
            knob = text == "0" ? HostVmm::None : text == "1" ? HostVmm::All : HostVmm::NumaOnly;
            return true;
        });
    }

    void fail(const char* name, std::vector<FailRule>& knob) {
        read(name,
             "name:n or name:n=error, or several with commas between (the nth call of that name fails, n "
             "from 1, with that CUresult; n-m: the nth to the mth)",
             [&](auto text) {
                 std::vector<FailRule> rules;
                 if (!parse_fail(text, rules)) return false;
                 knob = std::move(rules);
                 return true;
             });
    }

    void perverse(const char* name, unsigned& knob) {
        std::string names = "all";
        for (const std::string_view each : kPerverse) names += ", " + std::string(each);
        read(name, "one of " + names + ", or several with commas between",
             [&](auto text) { return parse_perverse(text, knob); });
    }

    void text(const char* name, std::string& knob) {
        read(name, "", [&](auto value) {
            knob = value;
            return true;
        });
    }

  private:
    static void read(const char* name, const std::string& accepted,
                     const std::function<bool(std::string_view)>& parse) {
        const char* value = std::getenv(name);
        if (value == nullptr || *value == '\0' || parse(value)) return;
        message("%s=%s is not accepted; expected %s; using the default", name, value, accepted.c_str());
    }
};

const GpuModel* gpu = nullptr;  // of SIMCUDA_GPU

Knobs read_knobs() {
    Knobs k;
    KnobReader read;
    read.count("SIMCUDA_CUDA", k.cuda, 11000, 13000);
    read.count("SIMCUDA_DEVICES", k.devices, 0, 16);
    read.count("SIMCUDA_ARCH", k.arch, 75, 90);
    read.flag("SIMCUDA_SKIP_NATIVE", k.skips_native);
    read.gpu("SIMCUDA_GPU", gpu);
    if (gpu != nullptr) {
        k.simulated_time = true;
        k.multiprocessors = gpu->multiprocessors;
        k.h2d_gbps = k.d2h_gbps = gpu->link_gbps;
    }
    read.count("SIMCUDA_SMS", k.multiprocessors, 1, 1024);
    read.size("SIMCUDA_MEMORY", k.memory, 1 << 20);
    read.size("SIMCUDA_HOST_MEMORY", k.host_memory, 1 << 20);
    read.granularity("SIMCUDA_GRANULARITY", k.granularity);
    read.count("SIMCUDA_HANDLES", k.handles, 0, 1'000'000'000);
    read.count("SIMCUDA_MAPPINGS", k.mappings, 0, 1'000'000'000);
    read.host_vmm("SIMCUDA_HOST_VMM", k.host_vmm);
    read.count("SIMCUDA_KERNELS", k.kernels, 4, 128);
    read.count("SIMCUDA_QUEUE", k.queue, 1, 1'000'000);
    read.text("SIMCUDA_SHARED", k.shared);
    read.count("SIMCUDA_PROCESSES", k.processes, 1, 64);
    read.size("SIMCUDA_CONTEXT_BYTES", k.context_bytes, 0);
    read.size("SIMCUDA_MODULE_BYTES", k.module_bytes, 0);
    read.size("SIMCUDA_STREAM_BYTES", k.stream_bytes, 0);
    read.size("SIMCUDA_GRAPH_BYTES", k.graph_bytes, 0);
    read.count("SIMCUDA_LOCAL_THREADS", k.local_threads, 0, 1'000'000);
    read.count("SIMCUDA_SEED", k.seed, 0, ~std::uint64_t{0} >> 8);
    read.count("SIMCUDA_DELAY_US", k.delay_us, 0, 1'000'000);
    read.speed("SIMCUDA_H2D_GBPS", k.h2d_gbps);
    read.speed("SIMCUDA_D2H_GBPS", k.d2h_gbps);
    read.speed("SIMCUDA_PIN_GBPS", k.pin_gbps);
    read.clock("SIMCUDA_CLOCK", k.simulated_time);
    if (k.simulated_time) k.delay_us = 0;
    read.count("SIMCUDA_KERNEL_US", k.kernel_us, 0, 10'000'000);
    read.count("SIMCUDA_KERNEL_TIMEOUT_MS", k.kernel_timeout_ms, 0, 86'400'000);
    read.count("SIMCUDA_VMM_US", k.vmm_us, 0, 10'000'000);
    read.flag("SIMCUDA_UNMAP_DRAINS", k.unmap_drains);
    read.count("SIMCUDA_NOT_READY", k.not_ready, 0, 1'000'000'000);
    read.fail("SIMCUDA_FAIL", k.fail);
    read.perverse("SIMCUDA_PERVERSE", k.perverse);
    const auto perverse = [&](Perverse which) {
        return (k.perverse >> static_cast<unsigned>(which) & 1) != 0;
    };
    k.unmap_drains |= perverse(Perverse::UnmapDrains);
    if (perverse(Perverse::AccessNotReady)) k.not_ready = 3;
    read.text("SIMCUDA_LOG", k.log);
    read.text("SIMCUDA_REPORT", k.report);
    read.text("SIMCUDA_WORK", k.work);
    return k;
}

}  // namespace

const Knobs& knobs() {
    static const Knobs& knobs = *new Knobs(read_knobs());  // never destroyed: worker threads outlive main()
    return knobs;
}

const GpuModel* modelled_gpu() {
    knobs();
    return gpu;
}

}  // namespace simcuda::driver
