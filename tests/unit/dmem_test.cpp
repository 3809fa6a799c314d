// What the controller dmem leaves of a GPU, in files made up below a root.
#include <doctest/doctest.h>

#include <string>

#include "shim/util/dmem.h"
#include "tests/support/scratch.h"

namespace lms::util {
namespace {

struct Cgroups {
    Cgroups() { root.put("proc/self/cgroup", "4:memory:/elsewhere\n0::/pod/trainer\n"); }
    void put(const std::string& file, const std::string& mine) {
        root.put("sys/fs/cgroup/" + file, "nvidia/0000:17:00.0/vidmem 1\nnvidia/0000:65:00.0/vidmem " + mine +
                                              "\ndrm/0000:a5:00.0/vram0 2\n");
    }
    std::uint64_t of(std::uint64_t free_bytes, const std::string& bus = "0000:65:00.0") const {
        return dmem_free_bytes(free_bytes, bus, root.path());
    }
    Scratch root;
};

TEST_CASE("dmem: where nothing is limited, all that is free") {
    Cgroups cgroups;
    CHECK(cgroups.of(1000) == 1000);
    cgroups.put("pod/trainer/dmem.current", "300");
    CHECK(cgroups.of(1000) == 1000);
    cgroups.put("pod/trainer/dmem.max", "max");
    cgroups.put("pod/trainer/dmem.min", "0");
    CHECK(cgroups.of(1000) == 1000);
    CHECK(cgroups.of(1000, "") == 1000);
}

TEST_CASE("dmem: no more than each level may have") {
    Cgroups cgroups;
    cgroups.put("pod/trainer/dmem.current", "300");
    cgroups.put("pod/trainer/dmem.max", "900");
    CHECK(cgroups.of(1000) == 600);
    CHECK(cgroups.of(500) == 500);
    CHECK(cgroups.of(1000, "0000:99:00.0") == 1000);
    cgroups.put("pod/dmem.current", "700");
    cgroups.put("pod/dmem.max", "750");
    CHECK(cgroups.of(1000) == 50);
    cgroups.put("pod/dmem.max", "600");  // lowered below what is held
    CHECK(cgroups.of(1000) == 0);
}

TEST_CASE("dmem: a container's own cgroup is at the mount point; the bus in letters of either case") {
    Cgroups cgroups;
    cgroups.root.put("sys/fs/cgroup/dmem.current", "nvidia/0000:a5:00.0/vidmem 10\n");
    cgroups.root.put("sys/fs/cgroup/dmem.max", "nvidia/0000:a5:00.0/vidmem 50\n");
    CHECK(cgroups.of(1000, "0000:A5:00.0") == 40);
}

TEST_CASE("dmem: beyond what is assured, no more than is left free for others") {
    Cgroups cgroups;
    cgroups.put("pod/trainer/dmem.min", "400");
    std::uint64_t held = 0;
    cgroups.put("pod/trainer/dmem.current", "0");
    CHECK(cgroups.of(300) == 300);
    CHECK(cgroups.of(1000) == 700);
    // However often it looks and takes.
    for (std::uint64_t free = 1000; free > 0;) {
        cgroups.put("pod/trainer/dmem.current", std::to_string(held));
        const std::uint64_t more = cgroups.of(free);
        if (more == 0) break;
        held += more;
        free -= more;
    }
    CHECK(held == 700);
    // Others take what is free.
    cgroups.put("pod/trainer/dmem.current", "700");
    CHECK(cgroups.of(301) == 0);
    CHECK(cgroups.of(100) == 0);
    CHECK(cgroups.of(310) == 5);
}

}  // namespace
}  // namespace lms::util
