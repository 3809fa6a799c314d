// Programs from seeds: each has a character (how many threads, streams, captures, gates) and follows it.
#include <random>

#include "tests/random/ops.h"

namespace rnd {

namespace {

class Generator {
  public:
    Generator(std::uint64_t seed, unsigned count) : random_(seed * 0x9E3779B97F4A7C15ull + 1), count_(count) {
        // Ten programs of a kind differ in what is rare.
        threads_ = one_in(2) ? 1 : kThreads;
        buffers_ = 12 + below(36);
        large_ = one_in(3) ? 16 << 10 : 48 << 10;
        streams_ = 1 + below(kOwnStreams);
        gates_ = one_in(2) ? 0 : 1 + below(6);
        graphs_ = one_in(2) ? 0 : 2 + below(10);
        churn_ = one_in(2) ? 0 : 1 + below(4);
        frees_ = 1 + below(8);
        refusals_ = one_in(2) ? 0 : 1 + below(6);
        tables_ = one_in(2) ? 0 : 2 + below(10);
        checks_ = 1 + below(8);
        notes_ = one_in(2) ? 0 : 1 + below(4);
        fresh_ = one_in(8);
        // Without a draw: programs without a second device are what they were.
        peers_ = seed % 2 == 1;
        // A few crowds: all threads at once in one or two streams, and little that opens gates.
        crowd_ = one_in(6);
        if (crowd_) {
            threads_ = kThreads;
            streams_ = 1 + below(2);
            gates_ = 1 + below(3);
            checks_ = frees_ = one_in(2);
            graphs_ = refusals_ = notes_ = 0;
        }
    }

    Program make() {
        if (fresh_) add(0, Verb::fresh);
        if (one_in(5)) {
            add(0, Verb::pair);
            if (peers_) add(0, Verb::peers);
        }
        for (unsigned stream = 0; stream < streams_; ++stream)
            add(any_thread(), Verb::stream, {stream, below(6)});
        // Pressure begins while these are made, or later.
        const unsigned at_once = one_in(3) ? below(buffers_) : buffers_;
        for (unsigned buffer = 0; buffer < at_once; ++buffer) allocate(buffer);
        if (crowd_) add(0, Verb::together);
        while (program_.size() < count_) {
            if (threads_ > 1 && one_in(crowd_ ? 150 : 40)) add(0, one_in(2) ? Verb::turns : Verb::together);
            step();
        }
        return std::move(program_);
    }

  private:
    std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
    bool one_in(std::uint32_t n) { return below(n) == 0; }
    std::uint32_t any() { return static_cast<std::uint32_t>(random_()); }
    unsigned any_thread() { return threads_ == 1 ? 0 : below(threads_); }
    std::uint32_t any_buffer() { return below(buffers_); }
    std::uint32_t any_graph() { return below(kGraphs); }
    // Mostly one of a few, so that much meets in one.
    std::uint32_t any_stream() {
        if (one_in(12)) return kLegacy;
        if (one_in(12)) return kPerThread;
        return below(one_in(2) ? 1 + streams_ / 3 : streams_);
    }
    std::uint32_t bytes() {
        if (one_in(5)) return 4 + below(8 << 10);
        return one_in(2) ? below(large_) : (1 + below(large_ >> 12)) << 12;
    }
    std::uint32_t start() { return one_in(2) ? 0 : any() & 0xFFFFFC; }
    std::uint32_t length() { return one_in(2) ? 0xBFFF : one_in(3) ? below(64) : below(48 << 10); }

    void add(unsigned thread, Verb verb, std::array<std::uint32_t, 8> arguments = {}) {
        program_.push_back({static_cast<std::uint8_t>(thread), verb, arguments});
    }

    void allocate(std::uint32_t buffer) {
        static constexpr std::uint32_t kKinds[] = {0, 0, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 6, 6};
        add(any_thread(), Verb::alloc, {buffer, kKinds[below(15)], bytes(), any_stream(), below(4)});
    }

    void step() {
        const unsigned thread = any_thread();
        const unsigned sum =
            20 + 3 * gates_ + graphs_ + churn_ + frees_ + refusals_ + tables_ + checks_ + notes_;
        unsigned pick = below(sum);
        const auto is = [&](unsigned weight) {
            if (pick < weight) return true;
            pick -= weight;
            return false;
        };
        if (gates_ && one_in(20)) {
            return add(thread, Verb::behind,
                       {any_stream(), any_stream(), any_buffer(), any_buffer(), start(), length(), any()});
        }
        if (is(2 * gates_)) return add(thread, Verb::gate, {any_stream(), below(2)});
        if (is(gates_)) return add(thread, Verb::open);
        if (is(graphs_)) return graph(thread);
        if (is(churn_)) return churn(thread);
        if (is(frees_)) return renew(thread);
        if (is(refusals_)) return refuse(thread);
        if (is(tables_)) return table(thread);
        if (is(checks_)) return check(thread);
        if (is(notes_)) return add(thread, Verb::note, {any_stream()});
        work(thread);
    }

