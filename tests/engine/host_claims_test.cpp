// Host memory that processes pin beside each other: what all are promised is within what the machine has.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>

#include "shim/engine/chunking.h"
#include "shim/executor/budget.h"
#include "shim/executor/gpu_share.h"
#include "shim/executor/host_claims.h"
#include "shim/program/contexts.h"
#include "shim/util/host_memory.h"
#include "tests/engine/scene.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

namespace lms::fake {
namespace {

using executor::HostClaims;

constexpr std::uint64_t kGranule = 1024;
constexpr std::uint64_t kGpu = 64;  // granules

// Of host memory, by each process of a test; the first is the test's own.
struct Counts {
    static constexpr std::size_t kMost = 9;
    std::atomic<std::uint64_t> taken[kMost];
};
Counts& counts() {
    static void* const place =
        ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return *static_cast<Counts*>(place);
}
std::uint64_t all_taken() {
    std::uint64_t sum = 0;
    for (const auto& each : counts().taken) sum += each;
    return sum;
}

// A machine with a page for all its processes, and so much memory for them.
class SmallMachine {
  public:
    explicit SmallMachine(std::uint64_t bytes) : bytes_(bytes / 1024 * 1024) {
        root_.put("proc/meminfo", "MemAvailable: " + std::to_string(bytes / 1024) + " kB\n");
        util::host_memory().look_below(root_.path(), all_taken);
        for (auto& each : counts().taken) each = 0;
        host_taken = &counts().taken[0];
    }
    ~SmallMachine() {
        util::host_memory().look_below("");
        host_taken = nullptr;
    }
    // Nothing was pinned that is not there.
    void check() const { CHECK(all_taken() <= bytes_); }
    std::unique_ptr<HostClaims> open() const {
        return HostClaims::open({.shares = true}, root_.path("proc"));
    }
    std::vector<sharing::Seen> seen() const {
        const int folder = ::open(root_.path("proc").c_str(), O_RDONLY | O_DIRECTORY);
        std::string problem;
        auto contents = sharing::look_at_page(folder, "host", problem);
        ::close(folder);
        return contents.tenants;
    }
    std::string root() const { return root_.path(); }
    std::string page() const { return root_.path("proc/" + sharing::file_of_page("host")); }
    // This process is in the group, which may have so many bytes.
    void limit_group(const std::string& name, std::uint64_t bytes) const {
        root_.put("proc/self/cgroup", "0::/" + name + "\n");
        root_.put("sys/fs/cgroup/" + name + "/memory.max", std::to_string(bytes) + "\n");
        root_.put("sys/fs/cgroup/" + name + "/memory.current", "0\n");
    }
    void use_folder() const { ::chmod(root_.path("proc").c_str(), 0700); }

  private:
    const std::uint64_t bytes_;
    Scratch root_;
};

RigOptions options_with(bool maps_host) {
    RigOptions options = options_of(Safety::Opaque, 1, maps_host);
    options.granularity = kGranule;
    return options;
}

// Bytes that a process is promised for so many granules in all.
std::uint64_t promise_for(std::uint64_t granules) {
    return granules * kGranule + 2 * engine::largest_chunk(kGpu * kGranule, kGranule) - kGpu * kGranule;
}

// A process with a GPU of its own, and what it answers.
class Rank {
  public:
    explicit Rank(const std::function<void(Rank&)>& body) {
        REQUIRE(::pipe(to_) == 0);
        REQUIRE(::pipe(from_) == 0);
        count_ = &counts().taken[1 + next_++ % (Counts::kMost - 1)];
        process_ = support::start_child([&] {
            host_taken = count_;
            body(*this);
        });
    }
    ~Rank() {
        if (process_ > 0) kill();
        for (const int end : {to_[0], to_[1], from_[0], from_[1]}) ::close(end);
    }
    void go() { CHECK(::write(to_[1], "g", 1) == 1); }
    char hear() {
        char letter = 0;
        CHECK(::read(from_[0], &letter, 1) == 1);
        return letter;
    }
    void kill() {
        ::kill(process_, SIGKILL);
        support::end_of_child(process_);
        process_ = 0;
        *count_ = 0;
    }
    // In the child.
    template <typename Idle>
    void await(Idle&& idle) {
        pollfd end{to_[0], POLLIN, 0};
        while (::poll(&end, 1, 1) == 0) idle();
        char letter = 0;
        if (::read(to_[0], &letter, 1) != 1) ::_exit(9);
    }
    void say(char letter) {
        if (::write(from_[1], &letter, 1) != 1) ::_exit(9);
    }

