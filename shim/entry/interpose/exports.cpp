// The exports without a hook: a trampoline each, one indirect jump through the row's slot in the driver
// table, or for a retried row in the table of its wrappers (entry/oom_retry.cpp). Of rows of kind ANY it
// leads to unseen_call.cpp.
//
// A jump leaves registers and stack as the caller made them, so one kind of trampoline serves every
// signature. The first jump goes to the slot's stub, which loads the driver (shim/device/driver_table.cpp).

#include "shim/entry/interpose/exports.h"

// LMS_EXPORT_JUMP makes a trampoline; rows of every kind add to the list of exported addresses.
asm(R"(
        .set    lms_export_row, 0
        .macro  LMS_EXPORT_JUMP symbol table
        .text
        .globl  \symbol
        .type   \symbol, @function
        .balign 8
\symbol:
        jmp     *\table + 8 * lms_export_row(%rip)
        .size   \symbol, . - \symbol
        LMS_EXPORT_HOOK \symbol
        .endm

        .macro  LMS_EXPORT_PASS symbol
        LMS_EXPORT_JUMP \symbol lms_driver_slots
        .endm

        .macro  LMS_EXPORT_RETRY symbol
        LMS_EXPORT_JUMP \symbol lms_retried_calls
        .endm

        .macro  LMS_EXPORT_ANY symbol
        .text
        .globl  \symbol
        .type   \symbol, @function
        .balign 8
\symbol:
        pushq   $lms_export_row
        jmp     lms_unseen_call
        .size   \symbol, . - \symbol
        LMS_EXPORT_HOOK \symbol
        .endm

        .macro  LMS_EXPORT_HOOK symbol
        .section .data.rel.ro, "aw"
        .quad   \symbol
        .set    lms_export_row, lms_export_row + 1
        .endm

        .section .data.rel.ro, "aw"
        .balign 8
        .globl  lms_export_list
        .hidden lms_export_list
        .type   lms_export_list, @object
lms_export_list:
)"
#define LMS_ENTRY(symbol, base, introduced, stream, action) "LMS_EXPORT_" #action " " #symbol "\n"
#define LMS_LATER LMS_ENTRY
#include "shim/entry_points.def"
    R"(
        .section .data.rel.ro, "aw"
        .size   lms_export_list, . - lms_export_list
        .purgem LMS_EXPORT_JUMP
        .purgem LMS_EXPORT_PASS
        .purgem LMS_EXPORT_RETRY
        .purgem LMS_EXPORT_ANY
        .purgem LMS_EXPORT_HOOK
        .text
)");

extern "C" __attribute__((visibility("hidden"))) void* const lms_export_list[lms::device::kRowCount];

namespace lms::entry {

void* export_address(device::Entry entry) {
    return lms_export_list[static_cast<std::size_t>(entry)];
}

void* substitute(device::Entry entry, void* real) {
    return device::row(entry).action == device::Action::PASS ? real : export_address(entry);
}

}  // namespace lms::entry
