#include "shim/executor/host_claims.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "shim/sharing/folder.h"
#include "shim/util/bounds.h"
#include "shim/util/host_memory.h"
#include "shim/util/log.h"

namespace lms::executor {

using util::Clock;

namespace {

// "gpu." and a UUID are those of GPUs.
constexpr const char* kName = "host";

}  // namespace

std::unique_ptr<HostClaims> HostClaims::open(const util::ShareTerms& terms, const std::string& path) noexcept
    try {
    if (!terms.shares) return nullptr;
    const sharing::SharingFolder folder(path);
    if (folder.number() < 0) return nullptr;  // said of the GPU
    std::string problem;
    auto page = sharing::SharingPage::open(folder.number(), kName, problem);
    if (page && !page->write({})) problem = "has no free slot";
    if (problem.empty()) return std::unique_ptr<HostClaims>(new HostClaims(std::move(page)));
    log::write(terms.asked ? log::Level::Warn : log::Level::Info,
               "host memory is not shared: its page {} {}; LMS_HOST_LIMIT alone bounds what is pinned", kName,
               problem);
    return nullptr;
} catch (const std::exception&) {
    return nullptr;  // out of host memory: as if it were alone
}

bool HostClaims::write() {
    write_again_ = (Clock::now() + sharing::kUnseen / 4).time_since_epoch().count();
    return page_->write({.pinned_bytes = pinned_bytes_, .host = own_});
}

void HostClaims::look(bool anew) {
    const Clock::time_point now = Clock::now();
    const bool is_new = looked_ != Clock::time_point{} && now - looked_ < bounds::kHostLook;
    // What others have given back since is spare by now, and may be counted as both.
    std::uint64_t pinned = 0;
    for (const sharing::Seen& seen : page_->entries()) pinned += seen.tenant.pinned_bytes;
    if (!anew && is_new && pinned >= seen_pinned_bytes_) return;
    // What is pinned between the two is in neither.
    const std::vector<sharing::Seen> tenants = page_->tenants();
    const util::HostSpare spare = util::host_memory().spare({});
    own_.group = spare.group;
    all_bytes_ = spare.machine_bytes;
    group_bytes_ = spare.group_bytes;
    seen_pinned_bytes_ = 0;
    for (const sharing::Seen& seen : tenants) {
        const std::uint64_t bytes = page_->is_own(seen) ? pinned_bytes_ : seen.tenant.pinned_bytes;
        seen_pinned_bytes_ += bytes;
        all_bytes_ += bytes;
        if (spare.group != 0 && (page_->is_own(seen) || seen.tenant.host.group == spare.group))
            group_bytes_ += bytes;
    }
    looked_ = now;
}

std::uint64_t HostClaims::room() {
    static const std::uint64_t machine = util::machine_bytes();
    std::uint64_t taken = own_.promised_bytes, of_group = own_.promised_bytes, may_come = 0;
    for (const sharing::Seen& seen : page_->entries()) {
        if (page_->is_own(seen)) continue;
        const sharing::HostShare& host = seen.tenant.host;
        // More than there is was promised to nobody: it is made up. Several may ask for that much.
        const std::uint64_t most = std::max(machine, all_bytes_);
        if (host.promised_bytes > most) continue;
        const std::uint64_t asked = std::min(host.asked_bytes, most);
        taken += host.promised_bytes + asked;
        if (own_.group != 0 && host.group == own_.group) of_group += host.promised_bytes + asked;
        may_come += asked + host.returnable_bytes;
    }
    may_come_ = may_come > 0;
    return std::min(all_bytes_ - std::min(taken, all_bytes_),
                    group_bytes_ - std::min(of_group, group_bytes_));
}

bool HostClaims::claim(Part& part, std::uint64_t bytes, Short otherwise) noexcept {
    if (bytes <= part.claimed_bytes) return true;
    const util::Lock lock(mutex_);
    try {
        for (const bool anew : {false, true}) {
            look(anew);
            const std::uint64_t wanted = bytes - part.claimed_bytes;
            own_.asked_bytes = wanted;
            // Where nobody can know of it, it is as alone.
            std::uint64_t given = write() ? std::min(wanted, room()) : wanted;
            if (given < wanted && otherwise == Short::Nothing) given = 0;
            own_.promised_bytes += given;
            part.claimed_bytes += given;
            own_.asked_bytes = 0;
            write();
            if (given == wanted) return true;
        }
    } catch (const std::exception&) {  // out of host memory
        own_.asked_bytes = 0;
        write();
    }
    return false;
}

void HostClaims::settle(Part& part, const Part& now) noexcept {
    if (part == now) return;
    const util::Lock lock(mutex_);
    own_.promised_bytes += now.claimed_bytes - part.claimed_bytes;
    own_.returnable_bytes += now.returnable_bytes - part.returnable_bytes;
    pinned_bytes_ += now.pinned_bytes - part.pinned_bytes;
    part = now;
    write();
}

void HostClaims::lack(std::uint64_t bytes) noexcept {
    const util::Lock lock(mutex_);
    if (own_.lacking_bytes == bytes) return;
    own_.lacking_bytes = bytes;
    write();
    if (bytes > 0) page_->announce();
}

bool HostClaims::is_due() const noexcept {
    return page_->changes().load(std::memory_order_relaxed) !=
               seen_changes_.load(std::memory_order_relaxed) ||
           Clock::now().time_since_epoch().count() >= write_again_.load(std::memory_order_relaxed);
}

std::uint64_t HostClaims::lacking_bytes() noexcept try {
    seen_changes_ = page_->changes().load();
    std::uint64_t lacking = 0;
    const util::Lock lock(mutex_);
    if (Clock::now().time_since_epoch().count() >= write_again_) write();
    for (const sharing::Seen& seen : page_->tenants()) {
        if (!page_->is_own(seen)) lacking += seen.tenant.host.lacking_bytes;
    }
    return lacking;
} catch (const std::exception&) {
    return 0;  // out of host memory
}

}  // namespace lms::executor
