#include "tests/fuzz/targets.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "policy/host.h"
#include "shim/code/code_image.h"
#include "shim/code/ptx_layouts.h"
#include "shim/sharing/grants.h"
#include "shim/sharing/page.h"
#include "shim/trace/demangle.h"
#include "shim/trace/format.h"
#include "shim/trace/live_folder.h"
#include "shim/util/output_file.h"
#include "shim/util/settings.h"
#include "shim/util/trust.h"
#include "tools/lms/analysis.h"
#include "tools/lms/open_trace.h"
#include "tools/lms/report_html.h"
#include "tools/lms/summary.h"
#include "tools/lms/tenants.h"
#include "tools/lms/top_table.h"
#include "tools/lms/trace_file.h"

namespace fuzz {
namespace {

using namespace lms;

void must(bool holds) {
    if (!holds) std::abort();
}

// Bytes behind which there is nothing that could be read.
class Bytes {
  public:
    explicit Bytes(std::string_view input) : size_(input.size()) {
        whole_ = (size_ + kPage - 1) / kPage * kPage + kPage;
        void* const at = mmap(nullptr, whole_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(at != MAP_FAILED);
        begin_ = static_cast<char*>(at);
        must(mprotect(begin_ + whole_ - kPage, kPage, PROT_NONE) == 0);
        std::copy(input.begin(), input.end(), begin_ + whole_ - kPage - size_);
    }
    ~Bytes() { munmap(begin_, whole_); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;

    const char* data() const { return begin_ + whole_ - kPage - size_; }
    std::size_t size() const { return size_; }
    std::string_view view() const { return {data(), size_}; }

  private:
    static constexpr std::size_t kPage = 4096;
    std::size_t size_;
    std::size_t whole_;
    char* begin_;
};

// Lines of an environment. What is shown of a setting is accepted for it.
void settings(std::string_view input) {
    std::map<std::string, std::string> values;
    std::vector<std::string> lines;
    for (std::string_view rest = input; !rest.empty();) {
        const std::string line(rest.substr(0, rest.find('\n')).substr(0, rest.find('\0')));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        const std::size_t equals = line.find('=');
        if (equals != line.npos) values[line.substr(0, equals)] = line.substr(equals + 1);
        lines.push_back(line);
    }
    std::vector<const char*> environment;
    for (const std::string& line : lines) environment.push_back(line.c_str());
    environment.push_back(nullptr);
    unknown_variables(environment.data());

    std::vector<std::string> problems;
    const Settings parsed = parse_settings(
        [&](const char* name) {
            const auto found = values.find(name);
            return found == values.end() ? nullptr : found->second.c_str();
        },
        problems);
    for (const Setting& setting : settings_table()) {
        Settings again;
        const std::string shown = setting.show(parsed);
        must(shown.empty() || setting.parse(shown, again));
    }
}

void paths(std::string_view input) {
    const std::string path(input.substr(0, input.find('\0')));
    util::expand_path(path);
    util::distrust(path);
    // What is there might be a library, and run.
    struct stat there;
    std::string problem;
    if (stat(path.c_str(), &there) != 0) policy::find(path, problem);
}

void fat_binary(std::string_view input) {
    const Bytes image(input);
    for (const auto& found :
         {code::find_ptx(image.data(), image.size()), code::find_cubins(image.data(), image.size())}) {
        for (const code::PackedCode& code : found) {
            const auto plain = code::unpack(code);
            must(!plain || plain->size() == code.plain_bytes);
        }
    }
    const unsigned gpus[] = {75, 86, 90};
    code::CodeImage code(image.data(), image.size(), {.addresses = true, .layouts = true, .gpus = gpus});
    code.layout_of("k");
    code.kernel("k");
}

void check_layouts(const code::CodeLayouts& layouts) {
    for (const auto& [name, layout] : layouts) {
        std::size_t end = 0;
        for (const code::Parameter& parameter : layout) {
            must(parameter.offset >= end && parameter.offset + parameter.bytes >= parameter.offset);
            end = parameter.offset + parameter.bytes;
        }
    }
}

void nv_info(std::string_view input) {
    const Bytes cubin(input);
    check_layouts(code::layouts_in_cubin(cubin.view()));
}

void ptx(std::string_view input) {
    const Bytes text(input);
    const auto layouts = code::layouts_in_ptx(text.view());
    check_layouts(layouts);
    code::PtxModule module{std::string(input)};
    for (const auto& [name, layout] : layouts) module.addresses_of(name);
}

void symbol(std::string_view input) {
    trace::demangled(std::string(input));
}

// What reads a trace copes with what is in it.
void look_at(const tool::Trace& trace) {
    tool::analyse(trace);
    tool::link_of(trace, trace::Direction::In);
    tool::replay_all(trace, {"lru", "next-use", tool::kFewestBytes, tool::kForesight},
                     {.policy = {}, .retains = true}, {});
}

void trace_file(std::string_view input) {
    const Bytes bytes(input);
    tool::Trace trace;
    std::string problem;
    tool::read_trace(bytes.view(), trace, problem);
    look_at(trace);
}

// The records of a block, which a file's checksum keeps made-up inputs from.
void trace_records(std::string_view input) {
    const Bytes bytes(input);
    tool::Trace trace;
    tool::TraceDecoder decoder(trace);
    decoder.add(bytes.view());
    look_at(trace);
}

// What is drawn of them.
void trace_page(std::string_view input) {
    const Bytes bytes(input);
    tool::Trace trace;
    tool::TraceDecoder(trace).add(bytes.view());
    const tool::Analysis all = tool::analyse(trace);
    tool::html_report(trace, all, {}, tool::findings_of(trace, all, tool::cost_of(trace, all)));
}

// For what is read by its name; in memory where there is such a place.
const std::filesystem::path& scratch_folder() {
    struct Folder {
        Folder() {
            const std::filesystem::path memory = "/dev/shm";
            std::string name =
                (access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path()) /
                "lms-fuzz-XXXXXX";
            must(mkdtemp(name.data()) != nullptr);
            path = name;
        }
        ~Folder() { std::filesystem::remove_all(path); }
        std::filesystem::path path;
    };
    static const Folder folder;
    return folder.path;
}

// Two bytes, the lower first; of an input that has ended, 0.
std::size_t take_number(std::string_view& rest) {
    std::size_t number = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(2, rest.size()); ++i)
        number |= std::size_t{static_cast<unsigned char>(rest[i])} << (8 * i);
    rest.remove_prefix(std::min<std::size_t>(2, rest.size()));
    return number;
}

// A file of a trace, whose checksums are right.
std::string sealed(std::string_view description, std::string_view records) {
    const trace::FileHead head{.bytes = static_cast<std::uint32_t>(description.size()),
                               .checksum = XXH3_64bits(description.data(), description.size())};
    std::string packed(ZSTD_compressBound(records.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), records.data(), records.size(), 1));
    const trace::BlockHead block{.packed_bytes = static_cast<std::uint32_t>(packed.size()),
                                 .plain_bytes = static_cast<std::uint32_t>(records.size()),
                                 .checksum = XXH3_64bits(packed.data(), packed.size())};
    std::string file(trace::bytes_of(head));
    return file.append(description).append(trace::bytes_of(block)).append(packed);
}

// A trace in several files. Each in the input: its length, then a description, a line's end, and the records
// of a block.
void trace_parts(std::string_view input) {
    constexpr unsigned kMostParts = 8;
    const std::string path = scratch_folder() / "trace";
    unsigned parts = 0;
    for (std::string_view rest = input; !rest.empty() && parts < kMostParts; ++parts) {
        const std::size_t bytes = take_number(rest);
        const std::string_view part = rest.substr(0, bytes);
        rest.remove_prefix(part.size());
        const std::size_t line = std::min(part.find('\n'), part.size());
        std::ofstream(trace::name_of_part(path, parts), std::ios::binary)
            << sealed(part.substr(0, line), part.substr(std::min(line + 1, part.size())));
    }
    tool::Trace trace;
    std::string problem;
    tool::read_trace_file(path, trace, problem);
    look_at(trace);
    for (unsigned part = 0; part < parts; ++part) std::filesystem::remove(trace::name_of_part(path, part));
}

// All behind the head of the page in which processes on one GPU say what they have.
void sharing_page(std::string_view input) {
    static const int kFolder = ::open(scratch_folder().c_str(), O_RDONLY | O_DIRECTORY);
    std::string problem;
    const auto page = sharing::SharingPage::open(kFolder, "sharing", problem);
    must(page != nullptr);
    constexpr std::size_t kHead = offsetof(sharing::PageLayout, changes);
    std::string bytes(input.substr(0, sizeof(sharing::PageLayout) - kHead));
    bytes.resize(sizeof(sharing::PageLayout) - kHead);
    const int file = openat(kFolder, sharing::file_of_page("sharing").c_str(), O_RDWR);
    must(file >= 0 && pwrite(file, bytes.data(), bytes.size(), kHead) == static_cast<ssize_t>(bytes.size()));
    close(file);
    const std::uint64_t now = trace::now_ns();
    const auto looked_at = sharing::look_at_page(kFolder, "sharing", problem);
    must(problem.empty() && looked_at.tenants.size() <= sharing::PageLayout::kSlots);
    std::vector<tool::SharedGpu::One> shown;
    for (const auto& seen : looked_at.tenants) shown.push_back({seen, "", seen.slot == looked_at.holder});
    tool::tenants_table({{"GPU", shown}}, now);
    for (const auto& one : shown) tool::shares_json({{"GPU", shown}}, one.seen.process, now);
    page->write({.allocated_bytes = 1 << 20, .last_use_ns = 1});
    must(page->entries().size() <= sharing::PageLayout::kSlots);
    std::vector<sharing::Tenant> tenants;
    for (const auto& seen : page->tenants()) tenants.push_back(seen.tenant);
    std::uint64_t sum = 0;
    for (const std::uint64_t each : sharing::grants(tenants, 1 << 30, 1)) sum += each;
    must(sum <= 1 << 30);
}

// The page of a process. The input: how many bytes of it there are, then what differs from one as it should
// be, each with its place and its length.
void live_page(std::string_view input) {
    static const int kFolder = setenv("XDG_RUNTIME_DIR", scratch_folder().c_str(), 1);
    must(kFolder == 0);
    trace::OwnPage own;
    trace::LivePage& page = own.page;
    page.process = trace::this_process();
    page.gpus[0].used = 1;
    std::string_view rest = input;
    const std::size_t bytes = std::min(take_number(rest), sizeof own);
    auto* const whole = reinterpret_cast<char*>(&own);
    while (!rest.empty()) {
        const std::size_t at = std::min(take_number(rest), sizeof own);
        const std::size_t most = std::min(take_number(rest), sizeof own - at);
        const std::string_view changed = rest.substr(0, most);
        std::memcpy(whole + at, changed.data(), changed.size());
        rest.remove_prefix(changed.size());
    }
    const trace::LiveFolder folder;
    const std::string name = trace::name_of(page);
    const int file = folder.create(name);
    must(file >= 0 && ftruncate(file, 0) == 0 &&
         pwrite(file, whole, bytes, 0) == static_cast<ssize_t>(bytes));
    close(file);
    const tool::Look look{.at_ns = trace::now_ns(), .pages = folder.pages()};
    tool::table({}, look);
    tool::table(look, look);
    tool::to_json(look);
    tool::summary(look.pages, "program", look.at_ns);
    tool::summary_json(look.pages, look.at_ns);
    folder.remove(name);
}

constexpr Target kTargets[] = {{"settings", settings},
                               {"paths", paths},
                               {"fat_binary", fat_binary},
                               {"nv_info", nv_info},
                               {"ptx", ptx},
                               {"symbol", symbol},
                               {"trace_file", trace_file},
                               {"trace_records", trace_records},
                               {"trace_page", trace_page},
                               {"trace_parts", trace_parts},
                               {"live_page", live_page},
                               {"sharing_page", sharing_page}};

}  // namespace

std::span<const Target> targets() {
    return kTargets;
}

const Target* find(std::string_view name) {
    for (const Target& target : kTargets) {
        if (target.name == name) return &target;
    }
    return nullptr;
}

}  // namespace fuzz