  private:
    static inline std::size_t next_ = 0;
    int to_[2], from_[2];
    std::atomic<std::uint64_t>* count_ = nullptr;
    pid_t process_ = 0;
};

// What a rank does: buffers that fit, then one more when all are told to; then it uses what it has.
void allocate_beyond(Rank& rank, const SmallMachine& machine, std::uint64_t fitting, std::uint64_t more,
                     bool maps_host) {
    const auto claims = machine.open();
    if (!claims) ::_exit(8);
    Scene scene(options_with(maps_host));
    scene.rig.session().claim_host_by(claims.get());
    for (std::uint64_t made = 0; made < fitting; made += 8) scene.make(8);
    const auto idle = [&] {
        if (claims->is_due()) scene.rig.session().give_back_host(claims->lacking_bytes());
    };
    rank.say('r');
    rank.await(idle);
    Region region{0, more * kGranule};
    const CUresult status = scene.rig.session().allocate(region.bytes, region.address);
    rank.say(status == CUDA_SUCCESS ? 'y' : status == CUDA_ERROR_OUT_OF_MEMORY ? 'n' : 'x');
    rank.await(idle);
    bool right = true;
    if (status == CUDA_SUCCESS) {
        scene.regions.push_back(region);
        scene.expected.push_back(noise(77, region.bytes));
        right &= scene.rig.write(scene.stream, region, scene.expected.back()) == CUDA_SUCCESS;
    }
    for (int round = 0; round < 3; ++round) {
        for (std::size_t i = 0; i < scene.regions.size(); ++i) {
            Bytes bytes;
            right &= scene.rig.read(scene.stream, scene.regions[i], bytes) == CUDA_SUCCESS;
            right &= bytes == scene.expected[i];
        }
    }
    rank.say(right ? 'w' : 'f');
    rank.await(idle);
    if (status == CUDA_SUCCESS) scene.rig.session().free(region.address);
    rank.say('d');
    rank.await(idle);
}

TEST_CASE("host claims: of eight processes that allocate at once, those for whom there is room go on") {
    for (const bool maps_host : {true, false}) {
        CAPTURE(maps_host);
        const std::uint64_t each = promise_for(48 + 64);
        const SmallMachine machine(3 * each + each / 2);
        machine.use_folder();
        std::vector<std::unique_ptr<Rank>> ranks;
        for (int i = 0; i < 8; ++i) {
            ranks.push_back(std::make_unique<Rank>(
                [&](Rank& rank) { allocate_beyond(rank, machine, 48, 64, maps_host); }));
        }
        for (const auto& rank : ranks) REQUIRE(rank->hear() == 'r');
        for (const auto& rank : ranks) rank->go();
        std::string told;
        for (const auto& rank : ranks) told += rank->hear();
        CHECK(std::ranges::count(told, 'y') == 3);
        CHECK(std::ranges::count(told, 'n') == 5);
        for (const auto& rank : ranks) rank->go();
        for (const auto& rank : ranks) CHECK(rank->hear() == 'w');
        machine.check();
    }
}

TEST_CASE("host claims: of processes that claim and settle all the time, none is promised what another has") {
    constexpr std::uint64_t kEach = 64 << 10;
    const SmallMachine machine(3 * kEach / 2);
    machine.use_folder();
    std::atomic<std::uint64_t>& promised = counts().taken[0];
    host_taken = nullptr;
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
        children.push_back(support::start_child([&] {
            util::host_memory().look_below(machine.root());
            const auto claims = machine.open();
            if (!claims) ::_exit(1);
            HostClaims::Part part;
            for (int given = 0; given < 20000;) {
                const bool all = claims->claim(part, kEach);
                if (all) {
                    ++given;
                    if ((promised += kEach) > 3 * kEach / 2) ::_exit(2);
                    promised -= kEach;
                }
                claims->settle(part, {});
            }
            ::_exit(0);
        }));
    }
    for (const pid_t child : children) CHECK(support::end_of_child(child) == 0);
}

TEST_CASE("host claims: what a process frees, or held as it was killed, is others'") {
    const std::uint64_t each = promise_for(48 + 64);
    const SmallMachine machine(2 * each - kGranule);
    machine.use_folder();
    const auto allocates = [&](Rank& rank) { allocate_beyond(rank, machine, 48, 64, true); };
    Rank first(allocates), second(allocates), third(allocates);
    for (Rank* rank : {&first, &second, &third}) REQUIRE(rank->hear() == 'r');
    first.go();
    REQUIRE(first.hear() == 'y');
    for (int i = 0; i < 2; ++i) first.go(), first.hear();  // has used and freed it
    second.go();
    CHECK(second.hear() == 'y');
    second.kill();
    third.go();
    CHECK(third.hear() == 'y');
}

namespace {

// Another process, which has said so.
class Other {
  public:
    Other(const SmallMachine& machine, const sharing::Tenant& has) {
        const int folder = ::open((machine.root() + "/proc").c_str(), O_RDONLY | O_DIRECTORY);
        int ends[2];
        REQUIRE(::pipe(ends) == 0);
        process_ = support::start_child([&] {
            std::string problem;
            const auto page = sharing::SharingPage::open(folder, "host", problem);
            if (!page || !page->write(has) || ::write(ends[1], "x", 1) != 1) ::_exit(1);
            for (;;) ::pause();
        });
        char letter;
        REQUIRE(::read(ends[0], &letter, 1) == 1);
        for (const int each : {ends[0], ends[1], folder}) ::close(each);
    }
    ~Other() {
        ::kill(process_, SIGKILL);
        support::end_of_child(process_);
    }