    void work(unsigned thread) {
        const std::uint32_t stream = any_stream();
        switch (below(12)) {
            case 0:
            case 1:
                return add(
                    thread, Verb::set,
                    {stream, any_buffer(), start(), length(), 1u << below(3), any(), !crowd_ && one_in(4)});
            case 2:
            case 3:
                return add(
                    thread, Verb::copy,
                    {stream, any_buffer(), any_buffer(), start(), start(), length(), below(crowd_ ? 2 : 4)});
            case 4:
                return add(thread, Verb::rect,
                           {stream, any_buffer(), any_buffer(), start(), start(), below(2048), below(64),
                            below(4096)});
            case 5:
            case 6:
                return add(thread, Verb::up,
                           {stream, any_buffer(), start(), length(), any(), crowd_ ? 2 : below(3)});
            case 7:
                return add(thread, Verb::add, {stream, any_buffer(), start(), length(), any()});
            case 8:
                return add(thread, Verb::packed,
                           {stream, any_buffer(), any_buffer(), any_buffer(), start(), length(), any()});
            default:
                add(thread, Verb::mix,
                    {stream, any_buffer(), any_buffer(), any_buffer(), start(), length(), any()});
                // Without a draw: programs are what they were else.
                const std::uint32_t how = program_.back().a[6] / 2 % 8;
                if (how < 2) program_.back().verb = how == 0 ? Verb::section : Verb::tagged;
        }
    }

    void refuse(unsigned thread) {
        static constexpr Verb kVerbs[] = {Verb::overrun, Verb::misuse, Verb::refuse, Verb::refuse};
        add(thread, kVerbs[below(4)], {any_stream(), any_buffer(), below(64)});
    }

    void table(unsigned thread) {
        const std::uint32_t stream = any_stream();
        if (one_in(2)) return add(thread, Verb::through, {stream, any_buffer(), start(), length(), any()});
        add(thread, one_in(2) ? Verb::table : Verb::hidden,
            {stream, any_buffer(), any_buffer(), any_buffer(), start(), length(), any(), any_buffer()});
    }

    // A graph of much that is captured in one stream, launched a few times.
    void replay(unsigned thread) {
        const std::uint32_t stream = below(streams_);
        const std::uint32_t graph = any_graph();
        add(thread, Verb::begin, {stream, below(3)});
        for (std::uint32_t left = 4 + below(12); left > 0; --left) {
            add(thread, one_in(4) ? Verb::packed : Verb::mix,
                {stream, any_buffer(), any_buffer(), any_buffer(), start(), length(), any()});
            if (one_in(8)) add(thread, Verb::set, {stream, any_buffer(), start(), length(), 4, any(), 0});
        }
        add(thread, Verb::end, {stream, graph, below(2)});
        for (std::uint32_t left = 1 + below(4); left > 0; --left) {
            add(thread, Verb::launch, {one_in(4) ? any_stream() : stream, graph});
            if (one_in(3)) work(thread);
            if (one_in(6)) add(thread, Verb::retune, {graph, below(16), any()});
        }
    }

    void graph(unsigned thread) {
        if (one_in(6)) return replay(thread);
        const std::uint32_t stream = any_stream();
        switch (below(8)) {
            case 0:
            case 1:
                return add(thread, Verb::begin, {stream, below(3)});
            case 2:
                return add(thread, Verb::fork, {stream, any_stream()});
            case 3:
            case 4:
                return add(thread, Verb::end, {stream, any_graph(), below(2)});
            case 5:
                return one_in(3) ? add(thread, Verb::unmake, {any_graph()})
                                 : add(thread, Verb::retune, {any_graph(), below(8), any()});
            default:
                return add(thread, Verb::launch, {stream, any_graph()});
        }
    }

    void churn(unsigned thread) {
        const std::uint32_t stream = below(streams_);
        if (one_in(2)) return add(thread, Verb::drop, {stream, below(3)});
        add(thread, Verb::stream, {stream, below(6)});
    }

    void renew(unsigned thread) {
        const std::uint32_t buffer = any_buffer();
        if (one_in(4)) return add(thread, Verb::move, {buffer});
        if (one_in(2)) return add(thread, Verb::free, {buffer, below(3), any_stream()});
        allocate(buffer);
    }

    void check(unsigned thread) {
        if (one_in(3)) return add(thread, Verb::sync, {any_stream(), below(4)});
        if (one_in(4)) return add(thread, Verb::write, {any_buffer(), start(), length(), any()});
        add(thread, Verb::check, {any_stream(), any_buffer(), start(), length(), below(6)});
    }

    std::mt19937_64 random_;
    Program program_;
    unsigned count_;
    unsigned threads_, buffers_, large_, streams_, gates_, graphs_, churn_, frees_, refusals_, tables_,
        checks_, notes_;
    bool fresh_, peers_, crowd_;
};

}  // namespace

Program generate(std::uint64_t seed, unsigned count) {
    return Generator(seed, count).make();
}

}  // namespace rnd
