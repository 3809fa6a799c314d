#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/targets.h"

TEST_CASE("fuzz: the kept inputs of each target crash nothing") {
    for (const fuzz::Target& target : fuzz::targets()) {
        CAPTURE(target.name);
        int inputs = 0;
        for (const auto& entry :
             std::filesystem::directory_iterator("tests/fuzz/corpus/" + std::string(target.name))) {
            CAPTURE(entry.path().string());
            std::ifstream file(entry.path(), std::ios::binary);
            const std::string input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
            REQUIRE(file);
            target.run(input);
            // Cut anywhere.
            for (std::size_t bytes = 0; bytes < input.size(); bytes += 1 + input.size() / 512)
                target.run({input.data(), bytes});
            ++inputs;
        }
        CHECK(inputs > 0);
    }
}
