#include "shim/session/sessions.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include "policy/host.h"
#include "shim/device/driver_port.h"
#include "shim/device/scope.h"
#include "shim/device/simulated_gpu.h"
#include "shim/executor/budget.h"
#include "shim/executor/gpu_share.h"
#include "shim/program/address_book.h"
#include "shim/program/capture.h"
#include "shim/program/contexts.h"
#include "shim/program/framework_setup.h"
#include "shim/program/green_contexts.h"
#include "shim/program/memory_changes.h"
#include "shim/program/per_thread_streams.h"
#include "shim/program/streams.h"
#include "shim/trace/stats.h"
#include "shim/trace/writer.h"
#include "shim/util/log.h"
#include "shim/util/mutex.h"
#include "shim/util/settings.h"

namespace lms::session {

namespace {

constexpr std::size_t kMaxDevices = 64;

// An entry is complete before `count` says that it is there.
struct SessionRegistry {
    util::Mutex mutex{util::LockOrder::Sessions};
    Session* opened[kMaxDevices] = {};   // read without the lock
    CUdevice devices[kMaxDevices] = {};  // likewise; the lock is for those that write
    std::atomic<std::size_t> count{0};
};

SessionRegistry& session_registry() {
    static SessionRegistry& instance = *new SessionRegistry;
    return instance;
}

// Of sessions that are opened from now on; empty: LMS_POLICY. Guarded by the registry's mutex.
std::string& policy_now() {
    static std::string& instance = *new std::string;
    return instance;
}

// The same of LMS_SHARE.
util::ShareTerms& share_now() {
    static util::ShareTerms& instance = *[] {
        auto* const terms = new util::ShareTerms(settings().share);
        terms->shares &= terms->asked || device::others_use_gpus();
        // A folder was named, which sharing is to use.
        terms->asked |= !settings().share_folder.empty();
        return terms;
    }();
    return instance;
}

std::unique_ptr<policy::Host> make_policy(const std::string& setting = settings().policy) {
    return policy::Host::create(setting, settings().frac, settings().threshold_bytes);
}

// Into the bounds of managed memory.
void take_in(engine::Address begin, engine::Address end) {
    engine::Address now = detail::span_begin.load();
    while (begin < now && !detail::span_begin.compare_exchange_weak(now, begin)) {
    }
    now = detail::span_end.load();
    while (end > now && !detail::span_end.compare_exchange_weak(now, end)) {
    }
    ++program::memory_changes;
}

// Of all sessions, from the first on; null: the machine's memory is as if it were this process's alone.
std::atomic<executor::HostClaims*> host_claims = nullptr;

void open_host_claims() {
    [[maybe_unused]] static const bool opened =
        (host_claims = executor::HostClaims::open(share_now(), settings().share_folder).release(), true);
}

// A MIG slice has one of its own, which older drivers do not know of.
bool uuid_of(CUdevice device, CUuuid& uuid) {
    return device::driver().cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS ||
           device::driver().cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS;
}

// A child of fork has no sessions: what asks for none goes on to the driver, which refuses it there.
void leave_to_parent() {
    detail::forked = true;
    session_registry().count = 0;
    host_claims = nullptr;
    detail::span_begin = detail::span_end = 0;
    program::managed_views = false;
}

// Before there is what a child could find half done.
void have_children_leave() {
    [[maybe_unused]] static const int at_fork = pthread_atfork(nullptr, nullptr, leave_to_parent);
}

Session* open(CUdevice device, CUcontext context) {
    have_children_leave();
    CUresult error = CUDA_SUCCESS;
    auto port = device::DriverPort::create_for(device, context, error);
    std::unique_ptr<Session> session;
    if (port) {
        for (const CUdevice peer : program::peers_of(device)) port->add_peer(peer);
        session = Session::open({device, context}, std::move(port),
                                make_policy(policy_now().empty() ? settings().policy : policy_now()),
                                settings(), error);
        open_host_claims();
        if (session) session->claim_host_by(host_claims);
        CUuuid uuid{};
        if (session && uuid_of(device, uuid)) {
            session->share_by(executor::GpuShare::open(device, uuid.bytes, share_now(),
                                                       settings().share_folder, device::gpu_clock()));
            session->help_while_idle();
        }
    }
    if (!session) {
        if (static std::atomic<bool> said; log::once(said)) {
            log::warn(
                "GPU {} keeps its size: its driver refused virtual memory management ({}); see `lms doctor`",
                device, device::error_name(error));
        }
    }
    return session.release();
}

}  // namespace

void program_allocates() {
    [[maybe_unused]] static const bool begun =
        (trace::begin_counters(settings().stats_path), program::tell_frameworks(), true);
}

bool manages(std::uint64_t bytes) {
    // Asked before any session exists, so that a program with small allocations alone pays for none.
    static const policy::Host& gate = *make_policy().release();
    return gate.is_managed(bytes);
}

namespace {

Session* open_or_wake(CUdevice device, CUcontext context) {
    SessionRegistry& all = session_registry();
    const util::Lock lock(all.mutex);
    if (Session* session = session_of(device))
        return session->wake(context) == CUDA_SUCCESS ? session : nullptr;
    const std::size_t count = all.count.load();
    if (count == kMaxDevices) return nullptr;
    Session* session = open(device, context);
    if (!session) return nullptr;
    all.opened[count] = session;
    all.devices[count] = device;
    if (count > 0) detail::span_is_mixed = true;
    take_in(session->span_begin(), session->span_end());
    all.count = count + 1;
    return session;
}

}  // namespace

bool may_be_about_to_rest(const Session& session, CUcontext context) {
    const CUcontext through = session.context();
    return through != context && program::is_left_to_end(through);
}

Session* current_session() {
    CUdevice device = 0;
    const CUcontext context = device::current_context();
    if (!context) return nullptr;
    if (device::driver().cuCtxGetDevice(&device) != CUDA_SUCCESS) return nullptr;
    const CUcontext owner = program::owner_of(context);
    program::context_seen(owner, device);
    Session* session = session_of(device);
    if (!session || !session->awake()) session = open_or_wake(device, owner);
    if (session && may_be_about_to_rest(*session, owner)) return nullptr;
    if (session && program::any_green()) session->look_at_all_work();
    return session;
}

void look_at_all_work() {
    for (Session* session : sessions()) {
        if (session->awake()) session->look_at_all_work();
    }
}

CUresult admit_peer(CUdevice owner, CUdevice device) {
    Session* session = nullptr;
    {
        // One that is being opened is told of it, or found.
        const util::Lock lock(session_registry().mutex);
        program::peer_admitted(owner, device);
        session = session_of(owner);
    }
    return session ? session->admit(device) : CUDA_SUCCESS;
}

bool set_policy(const std::string& setting) {
    const std::string& name = setting.empty() ? settings().policy : setting;
    std::string problem;
    if (!policy::find(name, problem)) {
        log::warn("`lms set`: policy={}: {}; the policy stays", name, problem);
        return false;
    }
    const util::Lock lock(session_registry().mutex);
    policy_now() = setting;
    for (Session* session : sessions()) session->rank_by(make_policy(name));
    return true;
}

namespace {

int with_sessions(int problem) {
    if (problem == 0) {
        for (Session* session : sessions()) session->follow_trace();
    }
    return problem;
}

}  // namespace

int begin_trace(const std::string& path, std::optional<std::uint64_t> most_bytes) {
    const util::Lock lock(session_registry().mutex);
    return with_sessions(trace::start(path, most_bytes));
}

int end_trace() {
    const util::Lock lock(session_registry().mutex);
    return with_sessions(trace::stop());
}

void set_limit(std::uint64_t bytes) {
    executor::limit_now = bytes;
    for (Session* session : sessions()) {
        if (session->awake()) session->limit_changed();
    }
}

bool shares_are_due() noexcept {
    for (const Session* session : sessions())
        if (session->awake() && session->share_is_due()) return true;
    const executor::HostClaims* const claims = host_claims.load(std::memory_order_relaxed);
    return claims != nullptr && claims->is_due();
}

void set_share(const util::ShareTerms& terms) {
    const util::Lock lock(session_registry().mutex);
    if (share_now().shares) share_now() = terms;
    for (Session* session : sessions()) session->share_on(terms);
}

bool gpus_are_shared() noexcept {
    return std::ranges::any_of(sessions(), [](const Session* each) { return each->is_shared(); });
}

void look_at_shares() {
    for (Session* session : sessions())
        if (session->awake() && session->share_is_due()) session->look_at_share();
    const executor::HostClaims* const claims = host_claims;
    if (claims == nullptr || !claims->is_due()) return;
    for (Session* session : sessions())
        if (session->awake()) session->look_at_host_claims();
}

void context_ending(CUcontext context, program::ContextEnd& end) {
    CUdevice device = 0;
    const device::InContext in_context(context);
    // What is not a context the driver will say.
    if (in_context.status() != CUDA_SUCCESS || device::driver().cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return;
    // Its events and streams go with it, while threads in others, of other GPUs too, ask on.
    const std::vector<CUcontext> known = program::known_contexts();
    const bool alone = std::ranges::none_of(known, [&](CUcontext each) { return each != context; });
    if (!alone && !sessions().empty() && program::wait_beside_no_capture() == CUDA_SUCCESS) {
        for (Session* each : sessions()) each->see_work_over();
    }
    const CUcontext next = end.successor();
    if (Session* const session = session_of(device)) session->context_ending(context, next);
}

void context_made(CUcontext context, CUdevice device) {
    have_children_leave();
    const Session* const session = session_of(device);
    if (!session || session->awake() || !session->keeps_program_memory()) return;
    const device::InContext in_context(context);
    current_session();
}

void context_stays(CUcontext context) {
    for (Session* session : sessions()) session->context_stays(context);
}

std::vector<Buffer> buffers_of(CUcontext context) {
    std::vector<Buffer> all;
    for (Session* session : sessions()) {
        const std::vector<Buffer> some = session->buffers_of(context);
        all.insert(all.end(), some.begin(), some.end());
    }
    return all;
}

namespace {

// The caller's current context may be the one that is gone: memory is given back without any.
template <typename Call>
void without_context(const Call& call) {
    std::optional<std::thread> thread;
    try {
        thread.emplace(call);
    } catch (const std::system_error&) {
        // What the driver refuses here, if it does, is given back later (DriverPort::settle).
        return call();
    }
    thread->join();
}

}  // namespace

void context_gone(CUcontext context) {
    program::forget_context(context);
    program::per_thread_streams_gone_with(context);
    const std::vector<CUstream> streams = program::streams_destroyed_with(context);
    for (Session* session : sessions()) {
        const auto gone = [&] { session->context_gone(context, streams); };
        if (session->works_through(context)) {
            without_context(gone);
        } else {
            gone();
        }
    }
}

Session* session_of(CUdevice device) {
    const SessionRegistry& all = session_registry();
    const std::size_t count = all.count.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
        if (all.devices[i] == device) return all.opened[i];
    }
    return nullptr;
}

Session* allocator_of(engine::Address address) {
    for (Session* session : sessions()) {
        if (session->spans(address)) return session;
    }
    return nullptr;
}

namespace {

// Apart, so that session_at() costs others nothing.
[[gnu::noinline]] Session* session_of_view(engine::Address address) {
    program::ProgramAddresses& all = program::program_addresses();
    const util::SharedLock lock(all.mutex);
    const program::View* const view = all.book.find(address);
    if (!view) return nullptr;
    if (view->is_managed()) return session_of(view->device);
    Session* beside = nullptr;
    all.book.each_of_run(address, 0, [&](const program::View& each) {
        if (!beside && each.is_managed()) beside = session_of(each.device);
    });
    return beside;
}

}  // namespace

Session* session_at(engine::Address address) {
    for (Session* session : sessions()) {
        if (session->spans(address)) return session;
    }
    return program::managed_views.load(std::memory_order_relaxed) ? session_of_view(address) : nullptr;
}

void widen_bounds(engine::Address begin, engine::Address end) {
    detail::span_is_mixed = true;
    take_in(begin, end);
}

std::span<Session* const> sessions() {
    const SessionRegistry& all = session_registry();
    return {all.opened, all.count.load(std::memory_order_acquire)};
}

}  // namespace lms::session
