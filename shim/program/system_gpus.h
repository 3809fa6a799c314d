// The system's GPUs as the kernel lists them, for who may not load the driver.
#pragma once

namespace lms::program {

// Whether one of them is of a kind that has no memory pools: a virtual GPU, or one older than Pascal. Of what
// the kernel does not list nothing is known, and it counts as having them. `root` is what its file systems
// are below. May throw std::bad_alloc.
bool may_lack_pools(const char* root = "");

}  // namespace lms::program
