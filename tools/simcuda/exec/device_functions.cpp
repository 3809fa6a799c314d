// vprintf, assertions and the device heap.
#include "tools/simcuda/exec/device_functions.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tools/simcuda/exec/uninterrupted.h"

namespace simcuda::exec {
namespace {

constexpr std::size_t kFlushAbove = 64 << 10;
constexpr int kMaxArguments = 32;  // CUDA's limit

// Text of the kernels this thread runs. A pointer, so that nothing is destroyed behind a thread's back.
thread_local std::string* t_output = nullptr;

std::string& output() {
    if (!t_output) t_output = new std::string;
    return *t_output;
}

const char* host_text(u64 address) {
    return static_cast<const char*>(to_host(address));
}

// The packed arguments of vprintf: each at its natural alignment, float as double, small integers as int.
class Arguments {
  public:
    explicit Arguments(u64 address) : at_(reinterpret_cast<const char*>(to_host(address))) {}

    template <typename T>
    T next() {
        auto address = reinterpret_cast<std::uintptr_t>(at_);
        address = (address + sizeof(T) - 1) / sizeof(T) * sizeof(T);
        T value;
        std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
        at_ = reinterpret_cast<const char*>(address + sizeof value);
        return value;
    }

  private:
    const char* at_;
};

template <typename T>
void append(std::string& text, const std::string& conversion, T value) {
    char small[256];
    const int length = std::snprintf(small, sizeof small, conversion.c_str(), value);
    if (length < 0) return;
    if (static_cast<std::size_t>(length) < sizeof small) {
        text.append(small, static_cast<std::size_t>(length));
        return;
    }
    const std::size_t before = text.size();
    text.resize(before + static_cast<std::size_t>(length) + 1);
    std::snprintf(text.data() + before, static_cast<std::size_t>(length) + 1, conversion.c_str(), value);
    text.resize(before + static_cast<std::size_t>(length));
}

// One conversion, "%-5.3llx"; returns what follows it.
const char* print_conversion(std::string& text, const char* format, Arguments& arguments) {
    std::string conversion = "%";
    const char* at = format + 1;
    for (; *at && std::strchr("-+ #0123456789.*", *at); ++at) {
        if (*at == '*')
            conversion += std::to_string(arguments.next<int>());
        else
            conversion += *at;
    }
    int longs = 0;
    for (; *at && std::strchr("hlLqjzt", *at); ++at) {
        if (*at == 'h') continue;  // the value was widened to int
        longs += std::strchr("lLqjzt", *at) != nullptr;
    }
    const char kind = *at;
    if (!kind) return at;
    switch (kind) {
        case 'd':
        case 'i':
        case 'u':
        case 'x':
        case 'X':
        case 'o':
            if (longs)
                append(text, conversion + "ll" + kind, arguments.next<long long>());
            else
                append(text, conversion + kind, arguments.next<int>());
            break;
        case 'c':
            append(text, conversion + kind, arguments.next<int>());
            break;
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
        case 'a':
        case 'A':
            append(text, conversion + kind, arguments.next<double>());
            break;
        case 'p':
            append(text, conversion + kind, arguments.next<void*>());
            break;
        case 's':
            append(text, conversion + kind, host_text(arguments.next<u64>()));
            break;
        case '%':
            text += '%';
            break;
        default:
            text += conversion + kind;
            break;
    }
    return at + 1;
}

}  // namespace

void flush_output() {
    if (!t_output || t_output->empty()) return;
    std::fwrite(t_output->data(), 1, t_output->size(), stdout);
    t_output->clear();
}

u32 device_print(sc_thread* thread, u64 format, u64 arguments) {
    const Uninterrupted uninterrupted(thread);
    std::string& text = output();
    Arguments packed(arguments);
    int count = 0;
    for (const char* at = host_text(format); *at;) {
        if (*at == '%' && count < kMaxArguments) {
            count += at[1] != '%';
            at = print_conversion(text, at, packed);
        } else {
            text += *at++;
        }
    }
    if (text.size() > kFlushAbove) flush_output();
    return static_cast<u32>(count);
}

void device_assert_fail(sc_thread* thread, u64 message, u64 file, u32 line, u64 function) {
    const sc_block& block = *thread->block;
    Block::of(thread).guard().interruptible = false;
    flush_output();
    std::fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n",
                 host_text(file), line, host_text(function), block.ctaid[0], block.ctaid[1], block.ctaid[2],
                 thread->tid[0], thread->tid[1], thread->tid[2], host_text(message));
    leave(Outcome::Assert);
}

// The device heap is the host's: kernels reach it by the constant offset like all else.
u64 device_allocate(sc_thread* thread, u64 bytes) {
    const Uninterrupted uninterrupted(thread);
    void* memory = std::malloc(bytes);
    return memory ? to_device(memory) : 0;
}

void device_release(sc_thread* thread, u64 address) {
    const Uninterrupted uninterrupted(thread);
    if (address) std::free(to_host(address));
}

}  // namespace simcuda::exec
