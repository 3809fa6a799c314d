#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

// Runs `body` in a child of fork and returns its exit status as waitpid gives it.
template <typename Body>
int in_child(Body body) {
    fflush(nullptr);  // or the child prints it again
    const pid_t child = fork();
    if (child == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return status;
}
