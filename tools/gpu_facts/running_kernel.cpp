#include "tools/gpu_facts/running_kernel.h"

#include <cstring>

namespace facts {

RunningKernel::RunningKernel(const Card& card, const Stream& stream, unsigned long long limit_ms) {
    std::memset(page_.data, 0, 4096);
    launch(card.kernel("spin"), {1, 1}, stream, page_.address(), limit_ms * 1'000'000);
    await_start(stream);
}

RunningKernel::RunningKernel(const Card& card, const Stream& stream, unsigned long long limit_ms,
                             Address words, std::uint64_t bytes) {
    std::memset(page_.data, 0, 4096);
    launch(card.kernel("keep_adding"), {1, 256}, stream, words, static_cast<unsigned>(bytes / 4),
           page_.address(), limit_ms * 1'000'000, page_.address() + 64 * sizeof(unsigned long long));
    await_start(stream);
}

RunningKernel::~RunningKernel() {
    tell_to_end();
    driver().cuCtxSynchronize();
}

void RunningKernel::await_start(const Stream& stream) const {
    while (signals_[0] == 0 && stream.busy()) {
    }
}

void RunningKernel::tell_to_end() {
    signals_[1] = 1;
}

double RunningKernel::rounds() const {
    return static_cast<double>(results_[0]);
}

double RunningKernel::longest_round_us() const {
    return static_cast<double>(results_[1]) / 1e3;
}

}  // namespace facts
