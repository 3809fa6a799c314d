// Translates one PTX function into one C function.
//
// Registers become C locals, labels become gotos. Addresses are integers: global, constant and generic ones
// are device addresses (the other side of host addresses, for shared and local memory too when generic),
// shared ones count from sc_block::shared, local and parameter ones are host addresses. In shared::cluster
// the upper 8 bits say whose: 0 the block's own, else the rank and one more.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tools/simcuda/ptx/ast.h"
#include "tools/simcuda/ptx/instruction_set.h"
#include "tools/simcuda/ptx/joins.h"
#include "tools/simcuda/ptx/liveness.h"
#include "tools/simcuda/ptx/registers.h"

namespace simcuda::ptx {

struct EmittedFunction {
    std::string unsupported;  // the first instruction that cannot be translated; then the rest is void
    std::string text;
    std::set<const Function*> callees;    // direct ones
    std::set<const Declaration*> shared;  // shared variables named in it
    std::uint64_t local_bytes = 0;        // declared local variables
    std::uint64_t frame_bytes = 0;        // at most what a C frame of it takes
    bool waits = false;                   // may wait for other threads
    bool needs_stack = false;  // in ways, or places, that only a thread with a stack of its own can
    bool prints = false;
    bool uses_heap = false;
    bool lets_dependents_go = false;
    bool waits_for_grids = false;
    bool has_matrices = false;  // that the lanes of a warp hold together
    bool exits = false;         // ends its thread by `exit`
    bool calls_indirectly = false;
    bool takes_function_address = false;
    // Of a kernel in steps: the places it may stop at, and what its threads keep there, all of them together.
    unsigned stops = 0;
    std::uint64_t kept_bytes = 0;
};

class FunctionEmitter {
  public:
    // `first_site` is how many statements the functions before this one have: sites of a module are numbered.
    FunctionEmitter(const Module& module, const Function& function, std::uint64_t first_site)
        : module_(module),
          function_(function),
          first_site_(first_site),
          computed_(computed_f32_registers(function)) {}
    EmittedFunction emit();
    // A kernel that needs no stack, so that a thread returns where it waits and goes on from there when it is
    // called again: sc_steps says how.
    EmittedFunction emit_steps();

    // The C name of a function and its head, "static void f_name(struct sc_thread* t, u64 p1)".
    static std::string c_name(const Function& function);
    static std::string c_head(const Function& function);

  private:
    struct Unsupported : std::runtime_error {
        using std::runtime_error::runtime_error;
    };
    using Handler = void (FunctionEmitter::*)(const Instruction&);
    static Handler find_handler(std::string_view opcode);

    // emitter.cpp
    void emit_body();
    void emit_prologue();
    std::string c_type_of(const Register& reg) const;
    void emit_statement(const Statement& statement);
    void emit_rule(const Rule& rule, const Instruction& instruction);
    void find_waiting_loops();
    void find_joins();
    bool runs_in_step() const;
    using Test = bool (*)(const Instruction&);
    using Verdicts = std::map<const Function*, bool>;
    bool reaches(const Instruction& instruction, Test test, Verdicts& verdicts);
    bool may_meet(const Instruction& instruction);
    void emit_site();
    // Where work is counted: an access to global memory.
    void emit_touch(Space space, const std::string& address, std::string_view bytes, bool write);
    void emit_join();
    template <typename... Args>
    void line(std::string_view format, const Args&... args);
    void expect_operands(const Instruction& instruction, std::size_t least, std::size_t most);
    // Refuses modifiers that are not in the space-separated list.
    void allow(const Instruction& instruction, std::string_view modifiers);
    [[noreturn]] void refuse(const Instruction& instruction);

    // operands.cpp: C expressions
    std::string read(const Operand& operand, Type type);
    std::string read_register(const Operand& operand, Type type);
    std::string read_name(const Operand& operand);
    std::string read_special(std::string_view name);
    std::string literal(const Operand& operand, Type type);
    void write(const Operand& operand, Type type, const std::string& value);
    // A variable's address in its own state space.
    std::string variable_address(const Declaration& variable);
    // The host address an instruction on `space` reaches by `operand`; narrows `space` if the operand tells
    // it.
    std::string host_address(const Operand& operand, Space& space);
    // The host address of `address` in a space of 32 bits, or its device address in constant space.
    std::string within(Space space, const std::string& address);
    std::string window(Space space);
    const Register& register_of(const Operand& operand) const;
    // The bits of a register, or a f32 value about to be looked at: a NaN that arithmetic made is the GPU's.
    std::string bits_of(const Operand& operand) const;
    std::string observed(const Operand& operand, Type type);

