// make gpu-facts on the simulated GPU: every fact is there whatever happens to the others, and nothing is
// taken for a real GPU's. No figure is looked at that the machine's speed decides.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/process.h"
#include "tests/support/scratch.h"

namespace {

using nlohmann::json;
using Environment = std::map<std::string, std::string>;

const std::vector<std::string> kNames = {
    "vmm-costs",     "remap-beside-kernel", "host-mapping", "lookup-identity", "tensor-map",
    "runtime-calls", "pointer-attributes",  "limits",       "copy-bandwidth",  "async-copies",
    "graph-copies",  "event-cost",          "contexts",     "accounts",        "reservations"};

support::Result gpu_facts(const std::vector<std::string>& arguments, const Environment& more = {}) {
    std::vector<std::string> command = {support::build_dir() + "/gpu/gpu-facts"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Environment environment = {{"LD_LIBRARY_PATH", support::build_dir() + "/sim"},
                               {"SIMCUDA_MEMORY", "128M"},
                               {"SIMCUDA_DELAY_US", "0"}};
    for (const auto& [name, value] : more) environment[name] = value;
    return support::run(command, environment);
}

// With little memory and few mappings, so that it is quick.
json measure(std::vector<std::string> arguments, const Environment& more = {}) {
    for (const char* word : {"--json", "--memory", "16M", "--most", "200"}) arguments.push_back(word);
    const support::Result result = gpu_facts(arguments, more);
    REQUIRE_MESSAGE(result.status == 0, result.err);
    return json::parse(result.out);
}

const json& fact(const json& report, const std::string& name) {
    for (const json& candidate : report.at("facts")) {
        if (candidate.at("name") == name) return candidate;
    }
    FAIL("no fact ", name);
    return report;
}

const json& value(const json& report, const std::string& fact_name, const std::string& name) {
    const json& found = fact(report, fact_name);
    for (const json& candidate : found.at("values")) {
        if (candidate.at("name") == name) return candidate;
    }
    FAIL("no value ", name, " in ", found.dump(1));
    return report;
}

void check_value(const json& value) {
    CAPTURE(value.dump());
    CHECK(!value.at("name").get<std::string>().empty());
    if (value.contains("text")) return;
    REQUIRE(value.contains("unit"));
    if (value.contains("value")) {
        CHECK(value.at("value").is_number());
        return;
    }
    CHECK(value.at("n").get<int>() > 0);
    CHECK(value.at("min").get<double>() >= 0);
    CHECK(value.at("min").get<double>() <= value.at("median").get<double>());
}

}  // namespace

TEST_CASE("facts: all of them, in order, each with values or a reason") {
    Scratch scratch;
    const json report = measure({"--out", scratch.path("results")});
    CHECK(report.at("gpu") == "Simulated GPU");
    CHECK(report.at("simulated") == true);
    for (const char* key : {"driver", "date", "host", "compute_capability"})
        CHECK(!report.at(key).get<std::string>().empty());
    REQUIRE(report.at("facts").size() == kNames.size());
    for (std::size_t i = 0; i < kNames.size(); ++i) {
        const json& found = report.at("facts")[i];
        CAPTURE(found.dump(1));
        CHECK(found.at("number") == i + 1);
        CHECK(found.at("name") == kNames[i]);
        // NVIDIA's runtime refuses the simulated GPU's driver.
        const bool lacking = kNames[i] == "runtime-calls";
        CHECK(found.at("status") == (lacking ? "not supported" : "ok"));
        CHECK(found.contains("reason") == lacking);
        CHECK(!found.at("values").empty());
        for (const json& each : found.at("values")) check_value(each);
    }
    CHECK(json::parse(scratch.get("results/simulated-gpu-facts.json")) == report);
    const std::string page = scratch.get("results/simulated-gpu-facts.md");
    CHECK(page.starts_with("# Facts: Simulated GPU\n\n**Simulated.**"));
    for (const std::string& name : kNames) CHECK(page.find(". " + name + "\n") != std::string::npos);
}

TEST_CASE("facts: what is known of the simulated GPU is found") {
    const json report =
        measure({"--only", "remap-beside-kernel", "--only", "host-mapping", "--only", "lookup-identity",
                 "--only", "runtime-calls", "--only", "graph-copies", "--only", "limits"});
    CHECK(report.at("facts").size() == 6);
    CHECK(value(report, "remap-beside-kernel", "other memory/a call waited for the kernel").at("text") ==
          "no");
    CHECK(value(report, "remap-beside-kernel", "other memory/kernel ended with").at("text") ==
          "CUDA_SUCCESS");
    CHECK(value(report, "remap-beside-kernel", "its memory unmapped/kernel ended with").at("text") ==
          "CUDA_ERROR_ILLEGAL_ADDRESS");
    for (const std::string location : {"HOST", "HOST_NUMA"}) {
        for (const char* step : {"/to the host/wrong words", "/written in place/wrong words by the alias",
                                 "/to the device/wrong words"}) {
            CHECK(value(report, "host-mapping", location + step).at("value") == 0);
        }
        CHECK(value(report, "host-mapping", location + "/atomics in place are right, 64 bits").at("text") ==
              "yes");
    }
    CHECK(value(report, "lookup-identity", "different pointers").at("value") == 0);
    CHECK(value(report, "lookup-identity", "same pointer").at("value") > 600);
    CHECK(value(report, "runtime-calls", "shared/02 cuLibraryLoadData")
              .at("text")
              .get<std::string>()
              .starts_with("fat binary wrapper"));
    CHECK(value(report, "graph-copies", "same memory/data after the remap is right").at("text") == "yes");
    CHECK(value(report, "graph-copies", "host memory/launch after the remap").at("text") ==
          "CUDA_ERROR_INVALID_VALUE");
    CHECK(value(report, "limits", "mappings/mappings of device memory/made").at("value") == 200);
    CHECK(value(report, "limits", "mappings/mappings of device memory/stopped by").at("text") ==
          "the stated count");
}

TEST_CASE("facts: a GPU with other properties gives other answers") {
    const json report =
        measure({"--only", "remap-beside-kernel", "--only", "host-mapping", "--only", "limits"},
                {{"SIMCUDA_UNMAP_DRAINS", "1"}, {"SIMCUDA_HOST_VMM", "0"}, {"SIMCUDA_HANDLES", "5"}});
    CHECK(value(report, "remap-beside-kernel", "other memory/a call waited for the kernel").at("text") ==
          "yes");
    CHECK(
        value(report, "remap-beside-kernel", "its memory unmapped/unmap waited for the kernel").at("text") ==
        "yes");
    CHECK(value(report, "remap-beside-kernel", "its memory unmapped/kernel ended with").at("text") ==
          "CUDA_SUCCESS");
    CHECK(fact(report, "host-mapping").at("status") == "not supported");
    CHECK(value(report, "limits", "handles/handles on the device/made").at("value") == 5);
    CHECK(value(report, "limits", "handles/handles on the device/stopped by").at("text") ==
          "CUDA_ERROR_OUT_OF_MEMORY");
}

TEST_CASE("facts: one that fails loses neither what it had found nor the others") {
    // The first mapping of every probe is refused, the sixth kernel launch too.
    const json report = measure({}, {{"SIMCUDA_FAIL", "cuMemMap:1,cuLaunchKernel:6"}});
    REQUIRE(report.at("facts").size() == kNames.size());
    const json& costs = fact(report, "vmm-costs");
    CHECK(costs.at("status") == "failed");
    CHECK(costs.at("reason").get<std::string>().starts_with("cuMemMap: CUDA_ERROR_"));
    CHECK(value(report, "vmm-costs", "granularity").at("value") > 0);
    CHECK(fact(report, "event-cost").at("status") == "failed");
    for (const char* name : {"lookup-identity", "reservations"})
        CHECK(fact(report, name).at("status") == "ok");
}

TEST_CASE("facts: the simulated GPU's settings come out of them") {
    Scratch scratch;
    scratch.put("facts.json", R"({"gpu": "NVIDIA Test", "date": "2026-01-02", "facts": [
        {"name": "vmm-costs", "values": [{"name": "granularity", "value": 2097152, "unit": "bytes"},
            {"name": "device/32 MiB/reused/remap", "min": 80, "median": 93, "n": 15, "unit": "us"}]},
        {"name": "copy-bandwidth", "values": [
            {"name": "copies/pinned, pieces of 32 MiB/to the device", "min": 50, "median": 55.25, "n": 7, "unit": "GB/s"},
            {"name": "copies/pinned, pieces of 32 MiB/to the host", "min": 50, "median": 52, "n": 7, "unit": "GB/s"}]},
        {"name": "remap-beside-kernel", "values": [
            {"name": "other memory/a call waited for the kernel", "text": "yes"}]}]})");
    const support::Result result = gpu_facts({"--knobs", scratch.path("facts.json")});
    CHECK(result.status == 0);
    CHECK(result.out ==
          "# NVIDIA Test, 2026-01-02\nSIMCUDA_GRANULARITY=2097152\nSIMCUDA_VMM_US=31\nSIMCUDA_H2D_GBPS=55.2\n"
          "SIMCUDA_D2H_GBPS=52.0\nSIMCUDA_UNMAP_DRAINS=1\n");
    scratch.put("empty.json", R"({"gpu": "x", "date": "y", "facts": []})");
    CHECK(gpu_facts({"--knobs", scratch.path("empty.json")}).status == 1);
    scratch.put("other.json", "[]");
    const support::Result other = gpu_facts({"--knobs", scratch.path("other.json")});
    CHECK(other.status == 2);
    CHECK(other.err.find("expected the JSON that this program writes") != std::string::npos);
}

