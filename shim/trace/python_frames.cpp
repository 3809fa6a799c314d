#include "shim/trace/python_frames.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>

// The interpreter's structures are read where they lie, and nothing of it is called but what only reads: its
// functions that give frames need the GIL, make objects, and may run the program's finalizers. While a thread
// is in a call of ours nobody changes the frames that led there, and these keep their code and its names.
// What is read is asked of the system, which answers also where there is nothing, and is taken for an object
// only if it has its type: a Python that is built otherwise gives no frames.

namespace lms::trace {
namespace {

using Address = std::uintptr_t;

// Where things are in structures of CPython 3.`minor`, in bytes, as its own headers have it.
struct Layout {
    int minor;
    unsigned thread_frame;  // of a thread, the frame that runs
    int frame_through;      // or a structure that has it there; -1: it does
    unsigned frame_code;
    unsigned frame_back;  // the frame that called it
    unsigned frame_at;    // the instruction that runs: its address, or its number
    unsigned at_unit;     // bytes that it counts; 0: an address
    int frame_owner;      // -1: none
    unsigned code_file;
    unsigned code_name;
    unsigned instructions;  // of the code, where they are addressed
    unsigned ascii;         // of a string, its characters: all below 128
    unsigned wide;          // or not
};
// clang-format off
constexpr Layout kLayouts[] = {
//   minor, thread, through, code, back,  at, unit, owner, file, name, instr., ascii, wide
    {    9,     24,      -1,   32,   24, 104,    1,    -1,  104,  112,      0,    48,   72},
    {   10,     24,      -1,   32,   24,  96,    2,    -1,  104,  112,      0,    48,   72},
    {   11,     56,       8,   32,   48,  56,    0,    69,  112,  128,    184,    48,   72},
    {   12,     56,       0,    0,    8,  56,    0,    70,  112,  128,    192,    40,   56},
    {   13,     72,      -1,    0,    8,  56,    0,    70,  112,  128,    200,    40,   56},
};
// clang-format on
// The same in all of them.
constexpr unsigned kType = 8;     // of an object
constexpr unsigned kLength = 16;  // of a string, in characters
constexpr unsigned kState = 32;  // of a string: of its bits three tell a character's bytes, two more the rest
constexpr std::uint32_t kCompact = 1u << 5, kAscii = 1u << 6;
constexpr unsigned kBytesShift = 2, kBytesMask = 7;
// An owner of frames that are none of the program's.
constexpr std::uint8_t kOwnedByInterpreter = 3;

constexpr std::size_t kLongestText = 1024;
constexpr std::size_t kMostLooks = 200;  // at frames, should they lead in a circle

bool read_bytes(Address from, void* to, std::size_t bytes) {
    iovec local{to, bytes};
    iovec remote{reinterpret_cast<void*>(from), bytes};  // NOLINT(performance-no-int-to-ptr)
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

template <typename Value>
Value read(Address from) {
    Value value{};
    return read_bytes(from, &value, sizeof value) ? value : Value{};
}

void put_utf8(std::string& text, std::uint32_t character) {
    if (character < 0x80) {
        text += static_cast<char>(character);
        return;
    }
    const int more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
    constexpr unsigned kFirst[] = {0, 0xc0, 0xe0, 0xf0};
    text += static_cast<char>(kFirst[more] | (character >> (6 * more)));
    for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | ((character >> (6 * i)) & 0x3f));
}

// What there is of Python in this process.
class Interpreter {
  public:
    // False: none whose structures are known.
    bool find() {
        const auto initialized = function<int()>("Py_IsInitialized");
        if (!initialized || !initialized()) return false;
        const auto version = function<const char*()>("Py_GetVersion");
        this_thread_ = function<void*()>("PyGILState_GetThisThreadState");
        line_of_ = function<int(void*, int)>("PyCode_Addr2Line");
        code_type_ = reinterpret_cast<Address>(dlsym(RTLD_DEFAULT, "PyCode_Type"));
        text_type_ = reinterpret_cast<Address>(dlsym(RTLD_DEFAULT, "PyUnicode_Type"));
        if (!version || !this_thread_ || !line_of_ || !code_type_ || !text_type_) return false;
        const char* const text = version();
        const int minor = std::strncmp(text, "3.", 2) == 0 ? std::atoi(text + 2) : 0;
        layout_ = std::ranges::find(kLayouts, minor, &Layout::minor);
        return layout_ != std::end(kLayouts);
    }

