// Which thread may use what in a section that all threads run at once. What a thread writes is its alone,
// what is read or added to is shared, and what does not agree with an earlier line is left out; so the result
// is one, however the threads interleave. Streams are shared, but only one thread makes, destroys or captures
// each.
#include "tests/random/machine.h"

namespace rnd {

namespace {

bool churns(Verb verb) {
    return verb == Verb::stream || verb == Verb::drop || verb == Verb::begin || verb == Verb::fork ||
           verb == Verb::end;
}

// The arguments that are streams, as a mask.
unsigned stream_arguments(Verb verb) {
    switch (verb) {
        case Verb::alloc:
            return 1 << 3;
        case Verb::free:
            return 1 << 2;
        case Verb::fork:
        case Verb::behind:
            return 3;
        case Verb::fresh:
        case Verb::pair:
        case Verb::peers:
        case Verb::turns:
        case Verb::together:
        case Verb::write:
        case Verb::move:
        case Verb::open:
        case Verb::retune:
        case Verb::unmake:
            return 0;
        default:
            return 1;
    }
}

int graph_argument(Verb verb) {
    if (verb == Verb::end || verb == Verb::launch) return 1;
    return verb == Verb::retune || verb == Verb::unmake ? 0 : -1;
}

UseList named(const Op& op) {
    switch (op.verb) {
        case Verb::alloc:
        case Verb::free:
        case Verb::move:
        case Verb::write:
            return {{op.a[0], Mode::Write}};
        case Verb::mix:
        case Verb::section:
        case Verb::tagged:
        case Verb::packed:
            return {{op.a[1], Mode::Write}, {op.a[2], Mode::Read}, {op.a[3], Mode::Read}};
        case Verb::table:
        case Verb::hidden:
            return {
                {op.a[1], Mode::Write}, {op.a[2], Mode::Read}, {op.a[3], Mode::Read}, {op.a[7], Mode::Write}};
        case Verb::through:
        case Verb::check:
        case Verb::overrun:
        case Verb::misuse:
        case Verb::refuse:
            return {{op.a[1], Mode::Read}};
        case Verb::behind:
            return {{op.a[2], Mode::Write}, {op.a[3], Mode::Write}};
        case Verb::add:
            return {{op.a[1], Mode::Add}};
        case Verb::set:
        case Verb::up:
            return {{op.a[1], Mode::Write}};
        case Verb::copy:
        case Verb::rect:
            return {{op.a[1], Mode::Write}, {op.a[2], Mode::Read}};
        default:
            return {};
    }
}

void add_uses(const std::vector<Step>& steps, UseList& uses) {
    for (const Step& step : steps) uses.insert(uses.end(), step.uses.begin(), step.uses.end());
}

}  // namespace

// Captures that forbid something to other threads go with taking turns.
bool Machine::may_run_together() const {
    for (const auto& capture : captures_) {
        if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) return false;
        for (const unsigned member : capture->members) {
            if (streams_[member].blocking) return false;
        }
    }
    return true;
}

bool Machine::claim_streams(const Op& op) {
    const Hand& hand = hands_[op.thread];
    const int thread = op.thread;
    const unsigned arguments = stream_arguments(op.verb);
    for (unsigned i = 0; i < 8; ++i) {
        if (!(arguments & (1 << i))) continue;
        const unsigned slot = slot_of(hand, op.a[i]);
        if (stream_owner_[slot] >= 0 && stream_owner_[slot] != thread) return false;
        if (churns(op.verb) && (stream_users_[slot] & ~(1u << thread))) return false;
    }
    const int graph = graph_argument(op.verb);
    if (graph >= 0) {
        int& owner = graph_owner_[op.a[graph] % kGraphs];
        if (owner >= 0 && owner != thread) return false;
        owner = thread;
    }
    for (unsigned i = 0; i < 8; ++i) {
        if (!(arguments & (1 << i))) continue;
        const unsigned slot = slot_of(hand, op.a[i]);
        stream_users_[slot] |= 1u << thread;
        if (churns(op.verb)) stream_owner_[slot] = thread;
    }
    return true;
}

bool Machine::claim_buffers(const Op& op) {
    const int thread = op.thread;
    UseList uses = named(op);
    if (op.verb == Verb::launch) add_uses(graphs_[op.a[1] % kGraphs].steps, uses);
    // What is captured in this section names by lines of its own.
    const Capture* const capture =
        op.verb == Verb::end ? streams_[slot_of(hands_[op.thread], op.a[0])].capture : nullptr;
    if (capture) add_uses(capture->steps, uses);
    auto claims = buffer_claims_;
    for (const Use& use : uses) {
        BufferClaim& claim = claims[use.buffer % kBuffers];
        if (claim.thread == kNobody) {
            claim = {use.mode, thread};
        } else if (claim.thread == thread) {
            if (claim.mode != use.mode) claim.mode = Mode::Write;
        } else if (claim.mode == use.mode && use.mode != Mode::Write) {
            claim.thread = kEverybody;
        } else {
            return false;
        }
    }
    buffer_claims_ = claims;
    return true;
}

void Machine::claim(std::size_t from, std::size_t to) {
    left_out_.assign(to - from, false);
    stream_owner_.fill(kNobody);
    stream_users_.fill(0);
    graph_owner_.fill(kNobody);
    buffer_claims_.fill({Mode::Read, kNobody});
    for (const auto& capture : captures_) {
        for (const unsigned member : capture->members)
            stream_owner_[member] = static_cast<int>(capture->thread);
    }
    for (std::size_t i = from; i < to; ++i) {
        const Op& op = (*program_)[i];
        left_out_[i - from] = !claim_streams(op) || !claim_buffers(op);
    }
    // The others wait for what these have been given so far.
    for (unsigned slot = 0; slot < kOwnStreams; ++slot) {
        if (stream_owner_[slot] >= 0 && streams_[slot].alive && !streams_[slot].capture)
            bury(hands_[0], slot);
    }
}

bool Machine::may_use(const Hand& hand, const UseList& uses) const {
    if (!together_) return true;
    for (const Use& use : uses) {
        const BufferClaim& claim = buffer_claims_[use.buffer];
        const bool mine = claim.thread == static_cast<int>(hand.thread);
        if (mine ? claim.mode != use.mode && claim.mode != Mode::Write
                 : claim.thread != kEverybody || claim.mode != use.mode)
            return false;
    }
    return true;
}

}  // namespace rnd
