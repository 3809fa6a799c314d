// Whether what a kernel uses as an address leads anywhere that is known.
//
// Of a kernel whose PTX tells its addresses, each access is looked at (code/kernel_access.h). It is known
// where it begins in a buffer, by the sum of its parameters as far as that shows, and that buffer is named;
// or where a parameter that had a part in it is an address in a buffer, in memory of the driver's or of the
// host's. A tag in an address's upper 16 bits does not count. An access of which nothing leads anywhere (but
// for one of null and a number that was not loaded, which would be a fault), or in which an address near
// managed memory leads nowhere, may be of any memory. So may, of code that cannot be seen, a parameter of 8
// bytes that is such an address. Null and small numbers are no addresses.
#pragma once

#include <algorithm>

#include "shim/access/placed_access.h"
#include "shim/session/sessions.h"
#include "shim/session/working_set.h"

namespace lms::access {

inline bool may_be_address(engine::Address word) {
    constexpr engine::Address kSmall = engine::Address{1} << 32;
    return word + kSmall >= 2 * kSmall;  // negative ones are numbers, too
}

inline engine::Address without_tag(engine::Address word) {
    constexpr int kTag = 16;
    return word << kTag >> kTag;
}

// Whether an address from managed memory may have been computed to be this.
inline bool near(session::Bounds bounds, engine::Address word) {
    const engine::Address span = bounds.end - bounds.begin;
    return word - (bounds.begin - std::min(span, bounds.begin)) < std::min(3 * span, ~engine::Address{0});
}

// Adds an access with its parameters' values, by `read(place, to, bytes)`.
template <typename Read>
void add_used(session::WorkingSet& reach, const PlacedAccess& access, Read&& read) {
    session::UsedAddress used;
    used.written = access.written;
    const engine::Address begins = begin_of(access, read);
    if (may_be_address(begins)) used.begins = begins;
    std::size_t count = 0;
    for (const PlacedAccess::Word& each : access.words) {
        engine::Address word = 0;
        read(each.at, &word, sizeof word);
        if (!may_be_address(word)) continue;
        if (count == session::UsedAddress::kWords) {
            used.goes_on = true;
            reach.used.push_back(used);
            used.goes_on = false;
            used.words = {};
            count = 0;
        }
        used.words[count] = word;
        used.in_sum[count++] = each.in_sum;
    }
    if (count > 0 || used.begins != 0 || access.loaded) reach.used.push_back(used);
}

// Adds a parameter of 8 bytes of code that cannot be seen.
inline void add_used(session::WorkingSet& reach, engine::Address word, session::Bounds managed) {
    const bool tagged = !near(managed, word) && in(managed, without_tag(word));
    if (!may_be_address(word) || !(near(managed, word) || tagged)) return;
    session::UsedAddress used;
    used.words[0] = word;
    reach.used.push_back(used);
}

// Adds to `reach` the buffers in which what it uses begins, and makes it opaque where something leads
// nowhere. Sessions' locks are taken inside, and the driver is asked. True: the same would be found again
// while memory_changes stays.
bool follow_used(session::WorkingSet& reach);

}  // namespace lms::access
