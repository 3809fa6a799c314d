#include "shim/device/driver_table.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "shim/device/argument_registers.h"
#include "shim/device/loader.h"
#include "shim/device/locate.h"
#include "shim/util/log.h"
#include "shim/util/not_cancelled.h"
#include "shim/util/settings.h"
#include "shim/util/start_folder.h"

// The slots, in the order of the rows. Each starts at a stub of its own that loads the driver and goes on to
// the function asked for; loading replaces it. A slot whose function the driver lacks keeps its stub. The
// stubs push the row's index and save every register that may carry an argument; arguments on the stack stay
// where they are.
asm(R"(
        .text
        .type lms_lazy_call, @function
lms_lazy_call:
        .cfi_startproc
        .cfi_adjust_cfa_offset 8
        subq    $192, %rsp
        .cfi_adjust_cfa_offset 192
)" LMS_SAVE_ARGUMENTS R"(
        movl    192(%rsp), %edi
        call    lms_resolve_entry
        movq    %rax, %r11
        movq    %rsp, %r10
)" LMS_LOAD_ARGUMENTS R"(
        addq    $200, %rsp
        .cfi_adjust_cfa_offset -200
        jmp     *%r11
        .cfi_endproc
        .size lms_lazy_call, . - lms_lazy_call

        .set    lms_row, 0
        .macro  LMS_LAZY symbol
        .text
lms_lazy_\symbol:
        pushq   $lms_row
        jmp     lms_lazy_call
        .section .data.rel, "aw"
        .quad   lms_lazy_\symbol
        .set    lms_row, lms_row + 1
        .endm

        .section .data.rel, "aw"
        .balign 8
        .globl  lms_driver_slots
        .hidden lms_driver_slots
        .type   lms_driver_slots, @object
lms_driver_slots:
)"
#define LMS_ENTRY(symbol, base, introduced, stream, action) "LMS_LAZY " #symbol "\n"
#define LMS_LATER LMS_ENTRY
#include "shim/entry_points.def"
    R"(
        .section .data.rel, "aw"
        .size   lms_driver_slots, . - lms_driver_slots
        .purgem LMS_LAZY
        .text
)");

namespace lms::device {

extern "C" __attribute__((visibility("hidden"), used)) void* lms_resolve_entry(unsigned index);

namespace {

constexpr const char* kSoname = "libcuda.so.1";

struct Library {
    void* handle;
    std::string path;
};

// What loading found, complete before `driver_loaded` is set. Racing loaders agree on the library (the first
// to publish wins) and then write the same values.
std::atomic<const Library*> library{nullptr};
std::array<std::atomic<void*>, kRowCount> functions{};
thread_local bool loading = false;

std::atomic_ref<void*> slot(std::size_t index) {
    return std::atomic_ref(reinterpret_cast<void**>(&lms_driver_slots)[index]);
}

// A libcuda that defines dlsym itself is a copy of this shim or another interposer, not a driver: calls sent
// there would come back here.
bool is_interposer(void* candidate) {
    void* symbol = real_dlsym()(candidate, "dlsym");
    dlerror();
    return symbol != nullptr && library_of(symbol) == candidate;
}

// Loads one candidate; nullptr if it is no driver. `failure` takes the loader's reason, the first one only.
std::unique_ptr<Library> open_driver(const std::string& path, std::string& failure) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* reason = dlerror();
        if (failure.empty() && reason != nullptr) failure = reason;
        return nullptr;
    }
    if (handle == own_library() || is_interposer(handle)) {
        dlclose(handle);
        return nullptr;
    }
    return std::unique_ptr<Library>(new Library{handle, path});
}

std::unique_ptr<Library> find_driver() {
    std::string failure;
    if (const std::string& wanted = settings().driver_path; !wanted.empty()) {
        // The loader looks for a name without a slash in its search path.
        const bool searched = wanted.find('/') == wanted.npos;
        if (auto found = open_driver(searched ? wanted : util::from_start(wanted), failure)) return found;
        log::warn(
            "LMS_DRIVER={}: {}; expected the path of a CUDA driver library, searching as the loader does",
            wanted, failure.empty() ? "this is the shim itself" : failure);
        failure.clear();
    }
    for (const std::string& candidate : loader_candidates(kSoname)) {
        if (auto found = open_driver(candidate, failure)) return found;
    }
    if (!failure.empty()) log::warn("no CUDA driver: {}", failure);
    return nullptr;
}

