#include "tools/simcuda/driver/host_engine.h"

#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"
#include "tools/simcuda/driver/scheduler.h"
#include "tools/simcuda/driver/worker.h"

namespace simcuda::driver {

void HostEngine::add(WorkPtr work) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    if (!started_) {
        started_ = true;
        start_worker("simcuda-host", [this] { loop(); });
    }
    arrived_.notify_one();
}

void HostEngine::loop() {
    for (;;) {
        WorkPtr work;
        {
            std::unique_lock lock(mutex_);
            arrived_.wait(lock, [&] { return !queue_.empty(); });
            work = std::move(queue_.front());
            queue_.pop_front();
        }
        random_.delay();
        const CUresult error = work->context->error();
        const auto& op = std::get<HostOp>(work->op);
        if (error == CUDA_SUCCESS || op.despite_failure) {
            HostFunctionScope scope;
            op.function(error);
        }
        complete(work);
    }
}

}  // namespace simcuda::driver
