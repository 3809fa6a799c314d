#include "tools/lms/recorded_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "shim/engine/chunking.h"
#include "shim/util/units.h"

namespace lms::tool {
namespace {

constexpr int kSteps = 6;  // the last two are steady
constexpr std::uint64_t kGranularity = 2 << 20;
constexpr std::uint64_t kThreshold = 2 << 20;              // as LMS_THRESHOLD is by default
constexpr std::uint64_t kCallNs = 2000;                    // of the program, as the simulated GPU has it
constexpr std::uint64_t kLeastNs = 3000;                   // that a kernel takes
constexpr double kOfOperations = 0.6, kOfBandwidth = 0.8;  // of the published figures, that a kernel reaches
constexpr std::string_view kUnit = "# n: ", kPrecision = "# precision: ";

struct RecordedKernel {
    std::string name;
    double operations = 0, bytes = 0;
    std::vector<std::uint64_t> reads, writes;
};

struct RecordedEvent {
    char what;  // P, A, F or K
    std::uint64_t id = 0, bytes = 0;
    std::size_t kernel = 0;
};

struct RecordedStep {
    std::string precision;
    std::vector<RecordedEvent> events;
    std::vector<RecordedKernel> kernels;
};

// Of what a kernel is, its time on a GPU: by its operations or its bytes, whichever takes longer.
class RecordedTimes final : public KernelTimes {
  public:
    RecordedTimes(std::vector<RecordedKernel> kernels, std::size_t before, bool matrix)
        : kernels_(std::move(kernels)), before_(before), matrix_(matrix) {}

    double kernel_ns(std::size_t launch, const TargetGpu& gpu) const override {
        if (launch < before_ || !gpu.speed) return 0;
        const RecordedKernel& kernel = kernels_[(launch - before_) % kernels_.size()];
        const double speed = matrix_ ? gpu.speed->matrix_per_s : gpu.speed->f32_per_s;
        return std::max({1e9 * kernel.operations / (kOfOperations * speed),
                         1e9 * kernel.bytes / (kOfBandwidth * gpu.speed->bytes_per_s),
                         static_cast<double>(kLeastNs)});
    }
    std::string source() const override {
        return "modelled: 60 % of the GPU's published operations a second or 80 % of its memory's speed";
    }

  private:
    std::vector<RecordedKernel> kernels_;
    std::size_t before_;  // launches that come before the first step
    bool matrix_;
};

// Of the text; what is wrong with it stands in problem().
class Reader {
  public:
    Reader(const std::string& path, std::uint64_t n) : path_(path), n_(n) {}

    RecordedStep read() {
        std::ifstream file(path_);
        RecordedStep step;
        for (std::string line; problem_.empty() && std::getline(file, line);) {
            ++line_;
            if (line.starts_with(kPrecision)) step.precision = line.substr(kPrecision.size());
            if (!line.empty() && line[0] != '#') add(step, line);
        }
        if (problem_.empty() && step.kernels.empty()) problem_ = fmt::format("{}: no kernels", path_);
        if (problem_.empty() && step.precision != "f32" && step.precision != "bf16")
            problem_ = fmt::format("{}: precision \"{}\"; expected f32 or bf16", path_, step.precision);
        return step;
    }
    const std::string& problem() const { return problem_; }

  private:
    void add(RecordedStep& step, const std::string& line) {
        std::istringstream in(line);
        std::string what, id, bytes;
        in >> what;
        if (what == "K") return add_kernel(step, in);
        if (what != "P" && what != "A" && what != "F") return fail("expected a line P, A, F or K");
        in >> id;
        if (what != "F") in >> bytes;
        RecordedEvent event{what[0], number(id)};
        if (what != "F") event.bytes = sizes_[event.id] = linear(bytes);
        if (what == "F" && sizes_.erase(event.id) == 0) fail("a tensor is freed that is not there");
        step.events.push_back(event);
    }

