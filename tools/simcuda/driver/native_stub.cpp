#include "tools/simcuda/driver/native_stub.h"

#include <algorithm>
#include <cstddef>

#include "shim/code/nv_info.h"

namespace simcuda::driver {
namespace {

// With it the parameter comes to that place behind the one before it: no multiple of the true one lies
// between.
std::size_t alignment_of(std::size_t offset) {
    return std::min<std::size_t>(16, offset == 0 ? 16 : offset & (~offset + 1));
}

}  // namespace

std::string stub_of(std::string_view cubin) {
    std::string text;
    for (const auto& [name, parameters] : lms::code::layouts_in_cubin(cubin)) {
        text += ".visible .entry " + name + "(";
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            text += (i == 0 ? "" : ", ");
            text += ".param .align " + std::to_string(alignment_of(parameters[i].offset)) + " .b8 p" +
                    std::to_string(i) + "[" + std::to_string(parameters[i].bytes) + "]";
        }
        text += ")\n{\n\tret;\n}\n";
    }
    return text.empty() ? text : ".version 7.0\n.target sm_75\n.address_size 64\n" + text;
}

}  // namespace simcuda::driver
