// Messages to the user, one line each, "lms: ...", on stderr or into a file (LMS_LOG).
//
// The functions take fmt's format strings. They may be called from any thread at any time; they take no
// lock, throw nothing, keep errno, and cost one relaxed load when the level is off. Until configure() the
// level is Warn, on stderr.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lms::log {

// A message is written when its level is at or below the configured one.
enum class Level : std::uint8_t { Off, Error, Warn, Info, Debug };

inline constexpr std::string_view kLevelNames[] = {"off", "error", "warn", "info", "debug"};
std::optional<Level> parse_level(std::string_view name);

// Where to log from now on; an empty `path` is stderr, "%p" in it the process, of which a child of fork is
// another. A file is appended to; if it cannot be opened that is said on stderr, which is then used. Call it
// before other threads log.
void configure(Level level, const std::string& path) noexcept;

// How much is said from now on, to where it went before.
void set_level(Level level) noexcept;

namespace detail {
extern std::atomic<Level> threshold;
void write(fmt::string_view format, fmt::format_args arguments) noexcept;
}  // namespace detail

inline bool enabled(Level level) noexcept {
    return level <= detail::threshold.load(std::memory_order_relaxed);
}

template <typename... T>
void write(Level level, fmt::format_string<T...> format, T&&... arguments) noexcept {
    if (enabled(level)) detail::write(format, fmt::make_format_args(arguments...));
}

// The program gets an error, or loses something.
template <typename... T>
void error(fmt::format_string<T...> format, T&&... arguments) noexcept {
    if (enabled(Level::Error)) detail::write(format, fmt::make_format_args(arguments...));
}

// The program continues, but not as its user may expect.
template <typename... T>
void warn(fmt::format_string<T...> format, T&&... arguments) noexcept {
    if (enabled(Level::Warn)) detail::write(format, fmt::make_format_args(arguments...));
}

// Rare events worth knowing: what was found, what was decided.
template <typename... T>
void info(fmt::format_string<T...> format, T&&... arguments) noexcept {
    if (enabled(Level::Info)) detail::write(format, fmt::make_format_args(arguments...));
}

// Every step.
template <typename... T>
void debug(fmt::format_string<T...> format, T&&... arguments) noexcept {
    if (enabled(Level::Debug)) detail::write(format, fmt::make_format_args(arguments...));
}

// True the first time it is called with `said`: `if (static std::atomic<bool> said; log::once(said))
// log::warn(...);`
inline bool once(std::atomic<bool>& said) noexcept {
    return !said.load(std::memory_order_relaxed) && !said.exchange(true, std::memory_order_relaxed);
}

}  // namespace lms::log