    void add_kernel(RecordedStep& step, std::istream& in) {
        RecordedKernel kernel;
        std::string operations, reads, writes, bytes;
        in >> kernel.name >> operations >> reads >> writes >> bytes;
        kernel.operations = static_cast<double>(linear(operations));
        kernel.reads = ids(reads);
        kernel.writes = ids(writes);
        std::uint64_t all = 0;
        for (const auto* each : {&kernel.reads, &kernel.writes}) {
            for (const std::uint64_t id : *each) {
                if (!sizes_.contains(id)) return fail("a kernel uses a tensor that is not there");
                all += sizes_[id];
            }
        }
        kernel.bytes = static_cast<double>(bytes.empty() ? all : linear(bytes));
        step.events.push_back({'K', 0, 0, step.kernels.size()});
        step.kernels.push_back(std::move(kernel));
    }

    std::vector<std::uint64_t> ids(const std::string& text) {
        std::vector<std::uint64_t> found;
        std::istringstream in(text);
        for (std::string each; std::getline(in, each, ',') && each != "-";) found.push_back(number(each));
        return found;
    }

    // a, bn or a+bn.
    std::uint64_t linear(const std::string& text) {
        std::uint64_t sum = 0;
        std::istringstream in(text);
        std::string part;
        while (std::getline(in, part, '+')) {
            const bool times = part.ends_with('n');
            if (times) part.pop_back();
            sum += number(part) * (times ? n_ : 1);
        }
        if (text.empty() || sum > std::uint64_t{1} << 60) fail("a number is missing, or too large");
        return sum;
    }

    std::uint64_t number(const std::string& text) {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (text.empty() || error != std::errc{} || end != text.data() + text.size() || value >> 55 != 0)
            fail(fmt::format("\"{}\" is no number", text));
        return value;
    }

    void fail(const std::string& what) {
        if (problem_.empty()) problem_ = fmt::format("{}:{}: {}", path_, line_, what);
    }

    const std::string& path_;
    const std::uint64_t n_;
    std::size_t line_ = 0;
    std::map<std::uint64_t, std::uint64_t> sizes_;  // of the tensors that are there
    std::string problem_;
};

// Makes the events that a trace of the step would have.
class Tracer {
  public:
    explicit Tracer(Workload& load) : load_(load) {}

    void run(const RecordedStep& step) {
        load_.trace->about = R"({"settings":{"LMS_SAFETY":"opaque"}})";  // as it is by default
        load_.trace->events.emplace_back(
            trace::Gpu{.device = 0, .granularity = kGranularity, .maps_host = true});
        for (const RecordedEvent& event : step.events) {
            if (event.what != 'P') continue;
            allocate(event, false);
            // Whatever it holds has been written.
            launch({}, {}, {event.id}, true);
        }
        before_ = launches_;
        for (int i = 0; i < kSteps; ++i) {
            for (const RecordedEvent& event : step.events) play(step, event);
            load_.pace.back().waits = true;
            load_.pace.back().over = static_cast<std::uint32_t>(launches_);
            load_.step_ends.push_back(launches_ - 1);
        }
        load_.unmanaged_bytes = most_unmanaged_;
    }
    std::size_t launches_before() const { return before_; }

  private:
    struct Tensor {
        std::uint32_t allocation = 0;
        std::span<const trace::Piece> pieces = {};  // none: it is too small to be managed
    };

    void play(const RecordedStep& step, const RecordedEvent& event) {
        if (event.what == 'A') allocate(event, true);
        if (event.what == 'F') free(event);
        if (event.what == 'K') {
            const RecordedKernel& kernel = step.kernels[event.kernel];
            launch(kernel.name, kernel.reads, kernel.writes, false);
        }
    }

    void allocate(const RecordedEvent& event, bool in_stream_order) {
        if (!load_.pace.empty()) load_.pace.back().took_ns += kCallNs;
        sizes_[event.id] = event.bytes;
        if (event.bytes < kThreshold) {
            unmanaged_ += event.bytes;
            most_unmanaged_ = std::max(most_unmanaged_, unmanaged_);
            tensors_[event.id] = {};
            return;
        }
        const std::uint64_t rounded = (event.bytes + kGranularity - 1) / kGranularity * kGranularity;
        std::deque<std::uint32_t>& dead = dead_[rounded];
        Tensor tensor;
        if (in_stream_order && !dead.empty()) {
            // It is given the memory of one that is freed, if the stream has not come so far.
            const std::uint32_t before = dead.front();
            dead.pop_front();
            load_.trace->events.emplace_back(trace::Free{.device = 0, .allocation = before});
            tensor = kept_[before];
        } else {
            tensor = {allocations_++, pieces_of(rounded)};
        }
        kept_[tensor.allocation] = tensor;
        tensors_[event.id] = tensor;
        load_.trace->events.emplace_back(trace::Allocation{.device = 0,
                                                           .allocation = tensor.allocation,
                                                           .address = (tensor.allocation + 1ull) << 32,
                                                           .bytes = event.bytes,
                                                           .pieces = tensor.pieces});
    }

