// Arrays of device pointers that the host uploads, as batched BLAS calls take them: in small and large
// memory, in
// __constant__ and __device__ variables, behind a pointer to them; updated in part, copied on the device,
// cleared and freed, on several streams. What to do next is drawn from a seed, the second argument.
#include <random>

#include "check.h"

constexpr std::size_t kBufferBytes = 256 << 10;
constexpr unsigned kWords = kBufferBytes / sizeof(unsigned);
constexpr unsigned kSlots = 3;  // pointers that one launch follows
constexpr unsigned kTables = 10;
constexpr unsigned kStreams = 4;

// A small copy from pageable memory returns before it has arrived, and these streams do not wait for the
// default one.
inline void upload(void* to, const void* from, std::size_t bytes) {
    CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
    CHECK(cudaStreamSynchronize(nullptr));
}

// What a launch does with word i of buffer b, and with the word at the pointer's place.
__host__ __device__ inline unsigned step(unsigned value, unsigned i, unsigned round) {
    return value * 3 + noise(i, round);
}

// A pointer leads to the beginning, the middle or just past the end of its buffer.
enum Place : unsigned { kBegin, kMiddle, kEnd };
__host__ __device__ inline unsigned offset_of(unsigned place) {
    return place == kBegin ? 0 : place == kMiddle ? kWords / 2 + 5 : kWords;
}

struct Slot {
    unsigned* pointer;
    unsigned long long place;
};

__device__ void work(const Slot* slots, unsigned round) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned s = 0; s < kSlots; ++s) {
        if (slots[s].pointer == nullptr) continue;
        unsigned* buffer = slots[s].pointer - offset_of(static_cast<unsigned>(slots[s].place));
        if (i < kWords - 1) buffer[i] = step(buffer[i], i, round);
        if (i < 64) atomicAdd(&buffer[kWords - 1], round + i);
    }
}

__constant__ Slot constant_slots[kSlots];
__device__ Slot variable_slots[kSlots];

__global__ void follow(const Slot* slots, unsigned round) {
    work(slots, round);
}
struct Batch {
    unsigned long long count;
    Slot* slots;
};
__global__ void follow_twice(const Batch* batch, unsigned round) {
    work(batch->slots, round);
}
__global__ void follow_constant(unsigned round) {
    work(constant_slots, round);
}
__global__ void follow_variable(unsigned round) {
    work(variable_slots, round);
}

// Anything that streams take turns with.
struct Ordered {
    cudaEvent_t last = nullptr;
};

struct Buffer : Ordered {
    unsigned* device = nullptr;
    std::vector<unsigned> host;
};

struct Table : Ordered {
    Slot* device = nullptr;  // where kernels and copies find it
    std::size_t bytes = 0;
    Slot host[kSlots] = {};
    int target[kSlots] = {-1, -1, -1};  // indices of buffers
};

