#include "tools/gpu_facts/record.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace facts {
namespace {

void write_line(const nlohmann::ordered_json& value) {
    const std::string line = value.dump() + "\n";
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
}

}  // namespace

double Samples::least() const {
    return *std::min_element(values_.begin(), values_.end());
}

double Samples::median() const {
    std::vector<double> sorted = values_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
}

void Record::number(const std::string& name, double value, const std::string& unit) {
    write_line({{"name", name}, {"value", value}, {"unit", unit}});
}

void Record::samples(const std::string& name, const Samples& samples, const std::string& unit) {
    if (samples.empty()) return;
    write_line({{"name", name},
                {"min", samples.least()},
                {"median", samples.median()},
                {"n", samples.count()},
                {"unit", unit}});
}

void Record::text(const std::string& name, const std::string& value) {
    write_line({{"name", name}, {"text", value}});
}

}  // namespace facts
