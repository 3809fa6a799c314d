// Batches of copies, and copies to and from arrays.
#include <algorithm>
#include <functional>

#include "tests/entry/rig.h"

using namespace rig;

namespace {

// A batch of copies with one attribute for all.
struct Batch {
    std::vector<CUdeviceptr> to;
    std::vector<CUdeviceptr> from;
    std::vector<std::size_t> bytes;
    CUmemcpyAttributes attributes{};
    std::size_t start = 0;

    explicit Batch(CUmemcpySrcAccessOrder order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) {
        attributes.srcAccessOrder = order;
    }
    void add(CUdeviceptr destination, CUdeviceptr source, std::size_t n) {
        to.push_back(destination);
        from.push_back(source);
        bytes.push_back(n);
    }
};

CUdeviceptr host(void* pointer) {
    return reinterpret_cast<CUdeviceptr>(pointer);
}

void copy_through_batches(CUmemcpySrcAccessOrder order) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    const Buffer c(kBuffer, 3);
    Crowd crowd;
    for (int round = 0; round < 3; ++round) {
        if (round == 1) crowd.evict(a);
        if (round == 2) crowd.evict_half(a);
        std::vector<std::uint8_t> read(kBuffer);
        std::vector<std::uint8_t> upload = pattern(kBuffer, 10 + round);
        Batch batch(order);
        batch.add(c.at(), a.at(), kBuffer);
        batch.add(b.at(), host(upload.data()), kBuffer);
        batch.add(host(read.data()), a.at(), kBuffer);
        OK(cuMemcpyBatchAsync_v2, batch.to.data(), batch.from.data(), batch.bytes.data(), 3,
           &batch.attributes, &batch.start, 1, stream);
        OK(cuStreamSynchronize, stream);
        EXPECT(read == pattern(kBuffer, 1));
        EXPECT(c.holds(1));
        EXPECT(b.holds(10 + round));
    }
}

}  // namespace

FAMILY_TEST("batch: copies of resident, evicted and partly evicted buffers, in stream order") {
    copy_through_batches(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
}

FAMILY_TEST("batch: sources that may be read out of order are there before the call", "batch-order") {
    copy_through_batches(CU_MEMCPY_SRC_ACCESS_ORDER_ANY);
}

FAMILY_TEST("batch: one larger than the GPU is done in parts, with the attributes of each copy",
            "batch-parts") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    std::vector<std::unique_ptr<Buffer>> from;
    std::vector<std::unique_ptr<Buffer>> to;
    Batch batch;
    for (std::uint32_t i = 0; i < 8; ++i) {
        from.push_back(std::make_unique<Buffer>(kBuffer, i));
        to.push_back(std::make_unique<Buffer>(kBuffer, 100));
        batch.add(to[i]->at(), from[i]->at(), kBuffer);
    }
    CUmemcpyAttributes attributes[3]{};
    for (auto& each : attributes) each.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    std::size_t starts[] = {0, 3, 4};
    std::size_t failed = 0;
    const auto check = [&](auto copy) {
        for (const auto& buffer : to) buffer->fill(100);
        EXPECT(copy(batch.to.data(), batch.from.data(), batch.bytes.data(), 8, attributes, starts, 3, &failed,
                    stream) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, stream);
        for (std::uint32_t i = 0; i < 8; ++i) EXPECT(to[i]->holds(i));
    };
    check(CU(cuMemcpyBatchAsync));
    check(CU(cuMemcpyBatchAsync_ptsz));
}

FAMILY_TEST("batch: one copy larger than the GPU", "batch-one-copy") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(6 * kMiB, 1);
    const Buffer b(6 * kMiB, 2);
    Batch batch;
    batch.add(b.at(), a.at(), 6 * kMiB);
    OK(cuMemcpyBatchAsync_v2_ptsz, batch.to.data(), batch.from.data(), batch.bytes.data(), 1,
       &batch.attributes, &batch.start, 1, stream);
    OK(cuStreamSynchronize, stream);
    EXPECT(b.holds(1));
}

FAMILY_TEST("batch: the operation at fault is told by its place in the whole batch", "batch-fault") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    std::vector<std::unique_ptr<Buffer>> buffers;
    Batch batch;
    for (std::uint32_t i = 0; i < 12; ++i) {
        buffers.push_back(std::make_unique<Buffer>(kBuffer, i));
        if (i > 0) batch.add(buffers[i]->at(), buffers[0]->at(), kBuffer);
    }
    batch.bytes[9] = 0;
    std::size_t failed = 0;
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync, batch.to.data(), batch.from.data(),
          batch.bytes.data(), batch.to.size(), &batch.attributes, &batch.start, 1, &failed, stream);
    EXPECT(failed == 9);
    OK(cuStreamSynchronize, stream);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync_v2, batch.to.data(), batch.from.data(),
          batch.bytes.data(), 3, nullptr, &batch.start, 1, stream);
}

