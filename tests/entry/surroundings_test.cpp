// What a process may find around it: limits, closed descriptors, keys that others have taken.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/entry/graph_rig.h"
#include "tests/support/child.h"
#include "tests/support/process.h"

using namespace rig;

BODY(no_files) {
    const Gpu gpu;
    // The simulated GPU's memory is files; there are none from here on.
    const rlimit none{0, 0};
    EXPECT(setrlimit(RLIMIT_FSIZE, &none) == 0);
    const Buffer a(kBuffer, 1);
    Crowd crowd;
    crowd.evict(a);
    EXPECT(a.holds(1));
}

TEST_CASE("surroundings: where no file may be written, no signal ends the program") {
    run_both("no_files", Driver::Simulated, {});
}
