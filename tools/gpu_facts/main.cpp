// gpu-facts: measures what the design of lmsshim assumes of a GPU and its driver. Stands alone: it needs the
// driver and nothing else of CUDA. Each probe is this program again, in a process of its own.
#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tools/gpu_facts/child.h"
#include "tools/gpu_facts/facts.h"
#include "tools/gpu_facts/report.h"

namespace facts {
namespace {

namespace fs = std::filesystem;

constexpr int kFailed = 1, kUsage = 2;

struct Options {
    Limits limits;
    std::vector<std::string> only;
    std::string out, knobs, probe;
    bool list = false, json = false, device = false;
};

int refuse(int status, const std::string& why) {
    std::cerr << "gpu-facts: " << why << "\n";
    return status;
}

// In the probe's process: a line of JSON per value, the last one says how it ended.
int run_probe(const Probe& probe, const Limits& limits) {
    Record record;
    Json end;
    try {
        const Card card(limits);
        probe.run(card, record);
        end = {{"status", "ok"}};
    } catch (const Failure& failure) {
        const bool unsupported = failure.code == CUDA_ERROR_NOT_SUPPORTED;
        end = {{"status", unsupported ? "not supported" : "failed"},
               {"reason", failure.call + ": " + name_of(failure.code)}};
    }
    std::cout << end.dump() << std::endl;
    return 0;
}

// "vmm-costs" or "host-mapping:HOST".
std::string probe_id(const Fact& fact, const Probe& probe) {
    return std::string(fact.name) + ":" + std::string(probe.name);
}

int run_probe(const std::string& id, const Limits& limits) {
    for (const Fact& fact : all_facts()) {
        for (const Probe& probe : fact.probes) {
            if (probe_id(fact, probe) == id) return run_probe(probe, limits);
        }
    }
    return refuse(kUsage, "--probe=" + id + ": there is no such probe");
}

// What a worse end of one probe makes of the whole fact: failed over not supported over ok.
void worsen(Json& fact, const std::string& status, const std::string& reason) {
    const auto badness = [](const std::string& s) {
        return s == "failed" ? 2 : s == "not supported" ? 1 : 0;
    };
    if (badness(status) > badness(fact.at("status"))) fact["status"] = status;
    if (status != "ok")
        fact["reason"] = fact.value("reason", "") + (fact.contains("reason") ? "; " : "") + reason;
}

using Clock = std::chrono::steady_clock;

void collect(const Probe& probe, const std::string& id, const Limits& limits, Clock::time_point end,
             Json& fact) {
    Child child({fs::read_symlink("/proc/self/exe"), "--probe", id, "--memory",
                 std::to_string(limits.memory_bytes), "--most", std::to_string(limits.most)},
                {});
    std::string output;
    const auto left = std::chrono::duration_cast<std::chrono::seconds>(end - Clock::now()).count();
    std::string ended = child.collect(static_cast<int>(std::clamp<long>(left, 0, kProbeSeconds)), output);
    const std::string prefix = probe.name.empty() ? "" : std::string(probe.name) + "/";
    const std::string about = probe.name.empty() ? "" : std::string(probe.name) + ": ";
    bool told = false;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
        Json value = Json::parse(line, nullptr, false);
        if (!value.is_object()) continue;
        if (value.contains("status")) {
            told = true;
            worsen(fact, value.at("status"), about + value.value("reason", ""));
            continue;
        }
        value["name"] = prefix + value.at("name").get<std::string>();
        fact["values"].push_back(value);
    }
    if (!told && ended.empty()) ended = "ended without a word";
    if (!ended.empty()) worsen(fact, "failed", about + "the probe " + ended);
}

Json measure(const Fact& fact, const Limits& limits, Clock::time_point end) {
    Json json = {{"number", fact.number}, {"name", fact.name}, {"question", fact.question},
                 {"how", fact.how},       {"status", "ok"},    {"values", Json::array()}};
    for (const Probe& probe : fact.probes) collect(probe, probe_id(fact, probe), limits, end, json);
    return json;
}

std::string today() {
    char text[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
    return text;
}

// The driver's own number ("580.65.06"), where the kernel module tells it.
std::string driver_release() {
    std::ifstream file("/sys/module/nvidia/version");
    std::string release;
    file >> release;
    return release;
}

std::string host() {
    utsname name{};
    uname(&name);
    return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

// The probes' processes use the device; this one asks about it in one of its own too, for contexts cost
// memory.
int describe_device() {
    Json json;
    try {
        const Card card({});
        int version = 0;
        std::size_t free_bytes = 0, total_bytes = 0;
        CU(cuDriverGetVersion, &version);
        CU(cuMemGetInfo_v2, &free_bytes, &total_bytes);
        const std::string release = driver_release(), name = card.name();
        const bool simulated = card.simulated();
        json = {{"gpu", name},
                {"simulated", simulated},
                {"driver", (simulated || release.empty() ? "" : release + ", ") + "CUDA " +
                               std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10)},
                {"compute_capability",
                 std::to_string(card.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)) + "." +
                     std::to_string(card.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))},
                {"memory_bytes", total_bytes},
                {"free_bytes", free_bytes},
                {"maps_host_memory", card.host_location().type != CU_MEM_LOCATION_TYPE_INVALID},
                {"slug", slug(name)},
                {"date", today()},
                {"host", host()}};
    } catch (const Failure& failure) {
        return refuse(kFailed, failure.call + ": " + name_of(failure.code));
    }
    std::cout << json.dump(2) << std::endl;
    return 0;
}

