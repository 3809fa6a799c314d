#include "shim/migration/state.h"

namespace lms::engine {

core::EngineOptions options_of(const Settings& settings, const Span& span, std::uint64_t granularity) {
    return {.begin = span.begin,
            .bytes = span.app_bytes,
            .granularity = granularity,
            .strict = settings.safety == Safety::Strict,
            .sees_all_writes = settings.asks_what_is_written(),
            .knows_undefined = settings.safety != Safety::Args,
            .checks = settings.check,
            .host_limit_bytes = util::host_limit_bytes(settings.host_limit_bytes)};
}

}  // namespace lms::engine
