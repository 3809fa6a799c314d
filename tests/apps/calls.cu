// Calls in kernels: recursion, pointers to functions, virtual functions of objects made on the device,
// structures by value, local arrays, and templates called through one signature.
#include "batches.h"

using Wide = unsigned long long;

__host__ __device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

using Operation = unsigned (*)(unsigned, unsigned);
__host__ __device__ unsigned plus(unsigned a, unsigned b) {
    return a + b;
}
__host__ __device__ unsigned times(unsigned a, unsigned b) {
    return a * b;
}
__host__ __device__ unsigned rotated(unsigned a, unsigned b) {
    return a << (b & 31) | a >> (-b & 31);
}
__device__ Operation device_operations[] = {plus, times, rotated, ackermann};
constexpr Operation kHostOperations[] = {plus, times, rotated, ackermann};

struct Shape {
    __host__ __device__ explicit Shape(unsigned size) : size(size) {}
    __host__ __device__ virtual unsigned area() const = 0;
    __host__ __device__ virtual unsigned border() const { return size; }
    unsigned size;
};
struct Square : Shape {
    using Shape::Shape;
    __host__ __device__ unsigned area() const override { return size * size; }
    __host__ __device__ unsigned border() const override { return 4 * size; }
};
struct Stripe : Shape {
    using Shape::Shape;
    __host__ __device__ unsigned area() const override { return 3 * size; }
};

struct Pair {
    unsigned first;
    Wide second;
};

__host__ __device__ __noinline__ Pair swapped(Pair pair) {
    return {static_cast<unsigned>(pair.second >> 32), pair.second << 32 | pair.first};
}

// Sorts a local array by recursion.
__host__ __device__ __noinline__ void quick_sort(unsigned char* values, int n) {
    if (n < 2) return;
    const unsigned char pivot = values[n / 2];
    int left = 0, right = n - 1;
    while (left <= right) {
        while (values[left] < pivot) ++left;
        while (values[right] > pivot) --right;
        if (left > right) break;
        const unsigned char value = values[left];
        values[left++] = values[right];
        values[right--] = value;
    }
    quick_sort(values, right + 1);
    quick_sort(values + left, n - left);
}

__host__ __device__ Wide result_of(unsigned value, const Operation* operations) {
    Wide result = operations[value % 3](value, value >> 8);
    result = result * 31 + operations[3](value % 3, value % 5);
    const Square square(value % 100);
    const Stripe stripe(value % 1000);
    const Shape* shape = value & 64 ? static_cast<const Shape*>(&square) : &stripe;
    result = result * 31 + shape->area() + shape->border();
    const Pair pair = swapped({value, result});
    result += pair.first ^ pair.second;
    unsigned char letters[24];
    for (unsigned i = 0; i < sizeof(letters); ++i) letters[i] = static_cast<unsigned char>(noise(value, i));
    quick_sort(letters, sizeof(letters));
    for (const unsigned char letter : letters) result = result * 257 + letter;
    return result;
}

__global__ void call(const unsigned* in, Wide* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = result_of(in[i], device_operations);
}

int main(int argc, char** argv) {
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 8 << 10));
    over_batches<unsigned, Wide>(
        bytes_to_use(argc, argv, 2), "calls", [](std::size_t i) { return noise(i); },
        [](const unsigned* in, Wide* out, unsigned n) { call<<<blocks_for(n), 256>>>(in, out, n); },
        [](const std::vector<unsigned>& in) {
            std::vector<Wide> out;
            for (const unsigned value : in) out.push_back(result_of(value, kHostOperations));
            return out;
        });
    return succeed();
}
