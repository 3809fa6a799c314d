// What a policy may ask back when it is asked for a victim (core/ranking.h).
#pragma once

#include "shim/migration/state.h"

namespace lms::engine {

// Needs the session's lock for as long as it is used.
class VictimFacts final : public core::Asker {
  public:
    explicit VictimFacts(State& state) : state_(state) {}

    core::Candidate candidate(core::ChunkId chunk) override;
    core::Links links() override;
    void overruled() override;

  private:
    State& state_;
};

}  // namespace lms::engine
