// The table against the installed CUDA headers: the same names, the same versions. A newer toolkit fails here
// and names what is new.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "shim/device/cuda_api.h"
#include "tests/interpose/table.h"

namespace {

std::string with_comments(const std::string& name) {
    std::ifstream file(std::string(CUDA_INCLUDE "/") + name);
    std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    INFO(CUDA_INCLUDE "/" << name << " cannot be read");
    REQUIRE(!text.empty());
    return text;
}

std::string header(const std::string& name) {
    std::string text = with_comments(name);
    // Comments name functions too.
    for (std::size_t begin = 0; (begin = text.find("/*", begin)) != std::string::npos;) {
        text.replace(begin, text.find("*/", begin) + 2 - begin, " ");
    }
    return std::regex_replace(text, std::regex("//[^\n]*"), "");
}

// The names a header declares, each under the symbol that the driver exports: the header's own renames
// (`#define cuMemAlloc cuMemAlloc_v2`, `#define cuMemcpy __CUDA_API_PTDS(cuMemcpy)`) are followed up to where
// it takes them back to declare the older ABIs.
std::set<std::string> declared_symbols(const std::string& name) {
    static const std::regex pattern(
        R"(#[ \t]*define[ \t]+(cu[A-Z]\w*)[ \t]+(?:__CUDA_API_(PTDS|PTSZ)\((\w+)\)|(cu\w+)))"
        R"(|#[ \t]*undef[ \t]+(cu\w+))"
        R"(|CUDAAPI\s+(cu[A-Z]\w*)\s*\()");
    const std::string text = header(name);
    std::map<std::string, std::string> renamed;
    std::set<std::string> symbols;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
        const std::smatch& match = *it;
        if (match[1].matched) {
            const std::string suffix = match[2] == "PTDS" ? "_ptds" : "_ptsz";
            renamed[match[1]] = match[4].matched ? match[4].str() : match[3].str() + suffix;
        } else if (match[5].matched) {
            renamed.erase(match[5]);
        } else {
            const auto rename = renamed.find(match[6]);
            symbols.insert(rename != renamed.end() ? rename->second : match[6].str());
        }
    }
    return symbols;
}

// "cuMemcpy 7000 _ptds" of every published function pointer type.
std::set<std::string> published_versions(const std::string& name) {
    static const std::regex pattern(R"(\*PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\))");
    const std::string text = header(name);
    std::set<std::string> versions;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
        versions.insert((*it)[1].str() + " " + (*it)[2].str() + " " + (*it)[3].str());
    }
    return versions;
}

template <typename Set>
Set minus(const Set& a, const Set& b) {
    Set difference;
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(difference, difference.end()));
    return difference;
}

void check_equal(const std::set<std::string>& in_headers, const std::set<std::string>& in_table) {
    for (const std::string& name : minus(in_headers, in_table))
        FAIL_CHECK("not in entry_points.def: " << name);
    for (const std::string& name : minus(in_table, in_headers)) FAIL_CHECK("in no header: " << name);
}

}  // namespace

TEST_CASE("headers: the table has every function that the CUDA headers declare, and no other") {
    for (const bool interop : {false, true}) {
        std::set<std::string> in_headers;
        for (const char* name : interop ? std::vector{"cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"}
                                        : std::vector{"cuda.h", "cudaProfiler.h"}) {
            in_headers.merge(declared_symbols(name));
        }
        std::set<std::string> in_table;
        for (const table::Row& row : table::kRows) {
            if (row.interop == interop && (!row.later || in_headers.contains(std::string(row.symbol))))
                in_table.emplace(row.symbol);
        }
        CHECK(in_headers.size() > (interop ? 30 : 600));
        check_equal(in_headers, in_table);
    }
}

TEST_CASE(
    "headers: the table has every version and stream mode that CUDA publishes a type for, and no other") {
    std::set<std::string> published;
    for (const char* name : {"cudaTypedefs.h", "cudaProfilerTypedefs.h", "cudaGLTypedefs.h",
                             "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h"}) {
        published.merge(published_versions(name));
    }
    std::set<std::string> in_table;
    for (const table::Row& row : table::kRows) {
        const char* suffix = row.stream == table::Stream::PTDS   ? "_ptds"
                             : row.stream == table::Stream::PTSZ ? "_ptsz"
                                                                 : "";
        const std::string version =
            std::string(row.base) + " " + std::to_string(row.introduced) + " " + suffix;
        if (!row.later || published.contains(version)) in_table.insert(version);
    }
    check_equal(published, in_table);
}

TEST_CASE("headers: the errors after which nothing works are those that say so") {
    static const std::regex pattern(R"(CUDA_(?:ERROR_\w+|SUCCESS)\s*=\s*(\d+))");
    const std::string text = std::regex_replace(with_comments("cuda.h"), std::regex(R"([\s*]+)"), " ");
    int found = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
        const std::string before = it->prefix();  // and behind the one before
        if (before.find("process must be terminated") == std::string::npos) continue;
        CAPTURE((*it)[0].str());
        CHECK(lms::device::is_sticky(static_cast<CUresult>(std::stoi((*it)[1]))));
        ++found;
    }
    CHECK(found > 8);
}

TEST_CASE("headers: a row's stream mode agrees with its name and with its family") {
    std::set<std::string_view> per_thread;
    for (const table::Row& row : table::kRows) {
        if (table::is_per_thread(row)) per_thread.insert(row.base);
    }
    for (const table::Row& row : table::kRows) {
        CAPTURE(row.symbol);
        CHECK(row.symbol.ends_with("_ptds") == (row.stream == table::Stream::PTDS));
        CHECK(row.symbol.ends_with("_ptsz") == (row.stream == table::Stream::PTSZ));
        CHECK(row.symbol.starts_with(row.base));
        if (!table::is_per_thread(row))
            CHECK((row.stream == table::Stream::LEGACY) == per_thread.contains(row.base));
    }
}

TEST_CASE("headers: the rows are sorted and unique within each part") {
    for (std::size_t i = 1; i < std::size(table::kRows); ++i) {
        const table::Row& before = table::kRows[i - 1];
        const table::Row& row = table::kRows[i];
        CAPTURE(row.symbol);
        if (before.interop == row.interop && before.later == row.later) CHECK(before.symbol < row.symbol);
        CHECK((before.interop || before.later) <= (row.interop || row.later));
        CHECK(before.later <= row.later);
    }
}
