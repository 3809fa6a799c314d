// LMS_CHECK: the pattern in memory of the GPU's before anything is brought in.
#include <doctest/doctest.h>

#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

TEST_CASE("guards: what is brought in wipes the pattern out, also where a copy or set fails") {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        for (const Call call : {Call::Set, Call::Copy}) {
            CAPTURE(seed);
            CAPTURE(static_cast<int>(call));
            RigOptions options = options_of(Safety::Opaque, seed);
            options.check = true;
            Scene scene(options);
            for (int i = 0; i < 5; ++i) scene.make(16);
            for (std::size_t i = 0; i < 15; ++i) {
                if (i % 4 == 0) scene.rig.gpu().fail(call, 2, CUDA_ERROR_UNKNOWN);
                Bytes bytes;
                if (scene.rig.read(scene.stream, scene.regions[i % 5], bytes) == CUDA_SUCCESS)
                    CHECK(bytes == scene.expected[i % 5]);
            }
            scene.rig.gpu().fail(call, 0, CUDA_SUCCESS);
            scene.check();
        }
    }
}

}  // namespace
}  // namespace lms::fake