OVERLAY_TEST("batch: 3D copies of evicted buffers, with pitches, and more than the GPU holds", "batch-3d") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    std::vector<std::unique_ptr<Buffer>> from;
    std::vector<std::unique_ptr<Buffer>> to;
    std::vector<CUDA_MEMCPY3D_BATCH_OP> copies;
    constexpr std::size_t kRow = 4096;
    for (std::uint32_t i = 0; i < 8; ++i) {
        from.push_back(std::make_unique<Buffer>(kBuffer, i));
        to.push_back(std::make_unique<Buffer>(kBuffer, 100));
        CUDA_MEMCPY3D_BATCH_OP copy{};
        copy.src.type = copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        copy.src.op.ptr = {from[i]->at(), kRow, 0, {}};
        copy.dst.op.ptr = {to[i]->at(), kRow, 0, {}};
        copy.extent = {kRow / 2, kBuffer / kRow, 1};
        copy.srcAccessOrder = i % 2 == 0 ? CU_MEMCPY_SRC_ACCESS_ORDER_STREAM : CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
        copies.push_back(copy);
    }
    const auto check = [&] {
        OK(cuStreamSynchronize, stream);
        for (std::uint32_t i = 0; i < 8; ++i) {
            const auto source = pattern(kBuffer, i);
            auto expected = pattern(kBuffer, 100);
            for (std::size_t row = 0; row < kBuffer; row += kRow)
                std::copy_n(source.begin() + row, kRow / 2, expected.begin() + row);
            EXPECT(to[i]->read() == expected);
            to[i]->fill(100);
        }
    };
    std::size_t failed = 0;
    OK(cuMemcpy3DBatchAsync_v2, 8, copies.data(), 0, stream);
    check();
    OK(cuMemcpy3DBatchAsync_v2_ptsz, 8, copies.data(), 0, stream);
    check();
    OK(cuMemcpy3DBatchAsync, 8, copies.data(), &failed, 0, stream);
    check();
    OK(cuMemcpy3DBatchAsync_ptsz, 8, copies.data(), &failed, 0, stream);
    check();
}

OVERLAY_TEST("arrays: copies between them and evicted buffers, also larger than the GPU", "array-copies") {
    const Gpu gpu;
    constexpr std::size_t kLarge = 6 * kMiB;
    CUarray array = nullptr;
    CUDA_ARRAY_DESCRIPTOR descriptor{kLarge, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
    OK(cuArrayCreate_v2, &array, &descriptor);
    const Buffer a(kLarge, 1);
    const Buffer b(kLarge, 2);
    OK(cuMemcpyDtoA_v2, array, 0, a.at(), kLarge);
    OK(cuMemcpyAtoD_v2, b.at(), array, 0, kLarge);
    EXPECT(b.holds(1));
    const Buffer c(kBuffer, 3);
    const Buffer d(kBuffer, 4);
    Crowd crowd;
    crowd.evict(c);
    OK(cuMemcpyDtoA_v2_ptds, array, 16, c.at(), kBuffer);
    crowd.evict_half(d);
    OK(cuMemcpyAtoD_v2_ptds, d.at(), array, 16, kBuffer);
    EXPECT(d.holds(3));
}

FAMILY_TEST("arrays: what a copy calls the host's may be a buffer that is evicted", "array-host-copies") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    CUarray array = nullptr;
    CUDA_ARRAY_DESCRIPTOR descriptor{kBuffer / 16, 0, CU_AD_FORMAT_UNSIGNED_INT32, 4};
    OK(cuArrayCreate_v2, &array, &descriptor);
    Buffer source(kBuffer, 1);
    Buffer target(kBuffer, 2);
    const Buffer scratch(kBuffer, 3);
    Crowd crowd;
    std::uint32_t seed = 10;
    const auto check = [&](auto&& in, auto&& out) {
        source.fill(++seed);
        target.fill(100);
        crowd.evict(source);
        EXPECT(in(reinterpret_cast<const void*>(source.at())) == CUDA_SUCCESS);
        crowd.evict(target);
        // Only read, it is on the host as well.
        EXPECT(launch("add", kWords, nullptr, scratch.at(), target.at(), 0u, kWords) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, nullptr);
        EXPECT(target.resident());
        EXPECT(out(reinterpret_cast<void*>(target.at())) == CUDA_SUCCESS);
        OK(cuStreamSynchronize, stream);
        crowd.evict(target);
        EXPECT(target.holds(seed));
    };
    const auto wait = [](CUresult status, CUstream in) {
        OK(cuStreamSynchronize, in);
        return status;
    };
    check([&](const void* from) { return CU(cuMemcpyHtoA_v2)(array, 0, from, kBuffer); },
          [&](void* to) { return CU(cuMemcpyAtoH_v2)(to, array, 0, kBuffer); });
    check([&](const void* from) { return CU(cuMemcpyHtoA_v2_ptds)(array, 0, from, kBuffer); },
          [&](void* to) { return CU(cuMemcpyAtoH_v2_ptds)(to, array, 0, kBuffer); });
    check(
        [&](const void* from) {
            return wait(CU(cuMemcpyHtoAAsync_v2)(array, 0, from, kBuffer, stream), stream);
        },
        [&](void* to) { return CU(cuMemcpyAtoHAsync_v2)(to, array, 0, kBuffer, stream); });
    check(
        [&](const void* from) {
            return wait(CU(cuMemcpyHtoAAsync_v2_ptsz)(array, 0, from, kBuffer, stream), stream);
        },
        [&](void* to) { return CU(cuMemcpyAtoHAsync_v2_ptsz)(to, array, 0, kBuffer, stream); });
}

