// A process of our own and what it writes to stdout.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace facts {

class Child {
  public:
    // Starts `command` with these variables added to its environment; its stderr is this process's.
    Child(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment);
    ~Child();
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    // Reads until it ends; after `seconds` it is killed. Returns empty if it ended with status 0, else how it
    // ended
    // ("was stopped after 5 s", "ended by signal 11").
    std::string collect(int seconds, std::string& output);

  private:
    pid_t pid_ = -1;
    int pipe_ = -1;
};

}  // namespace facts
