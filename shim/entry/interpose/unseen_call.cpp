#include "shim/entry/interpose/unseen_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shim/access/graphs.h"
#include "shim/device/argument_registers.h"
#include "shim/device/driver_table.h"
#include "shim/entry/context_check.h"
#include "shim/entry/guard.h"
#include "shim/session/submit.h"
#include "shim/util/log.h"
#include "shim/util/mutex.h"
#include "shim/util/readable.h"

// A trampoline pushes its number and goes on to lms_unseen_call, which saves every register that may carry an
// argument and has lms_make_unseen_call() make the call. That comes back to lms_forward_call with the
// registers and a copy of the stack's arguments. Trampolines of rows (exports.cpp) push the row, those for
// other names 0x10000 and more.
asm(R"(
        .text
        .globl  lms_unseen_call
        .hidden lms_unseen_call
        .type   lms_unseen_call, @function
lms_unseen_call:
        .cfi_startproc
        .cfi_adjust_cfa_offset 8
        subq    $192, %rsp
        .cfi_adjust_cfa_offset 192
)" LMS_SAVE_ARGUMENTS R"(
        movl    192(%rsp), %edi
        movq    %rsp, %rsi
        leaq    208(%rsp), %rdx
        call    lms_make_unseen_call
        addq    $200, %rsp
        .cfi_adjust_cfa_offset -200
        ret
        .cfi_endproc
        .size   lms_unseen_call, . - lms_unseen_call

        .globl  lms_forward_call
        .hidden lms_forward_call
        .type   lms_forward_call, @function
lms_forward_call:
        .cfi_startproc
        pushq   %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        movq    %rdi, %r11
        movq    %rsi, %r10
        movq    %rdx, %rsi
        subq    %rcx, %rsp
        movq    %rsp, %rdi
        rep     movsb
)" LMS_LOAD_ARGUMENTS R"(
        call    *%r11
        leave
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   lms_forward_call, . - lms_forward_call

        .balign 16
lms_unseen_trampolines:
        .set    lms_unseen_number, 0x10000
        .rept   512
        .balign 16
        pushq   $lms_unseen_number
        jmp     lms_unseen_call
        .set    lms_unseen_number, lms_unseen_number + 1
        .endr
)");

namespace lms::entry {
namespace {

constexpr std::size_t kTrampolines = 512;
constexpr std::size_t kTrampolineBytes = 16;
constexpr unsigned kFirstNumber = 0x10000;
constexpr std::size_t kStackBytes = 256;  // a multiple of 16

// The function that a trampoline leads to.
struct Target {
    std::atomic<void*> function{nullptr};
    std::string name;
    std::atomic<bool> named{false};
};

// Exported by NVIDIA's drivers, declared nowhere and found by no cuGetProcAddress; older than any that is
// unknown.
constexpr std::array<std::string_view, 3> kOldAndUndocumented{"cuEGLApiInit", "cuMemGetAttribute",
                                                              "cuMemGetAttribute_v2"};

std::array<Target, kTrampolines>& targets() {
    static auto& all = *new std::array<Target, kTrampolines>;
    return all;
}

void name_once(std::atomic<bool>& named, std::string_view name) {
    if (!log::once(named)) return;
    log::warn(
        "{} is not known to this shim: its work may reach any memory, so nothing moves until it is over",
        name);
}

}  // namespace
}  // namespace lms::entry

extern "C" {
__attribute__((visibility("hidden"))) extern const std::byte lms_unseen_trampolines[];
// Calls `function` with these registers, and `bytes` of arguments on the stack, a multiple of 16.
__attribute__((visibility("hidden"))) CUresult lms_forward_call(void* function, const void* registers,
                                                                const void* stack, std::size_t bytes);
__attribute__((visibility("hidden"), used)) CUresult lms_make_unseen_call(unsigned number,
                                                                          const void* registers,
                                                                          const void* stack);
}

CUresult lms_make_unseen_call(unsigned number, const void* registers, const void* stack) {
    using namespace lms;
    using namespace lms::entry;
    void* function = nullptr;
    if (number < kFirstNumber) {
        const device::Row& row = device::kRows[number];
        function = reinterpret_cast<void* const*>(&device::driver())[number];
        static constinit std::array<std::atomic<bool>, device::kRowCount> named{};
        name_once(named[number], row.symbol);
    } else {
        Target& target = targets()[number - kFirstNumber];
        function = target.function.load(std::memory_order_acquire);
        name_once(target.named, target.name);
    }
    // What it has on the stack is not known, nor whether so much is there.
    alignas(16) std::array<std::byte, kStackBytes> arguments{};
    util::copy_what_is_readable(arguments.data(), stack, arguments.size());
    const auto call = [&] {
        return lms_forward_call(function, registers, arguments.data(), arguments.size());
    };
    return guarded([&] {
        // In a host function the driver refuses it, and what it would wait for may come behind that function.
        if (refusal() == CUDA_ERROR_NOT_PERMITTED) return call();
        const CUresult status = session::submit_unseen(call);
        access::note_unseen_call();
        return status;
    });
}

namespace lms::entry {

void* trampoline_to(void* function, std::string_view symbol, int version) noexcept {
    if (std::ranges::find(kOldAndUndocumented, symbol) != kOldAndUndocumented.end()) return function;
    try {
        static util::Mutex mutex{util::LockOrder::Table};
        const util::Lock lock(mutex);
        for (std::size_t i = 0; i < kTrampolines; ++i) {
            Target& target = targets()[i];
            void* const known = target.function.load(std::memory_order_relaxed);
            if (known != nullptr && known != function) continue;
            if (known == nullptr) {
                target.name = symbol;
                if (version != 0)
                    target.name += fmt::format(" of CUDA {}.{}", version / 1000, version % 1000 / 10);
                target.function.store(function, std::memory_order_release);
            }
            return const_cast<std::byte*>(lms_unseen_trampolines + i * kTrampolineBytes);
        }
        log::warn(
            "{} goes to the driver past the shim: memory that it names may be on the host; use a newer shim",
            symbol);
    } catch (...) {
        // Out of host memory.
    }
    return function;
}

}  // namespace lms::entry
