// PTX text in, native code and its symbols out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace simcuda::ptx {

struct Parameter {
    std::uint32_t offset;  // bytes from the start of the parameter block
    std::uint32_t bytes;
};

struct Kernel {
    std::string name;
    std::vector<Parameter> parameters;
    std::uint32_t parameter_bytes = 0;      // the whole block
    std::uint32_t static_shared_bytes = 0;  // per block
    std::uint32_t local_bytes = 0;          // per thread
    std::uint32_t max_threads = 1024;       // per block (.maxntid)
    std::uint32_t cluster[3] = {0, 0, 0};   // blocks, that it must be launched with; 0: any
    std::uint32_t max_cluster = 0;          // blocks at most; 0: not said
    bool explicit_cluster = false;          // cannot be launched without clusters
    bool prints = false;                    // by vprintf
    bool uses_heap = false;                 // of malloc and free
    bool lets_dependents_go = false;        // griddepcontrol.launch_dependents
    bool waits_for_grids = false;           // griddepcontrol.wait
    std::string unsupported;                // first thing in it that cannot be translated; empty: it runs
    void* code = nullptr;                   // native entry; its signature is exec's business
};

// An 8-byte word of a variable's initial value that holds the address of another symbol.
struct Relocation {
    std::uint64_t offset;
    std::string symbol;
    std::int64_t addend;
};

struct Variable {
    enum class Space { Global, Constant };
    std::string name;
    Space space = Space::Global;
    std::uint64_t bytes = 0;
    std::uint64_t alignment = 1;
    bool managed = false;
    std::vector<std::byte> initial;  // empty: zeros
    std::vector<Relocation> relocations;
};

// One translated module. Immutable and thread-safe; the native code stays loaded while it lives.
class Program {
  public:
    virtual ~Program() = default;
    virtual const std::vector<Kernel>& kernels() const = 0;
    virtual const std::vector<Variable>& variables() const = 0;

    // Translates and compiles one PTX module (compiled code is cached on disk, keyed by content). On failure
    // returns null and says why in `error`. A kernel with an unsupported instruction does not fail the
    // module: Kernel::unsupported names it.
    static std::shared_ptr<const Program> translate(std::string_view ptx, std::string& error);
};

}  // namespace simcuda::ptx
