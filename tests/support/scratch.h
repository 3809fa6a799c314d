// Files for tests: a folder that goes away, and reading and writing whole files.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

class Scratch {
  public:
    Scratch() {
        std::string name = std::filesystem::temp_directory_path() / "lms-unit-XXXXXX";
        REQUIRE(mkdtemp(name.data()) != nullptr);
        folder_ = name;
    }
    ~Scratch() { std::filesystem::remove_all(folder_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    std::string path(const std::string& name = "") const { return folder_ / name; }

    // Writes a file, with the folders above it.
    void put(const std::string& name, const std::string& content) const {
        const std::filesystem::path file = folder_ / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << content;
    }

    std::string get(const std::string& name) const {
        std::ifstream file(folder_ / name, std::ios::binary);
        REQUIRE_MESSAGE(file, "no file ", name);
        return {std::istreambuf_iterator<char>(file), {}};
    }

  private:
    std::filesystem::path folder_;
};