class Program {
  public:
    Program(std::size_t bytes, unsigned seed) : random_(seed), buffers_(bytes / kBufferBytes) {
        for (cudaStream_t& stream : streams_)
            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaMallocHost(&pinned_, sizeof(Slot) * kSlots));
        for (Buffer& buffer : buffers_) make(buffer);
        for (unsigned t = 0; t < kTables; ++t) {
            // The first two are the variables; of the rest every other is large enough to be moved itself.
            Table& table = tables_[t];
            CHECK(cudaEventCreateWithFlags(&table.last, cudaEventDisableTiming));
            void* address = nullptr;
            table.bytes = t % 2 ? 64 << 10 : sizeof(Slot) * kSlots;
            if (t == 0) CHECK(cudaGetSymbolAddress(&address, constant_slots));
            if (t == 1) CHECK(cudaGetSymbolAddress(&address, variable_slots));
            if (t >= 2) CHECK(cudaMalloc(&address, table.bytes));
            table.device = static_cast<Slot*>(address);
            CHECK(cudaMemset(table.device, 0, sizeof(Slot) * kSlots));
        }
        CHECK(cudaMalloc(&batch_, sizeof(Batch)));
        CHECK(cudaDeviceSynchronize());
    }

    void run(unsigned rounds) {
        for (round_ = 1; round_ <= rounds; ++round_) {
            Table& table = tables_[below(kTables)];
            switch (below(9)) {
                case 0:
                case 1:
                    update(table);
                    break;
                case 2:
                    copy(tables_[below(kTables)], table);
                    break;
                case 3:
                    clear(table);
                    break;
                case 4:
                    make_again(table);
                    break;
                case 5:
                    renew(buffers_[below(buffers_.size())]);
                    break;
                default:
                    launch(table);
            }
        }
        for (Buffer& buffer : buffers_) {
            check(buffer);
            CHECK(cudaFree(buffer.device));
        }
    }

  private:
    unsigned below(std::size_t n) { return static_cast<unsigned>(random_() % n); }

    void make(Buffer& buffer) {
        CHECK(cudaMalloc(&buffer.device, kBufferBytes));
        if (!buffer.last) CHECK(cudaEventCreateWithFlags(&buffer.last, cudaEventDisableTiming));
        buffer.host.resize(kWords);
        const unsigned salt = below(1000);
        for (unsigned i = 0; i < kWords; ++i) buffer.host[i] = noise(i, salt);
        upload(buffer.device, buffer.host.data(), kBufferBytes);
    }

    void check(Buffer& buffer) {
        CHECK(cudaEventSynchronize(buffer.last));
        std::vector<unsigned> found(kWords);
        CHECK(cudaMemcpy(found.data(), buffer.device, kBufferBytes, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < kWords; ++i) {
            if (found[i] != buffer.host[i])
                FAIL("round %u, word %u of buffer %d: %u, not %u", round_, i, index_of(buffer), found[i],
                     buffer.host[i]);
        }
    }
    int index_of(const Buffer& buffer) const { return static_cast<int>(&buffer - buffers_.data()); }

    // A stream of which work on these comes after all earlier work on them.
    cudaStream_t stream_after(std::initializer_list<Ordered*> all) {
        cudaStream_t stream = streams_[below(kStreams)];
        for (Ordered* one : all) CHECK(cudaStreamWaitEvent(stream, one->last, 0));
        return stream;
    }
    void done(cudaStream_t stream, std::initializer_list<Ordered*> all) {
        for (Ordered* one : all) CHECK(cudaEventRecord(one->last, stream));
    }

    // Some of the table's pointers, by each kind of upload.
    void update(Table& table) {
        const unsigned first = below(kSlots);
        const unsigned count = 1 + below(kSlots - first);
        for (unsigned s = first; s < first + count; ++s) {
            table.target[s] = static_cast<int>(below(buffers_.size()));
            // Each buffer once, or two threads would work on one word.
            for (unsigned other = 0; other < kSlots; ++other) {
                if (other != s && table.target[other] == table.target[s]) table.target[s] = -1;
            }
            const unsigned place = below(3);
            table.host[s] = {nullptr, place};
            if (table.target[s] >= 0)
                table.host[s].pointer = buffers_[table.target[s]].device + offset_of(place);
        }
        cudaStream_t stream = stream_after({&table});
        Slot* to = table.device + first;
        const Slot* from = table.host + first;
        switch (below(5)) {
            case 0:
                CHECK(cudaStreamSynchronize(stream));
                upload(to, from, count * sizeof(Slot));
                break;
            case 1:
                CHECK(cudaMemcpyAsync(to, from, count * sizeof(Slot), cudaMemcpyHostToDevice, stream));
                break;
            case 2:
                CHECK(cudaMemcpyAsync(to, from, count * sizeof(Slot), cudaMemcpyDefault, stream));
                break;
            case 3:
                // The pointers and their places as two columns.
                for (unsigned column = 0; column < 2; ++column) {
                    CHECK(cudaMemcpy2DAsync(reinterpret_cast<char*>(to) + 8 * column, sizeof(Slot),
                                            reinterpret_cast<const char*>(from) + 8 * column, sizeof(Slot), 8,
                                            count, cudaMemcpyHostToDevice, stream));
                }
                break;
            default:
                std::copy(from, from + count, pinned_);
                CHECK(cudaMemcpyAsync(to, pinned_, count * sizeof(Slot), cudaMemcpyHostToDevice, stream));
                CHECK(cudaStreamSynchronize(stream));
        }
        done(stream, {&table});
    }

    void copy(Table& to, Table& from) {
        if (&to == &from) return;
        cudaStream_t stream = stream_after({&to, &from});
        CHECK(
            cudaMemcpyAsync(to.device, from.device, sizeof(Slot) * kSlots, cudaMemcpyDeviceToDevice, stream));
        std::copy(from.host, from.host + kSlots, to.host);
        std::copy(from.target, from.target + kSlots, to.target);
        done(stream, {&to, &from});
    }

    void clear(Table& table) {
        cudaStream_t stream = stream_after({&table});
        CHECK(cudaMemsetAsync(table.device, 0, sizeof(Slot) * kSlots, stream));
        for (unsigned s = 0; s < kSlots; ++s) forget(table, s);
        done(stream, {&table});
    }
    static void forget(Table& table, unsigned slot) {
        table.host[slot] = {};
        table.target[slot] = -1;
    }

    // Frees a table and makes it anew; the variables cannot be freed.
    void make_again(Table& table) {
        if (&table - tables_ < 2) return;
        CHECK(cudaEventSynchronize(table.last));
        CHECK(cudaFree(table.device));
        CHECK(cudaMalloc(&table.device, table.bytes));
        upload(table.device, table.host, sizeof(Slot) * kSlots);
    }

    // Frees a buffer and makes another; tables that held it are told.
    void renew(Buffer& buffer) {
        check(buffer);
        const int index = index_of(buffer);
        CHECK(cudaFree(buffer.device));
        make(buffer);
        for (Table& table : tables_) {
            for (unsigned s = 0; s < kSlots; ++s) {
                if (table.target[s] != index) continue;
                table.host[s].pointer = buffer.device + offset_of(static_cast<unsigned>(table.host[s].place));
                CHECK(cudaEventSynchronize(table.last));
                upload(table.device + s, table.host + s, sizeof(Slot));
            }
        }
    }

    void launch(Table& table) {
        cudaStream_t stream = stream_after({&table});
        for (const int target : table.target) {
            if (target >= 0) CHECK(cudaStreamWaitEvent(stream, buffers_[target].last, 0));
        }
        const unsigned blocks = blocks_for(kWords);
        if (&table == &tables_[0]) {
            follow_constant<<<blocks, 256, 0, stream>>>(round_);
        } else if (&table == &tables_[1] && below(2)) {
            follow_variable<<<blocks, 256, 0, stream>>>(round_);
        } else if (below(2)) {
            const Batch batch{kSlots, table.device};
            CHECK(cudaStreamWaitEvent(stream, batch_done_.last, 0));
            CHECK(cudaMemcpyAsync(batch_, &batch, sizeof(batch), cudaMemcpyHostToDevice, stream));
            follow_twice<<<blocks, 256, 0, stream>>>(batch_, round_);
            done(stream, {&batch_done_});
        } else {
            follow<<<blocks, 256, 0, stream>>>(table.device, round_);
        }
        CHECK_LAUNCH();
        done(stream, {&table});
        for (const int target : table.target) {
            if (target < 0) continue;
            Buffer& buffer = buffers_[target];
            for (unsigned i = 0; i < kWords - 1; ++i) buffer.host[i] = step(buffer.host[i], i, round_);
            for (unsigned i = 0; i < 64; ++i) buffer.host[kWords - 1] += round_ + i;
            done(stream, {&buffer});
        }
    }

    struct BatchDone : Ordered {
        BatchDone() { CHECK(cudaEventCreateWithFlags(&last, cudaEventDisableTiming)); }
    };

    std::mt19937 random_;
    std::vector<Buffer> buffers_;
    Table tables_[kTables];
    cudaStream_t streams_[kStreams];
    Slot* pinned_ = nullptr;
    Batch* batch_ = nullptr;
    BatchDone batch_done_;
    unsigned round_ = 0;
};

int main(int argc, char** argv) {
    const unsigned seed = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 1;
    Program(std::max(bytes_to_use(argc, argv, 4), 4 * kBufferBytes), seed).run(150);
    return succeed();
}
