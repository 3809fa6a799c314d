// Program::translate: parse, emit, and divide the module into units that are compiled when first needed.
#include "tools/simcuda/ptx/program.h"

#include <algorithm>
#include <cstring>

#include "tools/simcuda/ptx/native.h"
#include "tools/simcuda/ptx/parser.h"
#include "tools/simcuda/ptx/unit_text.h"

namespace simcuda::ptx {
namespace {

// What a thread's stack holds beyond the frames of translated functions: libm and the executor.
constexpr std::uint64_t kStackReserve = 16 << 10;
constexpr std::uint64_t kRecursiveStack = 256 << 10;

class TranslatedProgram final : public Program {
  public:
    explicit TranslatedProgram(std::string_view source) : module_(Parser::parse(source)) {
        number_variables();
        std::uint64_t statements = 0;
        for (const auto& function : module_->functions) {
            if (!function->defined) continue;
            choose_float_registers(*function);
            emitted_[function.get()] = FunctionEmitter(*module_, *function, statements).emit();
            statements += function->body.size();
        }
        make_kernels();
        make_variables();
        emitted_.clear();
        module_.reset();
    }

    const std::vector<Kernel>& kernels() const override { return kernels_; }
    const std::vector<Variable>& variables() const override { return variables_; }

  private:
    static bool in_memory(const Declaration& variable) {
        return variable.space != Space::Shared && !variable.external && !variable.opaque;
    }

    void number_variables() {
        std::uint64_t index = 0;
        for (Declaration& variable : module_->variables)
            if (in_memory(variable)) variable.offset = index++;
    }

    // One unit per kernel, so that a program with many compiles only those it launches; but one for all that
    // use the addresses of functions, for these must agree.
    void make_kernels() {
        std::vector<const Function*> entries;
        std::vector<const Function*> together;
        for (const auto& function : module_->functions) {
            if (!function->entry || !function->defined) continue;
            entries.push_back(function.get());
            // A kernel that cannot be translated must not spoil the unit it would share.
            const Reach reach = reach_of(*module_, emitted_, {function.get()});
            if (reach.uses_function_addresses && reach.unsupported.empty())
                together.push_back(function.get());
        }
        if (!together.empty()) {
            const Reach reach = reach_of(*module_, emitted_, together);
            common_ = std::make_shared<Unit>(unit_text(*module_, emitted_, reach, together, true));
            common_waits_ = reach.waits;
            common_shared_bytes_ = lay_out(reach).static_bytes;
        }
        natives_.reserve(entries.size());
        for (const Function* entry : entries) make_kernel(*entry);
    }

    void make_kernel(const Function& entry) {
        const Reach reach = reach_of(*module_, emitted_, {&entry});
        NativeKernel& native = natives_.emplace_back();
        const bool shares = reach.uses_function_addresses && common_;
        native.mode =
            reach.waits || (shares && common_waits_) ? NativeKernel::Mode::Fibers : NativeKernel::Mode::Loop;
        if (reach.waits && !reach.needs_stacks && !shares && reach.unsupported.empty()) {
            native.mode = NativeKernel::Mode::Steps;
            emitted_[&entry] = FunctionEmitter(*module_, entry, 0).emit_steps();
            native.kept_bytes = emitted_[&entry].kept_bytes;
        }
        native.stack_bytes = kStackReserve + 2 * reach.frame_bytes + (reach.recursive ? kRecursiveStack : 0) +
                             native.kept_bytes;
        native.symbol = entry_symbol(entry);
        Kernel& kernel = kernels_.emplace_back();
        kernel.name = entry.name;
        for (const Declaration* parameter : entry.parameters) {
            kernel.parameters.push_back({static_cast<std::uint32_t>(parameter->offset),
                                         static_cast<std::uint32_t>(parameter->bytes)});
            kernel.parameter_bytes = static_cast<std::uint32_t>(parameter->offset + parameter->bytes);
        }
        kernel.static_shared_bytes =
            static_cast<std::uint32_t>(shares ? common_shared_bytes_ : lay_out(reach).static_bytes);
        kernel.local_bytes = static_cast<std::uint32_t>(reach.local_bytes);
        kernel.max_threads = entry.max_threads;
        std::copy_n(entry.cluster, 3, kernel.cluster);
        kernel.max_cluster = entry.max_cluster;
        kernel.explicit_cluster = entry.explicit_cluster;
        kernel.prints = reach.prints;
        kernel.uses_heap = reach.uses_heap;
        kernel.lets_dependents_go = reach.lets_dependents_go;
        kernel.waits_for_grids = reach.waits_for_grids;
        kernel.unsupported = reach.unsupported;
        if (!kernel.unsupported.empty()) return;
        native.unit =
            shares ? common_ : std::make_shared<Unit>(unit_text(*module_, emitted_, reach, {&entry}, false));
        kernel.code = &native;
    }

    void make_variables() {
        for (const Declaration& declaration : module_->variables) {
            if (!in_memory(declaration)) continue;
            Variable& variable = variables_.emplace_back();
            variable.name = declaration.name;
            variable.space =
                declaration.space == Space::Const ? Variable::Space::Constant : Variable::Space::Global;
            variable.bytes = declaration.bytes;
            variable.alignment = declaration.alignment;
            variable.managed = declaration.managed;
            variable.initial = declaration.initial;
            for (const Relocation& relocation : declaration.relocations)
                if (!place_function(variable, relocation)) variable.relocations.push_back(relocation);
        }
    }

    // Functions have the address of their native code, known now.
    bool place_function(Variable& variable, const Relocation& relocation) {
        const Function* function = module_->find_function(relocation.symbol);
        if (!function) return false;
        std::string error;
        if (common_)
            if (void* const* address = static_cast<void* const*>(
                    common_->symbol("a_" + FunctionEmitter::c_name(*function), error)))
                std::memcpy(variable.initial.data() + relocation.offset, address, sizeof *address);
        return true;
    }

    std::unique_ptr<Module> module_;  // these two only while the program is being made
    EmittedFunctions emitted_;
    std::shared_ptr<Unit> common_;  // for modules that take the addresses of functions
    bool common_waits_ = false;
    std::uint64_t common_shared_bytes_ = 0;
    std::vector<NativeKernel> natives_;  // reserved once: kernels point into it
    std::vector<Kernel> kernels_;
    std::vector<Variable> variables_;
};

}  // namespace

std::shared_ptr<const Program> Program::translate(std::string_view ptx, std::string& error) {
    try {
        return std::make_shared<TranslatedProgram>(ptx);
    } catch (const std::exception& failure) {
        error = failure.what();
        return nullptr;
    }
}

}  // namespace simcuda::ptx
