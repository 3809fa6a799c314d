// Kernels by the code they were loaded with: as text, in fat binaries of every packing, from files; and by
// their names.
#include <doctest/doctest.h>
#include <lz4.h>
#include <unistd.h>
#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "shim/code/fat_binary.h"
#include "shim/code/kernel_access.h"

using namespace lms::engine;

namespace {

const std::string kTold = ".version 8.4\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";
const std::string kHidden =
    ".version 8.4\n.target sm_75\n.address_size 64\n"
    ".visible .entry k(.param .u64 p) { ld.param.u64 %rd1, [p]; ld.u64 %rd2, [%rd1]; ld.u32 %r1, [%rd2]; "
    "ret; }\n";

enum class Kind : std::uint16_t { Ptx = 1, Native = 2 };
enum class Packing { Plain, Lz4, Zstd };

template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof(T));
}

std::string entry(const std::string& text, std::uint32_t arch, Packing packing, Kind kind = Kind::Ptx,
                  std::uint32_t header_bytes = 64) {
    std::string payload = text + '\0';
    const std::uint64_t plain = payload.size();
    std::uint64_t flags = 0x11;
    if (packing == Packing::Lz4) {
        std::string packed(LZ4_compressBound(static_cast<int>(plain)), '\0');
        packed.resize(LZ4_compress_default(payload.data(), packed.data(), static_cast<int>(plain),
                                           static_cast<int>(packed.size())));
        payload = packed;
        flags |= 0x2000;
    } else if (packing == Packing::Zstd) {
        std::string packed(ZSTD_compressBound(plain), '\0');
        packed.resize(ZSTD_compress(packed.data(), packed.size(), payload.data(), plain, 3));
        payload = packed;
        flags |= 0x8000;
    }
    const auto packed_bytes = static_cast<std::uint32_t>(payload.size());
    payload.resize((payload.size() + 7) / 8 * 8);
    std::string header(header_bytes, '\0');
    put(header, 0, kind);
    put<std::uint16_t>(header, 2, 0x101);
    put(header, 4, header_bytes);
    put<std::uint64_t>(header, 8, payload.size());
    put(header, 16, packing == Packing::Plain ? 0u : packed_bytes);
    put(header, 28, arch);
    put(header, 40, flags);
    put(header, 56, packing == Packing::Plain ? 0 : plain);
    return header + payload;
}

std::string fat_binary(const std::vector<std::string>& entries) {
    std::string bytes(16, '\0');
    put<std::uint32_t>(bytes, 0, 0xba55ed50);
    put<std::uint16_t>(bytes, 4, 1);
    put<std::uint16_t>(bytes, 6, 16);
    for (const std::string& one : entries) bytes += one;
    put<std::uint64_t>(bytes, 8, bytes.size() - 16);
    return bytes;
}

struct Wrapper {
    std::uint32_t magic = 0x466243b1;
    std::uint32_t version = 1;
    const char* fat_binary = nullptr;
    const void* parts = nullptr;
};

// What is said of kernel k while this image is loaded.
Addresses while_loaded(const void* image, const char* kernel = "k") {
    static int next = 0;
    const void* handle = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(0x1000 + ++next));
    code_loaded(handle, image);
    const Addresses answer = addresses_of({&handle, 1}, kernel);
    code_unloaded(handle);
    CHECK(addresses_of({&handle, 1}, kernel) == Addresses::Unknown);
    return answer;
}

}  // namespace

TEST_CASE("text") {
    CHECK(while_loaded(kTold.c_str()) == Addresses::Complete);
    CHECK(while_loaded(kHidden.c_str()) == Addresses::Incomplete);
    CHECK(while_loaded(kTold.c_str(), "another") == Addresses::Unknown);
    CHECK(while_loaded("") == Addresses::Unknown);
    CHECK(while_loaded("abc") == Addresses::Unknown);
}

