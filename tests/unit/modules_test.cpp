// The programs and libraries that a trace tells of.
#include "shim/trace/modules.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

using namespace lms::trace;

TEST_CASE("modules: this program and the C library are among those that are loaded") {
    const std::vector<Module> all = loaded_modules();
    const std::string own = std::filesystem::read_symlink("/proc/self/exe");
    const auto self = std::ranges::find(all, own, &Module::path);
    REQUIRE(self != all.end());
    CHECK(self->name == own.substr(own.rfind('/') + 1));
    CHECK_FALSE(self->id.empty());
    const auto libc = std::ranges::find(all, "libc.so.6", &Module::name);
    REQUIRE(libc != all.end());
    CHECK(libc->id.size() == 40);  // SHA-1
}

TEST_CASE(
    "modules: a build id is found behind other notes, and nothing is read past the end of damaged ones") {
    const auto note = [](std::uint32_t type, const std::string& owner, const std::string& what) {
        std::string text;
        for (const std::uint32_t word :
             {static_cast<std::uint32_t>(owner.size()), static_cast<std::uint32_t>(what.size()), type})
            text.append(reinterpret_cast<const char*>(&word), sizeof word);
        for (const std::string& part : {owner, what})
            text += part + std::string((4 - part.size() % 4) % 4, '\0');
        return text;
    };
    const std::string gnu("GNU\0", 4);
    const std::string notes = note(1, gnu, "abcdefg") + note(3, "Xen", "x") + note(3, gnu, "\x01\xab\xff");
    CHECK(build_id_in(notes) == "01abff");
    CHECK(build_id_in(note(1, gnu, "abcd")).empty());
    for (std::size_t bytes = 0; bytes + 4 < notes.size(); ++bytes)
        CHECK(build_id_in(std::string_view(notes).substr(0, bytes)).empty());
    std::string wild = notes;
    wild[4] = '\xff', wild[5] = '\xff', wild[6] = '\xff', wild[7] = '\xff';
    CHECK(build_id_in(wild).empty());
}

TEST_CASE("modules: a file without a build id is told by its size and change") {
    CHECK(version_of("README.md").starts_with(std::to_string(std::filesystem::file_size("README.md")) + "@"));
    CHECK(version_of("/no/such/file").empty());
}
