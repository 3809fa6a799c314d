// Texture and surface objects through the runtime: points and filtered samples of arrays, linear and pitched
// memory, and surfaces that are written by one kernel and sampled by the next.
#include <cmath>

#include "check.h"

__global__ void fetch_linear(cudaTextureObject_t texture, float4* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1Dfetch<float4>(texture, n - 1 - i);
}

__global__ void sample_2d(cudaTextureObject_t texture, float* out, int width, int height, float dx,
                          float dy) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height) out[y * width + x] = tex2D<float>(texture, x + dx, y + dy);
}

__global__ void sample_layers(cudaTextureObject_t texture, short2* out, int width, int height, int layers) {
    const int x = threadIdx.x, y = blockIdx.x, layer = blockIdx.y;
    if (x < width)
        out[(layer * height + y) * width + x] = tex2DLayered<short2>(texture, x + 0.5f, y + 0.5f, layer);
}

__global__ void sample_3d(cudaTextureObject_t texture, float* out, int side) {
    const int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    out[(z * side + y) * side + x] = tex3D<float>(texture, x + 0.5f, y + 0.5f, z + 0.5f);
}

__global__ void write_surface(cudaSurfaceObject_t surface, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width || y >= height) return;
    uchar4 old;
    surf2Dread(&old, surface, x * static_cast<int>(sizeof(uchar4)), y);
    const uchar4 value =
        make_uchar4(old.x + 1, old.y ^ 0xFF, static_cast<unsigned char>(x), static_cast<unsigned char>(y));
    surf2Dwrite(value, surface, x * static_cast<int>(sizeof(uchar4)), y);
}

__global__ void sample_bytes(cudaTextureObject_t texture, float4* out, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width && y < height)
        out[y * width + x] = tex2D<float4>(texture, (x + 0.5f) / width, (y + 0.5f) / height);
}

dim3 rows(int width, int height) {
    return dim3((width + 127) / 128, height);
}

