// Copies, from the forms programs ask for to one operation, and what "synchronous" means for each kind.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "tools/simcuda/driver/cuda_api.h"
#include "tools/simcuda/driver/work.h"

namespace simcuda::driver {

class Context;
class Stream;

// Where an address lies; `span` is the bytes from it to the end of what is touched. Throw Failure with
// CUDA_ERROR_INVALID_VALUE if it is not memory the copy may touch.
CopyEnd device_end(const Context& context, CUdeviceptr address, std::uint64_t span);
CopyEnd host_end(const Context& context, const void* address, std::uint64_t span);
CopyEnd any_end(const Context& context, CUdeviceptr address, std::uint64_t span);  // by what lies there

// Bytes from the first to the last of rows `pitch` bytes apart. Throws Failure with CUDA_ERROR_INVALID_VALUE
// if there are more than addresses.
std::uint64_t pitched_span(std::uint64_t width, unsigned element_bytes, std::uint64_t rows,
                           std::uint64_t pitch);

CopyOp linear_copy(const CopyEnd& to, const CopyEnd& from, std::size_t bytes);

// Pitched copies, and those of arrays. Throw Failure: CUDA_ERROR_INVALID_VALUE for bad geometry,
// CUDA_ERROR_INVALID_HANDLE for what is no array.
CopyOp pitched_copy(const Context& context, const CUDA_MEMCPY3D& copy);
CopyOp pitched_copy(const Context& to, const Context& from, const CUDA_MEMCPY3D& copy);
CUDA_MEMCPY3D as_3d(const CUDA_MEMCPY2D& copy);

// Reads a host source now, on the calling thread, into memory of the driver's own. Device sources are left
// alone.
void stage_host_source(CopyOp& copy);

// Give the copy to the stream. The synchronous form returns when CUDA says it does: for device to device at
// once, for small pageable sources once they are staged, else when the copy has ended. The asynchronous form
// blocks for copies from host to host and into pageable memory, and reads pageable sources before it returns.
CUresult copy_and_wait(Context& context, Stream& stream, CopyOp copy);
CUresult copy_async(Context& context, Stream& stream, CopyOp copy);

// cuMemcpyPeer: returns at once, and is in order with all work of the contexts and of the stream's.
CUresult copy_between(Stream& stream, CopyOp copy, std::set<std::shared_ptr<Context>> contexts);

}  // namespace simcuda::driver
