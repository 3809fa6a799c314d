#include "shim/executor/core.h"

#ifdef LMS_CHECK_LOCKS
#include "shim/engine/rules.h"
#endif

namespace lms::executor {

namespace {

engine::EngineOptions options_of(const Settings& settings, const Span& span, std::uint64_t granularity) {
    return {.begin = span.begin,
            .bytes = span.app_bytes,
            .granularity = granularity,
            .strict = settings.safety == Safety::Strict,
            .sees_all_writes = settings.asks_what_is_written(),
            .knows_undefined = settings.safety != Safety::Args,
            .checks = settings.check,
            .host_limit_bytes = util::host_limit_bytes(settings.host_limit_bytes)};
}

}  // namespace

Core::Core(int device_, device::Port& port_, const Settings& settings_, Span span_, engine::Ranking& ranking)
    : device(device_),
      port(port_),
      settings(settings_),
      granularity(port_.granularity()),
      span(span_),
      engine(options_of(settings_, span, granularity), ranking),
      arena(span.begin, span.app_bytes, granularity, granularity),
      aliases(span.begin + span.app_bytes, span.alias_bytes, granularity, 0),
      soft_limit(settings_.soft_limit_bytes),
      device_blocks(port_, engine.pool(engine::Place::Device), engine::Place::Device, aliases),
      host_blocks(port_, engine.pool(engine::Place::Host), engine::Place::Host, aliases),
      program_pins(engine),
      fences(port_, engine.timelines()),
      telemetry(device_, port_, engine, settings_) {
#ifdef LMS_CHECK_LOCKS
    mutex.always([this]() LMS_LOCKED {
        if (const std::string broken = engine::broken_rule(engine); !broken.empty())
            util::lock_checks::report(broken.c_str());
    });
#endif
}

}  // namespace lms::executor
