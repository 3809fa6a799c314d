// Caches of a few chunks under a policy, and programs that go through them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "policy/builtin.h"
#include "policy/host.h"

namespace caches {

using lms::engine::ChunkId;
using lms::engine::kNoChunk;
using lms::engine::Purpose;
using lms::policy::Host;

// What a program does: buffers made (of 4,096 bytes, or as many as follow its number) and let go, and work
// that names some of them. What is freed in stream order is let go later.
struct UseStep {
    enum What { Make, Free, Drop, Work } what;
    std::vector<unsigned> buffers;
};
using Steps = std::vector<UseStep>;

inline Steps cycle(unsigned buffers, unsigned rounds) {
    Steps steps;
    for (unsigned i = 0; i < buffers; ++i) steps.push_back({UseStep::Make, {i}});
    for (unsigned round = 0; round < rounds; ++round) {
        for (unsigned i = 0; i < buffers; ++i) steps.push_back({UseStep::Work, {i}});
    }
    return steps;
}

// Weights are read forward and backward; each layer leaves something behind on its way forward that is read
// on the way back, in a buffer made anew each time.
inline Steps training(unsigned layers, unsigned rounds) {
    Steps steps;
    for (unsigned i = 0; i < layers; ++i) steps.push_back({UseStep::Make, {i}});
    unsigned next = layers;
    for (unsigned round = 0; round < rounds; ++round) {
        std::vector<unsigned> left;
        for (unsigned i = 0; i < layers; ++i) {
            steps.push_back({UseStep::Make, {next}});
            steps.push_back({UseStep::Work, {i, next}});
            left.push_back(next++);
        }
        for (unsigned i = layers; i-- > 0;) {
            steps.push_back({UseStep::Work, {i, left[i]}});
            steps.push_back({UseStep::Drop, {left[i]}});
        }
    }
    return steps;
}

// A cache of `room` chunks, one to a buffer. Chunk numbers are given again as the shuffle has it.
class Cache {
  public:
    Cache(const char* policy, std::size_t room) : host_(Host::create(policy, {}, 0)), room_(room) {}

    Host& host() { return *host_; }
    ChunkId chunk(unsigned buffer) const { return chunks_.at(buffer); }
    bool there(unsigned buffer) const { return there_.contains(chunk(buffer)); }

    void run(const UseStep& step) {
        if (step.what == UseStep::Make) {
            chunks_[step.buffers[0]] = number();
            const std::uint64_t bytes = step.buffers.size() > 1 ? step.buffers[1] : 4096;
            host_->added({chunk(step.buffers[0]), bytes, 0, 0, 0, bytes});
        } else if (step.what == UseStep::Free) {
            there_.erase(chunk(step.buffers[0]));
            host_->freed(chunk(step.buffers[0]));
        } else if (step.what == UseStep::Drop) {
            there_.erase(chunk(step.buffers[0]));
            host_->removed(chunk(step.buffers[0]));
            free_.push_back(chunk(step.buffers[0]));
        } else {
            work(step.buffers);
        }
    }
    void evict(unsigned buffer) {
        there_.erase(chunk(buffer));
        host_->evicted(chunk(buffer));
    }
    bool on_device(ChunkId id) const { return there_.contains(id); }
    std::size_t misses() const { return misses_; }

  private:
    ChunkId number() {
        if (free_.empty()) return end_++;
        std::swap(free_[shuffle_() % free_.size()], free_.back());
        const ChunkId id = free_.back();
        free_.pop_back();
        return id;
    }

    void work(const std::vector<unsigned>& buffers) {
        std::vector<ChunkId> named;
        for (const unsigned buffer : buffers) named.push_back(chunk(buffer));
        host_->work(named, nullptr);
        for (const ChunkId id : named) {
            if (there_.contains(id)) continue;
            ++misses_;
            if (there_.size() >= room_) {
                const ChunkId victim = host_->next_victim({1}, [&](ChunkId each) {
                    return there_.contains(each) &&
                           std::find(named.begin(), named.end(), each) == named.end();
                });
                REQUIRE(there_.contains(victim));
                there_.erase(victim);
                host_->evicted(victim);
            }
            there_.insert(id);
            host_->resident(id);
        }
    }

    std::unique_ptr<Host> host_;
    std::size_t room_;
    std::map<unsigned, ChunkId> chunks_;
    std::set<ChunkId> there_;
    std::vector<ChunkId> free_;
    ChunkId end_ = 0;
    std::size_t misses_ = 0;
    std::mt19937 shuffle_{1};
};

// Misses from step `from` on.
inline std::size_t misses(const char* policy, const Steps& steps, std::size_t room, std::size_t from) {
    Cache cache(policy, room);
    std::size_t before = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (i == from) before = cache.misses();
        cache.run(steps[i]);
    }
    return cache.misses() - before;
}

// The same of the order that knows the future (L. A. Belady, 1966): out goes what is needed last.
inline std::size_t least_misses(const Steps& steps, std::size_t room, std::size_t from) {
    std::map<unsigned, std::vector<std::size_t>> uses;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].what != UseStep::Work) continue;
        for (const unsigned buffer : steps[i].buffers) uses[buffer].push_back(i);
    }
    const auto next = [&](unsigned buffer, std::size_t now) {
        const std::vector<std::size_t>& all = uses[buffer];
        const auto at = std::upper_bound(all.begin(), all.end(), now);
        return at == all.end() ? steps.size() : *at;
    };
    std::set<unsigned> there;
    std::size_t count = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
        const UseStep& step = steps[i];
        if (step.what == UseStep::Free || step.what == UseStep::Drop) there.erase(step.buffers[0]);
        if (step.what != UseStep::Work) continue;
        for (const unsigned buffer : step.buffers) {
            if (there.contains(buffer)) continue;
            count += i >= from;
            if (there.size() >= room) {
                const auto last = std::max_element(there.begin(), there.end(), [&](unsigned a, unsigned b) {
                    const auto named = [&](unsigned x) {
                        return std::find(step.buffers.begin(), step.buffers.end(), x) != step.buffers.end();
                    };
                    if (named(a) != named(b)) return named(a);
                    return next(a, i) < next(b, i);
                });
                there.erase(last);
            }
            there.insert(buffer);
        }
    }
    return count;
}

}  // namespace caches
