// Pitched memory: copies of rectangles and boxes between host and device, memset of rectangles, with every
// byte outside them left alone.
#include "check.h"

int main(int argc, char** argv) {
    const std::size_t width = 1000, host_pitch = 1100, depth = 3;
    std::size_t pitch = 0;
    unsigned char* probe;
    CHECK(cudaMallocPitch(&probe, &pitch, width, 1));
    CHECK(cudaFree(probe));
    if (pitch < width) FAIL("a pitch of %zu for rows of %zu", pitch, width);
    const std::size_t height = std::max<std::size_t>(bytes_to_use(argc, argv, 6) / (2 + depth) / pitch, 8);

    std::vector<unsigned char> in(host_pitch * height), out(host_pitch * height);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<unsigned char>(noise(i));

    unsigned char *a, *b;
    std::size_t a_pitch, b_pitch;
    CHECK(cudaMallocPitch(&a, &a_pitch, width, height));
    CHECK(cudaMallocPitch(&b, &b_pitch, width, height));
    CHECK(cudaMemcpy2D(a, a_pitch, in.data(), host_pitch, width, height, cudaMemcpyHostToDevice));
    CHECK(cudaMemset2D(b, b_pitch, 0x5A, width, height));
    // A rectangle in the middle, and a column of odd width at the right edge.
    const std::size_t x = 13, y = 2, w = 700, h = height - 5;
    CHECK(cudaMemcpy2DAsync(b + y * b_pitch + x, b_pitch, a + y * a_pitch + x, a_pitch, w, h,
                            cudaMemcpyDeviceToDevice));
    CHECK(cudaMemset2DAsync(b + 990, b_pitch, 0x77, 10, height));
    CHECK(cudaMemcpy2D(out.data(), host_pitch, b, b_pitch, width, height, cudaMemcpyDefault));
    for (std::size_t row = 0; row < height; ++row) {
        for (std::size_t column = 0; column < host_pitch; ++column) {
            unsigned char expected = 0;
            if (column >= width)
                expected = 0;
            else if (column >= 990)
                expected = 0x77;
            else if (row >= y && row < y + h && column >= x && column < x + w)
                expected = in[row * host_pitch + column];
            else
                expected = 0x5A;
            unsigned char found = out[row * host_pitch + column];
            if (found != expected) FAIL("row %zu, column %zu: %u, not %u", row, column, found, expected);
        }
    }
    CHECK_ERROR(cudaErrorInvalidPitchValue,
                cudaMemcpy2D(a, width - 1, in.data(), host_pitch, width, height, cudaMemcpyHostToDevice));

    cudaPitchedPtr box;
    CHECK(cudaMalloc3D(&box, make_cudaExtent(width, height, depth)));
    CHECK(cudaMemset3D(box, 0x33, make_cudaExtent(width, height, depth)));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(in.data(), host_pitch, width, height);
    copy.dstPtr = box;
    copy.dstPos = make_cudaPos(5, 1, 1);
    copy.extent = make_cudaExtent(600, height - 2, 1);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    std::vector<unsigned char> cube(width * height * depth);
    cudaMemcpy3DParms back = {};
    back.srcPtr = box;
    back.dstPtr = make_cudaPitchedPtr(cube.data(), width, width, height);
    back.extent = make_cudaExtent(width, height, depth);
    back.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&back));
    for (std::size_t z = 0; z < depth; ++z) {
        for (std::size_t row = 0; row < height; ++row) {
            for (std::size_t column = 0; column < width; ++column) {
                bool copied = z == 1 && row >= 1 && row < height - 1 && column >= 5 && column < 605;
                unsigned char expected = copied ? in[(row - 1) * host_pitch + column - 5] : 0x33;
                unsigned char found = cube[(z * height + row) * width + column];
                if (found != expected)
                    FAIL("slice %zu, row %zu, column %zu: %u, not %u", z, row, column, found, expected);
            }
        }
    }
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(box.ptr));
    return succeed();
}
