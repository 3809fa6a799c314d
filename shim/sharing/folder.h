// The folder of the pages that processes share: that of the live pages, or one that several containers mount
// (LMS_SHARE_DIR).
#pragma once

#include <optional>
#include <string>

#include "shim/trace/live_folder.h"

namespace lms::sharing {

class SharingFolder {
  public:
    // `path`: LMS_SHARE_DIR, absolute; empty: the live pages' folder. May throw std::bad_alloc.
    explicit SharingFolder(const std::string& path);
    ~SharingFolder();
    SharingFolder(const SharingFolder&) = delete;
    SharingFolder& operator=(const SharingFolder&) = delete;

    int number() const { return number_; }  // its file descriptor, while this lives; -1: it is not used, for
    const std::string& problem() const { return problem_; }

  private:
    std::optional<trace::LiveFolder> live_;
    int number_ = -1;
    std::string problem_;
};

}  // namespace lms::sharing
