// Texture fetches and surface accesses, by the handles of objects (PTX's unified mode).
#include <algorithm>
#include <array>

#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {
namespace {

struct Geometry {
    std::string_view name;
    std::size_t coordinates;  // of the image itself; further ones of a padded vector are ignored
    std::string_view access;
    bool layered = false;  // the first element is the layer
};
constexpr Geometry kGeometries[] = {
    {"1d", 1, "1"},
    {"2d", 2, "2"},
    {"3d", 3, "3"},
    {"a1d", 1, "1 | SC_LAYERED", true},
    {"a2d", 2, "2 | SC_LAYERED", true},
    {"cube", 3, "3 | SC_CUBE"},
    {"acube", 3, "3 | SC_CUBE | SC_LAYERED", true},
};

const Geometry* geometry_of(const Instruction& instruction) {
    for (const Geometry& geometry : kGeometries)
        if (instruction.has(geometry.name)) return &geometry;
    return nullptr;
}

// The elements of a vector, or the one a lone register is.
std::vector<Operand> elements_of(const Operand& operand) {
    return operand.kind == Operand::Kind::Vector ? operand.parts : std::vector<Operand>{operand};
}

}  // namespace

std::string FunctionEmitter::open_image_access(const Instruction& instruction, const Operand& address,
                                               bool integers, std::string& handle) {
    const Geometry* geometry = geometry_of(instruction);
    // A reference by name, or a sampler of its own, is of the time before objects.
    if (!geometry || address.kind != Operand::Kind::Address || address.reg < 0 || address.parts.size() != 1)
        refuse(instruction);
    const std::vector<Operand> given = elements_of(address.parts[0]);
    const std::size_t first = geometry->layered ? 1 : 0;
    if (given.size() < first + geometry->coordinates) refuse(instruction);
    std::array<std::string, 4> at = {"0", "0", "0", "0"};
    for (std::size_t i = 0; i < geometry->coordinates; ++i) {
        const std::string value = read(given[first + i], integers ? Type::B32 : Type::F32);
        at[i] = integers ? value : fmt::format("sc_u32({})", value);
    }
    if (geometry->layered) at[3] = read(given[0], Type::U32);
    line("    {{ const u32 at[4] = {{{}}};", fmt::join(at, ", "));
    handle = "(u64)" + bits_of(address);
    return std::string(geometry->access);
}

// What says which level of the image is read: a number, or two vectors of as many elements as there are
// coordinates.
std::string FunctionEmitter::level_arguments(const Instruction& instruction, bool integers) {
    const auto& operands = instruction.operands;
    if (instruction.has("level"))
        return fmt::format("(float){}", read(operands[2], integers ? Type::S32 : Type::F32));
    if (!instruction.has("grad")) return "0";
    // Of a direction it would have to be told how the place on a face changes.
    const Geometry* geometry = geometry_of(instruction);
    if (!geometry || instruction.has("cube") || instruction.has("acube")) refuse(instruction);
    std::string all;
    for (std::size_t i = 2; i < 4; ++i) {
        const std::vector<Operand> steps = elements_of(operands[i]);
        if (steps.size() < geometry->coordinates) refuse(instruction);
        for (std::size_t d = 0; d < 3; ++d)
            all += (d < geometry->coordinates ? read(steps[d], Type::F32) : "0") + ", ";
    }
    return all;
}

// tex{.base .level .grad}.geometry.v4.dtype.ctype {d0, d1, d2, d3}, [handle, {coordinates}] {, level} {,
// dPdx, dPdy}
void FunctionEmitter::emit_texture(const Instruction& instruction) {
    allow(instruction, "1d 2d 3d a1d a2d cube acube v4 base level grad");
    const std::size_t operands = instruction.has("level") ? 3 : instruction.has("grad") ? 4 : 2;
    expect_operands(instruction, operands, operands);
    const Operand& target = instruction.operands[0];
    if (instruction.types.size() != 2 || target.kind != Operand::Kind::Vector || target.parts.size() != 4 ||
        !contains(types_of(Type::U32, Type::S32, Type::F32), instruction.types[0]) ||
        !contains(types_of(Type::S32, Type::F32), instruction.types[1]))
        refuse(instruction);
    const bool integers = instruction.types[1] == Type::S32;
    std::string handle;
    const std::string access = open_image_access(instruction, instruction.operands[1], integers, handle);
    line("    const float level[] = {{{}}};", level_arguments(instruction, integers));
    line("    u32 texel[4]; t->block->runtime->fetch(t, {}{}{}, {}, at, level, texel);", access,
         integers ? " | SC_INTEGER" : "", instruction.has("grad") ? " | SC_GRADIENTS" : "", handle);
    for (std::size_t i = 0; i < 4; ++i) write(target.parts[i], Type::B32, fmt::format("texel[{}]", i));
    line("    }}");
}