  private:
    pid_t process_;
};

// `helped`: while the program makes no calls, else by its own thread.
void retained_copies_go_back(bool helped) {
    const std::uint64_t mine = promise_for(96), others = promise_for(48 + 48);
    const SmallMachine machine(mine + others + 4 * kGranule);
    machine.use_folder();
    Rank other([&](Rank& rank) { allocate_beyond(rank, machine, 48, 48, true); });
    REQUIRE(other.hear() == 'r');
    const auto claims = machine.open();
    REQUIRE(claims);
    Scene scene(options_with(true));
    scene.rig.session().claim_host_by(claims.get());
    for (int i = 0; i < 12; ++i) scene.make(8);
    const auto read_all = [&] {
        for (std::size_t i = 0; i < scene.regions.size(); ++i) {
            const std::vector<Address> reads{scene.regions[i].address};
            REQUIRE(scene.rig.submit({.stream = scene.stream,
                                      .names = reads,
                                      .ranges = {},
                                      .opaque = false,
                                      .kernel = [](Memory&) { return true; },
                                      .reads = reads}) == CUDA_SUCCESS);
            scene.rig.drain();
        }
    };
    const auto own = [&] {
        for (const sharing::Seen& seen : machine.seen())
            if (seen.process.number == getpid()) return seen.tenant.host;
        return sharing::HostShare{};
    };
    for (int round = 0; round < 3; ++round) read_all();
    REQUIRE(own().promised_bytes > mine);
    REQUIRE(own().returnable_bytes == own().promised_bytes - mine);
    REQUIRE(own().returnable_bytes > 4 * kGranule);
    const bool due_before = claims->is_due();
    CHECK_FALSE(due_before);
    if (helped) {
        const auto context = reinterpret_cast<CUcontext>(&scene);
        constexpr char kUuid[16] = "host claims";
        scene.rig.session().share_by(
            executor::GpuShare::open(0, kUuid, {.shares = true}, machine.root() + "/proc"));
        program::context_seen(context, scene.rig.session().device());
        REQUIRE(scene.rig.session().wake(context) == CUDA_SUCCESS);
        const std::uint64_t before = own().returnable_bytes;
        scene.rig.session().help_while_idle();
        // However long the helper takes.
        const Other lacks(machine, {.host = {.lacking_bytes = 4 * kGranule}});
        while (own().returnable_bytes + 4 * kGranule > before) ::usleep(1000);
        scene.check();
        program::forget_context(context);
        return;
    }
    other.go();
    while (!claims->is_due()) ::usleep(1000);
    scene.rig.session().give_back_host(claims->lacking_bytes());
    CHECK(other.hear() == 'y');
    CHECK(own().promised_bytes <= mine + 4 * kGranule);
    // None are retained beyond what is left.
    for (int round = 0; round < 3; ++round) read_all();
    std::uint64_t sum = 0;
    for (const sharing::Seen& seen : machine.seen()) sum += seen.tenant.host.promised_bytes;
    CHECK(sum <= mine + others + 4 * kGranule);
    other.go();
    CHECK(other.hear() == 'w');
    scene.check();
    machine.check();
}

}  // namespace

TEST_CASE("host claims: retained copies go back where another lacks memory") {
    retained_copies_go_back(false);
}

TEST_CASE("host claims: they do from a process that makes no calls") {
    retained_copies_go_back(true);
}

TEST_CASE("host claims: a smaller limit leaves on the GPU what the machine promises no room for") {
    const std::uint64_t others = promise_for(48 + 64);
    const SmallMachine machine(others + 16 * kGranule);
    machine.use_folder();
    Rank other([&](Rank& rank) { allocate_beyond(rank, machine, 48, 64, true); });
    REQUIRE(other.hear() == 'r');
    other.go();
    REQUIRE(other.hear() == 'y');
    const auto claims = machine.open();
    REQUIRE(claims);
    Scene scene(options_with(true));
    scene.rig.session().claim_host_by(claims.get());
    for (int i = 0; i < 6; ++i) scene.make(8);
    const struct Limit {
        explicit Limit(std::uint64_t bytes) { executor::limit_now = bytes; }
        ~Limit() { executor::limit_now = 0; }
    } limit(16 * kGranule);
    scene.rig.session().limit_changed();
    const auto on_gpu = [&] {
        return scene.rig.gpu().with_memory([](const Memory& memory) { return memory.used_bytes(); });
    };
    CHECK(on_gpu() > 32 * kGranule);
    other.kill();
    scene.rig.session().limit_changed();
    CHECK(on_gpu() <= 16 * kGranule);
    scene.check();
}

TEST_CASE("host claims: processes that together ask for more than there is are not taken for made up") {
    const SmallMachine machine(1 << 20);
    machine.use_folder();
    const auto claims = machine.open();
    REQUIRE(claims);
    HostClaims::Part part;
    {
        const std::uint64_t all = util::machine_bytes();
        const Other asks(machine, {.host = {.promised_bytes = all / 2, .asked_bytes = all}});
        CHECK_FALSE(claims->claim(part, kGranule));
    }
    CHECK(claims->claim(part, kGranule));
}

TEST_CASE("host claims: what a cgroup may have is promised within it, the machine's to all") {
    const SmallMachine machine(1 << 20);
    machine.use_folder();
    machine.limit_group("a", 64 << 10);
    const auto claims = machine.open();
    REQUIRE(claims);
    const std::uint64_t group = util::host_spare(machine.root()).group;
    REQUIRE(group != 0);
    HostClaims::Part part;
    {
        const Other elsewhere(machine, {.host = {.promised_bytes = 600 << 10, .group = group + 1}});
        CHECK(claims->claim(part, 32 << 10));
        claims->settle(part, {});
        // Beyond the cgroup's own; beyond the machine.
        CHECK_FALSE(claims->claim(part, 70 << 10));
    }
    const Other here(machine, {.pinned_bytes = 0, .host = {.promised_bytes = 40 << 10, .group = group}});
    CHECK_FALSE(claims->claim(part, 32 << 10));
    CHECK(claims->claim(part, 16 << 10));
    claims->settle(part, {});
    machine.limit_group("a", 2 << 20);
    const Other everywhere(machine, {.host = {.promised_bytes = 900 << 10, .group = group + 1}});
    CHECK_FALSE(claims->claim(part, 200 << 10));
}

TEST_CASE("host claims: with every byte of the page made up, memory is as for a process alone") {
    const SmallMachine machine(1 << 20);
    machine.use_folder();
    const auto claims = machine.open();
    REQUIRE(claims);
    const int file = ::open(machine.page().c_str(), O_RDWR);
    REQUIRE(file >= 0);
    for (unsigned seed = 0; seed < 100; ++seed) {
        CAPTURE(seed);
        Scene scene(options_with(seed % 2 == 0));
        scene.rig.session().claim_host_by(claims.get());
        std::mt19937_64 random(seed);
        std::string bytes(sizeof(sharing::PageLayout), '\0');
        for (char& byte : bytes) byte = static_cast<char>(random());
        for (int i = 0; i < 10; ++i) {
            REQUIRE(::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
            scene.make(8);
        }
        scene.check();
    }
    ::close(file);
}

TEST_CASE("host claims: not shared, or with a page that is not to be used, there are none") {
    const SmallMachine machine(1 << 20);
    CHECK(machine.open() == nullptr);  // others may enter the folder
    machine.use_folder();
    CHECK(machine.open() != nullptr);
    CHECK(HostClaims::open({.shares = false}) == nullptr);
    REQUIRE(::truncate(machine.page().c_str(), 100) == 0);
    CHECK(machine.open() == nullptr);
}

}  // namespace
}  // namespace lms::fake