int print_knobs(const std::string& path) {
    std::ifstream file(path);
    const Json report = Json::parse(file, nullptr, false);
    if (!report.is_object() || !report.contains("facts"))
        return refuse(kUsage, "--knobs=" + path + ": expected the JSON that this program writes");
    const std::string lines = simulation_knobs(report);
    if (lines.empty()) return refuse(kFailed, path + " has none of the facts that the simulated GPU models");
    std::cout << "# " << report.at("gpu").get<std::string>() << ", " << report.at("date").get<std::string>()
              << "\n"
              << lines;
    return 0;
}

bool for_real_gpus(const fs::path& folder) {
    const fs::path whole = fs::weakly_canonical(fs::absolute(folder));
    return whole.filename() == "gpu" && whole.parent_path().filename() == "docs";
}

// At once: who stops this program finds the file as it was or as it is.
int write_file(const fs::path& path, const std::string& text) {
    const std::string unfinished = path.string() + ".new";
    std::ofstream file(unfinished);
    file << text;
    file.close();
    std::error_code problem;
    if (file) fs::rename(unfinished, path, problem);
    return file && !problem ? 0 : refuse(kFailed, "cannot write " + path.string());
}

// The facts found so far in the place they have among those that an earlier run on the same device and driver
// left.
Json with_earlier(const Json& report, const fs::path& path) {
    std::ifstream file(path);
    Json earlier = Json::parse(file, nullptr, false);
    if (!earlier.is_object() || earlier.value("driver", "") != report.at("driver")) return report;
    Json merged = report;
    merged["facts"] = Json::array();
    for (const Fact& fact : all_facts()) {
        for (const Json* from : {&report, static_cast<const Json*>(&earlier)}) {
            const auto& found = from->at("facts");
            const auto at = std::find_if(found.begin(), found.end(),
                                         [&](const Json& f) { return f.at("name") == fact.name; });
            if (at == found.end()) continue;
            merged["facts"].push_back(*at);
            break;
        }
    }
    return merged;
}

int save(const Json& report, const std::string& folder) {
    std::error_code problem;
    fs::create_directories(folder, problem);
    const std::string base = fs::path(folder) / (report.at("slug").get<std::string>() + "-facts");
    const Json whole = with_earlier(report, base + ".json");
    const int json = write_file(base + ".json", whole.dump(2) + "\n");
    return json != 0 ? json : write_file(base + ".md", page(whole));
}

int measure_all(const Options& options) {
    std::string about;
    Child child({fs::read_symlink("/proc/self/exe"), "--device"}, {});
    if (!child.collect(kProbeSeconds, about).empty()) return kFailed;  // it has said why
    Json report = Json::parse(about);
    if (report.at("simulated") && !options.out.empty() && for_real_gpus(options.out))
        return refuse(
            kUsage, "--out=" + options.out + ": that folder is for real GPUs, and this is the simulated one");

    report["facts"] = Json::array();
    const auto end = Clock::now() + std::chrono::seconds(kAllSeconds);
    for (const Fact& fact : all_facts()) {
        if (!options.only.empty() &&
            std::find(options.only.begin(), options.only.end(), fact.name) == options.only.end())
            continue;
        std::cerr << "gpu-facts: " << fact.number << " " << fact.name << " ..." << std::flush;
        report["facts"].push_back(measure(fact, options.limits, end));
        std::cerr << " " << report["facts"].back().at("status").get<std::string>() << "\n";
        // As they come: what was found before this program is stopped stays.
        if (options.out.empty()) continue;
        if (const int status = save(report, options.out); status != 0) return status;
    }
    std::cout << (options.json ? report.dump(2) + "\n" : page(report)) << std::flush;
    return 0;
}

int list_facts() {
    for (const Fact& fact : all_facts()) std::cout << fact.name << "\n    " << fact.question << "\n";
    return 0;
}

std::string check_only(const std::string& name) {
    for (const Fact& fact : all_facts()) {
        if (fact.name == name) return {};
    }
    return "there is no such fact; --list shows them";
}

int run(int argc, char** argv) {
    Options options;
    CLI::App app{"Measures what lmsshim's design assumes of a GPU and its driver."};
    app.add_flag("--list", options.list, "The facts, and exit");
    app.add_option("--only", options.only, "Only this fact; may be given several times")->check(check_only);
    app.add_flag("--json", options.json, "Print JSON instead of the page");
    app.add_option("--out", options.out,
                   "Folder for <gpu>-facts.json and .md; without it nothing is written. With --only, the "
                   "other facts there stay");
    app.add_option("--memory", options.limits.memory_bytes,
                   "Device memory a probe may take, and host memory; 0: half of what is free")
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--most", options.limits.most, "Handles and mappings to stop at")
        ->capture_default_str()
        ->check(CLI::Range(1, 10'000'000));
    app.add_option("--knobs", options.knobs,
                   "Print the simulated GPU's settings from this facts file, and exit");
    app.add_flag("--device", options.device, "Describe the device as JSON, and exit");
    app.add_option("--probe", options.probe)->group("");  // one probe in this process
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : kUsage;
    }
    if (options.list) return list_facts();
    if (!options.knobs.empty()) return print_knobs(options.knobs);
    if (const std::string problem = load_driver(); !problem.empty()) return refuse(kFailed, problem);
    if (options.device) return describe_device();
    if (!options.probe.empty()) return run_probe(options.probe, options.limits);
    return measure_all(options);
}

}  // namespace
}  // namespace facts

int main(int argc, char** argv) {
    return facts::run(argc, argv);
}
