#include "tests/random/machine.h"

#include <cstring>

namespace rnd {

Machine::Machine(Options options) : options_(options) {
    ok(CU(cuInit)(0), "cuInit");
    for (unsigned thread = 0; thread < kThreads; ++thread) {
        hands_[thread].thread = thread;
        hands_[thread].view = &shared_;
        if (thread > 0) workers_.push_back(std::make_unique<Worker>());
    }
    set_up();
}

// After a program that failed work may stand behind words that nobody will write.
Machine::~Machine() {
    constexpr std::uint32_t kBeyondAll = 1 << 30;
    for (unsigned i = 0; flags_ && i <= kThreads * kFlags; ++i) std::atomic_ref(flags_[i]).store(kBeyondAll);
    // Host functions that wait at them look every 20 us.
    if (failed_) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    tear_down();
}

void Machine::fail(const std::string& what) {
    const std::lock_guard lock(problem_mutex_);
    if (problem_.empty()) problem_ = what;
    failed_ = true;
}

bool Machine::ok(CUresult result, const char* what) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (result == CUDA_SUCCESS) return true;
    const char* name = nullptr;
    CU(cuGetErrorName)(result, &name);
    fail(std::string(what) + " -> " + (name ? name : std::to_string(result)));
    return false;
}

// Whether work was submitted. It may run out of memory where it needs more at once than there can be.
bool Machine::taken(CUresult result, const char* what, const UseList& uses) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY && options_.room > 0) {
        std::uint32_t sum = kept_bytes_;
        for (const Use& use : uses) sum += (buffers_[use.buffer].bytes + 4095) / 4096 * 4096;
        // A buffer that holds addresses names what they lead to.
        if (sum > options_.room || has(Verb::table)) return false;
    }
    return ok(result, what);
}

void Machine::on_thread(unsigned thread, const std::function<void()>& body) {
    if (thread == 0) return body();
    workers_[thread - 1]->give(body);
    workers_[thread - 1]->wait();
}

std::string Machine::standing_at() const {
    std::string text;
    for (const Hand& hand : hands_) {
        const std::size_t at = hand.at.load();
        if (at == SIZE_MAX || !program_ || at >= program_->size()) continue;
        text += "\n  at operation " + std::to_string(at) + ": " + print((*program_)[at]);
    }
    return text;
}

void Machine::open_gates() {
    const std::lock_guard lock(flags_mutex_);
    if (flags_) std::atomic_ref(flags_[0]).store(gates_.load());
}

std::string Machine::run(const Program& program, std::vector<std::uint32_t>& codes) {
    if (failed_) return problem_;
    program_ = &program;
    codes.assign(program.size(), 0);
    codes_ = &codes;
    pair_ = has(Verb::pair);
    peers_ = has(Verb::peers);
    start(has(Verb::fresh));
    bool together = false;
    for (std::size_t from = 0; from < program.size() && !failed_;) {
        if (program[from].verb == Verb::turns) together = false;
        if (program[from].verb == Verb::together) together = true;
        std::size_t to = from + 1;
        while (to < program.size() && program[to].verb != Verb::turns && program[to].verb != Verb::together) {
            ++to;
        }
        if (together && may_run_together()) {
            run_together(from, to);
        } else {
            run_in_turn(from, to);
        }
        from = to;
    }
    if (!failed_) finish();
    return problem_;
}

void Machine::start(bool fresh) {
    if (fresh) {
        tear_down();
        set_up();
        if (failed_) return;
    }
    shared_ = {};
    count_ = {};
    kept_bytes_ = 0;
    gates_ = 0;
    for (unsigned i = 0; i <= kThreads * kFlags; ++i) flags_[i] = 0;
    for (Hand& hand : hands_) {
        hand.next_flag = 0;
        hand.scratch_used = 0;
        hand.notes.clear();
    }
    for (unsigned slot = kLegacy; slot < kSlots; ++slot) {
        streams_[slot] = {};
        streams_[slot].alive = true;
        streams_[slot].handle = slot == kLegacy ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
    }
    if (peers_) befriend();
    // So that what waits for a thread's own stream finds an event that was recorded.
    for (Hand& hand : hands_) {
        on_thread(hand.thread, [&] {
            ok(CU(cuEventRecord)(hand.last_own, stream_of(kPerThread + hand.thread)), "cuEventRecord");
        });
    }
}

void Machine::run_in_turn(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to && !failed_; ++i) {
        Hand& hand = hands_[(*program_)[i].thread];
        on_thread(hand.thread, [&] { run_op(hand, i); });
    }
}