void publish(std::unique_ptr<Library> found) {
    const Library* nobody = nullptr;
    if (library.compare_exchange_strong(nobody, found.get())) {
        log::debug("driver: {}", found->path);
        [[maybe_unused]] const Library* kept = found.release();  // for the life of the process
    } else {
        dlclose(found->handle);
    }
}

void fill_slots(void* handle) {
    for (std::size_t i = 0; i < kRowCount; ++i) {
        void* function = real_dlsym()(handle, kRows[i].symbol.data());
        if (function == nullptr) continue;
        functions[i].store(function, std::memory_order_relaxed);
        slot(i).store(function, std::memory_order_relaxed);
    }
    dlerror();  // the names it lacks are no error of the program's
}

void load() noexcept {
    loading = true;
    const util::NotCancelled whole;
    try {
        if (auto found = find_driver()) publish(std::move(found));
        if (const Library* chosen = library.load()) fill_slots(chosen->handle);
    } catch (...) {
        // Out of host memory: go on as without a driver.
    }
    loading = false;
    driver_loaded.store(true, std::memory_order_release);
}

CUresult answer_not_supported() {
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult answer_no_device() {
    return CUDA_ERROR_NO_DEVICE;
}

// Programs print what these give without a second look, so where there is no driver they must give something.
CUresult name_without_driver(CUresult, const char** text) {
    if (text != nullptr) *text = "CUDA_ERROR_NO_DEVICE";
    return CUDA_SUCCESS;
}
CUresult describe_without_driver(CUresult, const char** text) {
    if (text != nullptr) *text = "no CUDA-capable device is detected";
    return CUDA_SUCCESS;
}

void* missing_answer(std::size_t index) {
    if (library.load() != nullptr) {
        static constinit std::array<std::atomic<bool>, kRowCount> named{};
        if (log::once(named[index])) {
            log::warn("the installed driver has no {}: calls fail", kRows[index].symbol);
        }
        return reinterpret_cast<void*>(&answer_not_supported);
    }
    switch (static_cast<Entry>(index)) {
        case Entry::cuGetErrorName:
            return reinterpret_cast<void*>(&name_without_driver);
        case Entry::cuGetErrorString:
            return reinterpret_cast<void*>(&describe_without_driver);
        default:
            return reinterpret_cast<void*>(&answer_no_device);
    }
}

}  // namespace

std::atomic<bool> driver_loaded{false};

// A call that comes from inside our own dlopen (a driver's constructor) sees what is there so far.
void load_driver() {
    if (!driver_loaded.load(std::memory_order_acquire) && !loading) load();
}

// Where a call through a slot that still holds its stub goes on.
void* lms_resolve_entry(unsigned index) {
    load_driver();
    void* function = functions[index].load(std::memory_order_relaxed);
    return function != nullptr ? function : missing_answer(index);
}

const Row* find_row(std::string_view symbol) {
    // Sorted within each part of the table.
    const auto before = [](const Row& a, const Row& b) { return a.symbol < b.symbol; };
    for (const Row* part = std::begin(kRows); part != std::end(kRows);) {
        const Row* const end = std::is_sorted_until(part, std::end(kRows), before);
        const Row* const found = std::lower_bound(
            part, end, symbol, [](const Row& a, std::string_view name) { return a.symbol < name; });
        if (found != end && found->symbol == symbol) return found;
        part = end;
    }
    return nullptr;
}

bool driver_has(Entry entry) {
    return driver_address(entry) != nullptr;
}

void* driver_address(Entry entry) {
    load_driver();
    return functions[static_cast<std::size_t>(entry)].load(std::memory_order_relaxed);
}

void* driver_handle() {
    load_driver();
    const Library* found = library.load();
    return found != nullptr ? found->handle : nullptr;
}

const char* error_name(CUresult status) {
    const char* name = nullptr;
    return driver().cuGetErrorName(status, &name) == CUDA_SUCCESS && name ? name : "an unknown error";
}

const char* driver_path() {
    load_driver();
    const Library* found = library.load();
    return found != nullptr ? found->path.c_str() : "";
}

}  // namespace lms::device
