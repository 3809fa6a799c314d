#include "tests/explore/explorer.h"

#include <algorithm>
#include <deque>
#include <random>
#include <unordered_set>

namespace explore {

namespace {

bool operator==(const Action& a, const Action& b) {
    return a.kind == b.kind && a.a == b.a && a.b == b.b;
}

// What led to a state, for the path to it.
struct Step {
    std::uint32_t before;
    Action action;
};

std::vector<Action> path_to(const std::vector<Step>& steps, std::uint32_t at) {
    std::vector<Action> path;
    for (; at != 0; at = steps[at].before) path.push_back(steps[at].action);
    std::ranges::reverse(path);
    return path;
}

// A program that has work left can always get further, unless its memory is full for good.
const char* const kStuck = "nothing can happen any more, and the program is not over";

}  // namespace

Found explore(const Case& plan, std::uint64_t most_states) {
    ChosenVictim victims;
    Found found;
    std::vector<Step> steps{{0, {}}};
    std::unordered_set<std::uint64_t> visited;
    struct Open {
        World world;
        std::uint32_t step;
    };
    std::deque<Open> open;
    open.push_back({World(plan, victims), 0});
    visited.insert(open.front().world.fingerprint());
    std::vector<Action> actions;
    while (!open.empty() && found.states < most_states) {
        Open at(std::move(open.front()));
        open.pop_front();
        ++found.states;
        at.world.actions(actions);
        if (at.world.is_over()) ++found.ends;
        if (actions.empty() && !at.world.is_over()) {
            found.wrong = kStuck;
            found.path = path_to(steps, at.step);
            return found;
        }
        for (const Action& action : actions) {
            World next = &action == &actions.back() ? std::move(at.world) : at.world;
            found.wrong = next.apply(action);
            if (found.wrong.empty() && !visited.insert(next.fingerprint()).second) continue;
            if (found.wrong.empty()) found.wrong = next.check();
            steps.push_back({at.step, action});
            const auto step = static_cast<std::uint32_t>(steps.size() - 1);
            if (!found.wrong.empty()) {
                found.path = path_to(steps, step);
                return found;
            }
            open.push_back({std::move(next), step});
        }
    }
    return found;
}

std::string replay(const Case& plan, const std::vector<Action>& path) {
    ChosenVictim victims;
    World world(plan, victims);
    std::vector<Action> actions;
    for (const Action& action : path) {
        world.actions(actions);
        if (std::ranges::none_of(actions, [&](const Action& each) { return each == action; })) continue;
        if (std::string wrong = world.apply(action); !wrong.empty()) return wrong;
        if (std::string wrong = world.check(); !wrong.empty()) return wrong;
    }
    return {};
}

Found walk(const Case& plan, std::uint64_t seed, std::size_t most_steps) {
    ChosenVictim victims;
    std::mt19937_64 random(seed);
    World world(plan, victims);
    Found found;
    std::vector<Action> actions;
    for (; found.path.size() < most_steps && !world.is_over(); ++found.states) {
        world.actions(actions);
        if (actions.empty()) {
            found.wrong = kStuck;
            return found;
        }
        const Action action = actions[random() % actions.size()];
        found.path.push_back(action);
        found.wrong = world.apply(action);
        if (found.wrong.empty()) found.wrong = world.check();
        if (!found.wrong.empty()) break;
    }
    found.ends = world.is_over();
    if (found.wrong.empty()) return found;
    // Leaves steps out, as long as it still goes wrong.
    for (std::size_t i = found.path.size(); i-- > 0;) {
        std::vector<Action> shorter = found.path;
        shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(i));
        if (std::string wrong = replay(plan, shorter); !wrong.empty()) {
            found.path = std::move(shorter);
            found.wrong = std::move(wrong);
        }
    }
    return found;
}

std::string to_string(const std::vector<Action>& path) {
    std::string text;
    for (const Action& action : path) text += "\n  " + to_string(action);
    return text;
}

}  // namespace explore
