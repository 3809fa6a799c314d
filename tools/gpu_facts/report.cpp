#include "tools/gpu_facts/report.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>

namespace facts {
namespace {

std::string number(const Json& value) {
    const double found = value.get<double>();
    if (found == std::floor(found) && std::abs(found) < 1e15) return fmt::format("{:.0f}", found);
    return fmt::format("{:.{}f}", found, std::abs(found) < 100 ? 2 : 1);
}

std::string row(const Json& value) {
    const std::string name = value.at("name");
    if (value.contains("text"))
        return fmt::format("| {} | {} | |\n", name, value.at("text").get<std::string>());
    const std::string unit = value.at("unit");
    if (value.contains("value"))
        return fmt::format("| {} | {} {} | |\n", name, number(value.at("value")), unit);
    return fmt::format("| {} | {} {} | {}, {} times |\n", name, number(value.at("median")), unit,
                       number(value.at("min")), value.at("n").get<int>());
}

}  // namespace

std::string page(const Json& report) {
    std::string text = fmt::format("# Facts: {}\n\n", report.at("gpu").get<std::string>());
    if (report.at("simulated")) text += "**Simulated.** Nothing here says anything of a real GPU.\n\n";
    text += fmt::format("Driver {}, {}, on {}. `make gpu-facts` makes this page and the JSON beside it.\n",
                        report.at("driver").get<std::string>(), report.at("date").get<std::string>(),
                        report.at("host").get<std::string>());
    for (const Json& fact : report.at("facts")) {
        text += fmt::format("\n## {}. {}\n\n{} How: {}.\n\n**{}**{}\n", fact.at("number").get<int>(),
                            fact.at("name").get<std::string>(), fact.at("question").get<std::string>(),
                            fact.at("how").get<std::string>(), fact.at("status").get<std::string>(),
                            fact.contains("reason") ? ": " + fact.at("reason").get<std::string>() : "");
        if (fact.at("values").empty()) continue;
        text += "\n| what | median or value | least |\n|---|---|---|\n";
        for (const Json& value : fact.at("values")) text += row(value);
    }
    return text;
}

std::string slug(const std::string& gpu) {
    std::string result;
    for (const char c : gpu) {
        const auto byte = static_cast<unsigned char>(c);
        if (std::isalnum(byte)) {
            result += static_cast<char>(std::tolower(byte));
        } else if (!result.empty() && result.back() != '-') {
            result += '-';
        }
    }
    while (result.ends_with('-')) result.pop_back();
    return result;
}

const Json* find_value(const Json& report, const std::string& fact, const std::string& value) {
    for (const Json& candidate : report.at("facts")) {
        if (candidate.at("name") != fact) continue;
        for (const Json& found : candidate.at("values")) {
            if (found.at("name") == value) return &found;
        }
    }
    return nullptr;
}

std::string simulation_knobs(const Json& report) {
    std::string lines;
    const auto add = [&](const char* knob, const std::string& value) {
        lines += fmt::format("{}={}\n", knob, value);
    };
    const auto median = [&](const std::string& fact, const std::string& value) {
        const Json* const found = find_value(report, fact, value);
        return found != nullptr && found->contains("median") ? found->at("median").get<double>() : 0;
    };
    if (const Json* granularity = find_value(report, "vmm-costs", "granularity"))
        add("SIMCUDA_GRANULARITY", number(granularity->at("value")));
    // One knob stands for each VMM call: a third of a remap's three, at the chunk size that moves most.
    for (const char* size : {"32 MiB", "16 MiB", "8 MiB", "4 MiB", "2 MiB"}) {
        const double remap = median("vmm-costs", fmt::format("device/{}/reused/remap", size));
        if (remap <= 0) continue;
        add("SIMCUDA_VMM_US", fmt::format("{:.0f}", remap / 3));
        break;
    }
    for (const char* piece : {"32 MiB", "8 MiB", "2 MiB"}) {
        const std::string name = fmt::format("copies/pinned, pieces of {}/", piece);
        const double in = median("copy-bandwidth", name + "to the device");
        const double out = median("copy-bandwidth", name + "to the host");
        if (in <= 0 || out <= 0) continue;
        add("SIMCUDA_H2D_GBPS", fmt::format("{:.1f}", in));
        add("SIMCUDA_D2H_GBPS", fmt::format("{:.1f}", out));
        break;
    }
    if (const Json* drains =
            find_value(report, "remap-beside-kernel", "other memory/a call waited for the kernel"))
        add("SIMCUDA_UNMAP_DRAINS", drains->at("text") == "yes" ? "1" : "0");
    if (const Json* moved = find_value(report, "host-mapping", "HOST/to the host/wrong words"))
        add("SIMCUDA_HOST_VMM", moved->at("value") == 0 ? "1" : "0");
    const double launch = median("event-cost", "launch/until done");
    if (launch > 0) add("SIMCUDA_KERNEL_US", fmt::format("{:.0f}", std::ceil(launch / 1e3)));
    return lines;
}

}  // namespace facts
