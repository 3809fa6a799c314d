// Two processes: memory, pooled memory and events of one, used by the other.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "check.h"

__global__ void add(unsigned* values, unsigned n, unsigned what) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += what;
}

constexpr unsigned kWords = 100'000;
constexpr std::size_t kBytes = kWords * sizeof(unsigned);

struct Handles {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
    cudaMemPoolPtrExportData pooled;
    int process, pool;
};

template <class Value>
void send(int to, const Value& value) {
    if (write(to, &value, sizeof value) != sizeof value) FAIL("the other process is gone");
}

template <class Value>
Value receive(int from) {
    Value value{};
    if (read(from, &value, sizeof value) != sizeof value) FAIL("the other process is gone");
    return value;
}

void expect(const unsigned* memory, unsigned more, const char* what) {
    std::vector<unsigned> out(kWords);
    CHECK(cudaMemcpy(out.data(), memory, kBytes, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < kWords; ++i)
        if (out[i] != noise(i) + more) FAIL("%s, word %u: %u, not %u", what, i, out[i], noise(i) + more);
}

// Adds to what it is given, behind the owner's work and before the owner goes on.
void other(int from, int to) {
    const auto handles = receive<Handles>(from);
    unsigned *memory, *again, *pooled;
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&memory), handles.memory,
                               cudaIpcMemLazyEnablePeerAccess));
    cudaEvent_t event;
    CHECK(cudaIpcOpenEventHandle(&event, handles.event));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamWaitEvent(stream, event, 0));
    add<<<blocks_for(kWords), 256, 0, stream>>>(memory, kWords, 2);

    const std::string path =
        "/proc/" + std::to_string(handles.process) + "/fd/" + std::to_string(handles.pool);
    const int file = open(path.c_str(), O_RDWR);  // as a socket would pass it
    if (file < 0) FAIL("cannot open %s", path.c_str());
    cudaMemPool_t pool;
    CHECK(cudaMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void*>(static_cast<long>(file)),
                                               cudaMemHandleTypePosixFileDescriptor, 0));
    close(file);
    cudaMemPoolPtrExportData data = handles.pooled;
    CHECK(cudaMemPoolImportPointer(reinterpret_cast<void**>(&pooled), pool, &data));
    add<<<blocks_for(kWords), 256, 0, stream>>>(pooled, kWords, 3);
    CHECK(cudaEventRecord(event, stream));
    send(to, true);

    CHECK(cudaStreamSynchronize(stream));
    expect(memory, 3, "opened memory");
    expect(pooled, 4, "imported memory");
    CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), handles.memory,
                               cudaIpcMemLazyEnablePeerAccess));
    if (again != memory) FAIL("the same memory at another address");
    CHECK(cudaIpcCloseMemHandle(again));
    CHECK(cudaIpcCloseMemHandle(memory));
    CHECK_ERROR(cudaErrorInvalidValue, cudaIpcCloseMemHandle(memory));
    CHECK(cudaFreeAsync(pooled, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaEventDestroy(event));
    send(to, true);
}

void owner(int from, int to) {
    std::vector<unsigned> in(kWords);
    for (unsigned i = 0; i < kWords; ++i) in[i] = noise(i);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned *memory, *pooled;
    CHECK(cudaMalloc(&memory, kBytes));
    CHECK(cudaMemcpyAsync(memory, in.data(), kBytes, cudaMemcpyHostToDevice, stream));
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool;
    CHECK(cudaMemPoolCreate(&pool, &properties));
    CHECK(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&pooled), kBytes, pool, stream));
    CHECK(cudaMemcpyAsync(pooled, in.data(), kBytes, cudaMemcpyHostToDevice, stream));
    add<<<blocks_for(kWords), 256, 0, stream>>>(memory, kWords, 1);
    add<<<blocks_for(kWords), 256, 0, stream>>>(pooled, kWords, 1);
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    CHECK(cudaEventRecord(event, stream));

    Handles handles = {};
    handles.process = getpid();
    CHECK(cudaIpcGetMemHandle(&handles.memory, memory));
    CHECK(cudaIpcGetEventHandle(&handles.event, event));
    CHECK(cudaMemPoolExportToShareableHandle(&handles.pool, pool, cudaMemHandleTypePosixFileDescriptor, 0));
    CHECK(cudaMemPoolExportPointer(&handles.pooled, pooled));
    send(to, handles);
    receive<bool>(from);
    CHECK(cudaStreamWaitEvent(stream, event, 0));  // the other's record
    add<<<blocks_for(kWords), 256, 0, stream>>>(memory, kWords, 0);
    CHECK(cudaStreamSynchronize(stream));
    expect(memory, 3, "memory given away");
    expect(pooled, 4, "pooled memory given away");
    receive<bool>(from);
    CHECK(cudaFree(memory));
    CHECK(cudaFreeAsync(pooled, stream));
    CHECK(cudaStreamSynchronize(stream));

    cudaMemLocation location = {};
    location.type = cudaMemLocationTypeDevice;
    cudaMemAccessFlags access;
    CHECK(cudaMemPoolGetAccess(&access, pool, &location));
    if (access != cudaMemAccessFlagsProtReadWrite) FAIL("a pool's own device has no access");
    const cudaMemAccessDesc own = {location, cudaMemAccessFlagsProtReadWrite};
    CHECK(cudaMemPoolSetAccess(pool, &own, 1));
    CHECK(cudaMemPoolDestroy(pool));
}

int main() {
    int there[2], back[2];
    if (pipe(there) != 0 || pipe(back) != 0) FAIL("no pipes");
    const pid_t child = fork();  // before CUDA begins in either
    if (child == 0) {
        close(there[1]);
        close(back[0]);
        other(there[0], back[1]);
        return 0;
    }
    close(there[0]);
    close(back[1]);
    owner(back[0], there[1]);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("the other process failed");
    return succeed();
}