OVERLAY_TEST("decompression: it finds its operands on the device, and none that cannot be", "decompression") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1);
    const Buffer b(kBuffer, 2);
    Crowd crowd;
    CUmemDecompressParams operation{};
    operation.src = reinterpret_cast<void*>(a.at());
    operation.dst = reinterpret_cast<void*>(b.at());
    operation.srcNumBytes = kBuffer;
    for (const std::size_t told : {kBuffer, std::size_t{0}}) {
        operation.dstNumBytes = told;
        b.read();
        crowd.evict(a);
        crowd.evict(b);
        OK(cuMemBatchDecompressAsync, &operation, 1, 0, nullptr, stream);
        OK(cuStreamSynchronize, stream);
        EXPECT(b.holds(1));
        crowd.evict(b);
        OK(cuMemBatchDecompressAsync_ptsz, &operation, 1, 0, nullptr, stream);
        OK(cuStreamSynchronize, stream);
    }
    const Buffer large(6 * kMiB);
    operation.src = reinterpret_cast<void*>(large.at());
    operation.srcNumBytes = operation.dstNumBytes = 6 * kMiB;
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemBatchDecompressAsync, &operation, 1, 0, nullptr, stream);
}

OVERLAY_TEST("copies: a single row larger than the GPU", "copies-one-row") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    constexpr std::size_t kLarge = 6 * kMiB;
    const Buffer a(kLarge, 1);
    Buffer b(kLarge, 2);
    auto expected = pattern(kLarge, 2);
    const auto source = pattern(kLarge, 1);
    // A few bytes stay as they are at both ends.
    constexpr std::size_t kRow = kLarge - 9;
    const auto check = [&] {
        OK(cuStreamSynchronize, stream);
        auto now = expected;
        std::copy_n(source.begin() + 5, kRow, now.begin() + 3);
        EXPECT(b.read() == now);
        b.fill(2);
    };
    const auto one_row = [&](auto copy) {
        copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = a.at();
        copy.dstDevice = b.at();
        copy.srcXInBytes = 5;
        copy.dstXInBytes = 3;
        copy.WidthInBytes = kRow;
        copy.Height = 1;
        return copy;
    };
    const auto row = one_row(CUDA_MEMCPY2D{});
    OK(cuMemcpy2DAsync_v2, &row, stream);
    check();
    OK(cuMemcpy2D_v2, &row);
    check();
    auto rows = one_row(CUDA_MEMCPY3D{});
    rows.Depth = 1;
    OK(cuMemcpy3DAsync_v2, &rows, stream);
    check();
    OK(cuMemsetD2D8Async, b.at(3), kLarge, 7, kRow, 1, stream);
    OK(cuStreamSynchronize, stream);
    std::fill_n(expected.begin() + 3, kRow, std::uint8_t{7});
    EXPECT(b.read() == expected);
}

FAMILY_TEST("batch: one 3D copy larger than the GPU, in slices, rows or one row", "batch-3d-one") {
    const Gpu gpu;
    const CUstream stream = new_stream();
    constexpr std::size_t kLarge = 6 * kMiB;
    const Buffer a(kLarge, 1);
    Buffer b(kLarge, 2);
    const auto source = pattern(kLarge, 1);
    for (const auto order : {CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_ANY}) {
        for (const CUextent3D extent : {CUextent3D{3000, 30, 60}, {1000, 6000, 1}, {kLarge - 9, 1, 1}}) {
            // Each row, and each slice, leaves a little; where that is not said, they are packed.
            for (const std::size_t more : {0, 7}) {
                CUDA_MEMCPY3D_BATCH_OP copy{};
                copy.src.type = copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
                copy.src.op.ptr = {a.at(5), 0, 0, {}};
                copy.dst.op.ptr = {b.at(3), more ? extent.width + more : 0, more ? extent.height + 1 : 0, {}};
                copy.extent = extent;
                copy.srcAccessOrder = order;
                OK(cuMemcpy3DBatchAsync_v2, 1, &copy, 0, stream);
                OK(cuStreamSynchronize, stream);
                auto expected = pattern(kLarge, 2);
                const std::size_t pitch = extent.width + more;
                const std::size_t rows = extent.height + (more ? 1 : 0);
                for (std::size_t z = 0; z < extent.depth; ++z) {
                    for (std::size_t y = 0; y < extent.height; ++y)
                        std::copy_n(source.begin() + 5 + (z * extent.height + y) * extent.width, extent.width,
                                    expected.begin() + 3 + (z * rows + y) * pitch);
                }
                EXPECT(b.read() == expected);
                b.fill(2);
            }
        }
    }
}