cudaResourceDesc of_array(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

cudaTextureObject_t texture_of(const cudaResourceDesc& resource, const cudaTextureDesc& sampling) {
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    return texture;
}

template <class T>
std::vector<T> download(const T* from, std::size_t count) {
    std::vector<T> out(count);
    CHECK(cudaMemcpy(out.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
}

void linear(int n) {
    std::vector<float4> in(n);
    for (int i = 0; i < n; ++i) in[i] = make_float4(i, 2 * i, noise(i) & 0xFFFF, -i);
    float4 *memory, *out;
    CHECK(cudaMalloc(&memory, n * sizeof(float4)));
    CHECK(cudaMalloc(&out, n * sizeof(float4)));
    CHECK(cudaMemcpy(memory, in.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = cudaCreateChannelDesc<float4>();
    resource.res.linear.sizeInBytes = n * sizeof(float4);
    const cudaTextureObject_t texture = texture_of(resource, {});
    fetch_linear<<<(n + 127) / 128, 128>>>(texture, out, n);
    const auto got = download(out, n);
    for (int i = 0; i < n; ++i) {
        if (std::memcmp(&got[i], &in[n - 1 - i], sizeof(float4)) != 0) FAIL("linear memory, element %d", i);
    }
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFree(memory));
    CHECK(cudaFree(out));
}

// Points and, halfway between, the means of two neighbours; from an array and from pitched memory.
void planes(int width, int height) {
    std::vector<float> in(width * height);
    for (int i = 0; i < width * height; ++i) in[i] = static_cast<float>(noise(i) & 0xFF);
    const cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &channel, width, height));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, in.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    float *pitched, *out;
    std::size_t pitch;
    CHECK(cudaMallocPitch(&pitched, &pitch, width * 4, height));
    CHECK(cudaMemcpy2D(pitched, pitch, in.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&out, width * height * 4));
    cudaResourceDesc plane = {};
    plane.resType = cudaResourceTypePitch2D;
    plane.res.pitch2D.devPtr = pitched;
    plane.res.pitch2D.desc = channel;
    plane.res.pitch2D.width = width;
    plane.res.pitch2D.height = height;
    plane.res.pitch2D.pitchInBytes = pitch;
    cudaResourceDesc integers = plane;
    integers.res.pitch2D.desc = cudaCreateChannelDesc<unsigned char>();
    cudaTextureDesc filtering = {};
    filtering.filterMode = cudaFilterModeLinear;
    cudaTextureObject_t refused = 0;
    if (cudaCreateTextureObject(&refused, &integers, &filtering, nullptr) != cudaErrorInvalidFilterSetting)
        FAIL("integers were to be filtered");
    (void)cudaGetLastError();
    for (const cudaResourceDesc& resource : {of_array(array), plane}) {
        cudaTextureDesc sampling = {};
        sampling.addressMode[0] = sampling.addressMode[1] = cudaAddressModeClamp;
        const cudaTextureObject_t points = texture_of(resource, sampling);
        sampling.filterMode = cudaFilterModeLinear;
        const cudaTextureObject_t filtered = texture_of(resource, sampling);
        sample_2d<<<rows(width, height), 128>>>(points, out, width, height, 0.75f, 0.25f);
        if (download(out, in.size()) != in) FAIL("points of a plane");
        sample_2d<<<rows(width, height), 128>>>(filtered, out, width, height, 1.0f, 0.5f);
        const auto got = download(out, in.size());
        for (int y = 0; y < height; ++y) {
            for (int x = 0; x < width; ++x) {
                const float expected = (in[y * width + x] + in[y * width + std::min(x + 1, width - 1)]) / 2;
                if (got[y * width + x] != expected)
                    FAIL("a filtered plane at %d, %d: %g, not %g", x, y, got[y * width + x], expected);
            }
        }
        // Beyond the edge there is only the edge.
        sample_2d<<<rows(width, height), 128>>>(points, out, width, height, static_cast<float>(2 * width),
                                                0.5f);
        const auto edge = download(out, in.size());
        for (int i = 0; i < width * height; ++i)
            if (edge[i] != in[i / width * width + width - 1]) FAIL("the clamped edge of row %d", i / width);
        CHECK(cudaDestroyTextureObject(points));
        CHECK(cudaDestroyTextureObject(filtered));
    }
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(pitched));
    CHECK(cudaFree(out));
}

void volumes() {
    constexpr int kSide = 16, kLayers = 5;
    std::vector<short2> in(kSide * kSide * kLayers);
    for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = make_short2(static_cast<short>(noise(i)), static_cast<short>(i));
    const cudaChannelFormatDesc pairs = cudaCreateChannelDesc<short2>();
    cudaArray_t layered;
    CHECK(cudaMalloc3DArray(&layered, &pairs, make_cudaExtent(kSide, kSide, kLayers), cudaArrayLayered));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(in.data(), kSide * sizeof(short2), kSide, kSide);
    copy.dstArray = layered;
    copy.extent = make_cudaExtent(kSide, kSide, kLayers);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    short2* out;
    CHECK(cudaMalloc(&out, in.size() * sizeof(short2)));
    const cudaTextureObject_t layers = texture_of(of_array(layered), {});
    sample_layers<<<dim3(kSide, kLayers), kSide>>>(layers, out, kSide, kSide, kLayers);
    const auto got = download(out, in.size());
    if (std::memcmp(got.data(), in.data(), in.size() * sizeof(short2)) != 0) FAIL("layers");
    CHECK(cudaDestroyTextureObject(layers));
    CHECK(cudaFreeArray(layered));
    CHECK(cudaFree(out));

    std::vector<float> cube(kSide * kSide * kSide);
    for (std::size_t i = 0; i < cube.size(); ++i) cube[i] = static_cast<float>(i);
    const cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
    cudaArray_t volume;
    CHECK(cudaMalloc3DArray(&volume, &channel, make_cudaExtent(kSide, kSide, kSide)));
    copy.srcPtr = make_cudaPitchedPtr(cube.data(), kSide * sizeof(float), kSide, kSide);
    copy.dstArray = volume;
    copy.extent = make_cudaExtent(kSide, kSide, kSide);
    CHECK(cudaMemcpy3D(&copy));
    float* floats;
    CHECK(cudaMalloc(&floats, cube.size() * sizeof(float)));
    const cudaTextureObject_t points = texture_of(of_array(volume), {});
    sample_3d<<<dim3(kSide, kSide), kSide>>>(points, floats, kSide);
    if (download(floats, cube.size()) != cube) FAIL("a volume");
    CHECK(cudaDestroyTextureObject(points));
    CHECK(cudaFreeArray(volume));
    CHECK(cudaFree(floats));
}

// A surface is changed in place and sampled as normalised floats.
void surfaces(int width, int height) {
    std::vector<uchar4> in(width * height);
    for (int i = 0; i < width * height; ++i) in[i] = make_uchar4(i % 100, i % 251, 0, 0);
    const cudaChannelFormatDesc channel = cudaCreateChannelDesc<uchar4>();
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &channel, width, height, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, in.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    const cudaResourceDesc resource = of_array(array);
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    write_surface<<<rows(width, height), 128>>>(surface, width, height);
    float4* out;
    CHECK(cudaMalloc(&out, width * height * sizeof(float4)));
    cudaTextureDesc sampling = {};
    sampling.readMode = cudaReadModeNormalizedFloat;
    sampling.normalizedCoords = 1;
    const cudaTextureObject_t texture = texture_of(resource, sampling);
    sample_bytes<<<rows(width, height), 128>>>(texture, out, width, height);
    const auto got = download(out, width * height);
    for (int i = 0; i < width * height; ++i) {
        const int expected[] = {in[i].x + 1, in[i].y ^ 0xFF, (i % width) & 0xFF, (i / width) & 0xFF};
        const float channels[] = {got[i].x, got[i].y, got[i].z, got[i].w};
        for (int c = 0; c < 4; ++c)
            if (std::lround(channels[c] * 255) != expected[c])
                FAIL("pixel %d, channel %d: %g", i, c, channels[c] * 255);
    }
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(out));
}

int main(int argc, char** argv) {
    const auto bytes = bytes_to_use(argc, argv, 2);
    const int n = static_cast<int>(std::max<std::size_t>(bytes / 2 / sizeof(float4), 1000));
    linear(n);
    const int height =
        static_cast<int>(std::min<std::size_t>(std::max<std::size_t>(bytes / 20 / 4 / 200, 20), 200));
    planes(200, height);
    volumes();
    surfaces(130, 70);
    return succeed();
}
