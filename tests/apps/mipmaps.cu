// Mipmapped arrays: levels that kernels make one of the other, and that are sampled by level, by step and
// between levels, into buffers beyond the device's memory.
#include <cmath>

#include "batches.h"

constexpr int kWidth = 256, kHeight = 64, kLevels = 7;

// Each texel the mean of four.
__global__ void halve(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0;
    for (int dy = 0; dy < 2; ++dy) {
        for (int dx = 0; dx < 2; ++dx) {
            float texel;
            surf2Dread(&texel, from, (2 * x + dx) * static_cast<int>(sizeof(float)), 2 * y + dy);
            sum += texel;
        }
    }
    surf2Dwrite(sum / 4, to, x * static_cast<int>(sizeof(float)), y);
}

__device__ float place(unsigned i, unsigned by) {
    return ((i * by) % 4096) / 4096.0f;
}

// By level where `step` is 0, else by the step from fetch to fetch, in texels of the first level.
__global__ void sample(cudaTextureObject_t texture, float* out, unsigned n, float level, float step) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = place(i, 37), y = place(i, 101);
    out[i] = step == 0 ? tex2DLod<float>(texture, x, y, level)
                       : tex2DGrad<float>(texture, x, y, make_float2(step / kWidth, 0),
                                          make_float2(0, step / 2 / kHeight));
}

using Level = std::vector<float>;

struct Image {
    Image() {
        const cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
        CHECK(cudaMallocMipmappedArray(&array, &channel, make_cudaExtent(kWidth, kHeight, 0), kLevels,
                                       cudaArraySurfaceLoadStore));
        levels.resize(kLevels);
        levels[0].resize(kWidth * kHeight);
        for (std::size_t i = 0; i < levels[0].size(); ++i)
            levels[0][i] = static_cast<float>(noise(i) % 65536);
        cudaArray_t level;
        CHECK(cudaGetMipmappedArrayLevel(&level, array, 0));
        CHECK(cudaMemcpy2DToArray(level, 0, 0, levels[0].data(), kWidth * sizeof(float),
                                  kWidth * sizeof(float), kHeight, cudaMemcpyHostToDevice));
        CHECK_ERROR(cudaErrorInvalidValue, cudaGetMipmappedArrayLevel(&level, array, kLevels));
        for (int l = 1; l < kLevels; ++l) make_level(l);
    }
    ~Image() { cudaFreeMipmappedArray(array); }

    static int width(int level) { return kWidth >> level; }
    static int height(int level) { return kHeight >> level; }

    void make_level(int l) {
        const int w = width(l), h = height(l);
        const cudaSurfaceObject_t from = surface(l - 1), to = surface(l);
        halve<<<dim3((w + 63) / 64, h), 64>>>(from, to, w, h);
        CHECK_LAUNCH();
        CHECK(cudaDestroySurfaceObject(from));
        CHECK(cudaDestroySurfaceObject(to));
        const Level& before = levels[l - 1];
        for (int y = 0; y < h; ++y) {
            for (int x = 0; x < w; ++x) {
                const float* const at = &before[2 * y * 2 * w + 2 * x];
                levels[l].push_back((at[0] + at[1] + at[2 * w] + at[2 * w + 1]) / 4);
            }
        }
    }
    cudaSurfaceObject_t surface(int level) const {
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeArray;
        CHECK(cudaGetMipmappedArrayLevel(&resource.res.array.array, array, level));
        cudaSurfaceObject_t surface;
        CHECK(cudaCreateSurfaceObject(&surface, &resource));
        return surface;
    }
    cudaTextureObject_t texture(bool linear) const {
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypeMipmappedArray;
        resource.res.mipmap.mipmap = array;
        cudaTextureDesc sampling = {};
        sampling.normalizedCoords = 1;
        sampling.addressMode[0] = sampling.addressMode[1] = cudaAddressModeClamp;
        sampling.mipmapFilterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
        sampling.maxMipmapLevelClamp = kLevels - 1;
        cudaTextureObject_t texture;
        CHECK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
        return texture;
    }
    float at(int level, unsigned i) const {
        const float x = ((i * 37) % 4096) / 4096.0f, y = ((i * 101) % 4096) / 4096.0f;
        return levels[level][static_cast<int>(y * height(level)) * width(level) +
                             static_cast<int>(x * width(level))];
    }

    cudaMipmappedArray_t array;
    std::vector<Level> levels;
};

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    constexpr unsigned kBuffers = 12;
    const unsigned n = static_cast<unsigned>(bytes / kBuffers / sizeof(float));
    const Image image;
    const cudaTextureObject_t points = image.texture(false), means = image.texture(true);
    std::list<Buffer<float>> out;
    const auto launch = [&](cudaTextureObject_t texture, float level, float step) {
        out.emplace_back(n);
        sample<<<(n + 127) / 128, 128>>>(texture, out.back().get(), n, level, step);
        CHECK_LAUNCH();
    };
    for (int l = 0; l < 4; ++l) {
        launch(points, l + 0.25f, 0);
        launch(means, l + 0.25f, 0);
        launch(points, 0, static_cast<float>(1 << l));
    }
    auto found = out.begin();
    for (int l = 0; l < 4; ++l) {
        std::vector<float> nearest(n), between(n);
        for (unsigned i = 0; i < n; ++i) {
            nearest[i] = image.at(l, i);
            between[i] = 0.75f * image.at(l, i) + 0.25f * image.at(l + 1, i);
        }
        found++->expect(nearest, "level");
        const std::vector<float> blended = found++->values(n);
        for (unsigned i = 0; i < n; ++i)
            if (std::fabs(blended[i] - between[i]) > 0.05f)
                FAIL("between: %g, not %g", blended[i], between[i]);
        found++->expect(nearest, "step");
    }
    CHECK(cudaDestroyTextureObject(points));
    CHECK(cudaDestroyTextureObject(means));
    return succeed();
}
