#include "shim/trace/block_writer.h"

#include <errno.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>
#include <zstd.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>

#include "shim/trace/modules.h"
#include "shim/util/log.h"
#include "shim/util/settings.h"

namespace lms::trace {
namespace {

constexpr int kLevel = 1;
// A disk that is full is asked again after so long.
constexpr std::uint64_t kRetryNs = 1'000'000'000;

// What is known of the process when its trace begins.
nlohmann::ordered_json description(std::uint64_t began_ns) {
    nlohmann::ordered_json in_force = nlohmann::ordered_json::object();
    for (const Setting& setting : settings_table()) {
        if (const std::string value = setting.show(settings()); !value.empty())
            in_force[std::string(setting.variable)] = value;
    }
    nlohmann::ordered_json modules = nlohmann::ordered_json::array();
    for (const Module& module : loaded_modules()) modules.push_back({module.name, module.path, module.id});
    return {{"lmsshim", LMS_VERSION}, {"program", program_invocation_name},
            {"process", getpid()},    {"began_ns", began_ns},
            {"settings", in_force},   {"modules", modules}};
}

}  // namespace

BlockWriter::BlockWriter() : packer_(nullptr, ZSTD_freeCCtx) {}
BlockWriter::~BlockWriter() = default;

int BlockWriter::open(const std::string& path, std::optional<std::uint64_t> most_bytes, bool midway) noexcept
    try {
    const util::Lock lock(mutex_);
    if (!packer_) packer_.reset(ZSTD_createCCtx());
    if (!packer_) return ENOMEM;
    path_ = util::expand_path(path);
    most_bytes_ = most_bytes;
    midway_ = midway;
    part_ = 0;
    began_ns_ = now_ns();
    standing_.clear();
    records_ = {};
    packed_.clear();
    next_ns_ = dropped_ = 0;
    failed_ = false;
    if (const int problem = begin_file(file_, 0)) return problem;
    process_ = getpid();
    return 0;
} catch (const std::exception&) {
    return ENOMEM;
}

std::string BlockWriter::head(unsigned part) const {
    nlohmann::ordered_json about = description(part == 0 ? began_ns_ : now_ns());
    if (midway_) about["midway"] = true;
    if (part > 0) {
        about["part"] = part;
        about["first_began_ns"] = began_ns_;
        about["repeated"] = standing_.events();
    }
    const std::string text = about.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    FileHead head;
    head.bytes = static_cast<std::uint32_t>(text.size());
    head.checksum = XXH3_64bits(text.data(), text.size());
    return std::string(bytes_of(head)) + text;
}

int BlockWriter::begin_file(util::OutputFile& file, unsigned part) {
    const std::string begin = head(part);
    if (const int problem = file.open(name_of_part(path_, part).c_str(), util::OutputFile::Mode::Truncate))
        return problem;
    if (const int problem = file.write_at(0, begin)) {
        file.close();
        return problem;
    }
    part_ = part;
    end_ = begin.size();
    full_at_ = most_bytes_.value_or(UINT64_MAX);
    written_ns_ = now_ns();
    return 0;
}

void BlockWriter::repeat(const Event& event) {
    records_.put(event);
    // A block has its bounds.
    if (records_.bytes().size() >= kMostBytes && pack()) write_packed();
}

// All that came before is in the file that is full.
void BlockWriter::begin_next_file() try {
    util::OutputFile next;
    full_at_ += *most_bytes_;
    if (const int problem = begin_file(next, part_ + 1)) {
        log::warn("LMS_TRACE: cannot write {}: {}; the last file grows instead",
                  name_of_part(path_, part_ + 1), util::OutputFile::reason(problem));
        return;
    }
    file_ = std::move(next);
    records_ = {};
    standing_.tell(now_ns(), std::bind_front(&BlockWriter::repeat, this));
} catch (const std::exception&) {
    ++dropped_;
}

bool BlockWriter::is_due(std::uint64_t now) const {
    if (now < next_ns_) return false;
    return records_.bytes().size() >= kBlockBytes || now - std::min(now, written_ns_) >= kOldNs;
}

void BlockWriter::write(const Event& event) noexcept {
    // A child of fork shares the file, but not this writer's idea of its end; and the lock may have been held
    // by a thread that the child does not have.
    if (getpid() != process_) return;
    const util::Lock lock(mutex_);
    if (!file_.is_open()) return;
    if (most_bytes_) {
        try {
            standing_.note(event);
        } catch (const std::exception&) {
            ++dropped_;
        }
    }
    if (records_.bytes().size() >= kMostBytes) {
        ++dropped_;
    } else {
        try {
            if (dropped_ > 0) records_.put(Dropped{dropped_});
            dropped_ = 0;
            records_.put(event);
        } catch (const std::exception&) {
            ++dropped_;
        }
    }
    if (is_due(records_.now_ns())) flush();
}

void BlockWriter::refresh() noexcept {
    if (getpid() != process_) return;
    const std::uint64_t now = now_ns();
    const util::Lock lock(mutex_);
    if (is_due(now)) flush();
}

void BlockWriter::end() noexcept {
    if (getpid() != process_) return;
    const util::Lock lock(mutex_);
    full_at_ = UINT64_MAX;
    if (!packed_.empty()) flush();
    try {
        if (dropped_ > 0) records_.put(Dropped{dropped_});
        records_.put_end();
    } catch (const std::exception&) {
        // It reads as the trace of a program that was killed.
    }
    flush();
    file_.close();
}

// What could not be written stays as it is: what later blocks refer to is defined in it.
void BlockWriter::flush() {
    if (!file_.is_open()) return;
    if (packed_.empty() && !pack()) return;
    const std::uint64_t begin = now_ns();
    if (!write_packed()) return;
    if (end_ >= full_at_ && records_.bytes().empty()) begin_next_file();
    written_ns_ = now_ns();
    next_ns_ = written_ns_ + kPause * (written_ns_ - begin);
}

bool BlockWriter::write_packed() {
    const int problem = file_.write_at(end_, packed_);
    written_ns_ = now_ns();
    if (problem == 0) {
        end_ += packed_.size();
        packed_.clear();
        return true;
    }
    file_.truncate(end_);
    next_ns_ = written_ns_ + kRetryNs;
    if (!failed_)
        log::warn("LMS_TRACE: cannot write: {}; events are missing from here on",
                  util::OutputFile::reason(problem));
    failed_ = true;
    return false;
}

bool BlockWriter::pack() try {
    const std::string& plain = records_.bytes();
    if (plain.empty()) return false;
    BlockHead head;
    packed_.resize(sizeof head + ZSTD_compressBound(plain.size()));
    const std::size_t size =
        ZSTD_compressCCtx(packer_.get(), packed_.data() + sizeof head, packed_.size() - sizeof head,
                          plain.data(), plain.size(), kLevel);
    if (ZSTD_isError(size)) {
        packed_.clear();
        return false;
    }
    packed_.resize(sizeof head + size);
    head.packed_bytes = static_cast<std::uint32_t>(size);
    head.plain_bytes = static_cast<std::uint32_t>(plain.size());
    head.checksum = XXH3_64bits(packed_.data() + sizeof head, size);
    std::ranges::copy(bytes_of(head), packed_.begin());
    records_.begin_block();
    return true;
} catch (const std::exception&) {
    packed_.clear();
    return false;
}

}  // namespace lms::trace
