// CUDA arrays: the runtime's calls that make them, copy them and describe them.
#include "check.h"

// The old linear copies are deprecated and still used.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma nv_diag_suppress 1444

int main(int argc, char** argv) {
    const std::size_t width = 100;
    const std::size_t height =
        std::max<std::size_t>(bytes_to_use(argc, argv, 2) / 3 / (width * sizeof(float)), 16);
    const std::size_t count = width * height;
    std::vector<float> in(count), out(count);
    for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(noise(i) & 0xFFFF);

    const cudaChannelFormatDesc channel = cudaCreateChannelDesc<float>();
    cudaArray_t a, b;
    CHECK(cudaMallocArray(&a, &channel, width, height));
    CHECK(cudaMallocArray(&b, &channel, width, height, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(a, 0, 0, in.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DArrayToArray(b, 0, 0, a, 0, 0, width * 4, height));
    CHECK(cudaMemcpy2DFromArray(out.data(), width * 4, b, 0, 0, width * 4, height, cudaMemcpyDeviceToHost));
    if (out != in) FAIL("copies of rectangles through two arrays");

    // Linear: from the middle of a row to the middle of another, then back from another place.
    std::fill(out.begin(), out.end(), 0.0f);
    const std::size_t part = 5 * width + 30;
    CHECK(cudaMemcpyToArray(a, 200, 2, in.data(), part * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyFromArray(out.data(), a, 200, 2, part * 4, cudaMemcpyDeviceToHost));
    if (!std::equal(in.begin(), in.begin() + part, out.begin())) FAIL("linear copies");
    CHECK(cudaMemcpyArrayToArray(b, 40, 1, a, 200, 2, part * 4));
    std::fill(out.begin(), out.end(), 0.0f);
    CHECK(cudaMemcpyFromArrayAsync(out.data(), b, 40, 1, part * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaDeviceSynchronize());
    if (!std::equal(in.begin(), in.begin() + part, out.begin())) FAIL("a linear copy between arrays");

    cudaChannelFormatDesc found;
    cudaExtent extent;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&found, &extent, &flags, b));
    if (found.x != 32 || found.y != 0 || found.f != cudaChannelFormatKindFloat || extent.width != width ||
        extent.height != height || extent.depth != 0 || flags != cudaArraySurfaceLoadStore)
        FAIL("cudaArrayGetInfo");
    CHECK(cudaFreeArray(a));
    CHECK(cudaFreeArray(b));
    CHECK_ERROR(cudaErrorInvalidResourceHandle, cudaFreeArray(a));
    CHECK(cudaFreeArray(nullptr));

    // Layers, written one by one from pitched memory and read all at once. Extents are in elements.
    const std::size_t layers = 3, side = 16;
    const cudaChannelFormatDesc pairs = cudaCreateChannelDesc<short2>();
    CHECK(cudaMalloc3DArray(&a, &pairs, make_cudaExtent(side, side, layers), cudaArrayLayered));
    for (std::size_t z = 0; z < layers; ++z) {
        cudaMemcpy3DParms copy = {};
        copy.srcPtr = make_cudaPitchedPtr(in.data() + z * side * side, side * 4, side, side);
        copy.dstArray = a;
        copy.dstPos = make_cudaPos(0, 0, z);
        copy.extent = make_cudaExtent(side, side, 1);
        copy.kind = cudaMemcpyHostToDevice;
        CHECK(cudaMemcpy3D(&copy));
    }
    cudaMemcpy3DParms back = {};
    std::fill(out.begin(), out.end(), 0.0f);
    back.srcArray = a;
    back.srcPos = make_cudaPos(1, 0, 0);
    back.dstPtr = make_cudaPitchedPtr(out.data(), (side - 1) * 4, side - 1, side);
    back.extent = make_cudaExtent(side - 1, side, layers);
    back.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&back));
    for (std::size_t row = 0; row < side * layers; ++row) {
        if (!std::equal(&in[row * side + 1], &in[row * side + 1] + side - 1, &out[row * (side - 1)]))
            FAIL("row %zu of the layers", row);
    }
    CHECK_ERROR(cudaErrorInvalidValue, cudaMalloc3DArray(&b, &pairs, make_cudaExtent(side, 0, 4)));
    const cudaChannelFormatDesc three = cudaCreateChannelDesc(32, 32, 32, 0, cudaChannelFormatKindFloat);
    CHECK_ERROR(cudaErrorInvalidChannelDescriptor, cudaMallocArray(&b, &three, side, side));
    const cudaChannelFormatDesc mixed = cudaCreateChannelDesc(8, 16, 0, 0, cudaChannelFormatKindUnsigned);
    CHECK_ERROR(cudaErrorInvalidChannelDescriptor, cudaMallocArray(&b, &mixed, side, side));
    CHECK(cudaFreeArray(a));

    // Texture and surface objects are given back as they were described.
    CHECK(cudaMallocArray(&a, &channel, side, side, cudaArraySurfaceLoadStore));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = a;
    cudaTextureDesc sampling = {};
    sampling.addressMode[0] = cudaAddressModeMirror;
    sampling.filterMode = cudaFilterModeLinear;
    sampling.readMode = cudaReadModeElementType;
    sampling.normalizedCoords = 1;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    cudaResourceDesc held;
    CHECK(cudaGetTextureObjectResourceDesc(&held, texture));
    cudaTextureDesc sampled;
    CHECK(cudaGetTextureObjectTextureDesc(&sampled, texture));
    if (held.res.array.array != a || sampled.addressMode[0] != cudaAddressModeMirror ||
        sampled.filterMode != cudaFilterModeLinear || sampled.normalizedCoords != 1 ||
        sampled.readMode != cudaReadModeElementType)
        FAIL("a texture object's description");
    CHECK(cudaDestroyTextureObject(texture));
    CHECK_ERROR(cudaErrorInvalidValue, cudaDestroyTextureObject(texture));
    cudaSurfaceObject_t surface;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    CHECK(cudaDestroySurfaceObject(surface));
    float* linear;
    CHECK(cudaMalloc(&linear, 4096));
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = linear;
    resource.res.linear.desc = channel;
    resource.res.linear.sizeInBytes = 4096;
    CHECK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
    CHECK(cudaGetTextureObjectResourceDesc(&held, texture));
    if (held.res.linear.devPtr != linear || held.res.linear.desc.x != 32 ||
        held.res.linear.sizeInBytes != 4096)
        FAIL("a linear texture's description");
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFree(linear));
    CHECK(cudaFreeArray(a));
    return succeed();
}