TEST_CASE("fat binaries") {
    for (const Packing packing : {Packing::Plain, Packing::Lz4, Packing::Zstd}) {
        for (const std::uint32_t header_bytes : {64u, 80u}) {
            CHECK(while_loaded(fat_binary({entry(kHidden, 75, packing, Kind::Ptx, header_bytes)}).c_str()) ==
                  Addresses::Incomplete);
            CHECK(while_loaded(fat_binary({entry(kTold, 75, packing, Kind::Ptx, header_bytes)}).c_str()) ==
                  Addresses::Complete);
        }
    }
    SUBCASE("native code beside the text, and several texts: the newest counts") {
        CHECK(while_loaded(fat_binary({entry("\x7f"
                                             "ELF",
                                             90, Packing::Plain, Kind::Native),
                                       entry(kTold, 75, Packing::Lz4), entry(kHidden, 90, Packing::Zstd),
                                       entry(kTold, 80, Packing::Plain)})
                               .c_str()) == Addresses::Incomplete);
    }
    SUBCASE("native code alone") {
        CHECK(while_loaded(fat_binary({entry("\x7f"
                                             "ELF",
                                             90, Packing::Plain, Kind::Native)})
                               .c_str()) == Addresses::Unknown);
        CHECK(while_loaded("\x7f"
                           "ELF and so on") == Addresses::Unknown);
    }
    SUBCASE("what does not unpack") {
        std::string bytes = fat_binary({entry(kTold, 75, Packing::Zstd)});
        bytes[16 + 64 + 8] ^= 0x55;
        bytes[16 + 64 + 9] ^= 0x55;
        CHECK(while_loaded(bytes.c_str()) == Addresses::Unknown);
    }
}

TEST_CASE("the wrapper that nvcc leaves") {
    const std::string told = fat_binary({entry(kTold, 75, Packing::Zstd)});
    const std::string hidden = fat_binary({entry(kHidden, 75, Packing::Zstd)});
    Wrapper wrapper;
    wrapper.fat_binary = hidden.data();
    CHECK(while_loaded(&wrapper) == Addresses::Incomplete);
    const char* parts[] = {told.data(), hidden.data(), nullptr};
    wrapper.version = 2;
    wrapper.fat_binary = told.data();
    wrapper.parts = parts;
    CHECK(while_loaded(&wrapper) == Addresses::Incomplete);
}

TEST_CASE("files, whole and cut off") {
    const std::string path = "/tmp/lms_opaque_test." + std::to_string(getpid());
    const std::string whole = fat_binary({entry(kHidden, 75, Packing::Zstd)});
    const void* handle = &path;
    for (const std::string& bytes : {whole, kHidden, whole.substr(0, 60), whole.substr(0, 10),
                                     whole.substr(0, whole.size() - 9), std::string()}) {
        std::ofstream(path, std::ios::binary) << bytes;
        code_loaded_from(handle, path.c_str());
        const bool complete = bytes == whole || bytes == kHidden;
        CHECK(addresses_of({&handle, 1}, "k") == (complete ? Addresses::Incomplete : Addresses::Unknown));
        code_unloaded(handle);
    }
    unlink(path.c_str());
    code_loaded_from(handle, path.c_str());
    CHECK(addresses_of({&handle, 1}, "k") == Addresses::Unknown);
}

TEST_CASE("a kernel whose module is not known is looked for in all that is loaded") {
    const void* one = reinterpret_cast<const void*>(1);
    const void* two = reinterpret_cast<const void*>(2);
    code_loaded(one, kTold.c_str());
    CHECK(addresses_of({}, "k") == Addresses::Complete);
    code_loaded(two, kHidden.c_str());
    CHECK(addresses_of({}, "k") == Addresses::Incomplete);
    CHECK(addresses_of({&one, 1}, "k") == Addresses::Complete);
    code_unloaded(two);
    CHECK(addresses_of({}, "k") == Addresses::Complete);
    code_unloaded(one);
}

TEST_CASE("communication libraries, by name") {
    CHECK(addresses_of({}, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)") ==
          Addresses::Incomplete);
    CHECK(addresses_of({}, "_Z22nvshmemi_barrier_kernel") == Addresses::Incomplete);
    CHECK(addresses_of({}, "ncc") == Addresses::Unknown);
}
