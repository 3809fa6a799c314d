// Runs programs on the driver, beside a model of plain bytes that runs them in the order they are written.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/random/worker.h"
#include "tests/random/world.h"

namespace rnd {

struct Options {
    bool hidden = true;      // kernels may reach what neither their arguments nor an upload tell
    bool behind = true;      // work may wait for work that is submitted later
    bool sections = true;    // and by addresses that are computed from what leads to no buffer
    bool own = true;         // some memory is mapped by the program itself
    bool parts = false;      // buffers are parts of a block
    bool scarce = false;     // an allocation may be out of memory: others have it
    std::uint32_t room = 0;  // bytes: work that names more than this may run out of memory; 0: none may
};

// The host functions a thread gave to one stream, which run in that order.
struct Note {
    unsigned slot;
    std::uint64_t life;
    std::shared_ptr<std::atomic<std::uint32_t>> seen;  // the last that has run
    std::uint32_t last;
};

// Whether any ran out of order.
std::atomic<bool>& order_broken();

// One thread of the program.
struct Hand {
    unsigned thread = 0;
    View* view = nullptr;
    std::array<std::vector<CUevent>, kDevices> events;  // used in turn
    std::size_t next_event = 0;
    std::uint32_t next_flag = 0;
    std::uint8_t* scratch = nullptr;  // page-locked
    std::uint32_t scratch_used = 0;
    std::vector<Note> notes;
    std::atomic<std::size_t> at{SIZE_MAX};
    CUevent last_own = nullptr;  // after the last operation of its per-thread stream
};

class Machine {
  public:
    explicit Machine(Options options);
    ~Machine();

    // Empty if all was as it should be. What the driver answered to refused calls is in `codes`.
    std::string run(const Program& program, std::vector<std::uint32_t>& codes);

    // For whoever watches: grows with each call, and what the threads are at.
    std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
    std::string standing_at() const;
    void open_gates();

  private:
    struct Device {
        CUdevice device = 0;
        CUcontext context = nullptr;
        std::uint64_t life = 0;
        std::map<std::string, CUfunction> functions;
        CUmemoryPool pool = nullptr;
    };

    // machine.cpp: the course of a program
    void set_up();
    void set_up(Device& device);
    void tear_down();
    void start(bool fresh);
    void run_in_turn(std::size_t from, std::size_t to);
    void run_together(std::size_t from, std::size_t to);
    void on_thread(unsigned thread, const std::function<void()>& body);
    bool has(Verb verb) const;
    void run_op(Hand& hand, std::size_t index);
    void finish();
    void fail(const std::string& what);
    bool ok(CUresult result, const char* what);
    bool taken(CUresult result, const char* what, const UseList& uses);

    // claims.cpp: which thread may use what while all run
    bool may_run_together() const;
    void claim(std::size_t from, std::size_t to);
    bool claim_streams(const Op& op);
    bool claim_buffers(const Op& op);
    bool may_use(const Hand& hand, const UseList& uses) const;

    // waits.cpp
    CUevent event(Hand& hand, unsigned slot);
    unsigned device_of(unsigned slot) const { return pair_ && slot < kOwnStreams ? slot % kDevices : 0; }
    bool enter(unsigned device);
    void befriend();
    bool synchronize_all();
    unsigned slot_of(const Hand& hand, std::uint32_t stream) const;
    CUstream stream_of(unsigned slot);
    bool usable(const Hand& hand, unsigned slot);
    bool forbidden(const Hand& hand);
    bool may_wait_for_all();
    bool legacy_forbidden();
    bool prepare(Hand& hand, const Op& op, unsigned slot, const UseList& uses);
    Clock implied_order(const Hand& hand, unsigned slot);
    bool prepare_captured(Hand& hand, Capture& capture, unsigned slot, const UseList& uses);
    void submitted(Hand& hand, unsigned slot, const UseList& uses);
    bool wait_for(Hand& hand, const Op& op, unsigned in, std::uint32_t number, unsigned slot);
    bool wait_by_event(Hand& hand, unsigned from, unsigned slot);
    bool wait_by_value(Hand& hand, unsigned from, unsigned slot);
    bool host_waits(Hand& hand, const UseList& uses);
    bool synchronize(Hand& hand, unsigned slot);
    bool bury(Hand& hand, unsigned slot);

    // memory.cpp
    void allocate(Hand& hand, const Op& op);
    CUresult allocate_as(Buffer& buffer, CUstream stream);
    void give_back(Buffer& buffer);
    void free_buffer(Hand& hand, const Op& op);
    void write(Hand& hand, const Op& op);
    void check(Hand& hand, const Op& op);
    void compare(std::uint32_t number, const std::uint8_t* bytes, std::uint32_t at, std::uint32_t count);
    CUresult upload(Hand& hand, const Op& op, const std::vector<std::uint8_t>& data, CUstream stream);
    void upload_noise(Hand& hand, const Op& op, CUstream stream);
    void table(Hand& hand, const Op& op);
    void through(Hand& hand, const Op& op);
    void launch_by_table(Hand& hand, Op& op, std::uint32_t table, unsigned slot, UseList& uses,
                         const char* kernel);