TEST_CASE("facts: measuring some again leaves the others") {
    Scratch scratch;
    for (const char* name : {"reservations", "lookup-identity", "reservations"}) {
        measure({"--only", name, "--out", scratch.path("results")});
    }
    const json report = json::parse(scratch.get("results/simulated-gpu-facts.json"));
    REQUIRE(report.at("facts").size() == 2);
    CHECK(report.at("facts")[0].at("name") == "lookup-identity");
    CHECK(report.at("facts")[1].at("name") == "reservations");
}

TEST_CASE("facts: what was found before it is stopped is in the file, whole") {
    Scratch scratch;
    const std::string file = scratch.path("results/simulated-gpu-facts.json");
    support::run({"sh", "-c",
                  "'" + support::build_dir() + "/gpu/gpu-facts' --memory 16M --most 200 --out '" +
                      scratch.path("results") + "' & while [ ! -e '" + file +
                      "' ]; do sleep 0.01; done; kill -9 $!; wait"},
                 {{"LD_LIBRARY_PATH", support::build_dir() + "/sim"}, {"SIMCUDA_MEMORY", "128M"}});
    const json report = json::parse(support::read_file(file));
    REQUIRE(report.at("facts").size() >= 1);
    CHECK(report.at("facts").size() < kNames.size());
    CHECK(report.at("facts")[0].at("name") == kNames[0]);
    CHECK(report.at("facts")[0].at("values").size() > 10);
}

