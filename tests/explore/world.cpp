#include "tests/explore/world.h"

#include <algorithm>

namespace explore {

namespace {

constexpr Address kSpan = 1 << 20;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

const char* const kNames[] = {"acquire",
                              "acquire in place",
                              "announce",
                              "submitted",
                              "free",
                              "remove",
                              "pin",
                              "unpin",
                              "run",
                              "deliver",
                              "evict",
                              "make host block",
                              "enqueue copies",
                              "remap out",
                              "remapped out",
                              "page in",
                              "make device block",
                              "paged in",
                              "cancel evictions",
                              "forget refusals",
                              "spare a copy",
                              "shrink",
                              "earlier work is over",
                              "earlier work writes"};

EngineOptions options_of(const Case& plan, std::uint64_t chunk_bytes) {
    EngineOptions options;
    options.begin = kSpan;
    options.bytes = 64 * chunk_bytes;
    options.granularity = chunk_bytes;
    options.sees_all_writes = plan.sees_all_writes;
    options.host_limit_bytes = plan.host_limit * chunk_bytes;
    return options;
}

}  // namespace

std::string to_string(const Action& action) {
    return std::string(kNames[static_cast<std::size_t>(action.kind)]) + " " + std::to_string(action.a) + " " +
           std::to_string(action.b);
}

ChunkId ChosenVictim::next_victim(const VictimRequest&, const std::function<bool(ChunkId)>& eligible) {
    std::uint8_t left = pick;
    for (ChunkId id = 0; id < chunks; ++id) {
        if (eligible(id) && left-- == 0) return id;
    }
    return kNoChunk;
}

World::World(const Case& plan, ChosenVictim& victims)
    : plan_(&plan),
      victims_(&victims),
      engine_(options_of(plan, kBytes), victims),
      threads_(plan.threads.size()),
      contents_(2, 0) {
    victims.chunks = plan.buffers;
    engine_.set_budget(plan.budget * kBytes);
    for (std::size_t i = 0; i < kStreams; ++i) engine_.timelines().create();
    engine_.earlier.entering = plan.earlier;
    const std::uint64_t size = kBytes;
    for (std::uint8_t i = 0; i < plan.buffers; ++i) {
        Slot slot;
        slot.buffer = engine_.add(kSpan + i * kBytes, kBytes, {&size, 1});
        slot.chunk = engine_.residency().allocation(slot.buffer).chunks.front();
        slot.serial = engine_.residency().chunk(slot.chunk).serial;
        slot.alive = true;
        const Block block = new_block(i < plan.on_device ? Place::Device : Place::Host);
        engine_.begin_placing(slot.chunk);
        engine_.placed(slot.chunk, block, true);
        slot.mapped = block.alias;
        slots_.push_back(slot);
    }
}

Block World::new_block(Place place) {
    Block block;
    block.place = place;
    block.bytes = kBytes;
    block.alias = contents_.size();
    contents_.push_back(0);
    engine_.pool(place).begin_create(kBytes);
    return block;
}

Use World::fence(std::uint8_t stream) {
    Stream& to = streams_[stream];
    ++to.recorded;
    if (to.pieces.empty()) {
        to.passed = to.recorded;
    } else {
        to.pieces.push_back({Piece::Is::Fence});
    }
    return {stream, to.recorded};
}

const WorkPlan* World::next_of(std::size_t thread) const {
    const auto& works = plan_->threads[thread];
    return threads_[thread].next < works.size() ? &works[threads_[thread].next] : nullptr;
}

std::vector<ChunkRequest> World::requests(const WorkPlan& work) const {
    std::vector<ChunkRequest> requests;
    for (const Named& each : work.names) {
        const Slot& slot = slots_[each.slot];
        ChunkRequest request{slot.chunk, slot.serial, each.overwritten, each.written};
        if (!gone(request, engine_.residency())) requests.push_back(request);
    }
    return requests;
}

bool World::runnable(std::uint8_t stream) const {
    const Stream& from = streams_[stream];
    if (from.pieces.empty()) return false;
    const auto& after = from.pieces.front().after;
    return !after || streams_[after->first].passed >= after->second;
}

// Some work that has not run names it, or may.
bool World::uses_pending(std::uint8_t slot) const {
    const auto uses = [&](const WorkPlan& work) {
        return work.kind == WorkPlan::Kind::Kernel &&
               (work.opaque || work.unseen ||
                std::ranges::any_of(work.names, [&](const Named& each) { return each.slot == slot; }));
    };
    for (std::uint8_t i = 0; i < thread_count(); ++i) {
        const WorkPlan* const next = next_of(i);
        if (next && threads_[i].at != Thread::At::Idle && uses(*next)) return true;
    }
    return std::ranges::any_of(streams_, [&](const Stream& stream) {
        return std::ranges::any_of(stream.pieces, [&](const Piece& piece) {
            return piece.is == Piece::Is::Work && uses(plan_->threads[piece.thread][piece.work]);
        });
    });
}

bool World::host_room() const {
    return engine_.pool(Place::Host).held_bytes() + kBytes <= plan_->host_limit * kBytes;
}

bool World::is_over() const {
    for (std::uint8_t i = 0; i < thread_count(); ++i) {
        if (next_of(i)) return false;
    }
    return std::ranges::all_of(streams_, [](const Stream& stream) { return stream.pieces.empty(); });
}

void World::write(std::uint8_t slot) {
    std::ranges::replace(contents_, static_cast<std::uint8_t>(slot + 1), std::uint8_t{0});
    contents_[slots_[slot].mapped] = static_cast<std::uint8_t>(slot + 1);
    slots_[slot].written = true;
}

std::string World::touch(std::uint8_t slot, bool reads, const char* by) {
    const Slot& each = slots_[slot];
    if (each.mapped == kMoving)
        return std::string(by) + " reaches buffer " + std::to_string(slot) + " while it moves";
    if (each.mapped == kNowhere)
        return std::string(by) + " reaches buffer " + std::to_string(slot) + ", which is nowhere";
    if (reads && each.written && !holds(each.mapped, slot))
        return std::string(by) + " reads old contents of buffer " + std::to_string(slot);
    return {};
}

std::string World::run(std::uint8_t stream) {
    Stream& from = streams_[stream];
    const Piece piece = from.pieces.front();
    from.pieces.erase(from.pieces.begin());
    std::string wrong;
    if (piece.is == Piece::Is::Copy) {
        contents_[piece.to] = contents_[piece.from];
    } else {
        const WorkPlan& work = plan_->threads[piece.thread][piece.work];
        for (const Named& each : work.names) {
            if (slots_[each.slot].alive && wrong.empty()) wrong = touch(each.slot, !each.overwritten, "work");
        }
        for (std::uint8_t i = 0; work.opaque && i < slot_count() && wrong.empty(); ++i) {
            if (slots_[i].alive) wrong = touch(i, true, "opaque work");
        }
        if (!wrong.empty()) return wrong;
        for (const Named& each : work.names) {
            if (each.written && slots_[each.slot].alive) write(each.slot);
        }
        if (work.hidden && slots_[*work.hidden].alive) {
            const ChunkId id = slots_[*work.hidden].chunk;
            // Moves go on beside unseen work: what it writes to a chunk that moves just then may be lost.
            const bool moves = std::ranges::any_of(
                engine_.pending_evictions(), [&](const PendingEviction& each) { return each.chunk == id; });
            if (work.opaque || (engine_.residency().chunk(id).state == State::Resident && !moves))
                write(*work.hidden);
        }
    }
    while (!from.pieces.empty() && from.pieces.front().is == Piece::Is::Fence) {
        from.pieces.erase(from.pieces.begin());
        ++from.passed;
    }
    return {};
}

bool World::copy_in_pending(std::uint8_t slot) const {
    return std::ranges::any_of(streams_[kIn].pieces, [&](const Piece& piece) {
        return piece.is == Piece::Is::Copy && piece.to == slots_[slot].mapped;
    });
}

std::string World::check() const {
    if (std::string broken = broken_rule(engine_); !broken.empty()) return broken;
    for (std::uint8_t i = 0; i < slot_count(); ++i) {
        const Slot& slot = slots_[i];
        if (!slot.alive) continue;
        const Chunk& chunk = engine_.residency().chunk(slot.chunk);
        const Backing& backing = engine_.backing()[slot.chunk];
        const auto wrong = [&](const char* what) { return "buffer " + std::to_string(i) + " " + what; };
        const bool moving = chunk.state == State::Remapping;
        if (moving != (slot.mapped == kMoving)) return wrong("and its mapping disagree on whether it moves");
        if (moving) continue;
        const Address memory = chunk.state == State::OnHost ? backing.host.alias : backing.device.alias;
        if (slot.mapped != memory) return wrong("is mapped to other memory than the engine believes");
        if (!slot.written) continue;
        const bool comes = chunk.state == State::Filling && copy_in_pending(i);
        if (!holds(memory, i) && !(comes && holds(backing.host.alias, i)))
            return wrong("has lost its contents");
        if (chunk.clean && !comes && !holds(backing.host.alias, i))
            return wrong("is clean, and its copy is old");
    }
    return {};
}

void World::begin_fill(const Block& block) {
    const PageIn page{command_.need, block};
    command_.fills = engine_.begin_page_in({&page, 1});
    command_.is = command_.fills.each.empty() ? Command::Is::None : Command::Is::Fills;
    for (const Fill& fill : command_.fills.each) {
        for (Slot& slot : slots_) {
            if (slot.alive && slot.chunk == fill.chunk) slot.mapped = kMoving;
        }
    }
}

std::string World::apply(const Action& action) {
    using K = Action::Kind;
    using Is = Command::Is;
    const bool done = action.a != 0;
    const bool results = action.kind == K::MakeHostBlock || action.kind == K::EnqueueCopies ||
                         action.kind == K::RemappedOut || action.kind == K::MakeDeviceBlock ||
                         action.kind == K::PagedIn;
    if (results && !done) ++refused_;
    switch (action.kind) {
        case K::Acquire:
        case K::AcquireInPlace: {
            Thread& thread = threads_[action.a];
            const WorkPlan& work = *next_of(action.a);
            const std::vector<ChunkRequest> needs = requests(work);
            thread.pins = ChunkPins();
            thread.pins.opaque = work.opaque;
            thread.pins.unseen = work.unseen;
            std::vector<ChunkRequest> missing;
            if (!engine_.hold(needs, thread.pins, missing) &&
                !engine_.hold_in_place(needs, missing, thread.pins)) {
                engine_.drop(thread.pins);
                break;
            }
            thread.submission = engine_.begin_submission(work.opaque, work.unseen);
            thread.at = Thread::At::Begun;
            break;
        }
        case K::Announce: {
            Thread& thread = threads_[action.a];
            const WorkPlan& work = *next_of(action.a);
            Piece piece{Piece::Is::Work, action.a, thread.next};
            engine_.announce(requests(work), thread.pins);
            if (const Use& fill = thread.pins.fill; fill.position > 0)
                piece.after = {static_cast<std::uint8_t>(fill.timeline), fill.position};
            streams_[work.stream].pieces.push_back(piece);
            thread.at = Thread::At::Driver;
            break;
        }
        case K::Submitted: {
            Thread& thread = threads_[action.a];
            engine_.submitted(thread.pins, fence(next_of(action.a)->stream));
            engine_.end_submission(thread.submission);
            engine_.drop(thread.pins);
            thread.at = Thread::At::Idle;
            ++thread.next;
            break;
        }
        case K::Free:
            engine_.kill(slots_[next_of(action.a)->names[0].slot].buffer);
            threads_[action.a].at = Thread::At::Freeing;
            break;
        case K::Remove: {
            Slot& slot = slots_[next_of(action.a)->names[0].slot];
            if (engine_.must_wait_to_remove(slot.buffer)) break;
            engine_.drop_copy(slot.chunk);
            const Backing& backing = engine_.backing()[slot.chunk];
            const Block block =
                engine_.residency().chunk(slot.chunk).state == State::OnHost ? backing.host : backing.device;
            engine_.remove(slot.buffer);
            slot.alive = false;
            slot.mapped = kNowhere;
            engine_.put_freed(block);
            threads_[action.a].at = Thread::At::Idle;
            ++threads_[action.a].next;
            break;
        }
        case K::Pin: {
            Slot& slot = slots_[next_of(action.a)->names[0].slot];
            ChunkPins pins;
            std::vector<ChunkRequest> missing;
            const ChunkRequest need{slot.chunk, slot.serial};
            engine_.hold({&need, 1}, pins, missing);
            engine_.drop_copy(slot.chunk);
            slot.keep = engine_.pin_resident(slot.chunk);
            engine_.let_go(pins);
            ++threads_[action.a].next;
            break;
        }
        case K::Unpin: {
            Slot& slot = slots_[next_of(action.a)->names[0].slot];
            const std::array<Use, 2> latest{Use{0, streams_[0].recorded}, Use{1, streams_[1].recorded}};
            engine_.unpin_resident(slot.chunk, slot.keep, latest);
            ++threads_[action.a].next;
            break;
        }
        case K::Run:
            if (std::string wrong = run(action.a); !wrong.empty()) return wrong;
            break;
        case K::Deliver:
            for (std::uint8_t i = 0; i < kStreams; ++i) engine_.timelines().complete(i, streams_[i].passed);
            engine_.complete_moves();
            break;
        case K::Evict: {
            victims_->pick = action.a;
            const std::uint64_t now = engine_.pending_eviction_bytes();
            const NextEviction next = action.b == 0   ? engine_.next_eviction({now + kBytes}, 0, 0)
                                      : action.b == 1 ? engine_.next_eviction({now}, kBytes, 0)
                                                      : engine_.next_foretold();
            const bool foretold = action.b == 2;
            if (next.is != NextEviction::Is::WantsHostBlock) break;
            auto host = engine_.pool(Place::Host).take(kBytes);
            if (!host && !host_room() && engine_.spare_copy(kBytes))
                host = engine_.pool(Place::Host).take(kBytes);
            if (host) {
                if (engine_.begin_eviction(next.victim, next.serial, *host, 0, foretold))
                    command_.is = Is::Copies;
            } else if (host_room()) {
                command_.is = Is::HostBlock;
                command_.victim = next;
                command_.foretold = foretold;
            }
            break;
        }
        case K::MakeHostBlock:
            command_.is = Is::None;
            if (done && engine_.begin_eviction(command_.victim.victim, command_.victim.serial,
                                               new_block(Place::Host), 0, command_.foretold))
                command_.is = Is::Copies;
            break;
        case K::EnqueueCopies:
            command_.is = Is::None;
            for (const CopyOut& copy : engine_.copies_to_enqueue()) {
                Use end{};
                if (done) {
                    streams_[kOut].pieces.push_back(
                        {Piece::Is::Copy, 0, 0, copy.device.alias, copy.host.alias});
                    end = fence(kOut);
                }
                engine_.copy_enqueued(copy.eviction, done, end);
            }
            break;
        case K::RemapOut:
            command_.out =
                action.a == 0 ? engine_.take_remaps_out(kNever) : engine_.take_foretold_remaps_out();
            command_.is = command_.out.empty() ? Is::None : Is::RemapsOut;
            for (const RemapOut& each : command_.out) {
                for (Slot& slot : slots_) {
                    if (slot.alive && slot.chunk == each.chunk) slot.mapped = kMoving;
                }
            }
            break;
        case K::RemappedOut:
            for (const RemapOut& each : command_.out) {
                for (Slot& slot : slots_) {
                    if (slot.alive && slot.chunk == each.chunk)
                        slot.mapped = done ? each.host.alias : each.device.alias;
                }
                engine_.remapped_out(each, done, std::nullopt);
            }
            command_ = {};
            break;
        case K::PageIn: {
            const Slot& slot = slots_[action.a];
            command_.need = {slot.chunk, slot.serial, action.b == 2, action.b != 0};
            Engine::Room room{Engine::Room::Is::None};
            for (bool recovered = false;; recovered = true) {
                room = engine_.device_room(kBytes, engine_.budget_bytes(), recovered);
                if (room.is != Engine::Room::Is::Recover && room.is != Engine::Room::Is::Trim) break;
                if (room.is == Engine::Room::Is::Trim)
                    engine_.pool(Place::Device)
                        .given_back(kBytes * engine_.pool(Place::Device).take_for_driver(room.bytes).size());
            }
            if (room.is == Engine::Room::Is::Taken) begin_fill(room.block);
            if (room.is == Engine::Room::Is::Create) command_.is = Is::DeviceBlock;
            break;
        }
        case K::MakeDeviceBlock:
            command_.is = Is::None;
            if (done) begin_fill(new_block(Place::Device));
            break;
        case K::PagedIn: {
            std::vector<Filled> came;
            for (const Fill& fill : command_.fills.each) {
                Filled filled{.mapped = done, .waits = fill.copies || fill.clears};
                if (done && fill.copies)
                    streams_[kIn].pieces.push_back(
                        {Piece::Is::Copy, 0, 0, fill.host.alias, fill.block.alias});
                if (done && filled.waits) filled.end = fence(kIn);
                for (Slot& slot : slots_) {
                    if (slot.alive && slot.chunk == fill.chunk)
                        slot.mapped = done ? fill.block.alias : fill.host.alias;
                }
                came.push_back(filled);
            }
            engine_.paged_in(command_.fills, came);
            command_ = {};
            break;
        }
        case K::Cancel:
            engine_.cancel_evictions();
            break;
        case K::ForgetRefusals:
            engine_.forget_refusals();
            break;
        case K::Spare:
            engine_.spare_copy(kBytes);
            break;
        case K::Shrink:
            engine_.set_budget(engine_.budget_bytes() - kBytes);
            shrunk_ = true;
            break;
        case K::EarlierOver:
            engine_.earlier.entering = false;
            break;
        case K::EarlierWrites:
            if (std::string wrong = touch(action.a, true, "earlier work"); !wrong.empty()) return wrong;
            write(action.a);
            break;
    }
    return {};
}

}  // namespace explore
