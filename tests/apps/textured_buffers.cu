// Textures over linear and pitched memory, more of it than the device has.
#include "batches.h"

cudaTextureObject_t texture_of(const cudaResourceDesc& resource) {
    cudaTextureDesc description = {};
    for (cudaTextureAddressMode& mode : description.addressMode) mode = cudaAddressModeClamp;
    cudaTextureObject_t texture;
    CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
    return texture;
}

__global__ void fetch(cudaTextureObject_t texture, unsigned* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1Dfetch<unsigned>(texture, static_cast<int>(n - 1 - i)) + 1;
}

void linear(std::size_t bytes) {
    std::list<cudaTextureObject_t> textures;
    over_batches<unsigned, unsigned>(
        bytes, "linear", [](std::size_t i) { return noise(i); },
        [&](const unsigned* in, unsigned* out, unsigned n) {
            cudaResourceDesc resource = {};
            resource.resType = cudaResourceTypeLinear;
            resource.res.linear.devPtr = const_cast<unsigned*>(in);
            resource.res.linear.desc = cudaCreateChannelDesc<unsigned>();
            resource.res.linear.sizeInBytes = n * sizeof(unsigned);
            // A few stay until others have taken their place.
            textures.push_back(texture_of(resource));
            fetch<<<blocks_for(n), 256>>>(textures.back(), out, n);
            if (textures.size() < 3) return;
            CHECK(cudaDeviceSynchronize());
            CHECK(cudaDestroyTextureObject(textures.front()));
            textures.pop_front();
        },
        [](const std::vector<unsigned>& in) {
            std::vector<unsigned> out(in.rbegin(), in.rend());
            for (unsigned& value : out) ++value;
            return out;
        });
    for (const cudaTextureObject_t texture : textures) CHECK(cudaDestroyTextureObject(texture));
}

__global__ void blur(cudaTextureObject_t texture, float* out, unsigned width, unsigned height) {
    const unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width) return;
    float sum = 0;
    for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx)
            sum +=
                tex2D<float>(texture, static_cast<float>(x) + dx + 0.5f, static_cast<float>(y) + dy + 0.5f);
    out[y * width + x] = sum;
}

// A sum of neighbours, of which those outside are the nearest inside.
std::vector<float> blurred(const std::vector<float>& in, int width, int height) {
    std::vector<float> out(in.size());
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            for (int dy = -1; dy <= 1; ++dy) {
                for (int dx = -1; dx <= 1; ++dx) {
                    const int row = std::min(std::max(y + dy, 0), height - 1);
                    const int column = std::min(std::max(x + dx, 0), width - 1);
                    out[y * width + x] += in[row * width + column];
                }
            }
        }
    }
    return out;
}

void pitched(std::size_t bytes) {
    constexpr unsigned kImages = 8, kWidth = 200;
    const unsigned height = static_cast<unsigned>(bytes / kImages / (2 * 1024));
    std::vector<std::vector<float>> in(kImages);
    std::vector<float*> images(kImages);
    std::vector<std::size_t> pitches(kImages);
    std::list<Buffer<float>> out;
    for (unsigned k = 0; k < kImages; ++k) {
        for (unsigned i = 0; i < kWidth * height; ++i)
            in[k].push_back(static_cast<float>(noise(i, k) % 1000));
        CHECK(cudaMallocPitch(&images[k], &pitches[k], kWidth * sizeof(float), height));
        CHECK(cudaMemcpy2D(images[k], pitches[k], in[k].data(), kWidth * sizeof(float),
                           kWidth * sizeof(float), height, cudaMemcpyHostToDevice));
        out.emplace_back(kWidth * height);
    }
    auto result = out.begin();
    for (unsigned k = 0; k < kImages; ++k, ++result) {
        cudaResourceDesc resource = {};
        resource.resType = cudaResourceTypePitch2D;
        resource.res.pitch2D = {images[k], cudaCreateChannelDesc<float>(), kWidth, height, pitches[k]};
        const cudaTextureObject_t texture = texture_of(resource);
        blur<<<dim3(blocks_for(kWidth), height), 256>>>(texture, result->get(), kWidth, height);
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaDestroyTextureObject(texture));
    }
    result = out.begin();
    for (unsigned k = 0; k < kImages; ++k, ++result) {
        result->expect(blurred(in[k], kWidth, static_cast<int>(height)), "pitched");
        CHECK(cudaFree(images[k]));
    }
}

int main(int argc, char** argv) {
    const std::size_t bytes = bytes_to_use(argc, argv, 4);
    linear(bytes);
    pitched(bytes);
    return succeed();
}
