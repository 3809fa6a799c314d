// A libcuda.so.1 that knows no GPU: it has every entry point of the table up to FAKE_VERSION, answers lookups
// by the published rules, and notes what it is called with. From 14000 on it has entry points that the table
// does not know.

#include "tests/interpose/fake/fake_driver.h"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

#ifndef FAKE_VERSION
#error "FAKE_VERSION is the CUDA version that this driver pretends to have"
#endif
#define FAKE_TEXT_(x) #x
#define FAKE_TEXT(x) FAKE_TEXT_(x)

// Rows of a driver newer than the table: a function of its own, and a new ABI under a base name that is
// hooked. And one that NVIDIA's drivers export without a base name.
#define FAKE_NEWER_ROWS                                                 \
    LMS_ENTRY(cuFutureCall, cuFutureCall, 14000, NONE, PASS)            \
    LMS_ENTRY(cuGetProcAddress_v3, cuGetProcAddress, 14000, NONE, PASS) \
    LMS_ENTRY(cuMemGetAttribute, no base name, 2000, NONE, PASS)

namespace {

constexpr int kNotFound = 500;
constexpr int kInvalidValue = 1;
constexpr int kNoDevice = 100;

enum class Stream { NONE, LEGACY, PTDS, PTSZ };

struct Row {
    std::string_view symbol;
    std::string_view base;
    int introduced;
    Stream stream;
};

#define LMS_ENTRY_ROWS(symbol, base, introduced, stream, action) {#symbol, #base, introduced, Stream::stream},
constexpr Row kRows[] = {
#define LMS_ENTRY LMS_ENTRY_ROWS
#define LMS_LATER LMS_ENTRY_ROWS
#include "shim/entry_points.def"
#define LMS_ENTRY LMS_ENTRY_ROWS
    FAKE_NEWER_ROWS
#undef LMS_ENTRY
};
constexpr int kRowCount = std::size(kRows);

}  // namespace

// Each function puts its row's number into eax and goes to the row's handler with its arguments untouched.
asm(R"(
        .set    fake_row, 0
        .macro  FAKE_FUNCTION symbol introduced
        .text
        .if     \introduced <= )" FAKE_TEXT(FAKE_VERSION) R"(
        .globl  \symbol
        .type   \symbol, @function
\symbol:
        movl    $fake_row, %eax
        jmp     fake_dispatch
        .size   \symbol, . - \symbol
        .endif
fake_internal_\symbol:
        movl    $fake_row, %eax
        jmp     fake_dispatch

        .section .data.rel.ro, "aw"
        .if     \introduced <= )" FAKE_TEXT(FAKE_VERSION) R"(
        .quad   \symbol
        .else
        .quad   0
        .endif
        .quad   fake_internal_\symbol
        .set    fake_row, fake_row + 1
        .endm

        .text
fake_dispatch:
        movl    %eax, fake_row_called(%rip)
        leaq    fake_handlers(%rip), %r10
        jmp     *(%r10, %rax, 8)

        .section .data.rel.ro, "aw"
        .balign 8
        .globl  fake_addresses
        .type   fake_addresses, @object
fake_addresses:
)"
#define LMS_ENTRY(symbol, base, introduced, stream, action) "FAKE_FUNCTION " #symbol " " #introduced "\n"
#define LMS_LATER LMS_ENTRY
#include "shim/entry_points.def"
#define LMS_ENTRY(symbol, base, introduced, stream, action) "FAKE_FUNCTION " #symbol " " #introduced "\n"
    FAKE_NEWER_ROWS
#undef LMS_ENTRY
                                                          R"(
        .section .data.rel.ro, "aw"
        .size   fake_addresses, . - fake_addresses
        .text
)");

extern "C" {
extern const fake::Address fake_addresses[kRowCount];
fake::Record fake_record;
__attribute__((visibility("hidden"))) int fake_row_called;
__attribute__((visibility("hidden"))) void* fake_handlers[kRowCount];
}

namespace {

// Answers for every function without a behaviour: more arguments than any has, of both kinds, so that
// registers and stack are both noted.
int note_call(std::int64_t i0, double d0, std::int64_t i1, double d1, std::int64_t i2, double d2,
              std::int64_t i3, double d3, std::int64_t i4, double d4, std::int64_t i5, double d5,
              std::int64_t i6, double d6, std::int64_t i7, double d7, double d8, double d9) {
    const std::int64_t integers[] = {i0, i1, i2, i3, i4, i5, i6, i7};
    const double doubles[] = {d0, d1, d2, d3, d4, d5, d6, d7, d8, d9};
    std::memcpy(fake_record.integers, integers, sizeof integers);
    std::memcpy(fake_record.doubles, doubles, sizeof doubles);
    ++fake_record.calls;
    return fake::kAnswerBase + fake_row_called;
}

int init(unsigned) {
    return kNoDevice;
}

int driver_version(int* version) {
    *version = FAKE_VERSION;
    return 0;
}

int get_proc_address_v2(const char* symbol, void** function, int version, std::uint64_t flags, int* status) {
    ++fake_record.queries;
    std::strncpy(fake_record.symbol, symbol != nullptr ? symbol : "(null)", sizeof fake_record.symbol - 1);
    fake_record.version = version;
    fake_record.flags = flags;
    fake_record.had_status = status != nullptr;
    if (symbol == nullptr || function == nullptr) return kInvalidValue;

    const bool per_thread = (flags & 2) != 0;
    const Row* best = nullptr;
    bool known = false;
    for (const Row& row : kRows) {
        const bool row_per_thread = row.stream == Stream::PTDS || row.stream == Stream::PTSZ;
        if (row.base != symbol || row.introduced > FAKE_VERSION) continue;
        known = true;
        if (row.introduced > version) continue;
        if (row.stream != Stream::NONE && row_per_thread != per_thread) continue;
        if (best == nullptr || row.introduced > best->introduced) best = &row;
    }
    const char* knob = std::getenv(fake::kProcAddressKnob);
    const bool internal = knob != nullptr && std::string_view(knob) == "internal";
    if (status != nullptr) *status = best != nullptr ? 0 : known ? 2 : 1;
    *function = nullptr;
    if (best == nullptr) return 0;  // as NVIDIA's, also where the status is not asked for
    const fake::Address& address = fake_addresses[best - kRows];
    *function = internal ? address.internal : address.exported;
    return 0;
}

// Leaves the pointer alone where there is nothing, as NVIDIA's.
int get_proc_address(const char* symbol, void** function, int version, std::uint64_t flags) {
    void* found = nullptr;
    const int result =
        get_proc_address_v2(symbol, function != nullptr ? &found : nullptr, version, flags, nullptr);
    if (result != 0) return result;
    if (found == nullptr) return kNotFound;
    *function = found;
    return 0;
}

__attribute__((constructor)) void install_handlers() {
    for (int i = 0; i < kRowCount; ++i) {
        void* handler = reinterpret_cast<void*>(&note_call);
        if (kRows[i].symbol == "cuInit") handler = reinterpret_cast<void*>(&init);
        if (kRows[i].symbol == "cuDriverGetVersion") handler = reinterpret_cast<void*>(&driver_version);
        if (kRows[i].symbol == "cuGetProcAddress") handler = reinterpret_cast<void*>(&get_proc_address);
        if (kRows[i].symbol == "cuGetProcAddress_v2") handler = reinterpret_cast<void*>(&get_proc_address_v2);
        fake_handlers[i] = handler;
    }
}

}  // namespace
