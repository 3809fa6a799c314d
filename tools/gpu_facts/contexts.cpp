// Fact 13: mappings seen from several contexts.
#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

CUresult fill_in_other_context(const Card& card, CUcontext other, Address address, std::uint64_t bytes) {
    CU(cuCtxSetCurrent, other);
    CUresult status = CUDA_SUCCESS;
    try {
        CUfunction kernel = nullptr;
        CU(cuModuleGetFunction, &kernel, card.load_kernels(), "fill");
        const Stream stream;
        launch(kernel, {8, 256}, stream, address, static_cast<unsigned>(bytes / 4), 33u);
        stream.wait();
    } catch (const Failure& failure) {
        status = failure.code;
    }
    CU(cuCtxSetCurrent, card.context);
    return status;
}

}  // namespace

void several_contexts(const Card& card, Record& record) {
    const std::uint64_t bytes = card.sized(2 * kMiB, 8);
    CUcontext other = nullptr;
    CU(cuCtxCreate_v2, &other, 0, card.device);
    CU(cuCtxSetCurrent, card.context);
    for (const Place place : {Place::Device, Place::Host}) {
        const CUmemLocation location = card.location(place);
        if (location.type == CU_MEM_LOCATION_TYPE_INVALID) continue;
        const std::string name = place == Place::Device ? "device memory" : "host memory";
        const Block block(card, bytes, location);
        record.text(name + "/a kernel of another context writes",
                    name_of(fill_in_other_context(card, other, block.address, bytes)));
        const Pinned wrong(sizeof(unsigned));
        *static_cast<unsigned*>(wrong.data) = 0;
        const Stream stream;
        launch(card.kernel("compare"), {8, 256}, stream, block.address, static_cast<unsigned>(bytes / 4), 33u,
               wrong.address());
        stream.wait();
        record.number(name + "/wrong words seen by the first", *static_cast<unsigned*>(wrong.data), "words");
    }
    // Addresses belong to the device, not to a context: those reserved, mapped and granted in one may be
    // unmapped in another.
    const CUmemGenericAllocationHandle handle = create(bytes, card.location(Place::Device));
    const Address address = reserve(bytes);
    CU(cuMemMap, address, bytes, 0, handle, 0);
    grant(card, address, bytes, card.location(Place::Device));
    CU(cuCtxSetCurrent, other);
    record.text("unmapped in another context", name_of(driver().cuMemUnmap(address, bytes)));
    CU(cuCtxSetCurrent, card.context);
    CU(cuMemRelease, handle);
    CU(cuCtxDestroy_v2, other);
}

}  // namespace facts
