#include "policy/host.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "policy/builtin.h"
#include "policy/watched.h"
#include "shim/util/log.h"
#include "shim/util/start_folder.h"
#include "shim/util/trust.h"

namespace lms::policy {
namespace {

static_assert(LMS_NO_CHUNK == engine::kNoChunk);
static_assert(LMS_PURPOSE_ROOM == static_cast<std::uint32_t>(engine::Purpose::Room));
static_assert(LMS_PURPOSE_WAIT == static_cast<std::uint32_t>(engine::Purpose::Wait));
static_assert(LMS_PURPOSE_AHEAD == static_cast<std::uint32_t>(engine::Purpose::Ahead));
static_assert(LMS_PURPOSE_FORETOLD == static_cast<std::uint32_t>(engine::Purpose::Foretold));
static_assert(LMS_ACCESS_UNKNOWN == engine::kAccessUnknown && LMS_ACCESS_READ == engine::kAccessRead);
static_assert(LMS_ACCESS_WRITTEN == engine::kAccessWritten && LMS_ACCESS_WHOLE == engine::kAccessWhole);
static_assert(LMS_NOT_KNOWN == engine::Candidate::kUnknown);

constexpr const lms_policy* kBuiltin[] = {&kNextUse, &kLru, &kLms};

// The table's entry at `offset`, null if the table is too old to have it.
template <typename Entry>
Entry entry_of(const lms_policy& table, Entry lms_policy::*entry, std::size_t offset) {
    return table.size >= offset + sizeof(Entry) ? table.*entry : nullptr;
}

// "name,key=value,key=value"
struct Choice {
    explicit Choice(const std::string& setting) {
        std::size_t at = setting.find(',');
        name = setting.substr(0, at);
        while (at != setting.npos) {
            const std::size_t end = setting.find(',', at + 1);
            const std::string option = setting.substr(at + 1, end == setting.npos ? end : end - at - 1);
            const std::size_t equals = std::min(option.find('='), option.size());
            options.emplace_back(option.substr(0, equals),
                                 option.substr(std::min(equals + 1, option.size())));
            at = end;
        }
    }
    std::string name;
    std::vector<std::pair<std::string, std::string>> options;
};

// What is wrong with the options for a policy, empty if nothing is.
std::string fault_of(const Choice& choice, const lms_policy& table) {
    const char* const* const keys = entry_of(table, &lms_policy::keys, offsetof(lms_policy, keys));
    std::string known;
    for (const char* const* key = keys; key && *key; ++key)
        known += fmt::format("{}{}", known.empty() ? "" : ", ", *key);
    for (const auto& option : choice.options) {
        const char* const* key = keys;
        while (key && *key && option.first != *key) ++key;
        if (key && *key) continue;
        return fmt::format("{} takes no key \"{}\", {}", table.name, option.first,
                           known.empty() ? "nor any other" : "but " + known);
    }
    return {};
}

bool is_path(const std::string& name) {
    return name.find('/') != name.npos || name.ends_with(".so");
}

// Of this version of the ABI when it was new; what is added later may be missing.
constexpr std::size_t kSmallestTable = offsetof(lms_policy, next_victim) + sizeof(lms_policy::next_victim);

// What is wrong with a table, empty if nothing is.
std::string fault_of(const lms_policy* table) {
    if (table == nullptr)
        return fmt::format("does not speak version {} of the policy ABI", LMS_POLICY_ABI_VERSION);
    if (table->abi_version != LMS_POLICY_ABI_VERSION) {
        return fmt::format("has version {} of the policy ABI, expected {}", table->abi_version,
                           LMS_POLICY_ABI_VERSION);
    }
    if (table->size < kSmallestTable) {
        return fmt::format("has a table of {} bytes, expected {} or more", table->size, kSmallestTable);
    }
    const struct {
        const char* name;
        bool missing;
    } required[] = {{"name", table->name == nullptr},
                    {"create", table->create == nullptr},
                    {"destroy", table->destroy == nullptr},
                    {"is_managed", table->is_managed == nullptr},
                    {"eviction_start", table->eviction_start == nullptr},
                    {"next_victim", table->next_victim == nullptr}};
    for (const auto& field : required) {
        if (field.missing) return fmt::format("lacks {}", field.name);
    }
    return {};
}

const lms_policy* load(const std::string& name, std::string& problem) {
    // The loader looks for a name without a slash in its search path, not here.
    const std::string path = name.find('/') == name.npos ? "./" + name : name;
    // What is looked at is what is loaded: a link could mean another file by then.
    const std::unique_ptr<char, decltype(&std::free)> file(realpath(util::from_start(path).c_str(), nullptr),
                                                           std::free);
    problem =
        file == nullptr ? fmt::format("cannot open: {}", std::strerror(errno)) : util::distrust(file.get());
    if (!problem.empty()) {
        problem = fmt::format("{}: {}", path, problem);
        return nullptr;
    }
    void* const library = dlopen(file.get(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        problem = dlerror();
        return nullptr;
    }
    const auto get = reinterpret_cast<decltype(&lms_policy_get)>(dlsym(library, "lms_policy_get"));
    const lms_policy* const table = get == nullptr ? nullptr : get(LMS_POLICY_ABI_VERSION);
    std::string fault = get == nullptr ? "exports no lms_policy_get" : fault_of(table);
    if (fault.empty() && Watched::given_up(table)) fault = "took too long before";
    if (fault.empty()) return table;
    problem = fmt::format("{} {}", path, fault);
    dlclose(library);
    return nullptr;
}

// What a policy may ask back. It may ask about, and answer with, anything; others must only hear of chunks
// that exist.
struct Request {
    bool is_eligible(engine::ChunkId chunk) const { return chunk < chunk_end && eligible(chunk); }

    const std::function<bool(engine::ChunkId)>& eligible;
    engine::Asker* asker;
    engine::ChunkId chunk_end;
};

int call_eligible(void* context, std::uint32_t chunk) {
    return static_cast<const Request*>(context)->is_eligible(chunk) ? 1 : 0;
}

// As much of `answer` as the policy knows.
template <typename Answer>
int give(Answer* out, Answer answer) {
    answer.size = out->size;
    std::memcpy(out, &answer, std::min<std::size_t>(out->size, sizeof answer));
    return 1;
}

int call_candidate(void* context, std::uint32_t chunk, lms_policy_candidate* out) {
    const auto& request = *static_cast<const Request*>(context);
    if (request.asker == nullptr || chunk >= request.chunk_end) return 0;
    const engine::Candidate one = request.asker->candidate(chunk);
    if (one.bytes == 0) return 0;
    return give(out, {0, one.clean ? 1u : 0u, one.bytes, one.idle_in_ns});
}

int call_links(void* context, lms_policy_links* out) {
    const auto& request = *static_cast<const Request*>(context);
    if (request.asker == nullptr) return 0;
    const engine::Links links = request.asker->links();
    return give(out, {0, 0, links.queued_in_bytes, links.queued_out_bytes, links.in_bytes_per_s,
                      links.out_bytes_per_s, links.works_since_wait});
}

}  // namespace

namespace {

const lms_policy* find_named(const std::string& name, std::string& problem) {
    std::string names;
    for (const lms_policy* table : kBuiltin) {
        if (name == table->name) return table;
        names += std::string(table->name) + ", ";
    }
    if (is_path(name)) return load(name, problem);
    problem = fmt::format("expected {}or the path of a plugin", names);
    return nullptr;
}

const lms_policy* find(const Choice& choice, std::string& problem) {
    const lms_policy* const table = find_named(choice.name, problem);
    if (table != nullptr) problem = fault_of(choice, *table);
    return problem.empty() ? table : nullptr;
}

}  // namespace

const lms_policy* find(const std::string& setting, std::string& problem) {
    return find(Choice(setting), problem);
}

std::unique_ptr<Host> Host::create(const std::string& setting, std::optional<double> frac,
                                   std::uint64_t threshold_bytes) {
    const Choice choice(setting);
    std::vector<lms_policy_option> options;
    for (const auto& [key, value] : choice.options) options.push_back({key.c_str(), value.c_str()});
    lms_policy_config config = {.size = sizeof config,
                                .reserved = 0,
                                .threshold_bytes = threshold_bytes,
                                .frac = frac.value_or(-1),
                                .options = options.data(),
                                .option_count = options.size()};
    std::string problem;
    const lms_policy* table = find(choice, problem);
    void* state = table == nullptr ? nullptr : table->create(&config);
    if (state == nullptr) {
        if (table != nullptr) problem = "its create() failed";
        // Each GPU has a host of its own.
        static std::atomic<bool> said;
        if (log::once(said)) log::warn("LMS_POLICY={}: {}; using {}", setting, problem, kLru.name);
        table = &kLru;
        config.option_count = 0;
        state = table->create(&config);
        if (state == nullptr) throw std::bad_alloc();
    }
    static std::atomic<bool> told;
    if (log::once(told)) log::info("policy {}", table->name);
    if (std::ranges::find(kBuiltin, table) != std::end(kBuiltin))
        return std::unique_ptr<Host>(new Host(table, state, false));
    return std::make_unique<Watched>(table, state, create(kLru.name, frac, threshold_bytes));
}

Host::Host(const lms_policy* table, void* state, bool is_plugin)
    : Ranking(is_plugin),
      table_(table),
      state_(state),
      work_(entry_of(*table, &lms_policy::work, offsetof(lms_policy, work))),
      upcoming_(entry_of(*table, &lms_policy::upcoming, offsetof(lms_policy, upcoming))),
      leaving_(entry_of(*table, &lms_policy::leaving, offsetof(lms_policy, leaving))) {}

Host::~Host() {
    table_->destroy(state_);
}

void Host::added(const engine::Added& chunk) {
    chunk_end_ = std::max(chunk_end_, chunk.chunk + 1);
    const lms_policy_chunk event = {.size = sizeof event,
                                    .chunk = chunk.chunk,
                                    .allocation = chunk.allocation,
                                    .reserved = 0,
                                    .bytes = chunk.bytes,
                                    .address = chunk.address,
                                    .offset = chunk.offset,
                                    .allocation_bytes = chunk.allocation_bytes};
    if (table_->added != nullptr) table_->added(state_, &event);
}

void Host::freed(engine::ChunkId chunk) {
    const auto freed = entry_of(*table_, &lms_policy::freed, offsetof(lms_policy, freed));
    if (freed != nullptr) freed(state_, chunk);
}

void Host::removed(engine::ChunkId chunk) {
    if (table_->removed != nullptr) table_->removed(state_, chunk);
}

void Host::used(engine::ChunkId chunk) {
    const lms_policy_use event = {.size = sizeof event, .chunk = chunk, .sequence = ++sequence_};
    if (table_->used != nullptr) table_->used(state_, &event);
}

void Host::resident(engine::ChunkId chunk) {
    if (table_->resident != nullptr) table_->resident(state_, chunk);
}

void Host::evicted(engine::ChunkId chunk) {
    if (table_->evicted != nullptr) table_->evicted(state_, chunk);
}

void Host::work(std::span<const engine::ChunkId> chunks, const engine::WorkFacts* facts) {
    if (chunks.empty()) return;
    if (work_ != nullptr) {
        const lms_policy_work event = {.size = sizeof event,
                                       .count = static_cast<std::uint32_t>(chunks.size()),
                                       .chunks = chunks.data(),
                                       .stream = facts ? facts->stream : 0,
                                       .code = facts ? facts->code : 0,
                                       .access = facts ? facts->access.data() : nullptr};
        work_(state_, &event);
    }
    const auto used = table_->used;
    if (used == nullptr) return;
    lms_policy_use event = {.size = sizeof event, .chunk = 0, .sequence = 0};
    std::uint64_t sequence = sequence_;
    sequence_ += chunks.size();
    for (const engine::ChunkId chunk : chunks) {
        event.chunk = chunk;
        event.sequence = ++sequence;
        used(state_, &event);
    }
}

std::size_t Host::upcoming(std::span<engine::ChunkId> out) {
    if (upcoming_ == nullptr) return 0;
    const auto most = static_cast<std::uint32_t>(out.size());
    const std::uint32_t count = std::min(upcoming_(state_, out.data(), most), most);
    const auto real = std::remove_if(out.begin(), out.begin() + count,
                                     [&](engine::ChunkId chunk) { return chunk >= chunk_end_; });
    return static_cast<std::size_t>(real - out.begin());
}

engine::ChunkId Host::next_victim(const engine::VictimRequest& wanted,
                                  const std::function<bool(engine::ChunkId)>& eligible) {
    Request context{eligible, wanted.asker, chunk_end_};
    const lms_policy_request request = {.size = sizeof request,
                                        .purpose = static_cast<std::uint32_t>(wanted.purpose),
                                        .need_bytes = wanted.need_bytes,
                                        .eligible = call_eligible,
                                        .context = &context,
                                        .sooner = wanted.sooner,
                                        .reserved = 0,
                                        .candidate = call_candidate,
                                        .links = call_links};
    const auto choose = wanted.purpose == engine::Purpose::Foretold ? leaving_ : table_->next_victim;
    const engine::ChunkId victim = choose == nullptr ? engine::kNoChunk : choose(state_, &request);
    if (victim == engine::kNoChunk || context.is_eligible(victim)) return victim;
    static std::atomic<bool> said;
    if (log::once(said)) {
        log::warn("policy {} chose chunk {}, which may not be evicted; the shim evicts another", name(),
                  victim);
    }
    return engine::kNoChunk;
}

std::uint64_t Host::eviction_start(std::uint64_t budget_bytes, std::uint64_t allocated_bytes) {
    const lms_policy_pressure pressure = {.size = sizeof pressure,
                                          .reserved = 0,
                                          .budget_bytes = budget_bytes,
                                          .allocated_bytes = allocated_bytes};
    return std::min(table_->eviction_start(state_, &pressure), budget_bytes);
}

}  // namespace lms::policy
