// Work that was let through by the fast path, and is looked at first as pressure begins, in whatever order
// other threads submit and look meanwhile.
#include "shim/executor/budget.h"
#include "tests/engine/scene.h"

namespace lms::fake {
namespace {

struct LetThrough : Scene {
    explicit LetThrough(const RigOptions& options) : Scene(options) {}
    const CUstream other = rig.stream();
    const Gate gate_ = closed();
};

}  // namespace

TEST_CASE("let through: work is looked at before what is in excess leaves, though another closed the gate") {
    for (int seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        RigOptions options = options_of(Safety::Opaque, seed);
        options.reserve_granules = 20;
        LetThrough scene(options);
        const std::size_t cold = scene.make(16), warm = scene.make(16);
        REQUIRE(program::fast_path_gate.is_open());
        REQUIRE(scene.rig.submit(scene.late_write(scene.other, cold, scene.gate_, true)) == CUDA_SUCCESS);
        scene.changed(cold);
        const struct ClosedByAnother {
            ClosedByAnother() { program::fast_path_gate.close(); }
            ~ClosedByAnother() { program::fast_path_gate.reopen(); }
        } closed_by_another;
        const struct Limit {
            ~Limit() { executor::limit_now = 0; }
        } limit;
        executor::limit_now = 60 * options.granularity;
        scene.rig.session().limit_changed();  // nothing is in excess yet
        scene.rig.gpu().with_memory([&](Memory& memory) { memory.take_outside(30 * options.granularity); });
        scene.rig.session().look_at_budget();
        scene.open_before_remap(cold, scene.gate_);
        for (int i = 0; i < 40; ++i) {
            REQUIRE(scene.need(warm, scene.stream) == CUDA_SUCCESS);
            scene.rig.gpu().run(50);
        }
        *scene.gate_ = true;
        scene.check();
    }
}

TEST_CASE("let through: a fence from before work reached its stream does not stand for that") {
    for (int seed = 1; seed <= 5; ++seed) {
        CAPTURE(seed);
        RigOptions options = options_of(Safety::Opaque, seed);
        options.check = true;  // asks the stream behind each fence
        LetThrough scene(options);
        const std::size_t cold = scene.make(16), warm = scene.make(16), third = scene.make(16);
        scene.rig.drain();
        // One thread is through the gate, and on its way to the driver, as pressure begins.
        REQUIRE(program::fast_path_gate.enter());
        scene.rig.session().look_at_all_work();
        const auto arrives = [&] {
            Job job = scene.late_write(scene.other, cold, scene.gate_, true);
            scene.rig.gpu().launch(scene.other, std::move(job.kernel));
            program::fast_path_gate.leave();
            scene.rig.session().see_work_over();  // a third thread looks
        };
        scene.changed(cold);
        scene.rig.gpu().at(Call::Query, 1, arrives);
        // Another thread's launch in that stream has left a fence by then, and not entered it.
        REQUIRE(scene.need(warm, scene.other) == CUDA_SUCCESS);
        scene.open_before_remap(cold, scene.gate_);
        scene.open_after_a_while(scene.gate_);
        scene.make(16);
        scene.make(16);
        for (const std::size_t index : {warm, third})
            REQUIRE(scene.need(index, scene.stream) == CUDA_SUCCESS);
        *scene.gate_ = true;
        scene.check();
    }
}

}  // namespace lms::fake