    void free(const RecordedEvent& event) {
        load_.pace.back().took_ns += kCallNs;
        const Tensor tensor = tensors_[event.id];
        if (tensor.pieces.empty()) {
            unmanaged_ -= sizes_[event.id];
            return;
        }
        std::uint64_t rounded = 0;
        for (const trace::Piece& piece : tensor.pieces) rounded += piece.bytes;
        dead_[rounded].push_back(tensor.allocation);
        load_.trace->events.emplace_back(
            trace::StreamFree{.device = 0, .allocation = tensor.allocation, .stream = 1});
    }

    void launch(std::string_view name, const std::vector<std::uint64_t>& reads,
                const std::vector<std::uint64_t>& writes, bool overwritten) {
        std::vector<trace::Touched> touched;
        const auto touch = [&](std::uint64_t id, bool only_read) {
            const Tensor& tensor = tensors_[id];
            for (const trace::Piece& piece : tensor.pieces)
                touched.push_back({.chunk = piece.chunk,
                                   .allocation = tensor.allocation,
                                   .overwritten = overwritten,
                                   .only_read = only_read});
        };
        for (const std::uint64_t id : reads) {
            if (std::ranges::find(writes, id) == writes.end()) touch(id, true);
        }
        for (const std::uint64_t id : writes) touch(id, false);
        const std::uint64_t at = 1000 * ++launches_;
        load_.trace->events.emplace_back(trace::Launch{.device = 0,
                                                       .kernel = text_of(name),
                                                       .stream = 1,
                                                       .touched = kept(touched),
                                                       .begin_ns = at,
                                                       .end_ns = at + 1});
        load_.pace.push_back({.took_ns = kCallNs});
    }

    std::span<const trace::Piece> pieces_of(std::uint64_t bytes) {
        std::vector<trace::Piece> pieces;
        for (const std::uint64_t size : engine::cut(bytes, kGranularity, 32 << 20))
            pieces.push_back({chunks_++, size, true});
        return kept(pieces);
    }

    template <typename T>
    std::span<const T> kept(const std::vector<T>& values) {
        auto* const room = static_cast<T*>(
            load_.trace->memory.allocate(std::max<std::size_t>(1, values.size()) * sizeof(T), alignof(T)));
        std::uninitialized_copy(values.begin(), values.end(), room);
        return {room, values.size()};
    }

    std::string_view text_of(std::string_view name) {
        if (name.empty()) return {};
        const auto found = texts_.find(std::string(name));
        if (found != texts_.end()) return found->second;
        load_.trace->texts.emplace_back(name);
        return texts_[std::string(name)] = load_.trace->texts.back();
    }

    Workload& load_;
    std::unordered_map<std::uint64_t, Tensor> tensors_;  // by id
    std::unordered_map<std::uint64_t, std::uint64_t> sizes_;
    std::unordered_map<std::uint32_t, Tensor> kept_;           // by allocation
    std::map<std::uint64_t, std::deque<std::uint32_t>> dead_;  // by size: freed, first come first
    std::unordered_map<std::string, std::string_view> texts_;
    std::uint32_t allocations_ = 0, chunks_ = 0;
    std::size_t launches_ = 0, before_ = 0;
    std::uint64_t unmanaged_ = 0, most_unmanaged_ = 0;
};

}  // namespace

Workload read_step(const std::string& path, std::uint64_t n, std::string& problem) {
    Reader reader(path, n);
    RecordedStep step = reader.read();
    problem = reader.problem();
    Workload load;
    if (!problem.empty()) return load;
    Tracer tracer(load);
    tracer.run(step);
    load.times = std::make_unique<RecordedTimes>(std::move(step.kernels), tracer.launches_before(),
                                                 step.precision == "bf16");
    return load;
}

std::string size_of_step(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    while (file.peek() == '#' && std::getline(file, line)) {
        if (line.starts_with(kUnit)) return line.substr(kUnit.size());
    }
    return {};
}

}  // namespace lms::tool
