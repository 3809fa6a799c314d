// cuTexObject* and cuSurfObject*.
#include "tools/simcuda/driver/texture.h"
#include "tools/simcuda/driver/api.h"
#include "tools/simcuda/driver/context.h"

namespace simcuda::driver {
namespace {

// `get` is given the object of the handle and answers what was asked of it.
template <class Out, class Get>
CUresult ask(Entry entry, Out* out, Get get) {
    return call(entry, [&](Context&) {
        require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
        *out = get();
        return CUDA_SUCCESS;
    });
}

}  // namespace

SIMCUDA_API cuTexObjectCreate(CUtexObject* object, const CUDA_RESOURCE_DESC* resource,
                              const CUDA_TEXTURE_DESC* sampling, const CUDA_RESOURCE_VIEW_DESC* view) {
    return call(Entry::cuTexObjectCreate, [&](Context& context) {
        require(object != nullptr && resource != nullptr && sampling != nullptr, CUDA_ERROR_INVALID_VALUE);
        *object = create_texture(context, *resource, *sampling, view)->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuTexObjectDestroy(CUtexObject object) {
    return call(Entry::cuTexObjectDestroy, [&](Context& context) {
        if (object == 0) return CUDA_SUCCESS;
        destroy_texture(context, object);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUtexObject object) {
    return ask(Entry::cuTexObjectGetResourceDesc, resource,
               [&] { return checked_texture(object)->resource; });
}

SIMCUDA_API cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* sampling, CUtexObject object) {
    return ask(Entry::cuTexObjectGetTextureDesc, sampling, [&] { return checked_texture(object)->sampling; });
}

// An error if the object was made without a view, as documented.
SIMCUDA_API cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* view, CUtexObject object) {
    return ask(Entry::cuTexObjectGetResourceViewDesc, view, [&] {
        const auto found = checked_texture(object);
        require(found->view.has_value(), CUDA_ERROR_INVALID_VALUE);
        return *found->view;
    });
}

SIMCUDA_API cuSurfObjectCreate(CUsurfObject* object, const CUDA_RESOURCE_DESC* resource) {
    return call(Entry::cuSurfObjectCreate, [&](Context& context) {
        require(object != nullptr && resource != nullptr, CUDA_ERROR_INVALID_VALUE);
        *object = create_surface(context, *resource)->handle();
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuSurfObjectDestroy(CUsurfObject object) {
    return call(Entry::cuSurfObjectDestroy, [&](Context& context) {
        if (object == 0) return CUDA_SUCCESS;
        destroy_surface(context, object);
        return CUDA_SUCCESS;
    });
}

SIMCUDA_API cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* resource, CUsurfObject object) {
    return ask(Entry::cuSurfObjectGetResourceDesc, resource,
               [&] { return checked_surface(object)->resource; });
}

}  // namespace simcuda::driver
