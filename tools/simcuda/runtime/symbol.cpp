// Variables of device code, by their host-side stand-ins.
#include "tools/simcuda/runtime/copy.h"
#include "tools/simcuda/runtime/registry.h"

namespace simcuda::runtime {

void* within_symbol(const Driver& cu, const void* stand_in, std::size_t offset, std::size_t bytes) {
    Symbol symbol = Registry::instance().symbol(cu, stand_in);
    require(offset <= symbol.bytes && bytes <= symbol.bytes - offset, cudaErrorInvalidValue);
    return static_cast<char*>(symbol.address) + offset;
}

void require_device_end(cudaMemcpyKind kind, cudaMemcpyKind with_host) {
    require(kind == with_host || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault,
            cudaErrorInvalidMemcpyDirection);
}

namespace {

template <Form form>
cudaError_t memcpy_to_symbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset,
                             cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        require_device_end(kind, cudaMemcpyHostToDevice);
        return copy_1d<form>(cu, within_symbol(cu, symbol, offset, bytes), from, bytes, kind);
    });
}

template <Form form>
cudaError_t memcpy_to_symbol_async(const void* symbol, const void* from, std::size_t bytes,
                                   std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        require_device_end(kind, cudaMemcpyHostToDevice);
        return copy_1d_async<form>(cu, within_symbol(cu, symbol, offset, bytes), from, bytes, kind, stream);
    });
}

template <Form form>
cudaError_t memcpy_from_symbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                               cudaMemcpyKind kind) {
    return run([&](const Driver& cu) {
        require_device_end(kind, cudaMemcpyDeviceToHost);
        return copy_1d<form>(cu, to, within_symbol(cu, symbol, offset, bytes), bytes, kind);
    });
}

template <Form form>
cudaError_t memcpy_from_symbol_async(void* to, const void* symbol, std::size_t bytes, std::size_t offset,
                                     cudaMemcpyKind kind, cudaStream_t stream) {
    return run([&](const Driver& cu) {
        require_device_end(kind, cudaMemcpyDeviceToHost);
        return copy_1d_async<form>(cu, to, within_symbol(cu, symbol, offset, bytes), bytes, kind, stream);
    });
}

}  // namespace
}  // namespace simcuda::runtime

using namespace simcuda::runtime;

RT_EXPORT_STREAM(cudaMemcpyToSymbol, _ptds, memcpy_to_symbol)
RT_EXPORT_STREAM(cudaMemcpyToSymbolAsync, _ptsz, memcpy_to_symbol_async)
RT_EXPORT_STREAM(cudaMemcpyFromSymbol, _ptds, memcpy_from_symbol)
RT_EXPORT_STREAM(cudaMemcpyFromSymbolAsync, _ptsz, memcpy_from_symbol_async)

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
    return run([&](const Driver& cu) {
        require(address != nullptr, cudaErrorInvalidValue);
        *address = Registry::instance().symbol(cu, symbol).address;
        return cudaSuccess;
    });
}

cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* symbol) {
    return run([&](const Driver& cu) {
        require(bytes != nullptr, cudaErrorInvalidValue);
        *bytes = Registry::instance().symbol(cu, symbol).bytes;
        return cudaSuccess;
    });
}
