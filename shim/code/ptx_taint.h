// Whether a kernel's arguments tell which memory it reaches, from its PTX.
//
// They do not if an address that it uses for global memory may be a value it has loaded from there. Values
// are followed through registers, local and shared memory and calls, without regard to the order of
// instructions, and what is not understood counts as hidden. A loaded value added to a pointer is an offset,
// and so is what is computed of one, unless it is an address as it is.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "shim/code/kernel_access.h"
#include "shim/code/ptx_bounds.h"

namespace lms::code {

// The PTX of one module. Not thread-safe. A kernel is looked at when it is first asked about.
class PtxModule {
  public:
    // Ends at the first NUL, if there is one.
    explicit PtxModule(std::string text);
    ~PtxModule();

    enum class Answer {
        Absent,    // it has no such kernel
        Complete,  // the arguments, and the module's constants, tell all addresses
        Incomplete,
    };
    Answer addresses_of(std::string_view kernel);
    // The words of its parameters that its writes may go to: all where it hides addresses, none where it
    // writes nothing or is absent.
    ParameterWords written_by(std::string_view kernel);
    // How it comes by the addresses it uses; none where it hides addresses or is absent. Valid as long as
    // this.
    std::span<const KernelAccess> accesses_of(std::string_view kernel);
    // Where these lie; null where the code does not show it.
    std::shared_ptr<const PtxBounds> bounds_of(std::string_view kernel);

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace lms::code
