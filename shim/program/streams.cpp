#include "shim/program/streams.h"

#include "shim/program/capture.h"

namespace lms::program {

Streams& streams() {
    return only<Streams>();
}

void stream_created(CUstream stream, CUcontext context) {
    const util::Lock lock(streams().mutex);
    streams().enter(stream, context);
}

std::vector<CUstream> streams_destroyed_with(CUcontext context) {
    std::vector<CUstream> gone;
    {
        const util::Lock lock(streams().mutex);
        gone = streams().forget_if([&](CUstream, CUcontext of) { return of == context; });
    }
    for (const CUstream stream : gone) {
        const CaptureEnd end(stream);
    }
    return gone;
}

std::vector<KnownStream> known_streams() {
    const util::Lock lock(streams().mutex);
    std::vector<KnownStream> all;
    streams().each([&](CUstream stream, CUcontext context) { all.push_back({stream, context}); });
    return all;
}

CUcontext context_of_known(CUstream stream) {
    const util::Lock lock(streams().mutex);
    const CUcontext* const context = streams().find(stream);
    return context ? *context : nullptr;
}

}  // namespace lms::program
