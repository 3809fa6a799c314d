// Instructions on matrices that the lanes of a warp hold together.
#include <charconv>

#include "tools/simcuda/ptx/emit_line.h"

namespace simcuda::ptx {
namespace {

struct Element {
    std::string_view name;
    std::string_view c_name;
    unsigned bits;
};
constexpr Element kElements[] = {
    {"f16", "SC_F16", 16}, {"bf16", "SC_BF16", 16}, {"tf32", "SC_TF32", 32}, {"f32", "SC_F32", 32},
    {"f64", "SC_F64", 64}, {"e4m3", "SC_E4M3", 8},  {"e5m2", "SC_E5M2", 8},  {"u8", "SC_U8", 8},
    {"s8", "SC_S8", 8},    {"u4", "SC_U4", 4},      {"s4", "SC_S4", 4},      {"b1", "SC_B1", 1},
    {"s32", "SC_S32", 32},
};

// What may be multiplied, into what, in which shapes. mma takes one type, or one of two for each factor.
struct Product {
    std::string_view opcode;
    std::string_view factors;
    std::string_view results;
    std::string_view shapes;
};
constexpr Product kProducts[] = {
    {"mma", "f16", "f16 f32", "m8n8k4 m16n8k8 m16n8k16"},
    {"mma", "bf16", "f32", "m16n8k8 m16n8k16"},
    {"mma", "tf32", "f32", "m16n8k4 m16n8k8"},
    {"mma", "f64", "f64", "m8n8k4 m16n8k4 m16n8k8 m16n8k16"},
    {"mma", "e4m3 e5m2", "f16 f32", "m16n8k16 m16n8k32"},
    {"mma", "u8 s8", "s32", "m8n8k16 m16n8k16 m16n8k32"},
    {"mma", "u4 s4", "s32", "m8n8k32 m16n8k32 m16n8k64"},
    {"mma", "b1", "s32", "m8n8k128 m16n8k128 m16n8k256"},
    {"wmma", "f16", "f16 f32", "m16n16k16 m8n32k16 m32n8k16"},
    {"wmma", "bf16", "f32", "m16n16k16 m8n32k16 m32n8k16"},
    {"wmma", "tf32", "f32", "m16n16k8"},
    {"wmma", "f64", "f64", "m8n8k4"},
    {"wmma", "u8 s8", "s32", "m16n16k16 m8n32k16 m32n8k16"},
    {"wmma", "u4 s4", "s32", "m8n8k32"},
    {"wmma", "b1", "s32", "m8n8k128"},
};

bool among(std::string_view words, std::string_view word) {
    return (" " + std::string(words) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

// The parts of the opcode that say what is multiplied, in order.
struct Spelling {
    std::string_view shape;
    unsigned m = 0, n = 0, k = 0;
    std::vector<const Element*> elements;
    std::vector<bool> by_column;
};

Spelling spell(std::string_view text) {
    Spelling result;
    for (std::string_view rest = text; !rest.empty();) {
        const std::string_view part = rest.substr(0, rest.find('.'));
        rest.remove_prefix(std::min(part.size() + 1, rest.size()));
        if (part == "row" || part == "col") result.by_column.push_back(part == "col");
        for (const Element& element : kElements)
            if (element.name == part) result.elements.push_back(&element);
        if (part.size() < 6 || part[0] != 'm' || part.find('k') == std::string_view::npos) continue;
        result.shape = part;
        const char* const end = part.data() + part.size();
        const auto number = [end](const char* from, unsigned& value) {
            return std::from_chars(from + 1, end, value).ptr;
        };
        number(number(number(part.data(), result.m), result.n), result.k);
    }
    return result;
}

const Product* find_product(std::string_view opcode, const Spelling& what, const Element& factor) {
    for (const Product& product : kProducts)
        if (product.opcode == opcode && among(product.shapes, what.shape) &&
            among(product.factors, factor.name))
            return &product;
    return nullptr;
}

// 32-bit registers of a lane, or 64-bit ones of f64. wmma has room for elements of f16 twice and more.
unsigned registers_of(bool wmma, const Spelling& what, bool accumulator, const Element& element,
                      unsigned elements) {
    if (wmma && element.bits == 16 && element.name == "f16") return accumulator ? 4 : 8;
    const unsigned matrices = !wmma && what.shape == "m8n8k4" && element.bits != 64 ? 4 : 1;
    return matrices * elements / 32 * element.bits / (element.bits == 64 ? 64 : 32);
}

constexpr unsigned bytes_for(const Element& element) {
    return element.bits == 64 ? 8 : 4;
}

}  // namespace

void FunctionEmitter::open_part(std::string_view work) {
    out_.waits = true;
    out_.has_matrices = true;
    line("    {{ struct sc_part part; part.work = {};", work);
}

void FunctionEmitter::meet() {
    out_.needs_stack = true;  // that is where the others look for its part
    line("    {};", wait_in_warp("TOGETHER", "-1", "(u64)&part"));
}

// Registers to and from the words of a matrix, as the bits they are.
void FunctionEmitter::bring(std::string_view matrix, const Operand& vector, unsigned bytes) {
    for (std::size_t i = 0; i < vector.parts.size(); ++i)
        line("    (({}*)part.{})[{}] = {};", c_type(bits_type(bytes)), matrix, i,
             read(vector.parts[i], bits_type(bytes)));
}

void FunctionEmitter::take(std::string_view matrix, const Operand& vector, unsigned bytes) {
    for (std::size_t i = 0; i < vector.parts.size(); ++i)
        write(vector.parts[i], bits_type(bytes),
              fmt::format("(({}*)part.{})[{}]", c_type(bits_type(bytes)), matrix, i));
}

// mma.sync.aligned.shape.alayout.blayout.dtype.atype.btype.ctype d, a, b, c. Of wmma.mma with factors of f16
// only the types of d and c are named.
void FunctionEmitter::emit_multiply(const Instruction& instruction) {
    const bool wmma = instruction.opcode == "wmma";
    Spelling what = spell(instruction.text);
    if (wmma && what.elements.size() == 2) what.elements.insert(what.elements.begin() + 1, 2, &kElements[0]);
    expect_operands(instruction, 4, 4);
    if (what.elements.size() != 4 || what.by_column.size() != 2 || !instruction.has("sync"))
        refuse(instruction);
    const Element *const d = what.elements[0], *const a = what.elements[1], *const b = what.elements[2],
                         *const c = what.elements[3];
    const Product* const product = find_product(instruction.opcode, what, *a);
    if (!product || !among(product->factors, b->name) || !among(product->results, c->name) ||
        !among(product->results, d->name))
        refuse(instruction);
    const bool quads = !wmma && what.shape == "m8n8k4" && a->bits == 16;
    if (!wmma && !quads && (what.by_column[0] || !what.by_column[1])) refuse(instruction);
    std::string flags = "0";
    if (what.by_column[0]) flags += " | SC_A_BY_COLUMN";
    if (!what.by_column[1]) flags += " | SC_B_BY_ROW";
    if (instruction.has("satfinite")) flags += " | SC_SATURATES";
    if (instruction.has("xor")) flags += " | SC_XOR";
    for (const auto& [name, flag] : {std::pair{"rz", "SC_RZ"}, {"rm", "SC_RM"}, {"rp", "SC_RP"}})
        if (instruction.has(name)) flags += fmt::format(" | {}", flag);
    const struct {
        const Element& element;
        unsigned elements;
        bool accumulator;
    } matrices[] = {{*d, what.m * what.n, true},
                    {*a, what.m * what.k, false},
                    {*b, what.k * what.n, false},
                    {*c, what.m * what.n, true}};
    for (std::size_t i = 0; i < 4; ++i)
        if (instruction.operands[i].parts.size() !=
            registers_of(wmma, what, matrices[i].accumulator, matrices[i].element, matrices[i].elements))
            refuse(instruction);
    open_part("sc_multiply");
    line("    static const struct sc_product product = {{{}, {}, {}, {}, {}, {}, {}, {}, {}}};", what.m,
         what.n, what.k,
         wmma    ? "SC_WMMA"
         : quads ? "SC_QUADS"
                 : "SC_MMA",
         a->c_name, b->c_name, c->c_name, d->c_name, flags);
    line("    part.what = &product;");
    bring("a", instruction.operands[1], bytes_for(*a));
    bring("b", instruction.operands[2], bytes_for(*b));
    bring("c", instruction.operands[3], bytes_for(*c));
    meet();
    take("d", instruction.operands[0], bytes_for(*d));
    line("    }}");
}

// wmma.load.{a b c}.sync.aligned.layout.shape{.space}.type r, [p] {, stride}; wmma.store.d [p], r {, stride}
void FunctionEmitter::emit_wmma(const Instruction& instruction) {
    if (instruction.has("mma")) return emit_multiply(instruction);
    const bool stores = instruction.has("store");
    const Spelling what = spell(instruction.text);
    expect_operands(instruction, 2, 3);
    if (what.elements.size() != 1 || what.by_column.size() != 1 || !instruction.has("sync"))
        refuse(instruction);
    const Element& element = *what.elements[0];
    const bool is_a = instruction.has("a"), is_b = instruction.has("b");
    const bool accumulator = !is_a && !is_b;
    bool known = false;
    for (const Product& product : kProducts)
        known |= product.opcode == "wmma" && among(product.shapes, what.shape) &&
                 among(accumulator ? product.results : product.factors, element.name);
    // Of B a lane has parts of columns: to it they are rows.
    const unsigned rows = is_b ? what.n : what.m;
    const unsigned columns = accumulator ? what.n : what.k;
    const bool by_column = what.by_column[0] != is_b;
    const Operand& vector = instruction.operands[stores ? 1 : 0];
    const Operand& memory = instruction.operands[stores ? 0 : 1];
    const unsigned registers = registers_of(true, what, accumulator, element, rows * columns);
    if (!known || vector.parts.size() != registers) refuse(instruction);
    Space space = space_of(instruction);
    const std::string address = host_address(memory, space);
    const std::string stride = instruction.operands.size() == 3 ? read(instruction.operands[2], Type::U32)
                                                                : std::to_string(by_column ? rows : columns);
    open_part("sc_move_fragment");
    line("    static const struct sc_fragment fragment = {{{}, {}, {}, {}, {:d}, {:d}}};", rows, columns,
         registers * bytes_for(element) / 4, element.c_name, by_column, stores);
    line("    part.what = &fragment; part.address = {}; part.stride = {};", address, stride);
    if (stores) bring("a", vector, bytes_for(element));
    meet();
    if (!stores) take("a", vector, bytes_for(element));
    line("    }}");
}

// ldmatrix.sync.aligned.m8n8.{x1 x2 x4}{.trans}{.shared}.b16 r, [p]; stmatrix [p], r
void FunctionEmitter::emit_rows(const Instruction& instruction) {
    allow(instruction, "sync aligned m8n8 x1 x2 x4 trans shared shared::cta");
    expect_operands(instruction, 2, 2);
    const bool stores = instruction.opcode == "stmatrix";
    const unsigned count = instruction.has("x4") ? 4 : instruction.has("x2") ? 2 : 1;
    const Operand& vector = instruction.operands[stores ? 1 : 0];
    if (instruction.type() != Type::B16 || !instruction.has("m8n8") || vector.parts.size() != count)
        refuse(instruction);
    Space space = space_of(instruction);
    const std::string address = host_address(instruction.operands[stores ? 0 : 1], space);
    open_part("sc_exchange_rows");
    line("    static const struct sc_fragment fragment = {{8, 8, {}, SC_F16, {:d}, {:d}}};", count,
         instruction.has("trans"), stores);
    line("    part.what = &fragment; part.address = {};", address);
    if (stores) bring("a", vector, 4);
    meet();
    if (!stores) take("a", vector, 4);
    line("    }}");
}

// movmatrix.sync.aligned.m8n8.trans.b16 d, a
void FunctionEmitter::emit_transpose(const Instruction& instruction) {
    allow(instruction, "sync aligned m8n8 trans");
    expect_operands(instruction, 2, 2);
    if (instruction.type() != Type::B16) refuse(instruction);
    open_part("sc_transpose");
    line("    part.a[0] = {};", read(instruction.operands[1], Type::B32));
    meet();
    write(instruction.operands[0], Type::B32, "part.d[0]");
    line("    }}");
}

}  // namespace simcuda::ptx
