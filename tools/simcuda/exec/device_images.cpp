// Texture and surface instructions: the handle checked, then the access.
#include "tools/simcuda/exec/device_functions.h"
#include "tools/simcuda/exec/faults.h"
#include "tools/simcuda/exec/texture.h"

namespace simcuda::exec {
namespace {

// A number that is no handle faults: by itself where nothing is mapped, else here.
template <typename Object>
const Object& object_of(u64 handle, u64 mark) {
    const auto* object = reinterpret_cast<const Object*>(handle);
    if (handle % alignof(Object) != 0 || *reinterpret_cast<const volatile u64*>(handle) != mark)
        leave(Outcome::IllegalAddress);
    return *object;
}

Access access_of(u32 flags) {
    return {.dimensions = flags & SC_DIMENSIONS,
            .layered = (flags & SC_LAYERED) != 0,
            .cube = (flags & SC_CUBE) != 0,
            .integer_coordinates = (flags & SC_INTEGER) != 0};
}

}  // namespace

void device_fetch(sc_thread*, u32 flags, u64 handle, const u32* at, const float* level, u32* texel) {
    const auto& texture = object_of<Texture>(handle, kTextureMark);
    const Access access = access_of(flags);
    fetch_texture(texture, access, at, texel,
                  flags & SC_GRADIENTS ? level_of(texture, access, level, level + 3) : *level);
}

void device_gather(sc_thread*, u32 channel, u64 texture, const u32* at, u32* texels) {
    gather_texture(object_of<Texture>(texture, kTextureMark), channel, at, texels);
}

u64 device_surface(sc_thread*, u32 access, u64 surface, const u32* at, u32 bytes) {
    const Boundary boundary = access & SC_CLAMP  ? Boundary::Clamp
                              : access & SC_ZERO ? Boundary::Zero
                                                 : Boundary::Trap;
    const auto place = reinterpret_cast<u64>(
        surface_element(object_of<Surface>(surface, kSurfaceMark), access_of(access), boundary, at, bytes));
    if (!place && boundary == Boundary::Trap) leave(Outcome::IllegalAddress);
    return place;
}

u32 device_query(sc_thread*, sc_query what, u64 handle) {
    const bool surface = handle % 8 == 0 && *reinterpret_cast<const volatile u64*>(handle) == kSurfaceMark;
    const Texels& texels = surface ? object_of<Surface>(handle, kSurfaceMark).texels
                                   : object_of<Texture>(handle, kTextureMark).texels;
    switch (what) {
        case SC_WIDTH:
            return texels.width;
        case SC_HEIGHT:
            return texels.height;
        case SC_DEPTH:
            return texels.depth;
        case SC_NORMALIZED:
            return !surface && object_of<Texture>(handle, kTextureMark).normalized_coordinates;
    }
    return 0;
}

}  // namespace simcuda::exec
