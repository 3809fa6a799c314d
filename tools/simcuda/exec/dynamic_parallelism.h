// What kernels ask to be done in their streams (dynamic parallelism): kernels, copies and fills. It is done
// when the blocks of the grid that asked have ended, before that grid counts as complete: CUDA promises no
// earlier time, and a grid cannot wait for its children. One thing is done after another, each with all that
// it asks for in turn; where streams and events leave the order free it is drawn by lot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <variant>
#include <vector>

#include "tools/simcuda/exec/grid.h"

namespace simcuda::exec {

// What the device runtime answers: cudaError_t.
enum class Status : std::uint32_t {
    Success = 0,
    InvalidValue = 1,
    MemoryAllocation = 2,
    InvalidConfiguration = 9,
    InvalidPitchValue = 12,
    InvalidMemcpyDirection = 21,
    InvalidDeviceFunction = 98,
    InvalidResourceHandle = 400,
    InvalidClusterSize = 912,
    Unknown = 999,
};

// A copy or fill within device memory: rows of bytes, and slices of rows.
struct Transfer {
    struct Side {
        DeviceAddress address = 0;
        std::uint64_t pitch = 0, slice = 0;  // from one row, and slice, to the next
    };
    Side to, from;
    std::uint64_t width = 0, rows = 1, slices = 1;
    std::optional<std::uint8_t> value;  // a fill with it

    // False, with the device address, when it touched memory that is not there.
    bool run(DeviceAddress* fault) const;
};

using ChildWork = std::variant<Launch, Transfer>;

// Work that is to be done, some of it after other.
class Agenda {
  public:
    using Number = std::size_t;

    // `after`: numbers that earlier calls have given.
    Number add(ChildWork work, const std::set<Number>& after);
    void add_tail(ChildWork work) { tail_.push_back(std::move(work)); }  // when all else is done, in order

    bool empty() const { return ready_.empty() && tail_taken_ == tail_.size(); }
    // Something that nothing keeps from being done; it counts as done when this is called again. `draw` is
    // any number.
    ChildWork take(std::uint64_t draw);

  private:
    struct Task {
        ChildWork work;
        std::size_t unmet = 0;          // that it comes after
        std::vector<Number> followers;  // that come after it
    };
    std::vector<Task> tasks_;
    std::vector<Number> ready_;
    std::vector<ChildWork> tail_;
    std::size_t tail_taken_ = 0;
};

// Who asks. Streams without a handle belong to a block or a thread, the last error to a thread.
struct Caller {
    std::uint64_t block, thread;  // numbers in the grid, and in the block
    auto operator<=>(const Caller&) const = default;
};

// What one grid asks for. Thread-safe. Streams and events are the grid's own; 0 is the stream of a block, and
// there are cudaStreamPerThread, cudaStreamTailLaunch and cudaStreamFireAndForget.
class Children {
  public:
    explicit Children(const Launch& parent) : parent_(parent) {}

    // The device address of the parameter block for a launch of kernel number `kernel` of the program, from 1
    // (translated code's name of a kernel). 0 if there is no such kernel or the shape is none, which is then
    // the caller's last error.
    std::uint64_t prepare(Caller caller, std::uint64_t kernel, const std::uint32_t grid[3],
                          const std::uint32_t block[3], std::uint32_t shared_bytes);
    // Launches what was prepared with that parameter block.
    Status launch(Caller caller, std::uint64_t parameters, std::uint64_t stream);
    Status transfer(Caller caller, const Transfer& transfer, std::uint64_t stream);

    Status create_stream(std::uint64_t& handle, std::uint32_t flags);
    Status destroy_stream(std::uint64_t handle);
    Status create_event(std::uint64_t& handle, std::uint32_t flags);
    Status destroy_event(std::uint64_t handle);
    Status record(Caller caller, std::uint64_t event, std::uint64_t stream);
    Status wait(Caller caller, std::uint64_t stream, std::uint64_t event);

    // Notes what is no success as the caller's last error.
    Status noted(Caller caller, Status status);
    Status last_error(Caller caller, bool forget);

    Agenda take();  // all so far

  private:
    using Position = std::set<Agenda::Number>;  // what is to be done before a stream goes on

    Status submit(Caller caller, ChildWork work, std::uint64_t stream);
    Position* find(Caller caller, std::uint64_t stream);

    const Launch& parent_;
    std::mutex mutex_;                                           // guards what follows
    std::map<std::uint64_t, std::unique_ptr<Launch>> prepared_;  // by their parameter block
    Agenda agenda_;
    std::map<std::uint64_t, Position> streams_, events_;  // by handle
    std::map<std::tuple<std::uint64_t, Caller>, Position> own_streams_;
    std::map<Caller, Status> errors_;
};

}  // namespace simcuda::exec
