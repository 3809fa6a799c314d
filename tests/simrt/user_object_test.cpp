// User objects: when what they stand for is destroyed.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

CUuserObject create(void* object, CUhostFn destroy, unsigned references = 1) {
    CUuserObject created = nullptr;
    OK(cuUserObjectCreate, &created, object, destroy, references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    return created;
}

}  // namespace

TEST_CASE("user objects: the process does not end under what destroys them") {
    std::string text;
    CHECK(run(
              {},
              [] {
                  const Gpu gpu;
                  const CUhostFn slowly = [](void* word) {
                      std::this_thread::sleep_for(std::chrono::milliseconds(100));
                      const auto* letter = static_cast<const char*>(word);
                      [[maybe_unused]] const auto written = ::write(STDERR_FILENO, letter, 1);
                  };
                  static char a[] = "a", b[] = "b";
                  OK(cuUserObjectRelease, create(a, slowly), 1);
                  OK(cuUserObjectRelease, create(b, slowly), 1);
              },
              &text) == "");
    CHECK(text == "ab");
}

TEST_CASE("user objects: what destroys them may end the process") {
    std::string text;
    CHECK(run(
              {},
              [] {
                  const Gpu gpu;
                  const CUhostFn end = [](void*) { std::exit(0); };
                  OK(cuUserObjectRelease, create(nullptr, end), 1);
                  for (;;) ::pause();
              },
              &text) == "");
}
