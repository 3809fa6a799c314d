// The policies built into the shim, one file each.
#pragma once

#include <lms/policy.h>

namespace lms::policy {

extern const lms_policy kLru;
extern const lms_policy kLms;
extern const lms_policy kNextUse;

}  // namespace lms::policy