    // emit_memory.cpp
    void emit_load(const Instruction& instruction);
    void emit_store(const Instruction& instruction);
    void emit_atomic(const Instruction& instruction);
    void emit_move(const Instruction& instruction);
    void emit_move_vector(const Instruction& instruction, unsigned count);
    void emit_pack(const Instruction& instruction);
    void emit_unpack(const Instruction& instruction);
    void emit_convert_address(const Instruction& instruction);
    void emit_is_space(const Instruction& instruction);
    void emit_map_to_peer(const Instruction& instruction);
    void emit_peer_of(const Instruction& instruction);
    void emit_fence(const Instruction& instruction);
    void emit_hint(const Instruction& instruction);
    Space space_of(const Instruction& instruction);
    void emit_strong_vector(const Instruction& instruction, const std::string& address, unsigned count,
                            bool load);
    // The address that a write to `address` goes to.
    static std::string landing(Space space, const std::string& address, bool atomic);

    // emit_control.cpp
    void emit_branch(const Instruction& instruction);
    void emit_indexed_branch(const Instruction& instruction);
    void emit_call(const Instruction& instruction);
    void emit_return(const Instruction& instruction);
    void emit_exit(const Instruction& instruction);
    void emit_trap(const Instruction& instruction);
    void emit_grid_control(const Instruction& instruction);
    void emit_nothing(const Instruction& instruction);
    std::string label_name(const Operand& operand, const Instruction& instruction);

    // emit_device_runtime.cpp
    void emit_system_call(std::string_view name, const Operand* results, const Operand* arguments);

    // emit_compare.cpp
    void emit_set_predicate(const Instruction& instruction);
    void emit_set(const Instruction& instruction);
    void emit_packed_comparison(const Instruction& instruction);
    std::string comparison(const Instruction& instruction, Type type, const std::string& a,
                           const std::string& b);
    std::string combined(const Instruction& instruction, const std::string& value);
    void emit_convert(const Instruction& instruction);
    void emit_convert_to_tf32(const Instruction& instruction);
    void emit_convert_eighths(const Instruction& instruction);
    std::string convert(const Instruction& instruction, Type to, Type from, const std::string& value);

    // emit_threads.cpp
    // Waits for the lanes of the mask; returns the expression of what the lane gets.
    std::string wait_in_warp(std::string_view operation, const std::string& mask, const std::string& value,
                             const std::string& source = "0");
    // Waits for whom the warp comes together with; returns the expression of their mask.
    std::string wait_to_converge();
    void stop(std::string_view where);
    void emit_barrier(const Instruction& instruction);
    void emit_cluster_barrier(const Instruction& instruction);
    void emit_sleep(const Instruction& instruction);
    void emit_shuffle(const Instruction& instruction);
    void emit_vote(const Instruction& instruction);
    void emit_match(const Instruction& instruction);
    void emit_active_mask(const Instruction& instruction);
    void emit_reduce(const Instruction& instruction);
    void emit_elect(const Instruction& instruction);

    // emit_matrix.cpp
    void emit_multiply(const Instruction& instruction);
    void emit_wmma(const Instruction& instruction);
    void emit_rows(const Instruction& instruction);
    void emit_transpose(const Instruction& instruction);
    void open_part(std::string_view work);
    void meet();
    void bring(std::string_view matrix, const Operand& vector, unsigned bytes);
    void take(std::string_view matrix, const Operand& vector, unsigned bytes);

    // emit_async.cpp
    void emit_async_copy(const Instruction& instruction);
    void emit_async_store(const Instruction& instruction);
    void emit_memory_barrier(const Instruction& instruction);

    // emit_image.cpp: textures and surfaces
    void emit_texture(const Instruction& instruction);
    std::string level_arguments(const Instruction& instruction, bool integers);
    void emit_gather(const Instruction& instruction);
    void emit_surface(const Instruction& instruction);
    void emit_image_query(const Instruction& instruction);
    // Declares `at`, the coordinates of the address, and returns the sc_access; `handle` is what they count
    // from.
    std::string open_image_access(const Instruction& instruction, const Operand& address, bool integers,
                                  std::string& handle);

    const Module& module_;
    const Function& function_;
    const std::uint64_t first_site_;
    const std::vector<bool> computed_;
    EmittedFunction out_;
    const Instruction* current_ = nullptr;
    std::size_t position_ = 0;                // of the current statement in the body
    std::set<std::size_t> waiting_branches_;  // back-edges of loops that may wait for other threads
    Verdicts observing_functions_, meeting_functions_, storing_functions_;
    std::optional<bool> module_meets_;  // some function that may be called does
    std::optional<Liveness> liveness_;  // of a kernel in steps
    std::set<int> kept_;                // registers that are live where it stops
    Joins joins_;
    std::set<const Instruction*> in_step_;  // before these a warp comes together
    bool carries_ = false;
};

}  // namespace simcuda::ptx