namespace {

// Every form of a batch that copies a buffer.
std::vector<std::function<CUresult(CUdeviceptr to, CUdeviceptr from, CUstream)>> batch_forms() {
    static std::size_t bytes = kBuffer, start = 0, failed = 0;
    static CUmemcpyAttributes in_order{};
    in_order.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    const auto box = [](CUdeviceptr to, CUdeviceptr from) {
        CUDA_MEMCPY3D_BATCH_OP copy{};
        copy.src.type = copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
        copy.src.op.ptr.ptr = from;
        copy.dst.op.ptr.ptr = to;
        copy.extent = {kBuffer, 1, 1};
        copy.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        return copy;
    };
    const auto linear = [](auto call) {
        return [=](CUdeviceptr to, CUdeviceptr from, CUstream stream) {
            return call(&to, &from, &bytes, 1, &in_order, &start, 1, &failed, stream);
        };
    };
    const auto linear_v2 = [](auto call) {
        return [=](CUdeviceptr to, CUdeviceptr from, CUstream stream) {
            return call(&to, &from, &bytes, 1, &in_order, &start, 1, stream);
        };
    };
    const auto boxes = [=](auto call) {
        return [=](CUdeviceptr to, CUdeviceptr from, CUstream stream) {
            CUDA_MEMCPY3D_BATCH_OP copy = box(to, from);
            return call(1, &copy, &failed, 0, stream);
        };
    };
    const auto boxes_v2 = [=](auto call) {
        return [=](CUdeviceptr to, CUdeviceptr from, CUstream stream) {
            CUDA_MEMCPY3D_BATCH_OP copy = box(to, from);
            return call(1, &copy, 0, stream);
        };
    };
    return {linear(CU(cuMemcpyBatchAsync)),        linear(CU(cuMemcpyBatchAsync_ptsz)),
            linear_v2(CU(cuMemcpyBatchAsync_v2)),  linear_v2(CU(cuMemcpyBatchAsync_v2_ptsz)),
            boxes(CU(cuMemcpy3DBatchAsync)),       boxes(CU(cuMemcpy3DBatchAsync_ptsz)),
            boxes_v2(CU(cuMemcpy3DBatchAsync_v2)), boxes_v2(CU(cuMemcpy3DBatchAsync_v2_ptsz))};
}

// The capture goes on with the copy or without it, and afterwards nothing holds the buffers.
void batches_in_a_capture(CUresult answer) {
    const Gpu gpu;
    const CUstream stream = new_stream();
    const Buffer a(kBuffer, 1), b(kBuffer, 2);
    Buffer c(kBuffer, 3);
    Crowd crowd;
    for (const bool out : {true, false}) {
        for (const auto& copy : batch_forms()) {
            c.fill(3);
            if (out) {
                crowd.evict(a);
            } else {
                crowd.bring_in(a);
            }
            OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
            EXPECT(copy(c.at(), a.at(), stream) == answer);
            OK(cuMemcpyDtoDAsync_v2, b.at(), c.at(), kBuffer, stream);
            CUgraph graph = nullptr;
            OK(cuStreamEndCapture, stream, &graph);
            std::size_t nodes = 0;
            OK(cuGraphGetNodes, graph, nullptr, &nodes);
            EXPECT(nodes == (answer == CUDA_SUCCESS ? 2 : 1));
            CUgraphExec exec = nullptr;
            OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
            OK(cuGraphLaunch, exec, stream);
            OK(cuStreamSynchronize, stream);
            EXPECT(a.holds(1));
            EXPECT(b.holds(answer == CUDA_SUCCESS ? 1 : 3));
            EXPECT(c.holds(answer == CUDA_SUCCESS ? 1 : 3));
            OK(cuGraphExecDestroy, exec);
            OK(cuGraphDestroy, graph);
            crowd.evict(c);
        }
    }
}

}  // namespace

FAMILY_TEST("batch: a captured stream refuses it, as real drivers do, and the capture goes on") {
    batches_in_a_capture(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

OVERLAY_TEST("batch: a driver that takes it in a captured stream finds the buffers on the device") {
    batches_in_a_capture(CUDA_SUCCESS);
}
