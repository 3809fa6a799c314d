// What the shim exports under the driver's names.
#pragma once

#include "shim/device/driver_table.h"

namespace lms::entry {

// The shim's own function for a row: a hook of shim/entry/ or a trampoline to the driver or a retried row's
// wrapper.
void* export_address(device::Entry entry);

// The shim's own function for a row as a program is to get it: the hook or wrapper where there is one, else
// `real` itself, so that what is passed through costs nothing.
void* substitute(device::Entry entry, void* real);

constexpr device::Entry entry_of(const device::Row& row) {
    return static_cast<device::Entry>(&row - std::begin(device::kRows));
}

}  // namespace lms::entry