// tld4.component.2d.v4.dtype.f32 {d0, d1, d2, d3}, [handle, {x, y}]
void FunctionEmitter::emit_gather(const Instruction& instruction) {
    allow(instruction, "r g b a 2d v4");
    expect_operands(instruction, 2, 2);
    const Operand& target = instruction.operands[0];
    if (instruction.types.size() != 2 || instruction.types[1] != Type::F32 ||
        target.kind != Operand::Kind::Vector || target.parts.size() != 4 ||
        !contains(types_of(Type::U32, Type::S32, Type::F32), instruction.types[0]))
        refuse(instruction);
    const int channel = instruction.has("r") ? 0 : instruction.has("g") ? 1 : instruction.has("b") ? 2 : 3;
    std::string handle;
    open_image_access(instruction, instruction.operands[1], false, handle);
    line("    u32 texels[4]; t->block->runtime->gather(t, {}, {}, at, texels);", channel, handle);
    for (std::size_t i = 0; i < 4; ++i) write(target.parts[i], Type::B32, fmt::format("texels[{}]", i));
    line("    }}");
}

// suld.b.geometry.vec.dtype.clamp d, [handle, {coordinates}]; sust.b the other way round. x counts bytes.
void FunctionEmitter::emit_surface(const Instruction& instruction) {
    allow(instruction, "b 1d 2d 3d a1d a2d v2 v4 trap clamp zero ca cg cs cv wb wt");
    expect_operands(instruction, 2, 2);
    const bool load = instruction.opcode == "suld";
    const Type type = instruction.type();
    const std::vector<Operand> elements = elements_of(instruction.operands[load ? 0 : 1]);
    if (!instruction.has("b") || instruction.types.size() != 1 || !contains(kBits, type) ||
        elements.size() != (instruction.has("v4")   ? 4
                            : instruction.has("v2") ? 2
                                                    : 1))
        refuse(instruction);
    std::string handle;
    std::string access = open_image_access(instruction, instruction.operands[load ? 1 : 0], true, handle);
    if (instruction.has("clamp")) access += " | SC_CLAMP";
    if (instruction.has("zero")) access += " | SC_ZERO";
    line("    {} part[{}] = {{0}};", c_type(type), elements.size());
    line("    const u64 place = t->block->runtime->surface(t, {}, {}, at, sizeof part);", access, handle);
    for (std::size_t i = 0; !load && i < elements.size(); ++i)
        line("    part[{}] = {};", i, observed(elements[i], type));
    line("    if (place) __builtin_memcpy({}, sizeof part);",
         load ? "part, (const void*)place" : "(void*)place, part");
    for (std::size_t i = 0; load && i < elements.size(); ++i)
        write(elements[i], type, fmt::format("part[{}]", i));
    line("    }}");
}

// txq.width.b32 d, [handle]
void FunctionEmitter::emit_image_query(const Instruction& instruction) {
    static constexpr std::pair<std::string_view, std::string_view> kQueries[] = {
        {"width", "SC_WIDTH"},
        {"height", "SC_HEIGHT"},
        {"depth", "SC_DEPTH"},
        {"array_size", "SC_DEPTH"},
        {"normalized_coords", "SC_NORMALIZED"},
    };
    expect_operands(instruction, 2, 2);
    const Operand& address = instruction.operands[1];
    if (address.kind != Operand::Kind::Address || address.reg < 0 || instruction.modifiers.size() != 1)
        refuse(instruction);
    for (const auto& [name, what] : kQueries) {
        if (!instruction.has(name)) continue;
        return write(instruction.operands[0], Type::B32,
                     fmt::format("t->block->runtime->query(t, {}, (u64){})", what, bits_of(address)));
    }
    refuse(instruction);
}

}  // namespace simcuda::ptx