void Machine::run_together(std::size_t from, std::size_t to) {
    claim(from, to);
    captures_together_ =
        !captures_.empty() || std::any_of(program_->begin() + static_cast<std::ptrdiff_t>(from),
                                          program_->begin() + static_cast<std::ptrdiff_t>(to),
                                          [](const Op& op) { return op.verb == Verb::begin; });
    together_ = true;
    std::array<View, kThreads> views;
    views.fill(shared_);
    std::array<std::function<void()>, kThreads> bodies;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
        Hand& hand = hands_[thread];
        hand.view = &views[thread];
        bodies[thread] = [this, &hand, from, to] {
            for (std::size_t i = from; i < to && !failed_; ++i) {
                if ((*program_)[i].thread == hand.thread && !left_out_[i - from]) run_op(hand, i);
            }
        };
        if (thread > 0) workers_[thread - 1]->give(bodies[thread]);
    }
    bodies[0]();
    for (const auto& worker : workers_) worker->wait();
    together_ = false;
    const std::size_t graves = shared_.graves.size();
    for (unsigned thread = 0; thread < kThreads; ++thread) {
        shared_.join(views[thread], graves);
        hands_[thread].view = &shared_;
    }
}

void Machine::run_op(Hand& hand, std::size_t index) {
    const Op& op = (*program_)[index];
    hand.at = index;
    enter(0);
    switch (op.verb) {
        case Verb::fresh:
        case Verb::pair:
        case Verb::peers:
        case Verb::turns:
        case Verb::together:
            break;
        case Verb::alloc:
            allocate(hand, op);
            break;
        case Verb::free:
            free_buffer(hand, op);
            break;
        case Verb::move:
            move(hand, op);
            break;
        case Verb::stream:
            make_stream(hand, op);
            break;
        case Verb::drop:
            drop_stream(hand, op);
            break;
        case Verb::table:
        case Verb::hidden:
            table(hand, op);
            break;
        case Verb::through:
            through(hand, op);
            break;
        case Verb::write:
            write(hand, op);
            break;
        case Verb::check:
            check(hand, op);
            break;
        case Verb::note:
            note(hand, op);
            break;
        case Verb::gate:
            gate(hand, op);
            break;
        case Verb::open:
            open_gates();
            break;
        case Verb::behind:
            behind(hand, op);
            break;
        case Verb::sync:
            sync(hand, op);
            break;
        case Verb::begin:
            begin(hand, op);
            break;
        case Verb::fork:
            fork(hand, op);
            break;
        case Verb::end:
            end(hand, op);
            break;
        case Verb::launch:
            launch(hand, op);
            break;
        case Verb::retune:
            retune(hand, op);
            break;
        case Verb::unmake:
            if (op.a[0] < kGraphs) unmake(graphs_[op.a[0]]);
            break;
        case Verb::overrun:
        case Verb::misuse:
        case Verb::refuse:
            (*codes_)[index] = refuse(hand, op);
            break;
        default:
            work(hand, op);
    }
    hand.at = SIZE_MAX;
    if (failed_) {
        const std::lock_guard lock(problem_mutex_);
        if (problem_.find('\n') == std::string::npos)
            problem_ += "\n  at operation " + std::to_string(index) + ": " + print(op);
    }
}

// Ends captures, waits for everything, compares all bytes, and gives everything back.
void Machine::finish() {
    open_gates();
    while (!captures_.empty() && !failed_) {
        Capture& capture = *captures_.back();
        on_thread(capture.thread, [&] {
            CUgraph graph = nullptr;
            end_capture(hands_[capture.thread], capture, graph);
            if (graph) CU(cuGraphDestroy)(graph);
        });
    }
    synchronize_all();
    for (const Hand& hand : hands_) {
        for (const Note& note : hand.notes) {
            if (note.seen->load() != note.last) fail("a host function has not run");
        }
    }
    if (order_broken().exchange(false)) fail("host functions of one stream out of order");
    for (std::uint32_t i = 0; i < kBuffers && !failed_; ++i) {
        Buffer& buffer = buffers_[i];
        if (!buffer.alive()) continue;
        std::vector<std::uint8_t> bytes(buffer.bytes);
        enter(buffer.device);
        if (buffer.of_host()) {
            std::memcpy(bytes.data(), reinterpret_cast<void*>(buffer.address), buffer.bytes);
        } else {
            ok(CU(cuMemcpyDtoH_v2)(bytes.data(), buffer.address, buffer.bytes), "cuMemcpyDtoH at the end");
        }
        compare(i, bytes.data(), 0, buffer.bytes);
    }
    for (Graph& graph : graphs_) unmake(graph);
    for (Buffer& buffer : buffers_) {
        if (buffer.alive()) give_back(buffer);
    }
    drop_divided();
    for (unsigned slot = 0; slot < kOwnStreams; ++slot) {
        if (streams_[slot].alive) ok(CU(cuStreamDestroy_v2)(streams_[slot].handle), "cuStreamDestroy");
        streams_[slot] = {};
    }
    for (const Grave& grave : shared_.graves) ok(CU(cuEventDestroy_v2)(grave.event), "cuEventDestroy");
    // Frees in the order of streams.
    synchronize_all();
}

}  // namespace rnd
