#include "shim/access/used_addresses.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "shim/access/elsewhere.h"

namespace lms::access {

namespace {

using engine::Address;

class Follower {
  public:
    explicit Follower(session::WorkingSet& reach) : reach_(reach) {}

    // `parts`: of one access. False where it leads nowhere.
    bool follow(std::span<const session::UsedAddress> parts) {
        const Address begins = parts.front().begins;
        const bool shown = begins != 0 && begins_in_buffer(parts);
        if (words_lead(parts, shown)) return true;
        return begins != 0 && !shown && elsewhere(begins) && words_lead(parts, true);
    }

    // Whether no answer of the driver's that may change counted.
    bool is_lasting() const { return lasting_; }

  private:
    // Whether the parameters lead somewhere, or need not: it is `shown` where the access begins.
    bool words_lead(std::span<const session::UsedAddress> parts, bool shown) {
        bool any = shown || any_in_buffer(parts);
        for (const session::UsedAddress& used : parts) {
            for (std::size_t i = 0; i < session::UsedAddress::kWords && used.words[i] != 0; ++i) {
                if (shown && used.in_sum[i]) continue;
                if (!word_leads(used.words[i], used.written, any)) return false;
            }
        }
        return any;
    }

    bool any_in_buffer(std::span<const session::UsedAddress> parts) {
        return std::ranges::any_of(parts, [&](const session::UsedAddress& used) {
            return std::ranges::any_of(used.words,
                                       [&](Address word) { return word != 0 && in_buffer(word); });
        });
    }

    // False where it is an address near managed memory that leads nowhere. `any`: some word of the access
    // leads somewhere, so that far from there others are numbers.
    bool word_leads(Address word, bool written, bool& any) {
        const bool is_near = near(managed_, word);
        if ((any && !is_near) || in_buffer(word)) return true;
        const bool leads = elsewhere(word) || leads_without_tag(word, written);
        any |= leads;
        return leads || !is_near;
    }

    bool elsewhere(Address address) {
        if (is_known_elsewhere(address)) return true;
        lasting_ = false;
        return is_elsewhere(address);
    }

    bool begins_in_buffer(std::span<const session::UsedAddress> parts) {
        Address begins = parts.front().begins;
        if (!in_buffer(begins)) begins = without_tag(begins);
        if (!in_buffer(begins)) return false;
        // Addresses among the parameters are named by themselves.
        if (std::ranges::find(parts.front().words, begins) == parts.front().words.end())
            name(begins, parts.front().written);
        return true;
    }

    bool leads_without_tag(Address word, bool written) {
        const Address address = without_tag(word);
        if (address == word || !in_buffer(address)) return false;
        name(address, written);
        return true;
    }

    void name(Address address, bool written) {
        (written ? reach_.addresses : reach_.only_read).push_back(address);
    }

    // A kernel has few buffers and many accesses, often of the same buffer one after the other.
    bool in_buffer(Address address) {
        const std::size_t oldest = found_ - std::min(found_, known_.size());
        for (std::size_t i = found_; i-- > oldest;) {
            if (in(known_[i % known_.size()], address)) return true;
        }
        session::Session* const session = session::session_at(address);
        const auto buffer = session ? session->buffer_near(address) : std::nullopt;
        if (buffer) known_[found_++ % known_.size()] = {buffer->address, buffer->address + buffer->bytes};
        return buffer.has_value();
    }

    session::WorkingSet& reach_;
    const session::Bounds managed_ = session::managed_bounds();
    std::array<session::Bounds, 16> known_{};  // buffers, the latest
    std::size_t found_ = 0;                    // ever
    bool lasting_ = true;
};

}  // namespace

bool follow_used(session::WorkingSet& reach) {
    if (reach.used.empty()) return true;
    Follower follower(reach);
    bool known = true;
    const std::span<const session::UsedAddress> all(reach.used);
    for (std::size_t begin = 0, end = 1; end <= all.size(); ++end) {
        if (all[end - 1].goes_on) continue;
        known &= follower.follow(all.subspan(begin, end - begin));
        begin = end;
    }
    reach.opaque |= !known;
    reach.unseen |= !known;
    return follower.is_lasting();
}

}  // namespace lms::access