    // parts.cpp
    bool may_be_part(std::uint32_t number) const;
    CUresult allocate_part(Buffer& buffer, std::uint32_t number, std::uint32_t where);
    void drop_divided();

    // own.cpp
    CUresult reserve_own(Buffer& buffer);
    CUresult map_own(Buffer& buffer);
    CUresult allocate_own(Buffer& buffer);
    CUresult unmap_own(const Buffer& buffer);
    CUresult release_own(const Buffer& buffer);
    CUresult free_own(const Buffer& buffer);
    void drop_own();
    void move(Hand& hand, const Op& op);

    // work.cpp
    void work(Hand& hand, const Op& asked);
    bool resolve(Op& op, UseList& uses) const;
    bool resolve_copy(Op& op) const;
    bool resolve_rect(Op& op) const;
    CUresult submit(const Op& op, CUstream stream);
    CUresult submit_set(const Op& op, CUstream stream);
    CUresult submit_computed(const Op& op, Verb verb, CUstream stream);
    CUresult submit_copy(const Op& op, CUstream stream);
    CUresult submit_rect(const Op& op, CUstream stream);
    bool reaches(unsigned slot, const Op& op, const UseList& uses) const;
    CUresult launch_kernel(unsigned device, const char* name, std::uint32_t words, CUstream stream,
                           void** arguments);
    void apply(const Op& op);

    // streams.cpp
    void make_stream(Hand& hand, const Op& op);
    void drop_stream(Hand& hand, const Op& op);
    void note(Hand& hand, const Op& op);
    void gate(Hand& hand, const Op& op);
    void behind(Hand& hand, const Op& op);
    void sync(Hand& hand, const Op& op);

    // graphs.cpp
    void begin(Hand& hand, const Op& op);
    void fork(Hand& hand, const Op& op);
    void end(Hand& hand, const Op& op);
    void end_capture(Hand& hand, Capture& capture, CUgraph& graph);
    bool fits_capture(Capture& capture, const Op& op, const UseList& uses);
    bool names_what_lives(const std::vector<Step>& steps) const;
    void captured(const Op& op, unsigned slot, const UseList& uses);
    void launch(Hand& hand, const Op& op);
    void retune(Hand& hand, const Op& op);
    void unmake(Graph& graph);

    // refusals.cpp
    std::uint32_t refuse(Hand& hand, const Op& op);

    static constexpr std::uint32_t kLargest = 48 << 10;  // bytes of a buffer
    static constexpr std::uint32_t kRow = 1024;          // bytes of a pitched buffer's rows
    static constexpr std::uint32_t kScratch = 8 * kLargest;
    static constexpr std::uint32_t kFlags = 1024;  // of each thread
    static constexpr int kNobody = -1;
    static constexpr int kEverybody = -2;
    struct BufferClaim {
        Mode mode;
        int thread;
    };

    Options options_;
    std::array<Device, kDevices> devices_;
    bool pair_ = false;   // whether every other stream is the second device's
    bool peers_ = false;  // whether devices reach each other's memory
    OwnMemory own_;
    Divided divided_;
    CUdeviceptr nowhere_ = 0;         // reserved, never mapped
    std::uint32_t* flags_ = nullptr;  // page-locked; the first says how many gates are open

    const Program* program_ = nullptr;
    std::vector<std::uint32_t>* codes_ = nullptr;
    std::array<Buffer, kBuffers> buffers_;
    std::array<Stream, kSlots> streams_;
    std::array<Graph, kGraphs> graphs_;
    std::vector<std::unique_ptr<Capture>> captures_;
    std::array<std::uint32_t, kLanes> count_{};
    static inline std::atomic<std::uint64_t> born_{0};
    std::atomic<std::uint32_t> gates_{0};
    std::mutex flags_mutex_;                    // one that watches opens gates too
    std::atomic<std::uint32_t> kept_bytes_{0};  // that graphs keep on the GPU, at the most
    std::mutex adding_;
    std::mutex capturing_;

    std::array<Hand, kThreads> hands_;
    View shared_;
    // While all threads run at once:
    bool together_ = false;
    bool captures_together_ = false;  // some capture is under way meanwhile, or may be
    std::vector<bool> left_out_;      // operations that another thread's claim rules out
    std::array<int, kSlots> stream_owner_{};
    std::array<unsigned, kSlots> stream_users_{};
    std::array<int, kGraphs> graph_owner_{};
    std::array<BufferClaim, kBuffers> buffer_claims_{};

    std::atomic<std::uint64_t> progress_{0};
    std::atomic<bool> failed_{false};
    std::mutex problem_mutex_;
    std::string problem_;

    std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace rnd
