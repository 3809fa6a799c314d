// `lms self-check`: whose doing it was that it came to no verdict.
#include <doctest/doctest.h>

#include "tests/support/process.h"

TEST_CASE("self-check: a GPU of which a trial was ended from outside has not been tried") {
    // Each call of the driver's takes so long that there is time to end it.
    const auto ended_by = [](const std::string& signal) {
        return support::run(
                   {"sh", "-c",
                    "LD_LIBRARY_PATH=build/sim SIMCUDA_VMM_US=1000000 build/lms self-check 0000:01:00.0 & "
                    "while [ -d /proc/$! ] && [ -z \"$trying\" ]; do read -r trying < "
                    "/proc/$!/task/$!/children; done; "
                    "kill -" +
                        signal + " $trying; wait"})
            .out;
    };
    CHECK(ended_by("SEGV") == "died\n");
    CHECK(ended_by("KILL") == "not tried: something killed the trial\n");
}
