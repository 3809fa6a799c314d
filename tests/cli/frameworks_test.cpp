// Frameworks that a Python program finds set up (LMS_FRAMEWORKS), by its environment:
// tests/cli/frameworks.py.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace {

using support::Result;
using Environment = std::map<std::string, std::string>;

const Environment kNothing;
const Environment kJax = {{"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"},
                          {"XLA_PYTHON_CLIENT_PREALLOCATE", "false"}};
const Environment kPyTorch = {{"PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"},
                              {"PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"}};
const Environment kTensorFlow = {{"TF_GPU_ALLOCATOR", "cuda_malloc_async"}};

Environment both(Environment one, const Environment& other) {
    one.insert(other.begin(), other.end());
    return one;
}

// None of what the tests look at comes from who runs them.
Environment with_shim(const Environment& environment) {
    Environment all = {{"LD_PRELOAD", support::preloaded_shim()}};
    for (const Environment& each : {kJax, kPyTorch, kTensorFlow})
        for (const auto& [name, value] : each) all[name] = "";
    for (const char* name :
         {"LMS_FRAMEWORKS", "LMS_LOG", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"})
        all[name] = "";
    for (const auto& [name, value] : environment) all[name] = value;
    return all;
}

Environment parsed(const Result& result) {
    INFO(result.out, result.err);
    REQUIRE(result.status == 0);
    return nlohmann::json::parse(result.out).get<Environment>();
}

// What the program has in its environment that it has not without the shim. `python` is the interpreter with
// its options.
Environment added(const Environment& given, std::vector<std::string> python = {"python3"},
                  const std::vector<std::string>& arguments = {}) {
    python.emplace_back("tests/cli/frameworks.py");
    python.insert(python.end(), arguments.begin(), arguments.end());
    Environment environment = with_shim(given);
    const Result shimmed = support::run(python, environment);
    CHECK(shimmed.err == "");
    environment["LD_PRELOAD"] = "";
    const Environment before = parsed(support::run(python, environment));
    Environment after = parsed(shimmed);
    CHECK(after.erase("LD_PRELOAD") == 1);
    for (const auto& each : before) {
        CAPTURE(each.first);
        CHECK(after[each.first] == each.second);
        after.erase(each.first);
    }
    return after;
}

// On a GPU too small for what it allocates; what the shim says, at `level`.
std::string told(const std::string& level, const Environment& given, const std::string& python = "python3") {
    Environment environment = with_shim(given);
    environment["LMS_DRIVER"] = support::build_dir() + "/sim/libcuda.so.1";
    environment["SIMCUDA_MEMORY"] = "4M";
    environment["SIMCUDA_GRANULARITY"] = "64K";
    environment["LMS_THRESHOLD"] = "16K";
    environment["LMS_LOG"] = level;
    const Result result = support::run({python, "tests/cli/frameworks.py", "fill"}, environment);
    INFO(result.out);
    CHECK_MESSAGE(result.status == 0, result.err);
    return result.err;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("frameworks: a Python program finds those set up that LMS_FRAMEWORKS means, and nothing else") {
    CHECK(added({}) == kJax);
    CHECK(added({{"LMS_FRAMEWORKS", "auto"}}) == kJax);
    CHECK(added({{"LMS_FRAMEWORKS", "off"}}) == kNothing);
    CHECK(added({{"LMS_FRAMEWORKS", "jax"}}) == kJax);
    CHECK(added({{"LMS_FRAMEWORKS", "pytorch"}}) == kPyTorch);
    CHECK(added({{"LMS_FRAMEWORKS", "tensorflow"}}) == kTensorFlow);
    CHECK(added({{"LMS_FRAMEWORKS", "tensorflow,jax,pytorch"}}) == both(kJax, both(kPyTorch, kTensorFlow)));
}

TEST_CASE("frameworks: what the user has set stays, and decides") {
    CHECK(added({{"XLA_PYTHON_CLIENT_ALLOCATOR", "platform"}}) == kNothing);
    CHECK(added({{"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"}}) == kNothing);
    CHECK(added({{"XLA_PYTHON_CLIENT_PREALLOCATE", "true"}}) ==
          Environment{{"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"}});
    for (const char* name : {"XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"})
        CHECK(added({{name, "0.4"}}) == kNothing);
    const std::string all = "pytorch,tensorflow";
    CHECK(added({{"LMS_FRAMEWORKS", all}, {"PYTORCH_ALLOC_CONF", "max_split_size_mb:64"}}) == kTensorFlow);
    CHECK(added({{"LMS_FRAMEWORKS", all}, {"PYTORCH_CUDA_ALLOC_CONF", "backend:native"}}) == kTensorFlow);
    CHECK(added({{"LMS_FRAMEWORKS", all}, {"TF_GPU_ALLOCATOR", "cuda_malloc"}}) == kPyTorch);
}

TEST_CASE("frameworks: whatever a Python is started by and with, and its children") {
    CHECK(added({}, {"python3", "-I"}) == kJax);
    CHECK(added({}, {"python3", "-E", "-S", "-B"}) == kJax);
    CHECK(added({}, {"sh", "-c", R"(exec python3 "$@")", "sh"}) == kJax);
    CHECK(added({}, {"python3"}, {"child"}) == kJax);
    // A child that was not given them; the shim it was.
    CHECK(added({}, {"python3"}, {"child", "clean"}) == kJax);
    // As in a virtual environment.
    const Result where = support::run({"python3", "-c", "import sys; print(sys.executable, end='')"});
    const std::string link = support::scratch_file("trainer");
    std::filesystem::create_symlink(where.out, link);
    CHECK(added({}, {link}) == kJax);
}

TEST_CASE("frameworks: a program that is not CPython finds nothing") {
    const Environment environment = with_shim({{"LMS_FRAMEWORKS", "jax,pytorch,tensorflow"}});
    const auto shown = [&](const std::vector<std::string>& command) {
        const Result result = support::run(command, environment);
        CHECK(result.status == 0);
        CHECK(result.err == "");
        return result.out;
    };
    for (const std::vector<std::string>& command : {std::vector<std::string>{"env"}, {"sh", "-c", "env"}}) {
        const std::string out = shown(command);
        CHECK(has(out, "LD_PRELOAD="));
        for (const char* part : {"XLA_PYTHON", "PYTORCH_", "TF_GPU"}) CHECK_FALSE(has(out, part));
    }
    // Python's own program may have the interpreter in a library; so may others.
    CHECK(shown({support::build_dir() + "/cli/python_launcher"}) == "cuda_async\n");
    CHECK(shown({support::build_dir() + "/cli/python_embedder"}) == "not set\n");
}

TEST_CASE("frameworks: the environment stays as it is beside another thread") {
    const std::string thread = support::build_dir() + "/cli/libearly_thread.so";
    // One of them begins before the shim, whatever order the loader takes.
    const std::string other = support::scratch_file("libother_thread.so");
    std::filesystem::copy_file(thread, other);
    std::string preloaded = support::preloaded_shim();
    const std::size_t shim = preloaded.rfind(':') + 1;  // behind a sanitizer's runtime
    preloaded.insert(shim, other + ":").append(":" + thread);
    CHECK(added({{"LD_PRELOAD", preloaded}}) == kNothing);
}

TEST_CASE("frameworks: a value that is not accepted is named in one line, where CUDA is used") {
    for (const char* value : {"jaxx", "jax,", ",", "auto,off", "JAX", "jax pytorch", " "}) {
        CAPTURE(value);
        CHECK(added({{"LMS_FRAMEWORKS", value}}) == kJax);
        CHECK(has(told("warn", {{"LMS_FRAMEWORKS", value}}),
                  std::string("lms: LMS_FRAMEWORKS=") + value +
                      ": expected auto, off, or names between commas: jax, pytorch, tensorflow; using the "
                      "default, auto\n"));
    }
}

TEST_CASE("frameworks: what is set up is told at info, and with the pressure") {
    std::string err = told("info", {{"LMS_FRAMEWORKS", "jax,tensorflow"}});
    CHECK_MESSAGE(has(err,
                      "lms: LMS_FRAMEWORKS: jax is set up: XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async "
                      "XLA_PYTHON_CLIENT_PREALLOCATE=false\n"),
                  err);
    CHECK(has(err, "lms: LMS_FRAMEWORKS: tensorflow is set up: TF_GPU_ALLOCATOR=cuda_malloc_async\n"));
    CHECK(has(err, " (`lms top`); LMS_FRAMEWORKS=jax,tensorflow\n"));

    // Also where the user, or a parent, has set the same.
    err =
        told("info", {{"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"}, {"XLA_PYTHON_CLIENT_PREALLOCATE", "1"}});
    CHECK(has(err, "lms: LMS_FRAMEWORKS: jax is set up: XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async\n"));
    CHECK(has(err, " (`lms top`); LMS_FRAMEWORKS=jax\n"));

    err = told("info", {{"XLA_PYTHON_CLIENT_ALLOCATOR", "platform"}});
    CHECK(has(err, "lms: LMS_FRAMEWORKS: jax keeps XLA_PYTHON_CLIENT_ALLOCATOR, which is set already\n"));
    CHECK(has(err, " (`lms top`)\n"));
    err = told("info", {{"XLA_CLIENT_MEM_FRACTION", ".9"}});
    CHECK(has(err, "lms: LMS_FRAMEWORKS: jax keeps XLA_CLIENT_MEM_FRACTION, which is set already\n"));
    err = told("info", {{"LMS_FRAMEWORKS", "pytorch"}, {"PYTORCH_CUDA_ALLOC_CONF", "backend:native"}});
    CHECK(has(err, "lms: LMS_FRAMEWORKS: pytorch keeps PYTORCH_CUDA_ALLOC_CONF, which is set already\n"));

    err = told("warn", {{"LMS_FRAMEWORKS", "off"}});
    CHECK(has(err, " (`lms top`)\n"));
    CHECK_FALSE(has(err, "FRAMEWORKS"));
}