TEST_CASE("facts: the simulated GPU is never taken for a real one") {
    Scratch scratch;
    const support::Result result = gpu_facts({"--only", "reservations", "--out", scratch.path("docs/gpu")});
    CHECK(result.status == 2);
    CHECK(result.err.find("that folder is for real GPUs") != std::string::npos);
    CHECK(!std::filesystem::exists(scratch.path("docs")));
}

TEST_CASE("facts: usage") {
    const support::Result list = gpu_facts({"--list"});
    CHECK(list.status == 0);
    for (const std::string& name : kNames) CHECK(list.out.find(name + "\n") != std::string::npos);
    const support::Result unknown = gpu_facts({"--only", "nothing"});
    CHECK(unknown.status == 2);
    CHECK(unknown.err.find("there is no such fact") != std::string::npos);
    CHECK(gpu_facts({"--most", "0"}).status == 2);
    const support::Result no_driver = gpu_facts({}, {{"LD_LIBRARY_PATH", "/nowhere"}});
    if (no_driver.status != 0) CHECK(no_driver.err.find("there is no CUDA driver here") != std::string::npos);
    const support::Result shimmed = gpu_facts({}, {{"LD_PRELOAD", support::build_dir() + "/liblmsshim.so"}});
    CHECK(shimmed.status == 1);
    CHECK(shimmed.err.find("the shim is preloaded") != std::string::npos);
}
