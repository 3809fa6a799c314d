// What is always so between two calls of the engine: the rules of docs/explanation/moves.md, as code. Builds
// that check locks ask after every use of the session's lock, and tests/explore in every state.
#pragma once

#include <string>

#include "shim/engine/engine.h"

namespace lms::engine {

// The first rule that is broken, and by what; empty: none is.
std::string broken_rule(const Engine& engine);

}  // namespace lms::engine
