// Every entry point of the table is exported, and cuGetProcAddress gives the one that was asked for.
#include <cstring>
#include <string>

#include "tests/simcuda/sim.h"

namespace {

using namespace sim;

struct Row {
    const char* symbol;
    const char* base;
    int introduced;
    const char* form;
};

#undef cuGetProcAddress
constexpr Row kRows[] = {
#define LMS_ENTRY(symbol, base, introduced, form, action) {#symbol, #base, introduced, #form},
#define __CUDA_API_VERSION_INTERNAL
#include "shim/entry_points.def"
};

// NVIDIA's drivers have these with another library or on another system alone (tests/real_drivers).
bool is_elsewhere(const Row& row) {
    return std::strcmp(row.base, "cuEventCreateFromEGLSync") == 0 ||
           std::strcmp(row.base, "cuWGLGetDevice") == 0;
}

bool takes(const Row& row, cuuint64_t flags) {
    const bool per_thread = std::strncmp(row.form, "PT", 2) == 0;
    if (std::strcmp(row.form, "NONE") == 0) return true;
    return per_thread == ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
}

CUresult look_up(const std::string& name, int version, cuuint64_t flags, void** address,
                 CUdriverProcAddressQueryResult* status) {
    using Lookup = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
    return reinterpret_cast<Lookup>(symbol("cuGetProcAddress_v2"))(name.c_str(), address, version, flags,
                                                                   status);
}

SIM_TEST("lookup: each row is found by base name, version and default stream, and is what dlsym gives", {}) {
    for (const Row& row : kRows) {
        void* exported = symbol(row.symbol);
        for (const cuuint64_t flags :
             {CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) {
            if (!takes(row, flags)) continue;
            bool superseded = false;  // by another ABI of the same version
            for (const Row& other : kRows) {
                superseded = superseded || (&other > &row && std::strcmp(other.base, row.base) == 0 &&
                                            other.introduced == row.introduced && takes(other, flags));
            }
            void* found = nullptr;
            CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
            const CUresult result = look_up(row.base, row.introduced, flags, &found, &status);
            const auto wanted =
                is_elsewhere(row) ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
            if (result != CUDA_SUCCESS || status != wanted ||
                (found != (is_elsewhere(row) ? nullptr : exported) && !superseded)) {
                failed(__FILE__, __LINE__, std::string(row.symbol) + " is not found");
            }
        }
    }
}

SIM_TEST("lookup: names that are no entry points are not found, cleanly", {}) {
    for (const Row& row : kRows) {
        const std::string base = row.base;
        for (const std::string& name :
             {base + "_", base + "x", base.substr(1), base.substr(0, 3), "  " + base}) {
            bool real = false;
            for (const Row& other : kRows) real = real || name == other.base;
            if (real) continue;
            void* found = &found;
            CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
            EXPECT(look_up(name, 13000, 0, &found, &status) == CUDA_SUCCESS);
            EXPECT(found == nullptr);
            EXPECT(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
        }
    }
    void* found = &found;
    EXPECT(look_up("", 13000, 0, &found, nullptr) == CUDA_SUCCESS);
    EXPECT(found == nullptr);
    EXPECT(look_up("cuInit", 13000, 0, &found, nullptr) == CUDA_SUCCESS);
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    EXPECT(look_up("cuMemCreate", 10000, 0, &found, nullptr) == CUDA_SUCCESS);
    EXPECT(found == nullptr);
    EXPECT(look_up("cuMemCreate", 10000, 0, &found, &status) == CUDA_SUCCESS);
    EXPECT(found == nullptr);
    EXPECT(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    EXPECT(look_up("cuInit", 13000, 64, &found, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST("lookup: what came after the driver is a name that it does not know", {{"SIMCUDA_CUDA", "12020"}}) {
    int version = 0;
    OK(cuDriverGetVersion, &version);
    EXPECT(version == 12020);
    void* found = &found;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    EXPECT(look_up("cuFuncGetParamInfo", 13000, 0, &found, &status) == CUDA_SUCCESS);
    EXPECT(found == nullptr);
    EXPECT(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    EXPECT(look_up("cuCtxCreate", 13000, 0, &found, &status) == CUDA_SUCCESS);
    EXPECT(found == symbol("cuCtxCreate_v3"));
    using First = CUresult (*)(const char*, void**, int, cuuint64_t);
    EXPECT(reinterpret_cast<First>(symbol("cuGetProcAddress"))("cuFuncGetParamInfo", &found, 13000, 0) ==
           CUDA_ERROR_NOT_FOUND);
    EXPECT(found == symbol("cuCtxCreate_v3"));
}

SIM_TEST("lookup: a newer version asked for gives the newest there is", {}) {
    void *old = nullptr, *current = nullptr;
    EXPECT(look_up("cuCtxSynchronize", 12080, 0, &old, nullptr) == CUDA_SUCCESS);
    EXPECT(look_up("cuCtxSynchronize", 13000, 0, &current, nullptr) == CUDA_SUCCESS);
    EXPECT(old == symbol("cuCtxSynchronize"));
    EXPECT(current == symbol("cuCtxSynchronize_v2"));
}

SIM_TEST("lookup: an entry point that is lacking says so and answers NOT_SUPPORTED", {}) {
    const Gpu gpu;
    CUmemGenericAllocationHandle handle = 0;
    CUmulticastObjectProp property{};
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate, &handle, &property);
    const void* table = &handle;
    CUuuid id{};
    FAILS(CUDA_ERROR_NOT_FOUND, cuGetExportTable, &table, &id);
    EXPECT(table == nullptr);
}

void ask_for_a_table_twice() {
    const Gpu gpu;
    const void* table = nullptr;
    CUuuid id{};
    for (int i = 0; i < 2; ++i) FAILS(CUDA_ERROR_NOT_FOUND, cuGetExportTable, &table, &id);
}

TEST_CASE("lookup: who asks for NVIDIA's own tables, as its runtime does, is told what to do, once") {
    std::string said;
    CHECK(run({}, ask_for_a_table_twice, &said) == "");
    CHECK(said ==
          "simcuda: NVIDIA's runtime, or a library of NVIDIA's, asks its driver for what is not simulated; "
          "programs run "
          "here if they are built with nvcc -cudart shared\n");
}

void call_lacking_twice() {
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMulticastCreate, nullptr, nullptr);
    OK(cuInit, 0);
    CUmemGenericAllocationHandle handle = 0;
    CUmulticastObjectProp property{};
    for (int i = 0; i < 2; ++i) FAILS(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate, &handle, &property);
}

TEST_CASE("lookup: a lacking entry point is named once") {
    std::string said;
    CHECK(run({}, call_lacking_twice, &said) == "");
    CHECK(said == "simcuda: cuMulticastCreate is not simulated: CUDA_ERROR_NOT_SUPPORTED\n");
}

}  // namespace
