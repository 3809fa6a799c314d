#include "shim/program/green_contexts.h"

#include "shim/program/contexts.h"
#include "shim/program/handles.h"

namespace lms::program {
namespace {

Handles<CUgreenCtx, GreenContext>& greens() {
    return only<Handles<CUgreenCtx, GreenContext>>();
}

}  // namespace

void green_made(CUgreenCtx green, CUdevice device) {
    const util::Lock lock(greens().mutex);
    greens().enter(green, {device, nullptr});
    detail::any_green = true;
}

void green_converted(CUgreenCtx green, CUcontext context) {
    const util::Lock lock(greens().mutex);
    if (GreenContext* const known = greens().find(green)) known->context = context;
}

std::optional<GreenContext> find_green(CUgreenCtx green) {
    const util::Lock lock(greens().mutex);
    const GreenContext* const known = greens().find(green);
    return known ? std::optional(*known) : std::nullopt;
}

void forget_green(CUgreenCtx green) {
    const util::Lock lock(greens().mutex);
    greens().forget(green);
}

CUcontext owner_of(CUcontext context) {
    if (!any_green()) return context;
    std::optional<CUdevice> device;
    {
        const util::Lock lock(greens().mutex);
        greens().each([&](CUgreenCtx, const GreenContext& green) {
            if (green.context == context) device = green.device;
        });
    }
    const CUcontext primary = device ? primary_of(*device) : nullptr;
    return primary ? primary : context;
}

}  // namespace lms::program