    const void* code() const { return reinterpret_cast<const void*>(line_of_); }

    std::vector<std::string> frames(std::size_t most) const {
        std::vector<std::string> found;
        Address frame = running_frame();
        for (std::size_t look = 0; frame != 0 && found.size() < most && look < kMostLooks; ++look) {
            const bool is_program = layout_->frame_owner < 0 ||
                                    read<std::uint8_t>(frame + static_cast<unsigned>(layout_->frame_owner)) !=
                                        kOwnedByInterpreter;
            std::string text = is_program ? describe(frame) : "";
            if (!text.empty()) found.push_back(std::move(text));
            frame = read<Address>(frame + layout_->frame_back);
        }
        return found;
    }

  private:
    template <typename Function>
    static Function* function(const char* name) {
        return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
    }

    Address running_frame() const {
        const auto thread = reinterpret_cast<Address>(this_thread_());
        if (thread == 0) return 0;
        const auto frame = read<Address>(thread + layout_->thread_frame);
        return layout_->frame_through < 0 || frame == 0
                   ? frame
                   : read<Address>(frame + static_cast<unsigned>(layout_->frame_through));
    }

    std::string describe(Address frame) const {
        const auto code = read<Address>(frame + layout_->frame_code);
        if (code == 0 || read<Address>(code + kType) != code_type_) return {};
        const std::string file = text_at(read<Address>(code + layout_->code_file));
        const std::string name = text_at(read<Address>(code + layout_->code_name));
        if (file.empty() || name.empty()) return {};
        const int at =
            layout_->at_unit == 0
                ? static_cast<int>(read<Address>(frame + layout_->frame_at) - code - layout_->instructions)
                : read<int>(frame + layout_->frame_at) * static_cast<int>(layout_->at_unit);
        const int line = line_of_(reinterpret_cast<void*>(code), at);  // NOLINT(performance-no-int-to-ptr)
        return fmt::format("File \"{}\", line {}, in {}", file, std::max(line, 0), name);
    }

    std::string text_at(Address object) const {
        if (object == 0 || read<Address>(object + kType) != text_type_) return {};
        const auto state = read<std::uint32_t>(object + kState);
        const std::size_t each = (state >> kBytesShift) & kBytesMask;
        if (!(state & kCompact) || (each != 1 && each != 2 && each != 4)) return {};
        const auto length = std::min<std::size_t>(read<std::size_t>(object + kLength), kLongestText);
        std::string bytes(length * each, '\0');
        if (!read_bytes(object + (state & kAscii ? layout_->ascii : layout_->wide), bytes.data(),
                        bytes.size()))
            return {};
        std::string text;
        for (std::size_t i = 0; i < bytes.size(); i += each) {
            std::uint32_t character = 0;
            std::memcpy(&character, bytes.data() + i, each);
            put_utf8(text, character);
        }
        return text;
    }

    void* (*this_thread_)() = nullptr;
    int (*line_of_)(void* code, int at) = nullptr;
    Address code_type_ = 0;
    Address text_type_ = 0;
    const Layout* layout_ = nullptr;
};

}  // namespace

PythonFrames python_frames(std::size_t most) {
    Interpreter interpreter;
    if (!interpreter.find()) return {};
    PythonFrames found{interpreter.frames(most), interpreter.code()};
    if (found.frames.empty()) found.interpreter = nullptr;
    return found;
}

}  // namespace lms::trace
