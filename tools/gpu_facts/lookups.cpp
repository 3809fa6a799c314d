// Fact 4: whether a function's two lookups agree.
#include <dlfcn.h>
#include <fmt/format.h>

#include "tools/gpu_facts/facts.h"

namespace facts {
namespace {

struct Row {
    const char* symbol;
    const char* base;
    int introduced;
    std::string_view stream;
};

constexpr Row kRows[] = {
#define LMS_ENTRY(symbol, base, introduced, stream, action) {#symbol, #base, introduced, #stream},
#include "shim/entry_points.def"
};

cuuint64_t flags_of(std::string_view stream) {
    if (stream == "NONE") return CU_GET_PROC_ADDRESS_DEFAULT;
    return stream == "LEGACY" ? CU_GET_PROC_ADDRESS_LEGACY_STREAM
                              : CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
}

void* by_query(const Row& row) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    const CUresult result =
        driver().cuGetProcAddress_v2(row.base, &found, row.introduced, flags_of(row.stream), &status);
    return result == CUDA_SUCCESS ? found : nullptr;
}

struct Names {
    int count = 0;
    std::string list;

    void add(const Row& row) {
        ++count;
        list += (list.empty() ? "" : " ") + std::string(row.symbol);
    }

    void record(Record& to, const std::string& name) const {
        to.number(name, count, "rows");
        if (count != 0) to.text(name + "/which", list);
    }
};

}  // namespace

void lookup_identity(const Card&, Record& record) {
    Names same, different, only_dlsym, only_query, neither;
    for (const Row& row : kRows) {
        void* const exported = dlsym(driver_handle(), row.symbol);
        void* const queried = by_query(row);
        Names& kind = exported && queried ? (exported == queried ? same : different)
                      : exported          ? only_dlsym
                      : queried           ? only_query
                                          : neither;
        kind.add(row);
    }
    record.number("same pointer", same.count, "rows");
    different.record(record, "different pointers");
    only_dlsym.record(record, "by dlsym alone");
    only_query.record(record, "by cuGetProcAddress alone");
    neither.record(record, "not in this driver");
}

}  // namespace facts
