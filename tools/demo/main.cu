// The demo: an ordinary CUDA program that trains a character-level language model.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <vector>

#include "corpus.h"
#include "model.h"
#include "options.h"
#include "tenant.h"
#include "trainer.h"

namespace demo {

namespace {

constexpr int kSmoothed = 10;  // steps the last loss is the mean of
constexpr std::size_t kLineLength = 72;

double mebibytes(std::size_t bytes) {
    return static_cast<double>(bytes) / (1 << 20);
}

// The mean of the last kSmoothed losses.
double smoothed(const std::vector<float>& losses) {
    const std::size_t n = std::min<std::size_t>(kSmoothed, losses.size());
    return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(n), losses.end(), 0.0) /
           static_cast<double>(n);
}

// On stderr: one line that follows the training on a terminal; in a log a line every tenth of the way.
class Progress {
  public:
    explicit Progress(int steps) : steps_(steps), terminal_(isatty(STDERR_FILENO) != 0) {}

    void operator()(int step, float loss) {
        losses_.push_back(loss);
        const bool milestone = step == 1 || step % std::max(1, steps_ / 10) == 0 || step == steps_;
        if (!terminal_ && !milestone) return;
        constexpr int kBar = 30;
        const int filled = kBar * step / steps_;
        std::fprintf(stderr, "%s  step %4d of %d  [%.*s%*s]  loss %.3f", terminal_ ? "\r" : "", step, steps_,
                     filled, "==============================", kBar - filled, "", smoothed(losses_));
        if (!terminal_ || step == steps_) std::fputc('\n', stderr);
    }

  private:
    int steps_;
    bool terminal_;
    std::vector<float> losses_;
};

void write_losses(const std::string& path, const std::vector<float>& losses) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (!file) throw std::runtime_error("cannot write " + path);
    for (float loss : losses) std::fprintf(file, "%a\n", static_cast<double>(loss));
    if (std::fclose(file) != 0) throw std::runtime_error("cannot write " + path);
}

Shape shape_for(const Options& options, const Corpus& corpus) {
    try {
        return Shape::for_memory(options.memory, corpus.alphabet());
    } catch (const std::invalid_argument& error) {
        throw UsageError(std::string("--memory: ") + error.what());
    }
}

void train(const Options& options) {
    const auto begin = std::chrono::steady_clock::now();
    const Corpus corpus(options.texts);
    const Shape shape = shape_for(options, corpus);

    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    std::printf("  text    %zu characters, an alphabet of %d\n", corpus.size(), shape.alphabet);
    std::printf("  model   n-grams of 1 to %d characters, tables of %u rows, two hidden layers of %d\n",
                kContext, shape.table_rows, shape.hidden);
    std::printf("  memory  %.1f MiB for %.2f million parameters; %s has %.1f MiB\n", mebibytes(shape.bytes()),
                static_cast<double>(shape.parameters()) / 1e6, device.name, mebibytes(total));
    std::fflush(stdout);

    Model model(shape);
    Trainer trainer(corpus, model);
    const std::vector<float> losses = trainer.train(options.steps, Progress(options.steps));
    if (!options.losses.empty()) write_losses(options.losses, losses);
    const std::string line = trainer.sample("the ", kLineLength);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;

    std::printf("  losses  %.3f to %.3f nats a character (the last %zu steps); the uniform model's is %.3f\n",
                static_cast<double>(losses.front()), smoothed(losses),
                std::min<std::size_t>(kSmoothed, losses.size()),
                std::log(static_cast<double>(shape.alphabet)));
    std::printf("  sample  %s\n", line.c_str());
    std::printf("  time    %.1f s\n", seconds.count());
}

int run(int argc, char** argv) {
    try {
        const Options options = parse_options(argc, argv);
        if (options.help) {
            std::fputs(kHelp, stdout);
        } else if (options.leave > 0) {
            hold_all_but(options.leave);
        } else {
            train(options);
        }
        return 0;
    } catch (const UsageError& error) {
        std::fprintf(stderr, "demo: %s (demo --help lists the options)\n", error.what());
        return 2;
    } catch (const OutOfMemory& error) {
        std::fprintf(stderr, "demo: out of memory: asked for %.1f MiB for %s\n", mebibytes(error.bytes()),
                     error.name().c_str());
        return 1;
    } catch (const CudaError& error) {
        std::fprintf(stderr, "demo: %s\n", error.what());
        return error.status() == cudaErrorMemoryAllocation ? 1 : 3;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "demo: %s\n", error.what());
        return 3;
    }
}

}  // namespace

}  // namespace demo

int main(int argc, char** argv) {
    return demo::run(argc, argv);
}
