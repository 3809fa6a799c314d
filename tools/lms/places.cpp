#include "tools/lms/places.h"

#include <system_error>

namespace lms::tool {
namespace {

namespace fs = std::filesystem;

fs::path find(const fs::path& name) {
    std::error_code problem;
    const fs::path own_folder = fs::read_symlink("/proc/self/exe", problem).parent_path();
    for (const fs::path& folder : {own_folder, own_folder.parent_path() / "lib" / "lmsshim"}) {
        if (fs::exists(folder / name, problem)) return folder / name;
    }
    return {};
}

}  // namespace

fs::path find_shim() {
    return find("liblmsshim.so");
}

fs::path find_simulated_gpu() {
    return find(fs::path("sim") / "libcuda.so.1").parent_path();
}

fs::path find_demo() {
    return find("demo.sh");
}

}  // namespace lms::tool
