// What the code of one module or library tells of its kernels: their parameters, and whether these tell what
// a kernel reaches. Pure. No look is taken before a kernel is asked about.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "shim/code/fat_binary.h"
#include "shim/code/nv_info.h"
#include "shim/code/parameter.h"
#include "shim/code/ptx_taint.h"

namespace lms::code {

// What shows the memory that a kernel reaches
enum class Addresses {
    Complete,    // its arguments, pointer tables and variables, all of it
    Incomplete,  // these, a part of it: some addresses may be loaded from memory that kernels have written
    Unknown,     // there is no PTX to see
};

// What a kernel's code tells of the memory that it uses
struct KernelCode {
    Addresses addresses = Addresses::Unknown;
    // The rest is of kernels whose addresses are Complete.
    // The words of its parameters that its writes may go to. All where it seems to write nothing: what does
    // nothing may stand in for code that is compiled for other GPUs.
    ParameterWords written = ParameterWords::all();
    std::vector<KernelAccess> accesses;  // how it comes by the addresses that it uses
    // Where these lie, by each code that may run: null for one that does not show it. None where native code
    // is compiled from something else.
    std::vector<std::shared_ptr<const PtxBounds>> bounds;
};

class CodeImage {
  public:
    // What it will be asked for.
    struct Keep {
        bool addresses = false;
        bool layouts = false;
        std::span<const unsigned> gpus{};  // code as these run it (see find_cubins)
    };

    // Of code that cannot be seen.
    CodeImage() = default;
    // Copies what is needed of `image`; without `bytes` it is as long as it says itself.
    CodeImage(const void* image, std::optional<std::uint64_t> bytes, const Keep& keep);
    static CodeImage of_file(const char* path, const Keep& keep);

    // Null where the code does not tell, or where the image has several codes that differ: which of them runs
    // only the driver knows.
    const std::vector<Parameter>* layout_of(const std::string& kernel);
    KernelCode kernel(const std::string& name);

  private:
    void look();
    void add(CodeLayouts layouts);

    bool tells_addresses_ = false;
    bool tells_writes_ = false;
    bool layouts_in_ptx_ = false;
    std::vector<PackedCode> cubins_;
    std::vector<PackedCode> ptx_;
    // Of all that was packed, once it was looked at; nothing for kernels on which codes differ.
    std::unordered_map<std::string, std::optional<std::vector<Parameter>>> layouts_;
    std::vector<std::unique_ptr<PtxModule>> modules_;
};

}  // namespace lms::code
