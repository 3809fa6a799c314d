// Texture and surface objects: what a CUtexObject and a CUsurfObject stand for. The number itself is the
// address of the descriptor kernels read through (tools/simcuda/exec/texture.h).
#pragma once

#include <memory>
#include <optional>

#include "tools/simcuda/driver/array.h"
#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/exec/texture.h"

namespace simcuda::driver {

class Context;

struct TextureObject {
    exec::Texture texture;  // first: its address is the object's
    CUDA_RESOURCE_DESC resource{};
    CUDA_TEXTURE_DESC sampling{};
    std::optional<CUDA_RESOURCE_VIEW_DESC> view;
    std::weak_ptr<Context> context;

    CUtexObject handle() const { return exec::handle_of(texture); }
};

struct SurfaceObject {
    exec::Surface surface;
    CUDA_RESOURCE_DESC resource{};
    std::weak_ptr<Context> context;

    CUsurfObject handle() const { return exec::handle_of(surface); }
};

// `view` may be null. Throw Failure with CUDA_ERROR_INVALID_VALUE, or CUDA_ERROR_NOT_SUPPORTED (and say of
// what on stderr) for sRGB, block compression, filtering across the edges of a cube and anisotropy over
// several mipmap levels.
std::shared_ptr<TextureObject> create_texture(Context& context, const CUDA_RESOURCE_DESC& resource,
                                              const CUDA_TEXTURE_DESC& sampling,
                                              const CUDA_RESOURCE_VIEW_DESC* view);
std::shared_ptr<SurfaceObject> create_surface(Context& context, const CUDA_RESOURCE_DESC& resource);

// Throw Failure with CUDA_ERROR_INVALID_VALUE for anything that is not live.
std::shared_ptr<TextureObject> checked_texture(CUtexObject handle);
std::shared_ptr<SurfaceObject> checked_surface(CUsurfObject handle);

// Kernels that are under way may go on reading through the object; those of an idle context no longer can.
void destroy_texture(Context& context, CUtexObject handle);
void destroy_surface(Context& context, CUsurfObject handle);

void forget_textures(const Context& context);  // and surfaces

}  // namespace simcuda::driver
