// The engine's tests. What it logs of failures that are staged here would bury those that are not.
#include <doctest/doctest.h>

#include "shim/util/log.h"
#include "shim/util/settings.h"

int main(int count, char** arguments) {
    lms::settings();  // which configures the log, once
    lms::log::configure(lms::log::Level::Off, "");
    return doctest::Context(count, arguments).run();
}
