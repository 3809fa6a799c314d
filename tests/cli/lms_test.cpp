// The lms command as a user meets it: statuses, one line of complaint, what the program it runs is given.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/child.h"
#include "tests/support/process.h"
#include "tests/support/scratch.h"

namespace fs = std::filesystem;

namespace {

using support::Result;

// Runs a line of shell in the root of the repository.
Result shell(const std::string& line) {
    return support::run({"sh", "-c", line});
}

// The shim as lms finds it, beside itself.
std::string shim() {
    return fs::canonical("build/liblmsshim.so");
}

// A usage error: status 2, nothing on stdout, one line on stderr with `expected` in it.
void check_usage_error(const std::string& arguments, const std::string& expected) {
    CAPTURE(arguments);
    const Result result = shell("build/lms " + arguments);
    CHECK(result.status == 2);
    CHECK(result.out == "");
    CHECK(result.err.starts_with("lms: "));
    CHECK(std::ranges::count(result.err, '\n') == 1);
    CHECK_MESSAGE(result.err.find(expected) != std::string::npos, result.err);
}

}  // namespace

TEST_CASE("lms: help and version") {
    CHECK(shell("build/lms --version").out == "lms 0.1.0\n");
    const Result help = shell("build/lms --help");
    CHECK(help.status == 0);
    for (const char* command : {"run", "top", "settings", "doctor"})
        CHECK(help.out.find(command) != std::string::npos);
    for (const char* status : {"Exit status: 0 done; 1 ", " 2 ", " 125 ", " 126 ", " 127 "})
        CHECK(help.out.find(status) != std::string::npos);
    CHECK(shell("build/lms help").out == help.out);
    const Result run_help = shell("build/lms run --help");
    CHECK(run_help.status == 0);
    CHECK(shell("build/lms help run").out == run_help.out);
    CHECK(run_help.out.find("Usage: lms run [OPTIONS] [--] PROGRAM [ARGUMENTS]\n") != std::string::npos);
    for (const char* option : {"--sim ", "--sim-memory", "--threshold", "--frac", "--limit", "--reserve",
                               "--host-limit", "--soft-limit", "--share ", "--share-dir", "--meminfo",
                               "--safety", "--policy", "--log", "--stats", "--trace", "--driver"}) {
        CHECK_MESSAGE(run_help.out.find(option) != std::string::npos, option);
    }
}

TEST_CASE("lms: usage errors") {
    check_usage_error("",
                      "no command; expected run, demo, plan, top, set, trace, report, replay, diff, export, "
                      "settings or doctor");
    check_usage_error(
        "frobnicate",
        "no command frobnicate; expected run, demo, plan, top, set, trace, report, replay, diff, "
        "export, settings or doctor");
    check_usage_error("demo --steps 0", "--steps: \"0\" is no number above 0");
    check_usage_error("set some share=1", "PID: \"some\" is no number above 0");
    check_usage_error("replay any --fail-above nan", "--fail-above: \"nan\" is no number above 0");
    check_usage_error("plan any --kernel-ms nan", "--kernel-ms: \"nan\" is no number from 0 on");
    check_usage_error("demo no-such-file", "no-such-file");
    check_usage_error("--sim run true", "--sim");
    check_usage_error("run", "no program");
    check_usage_error("run --", "no program");
    check_usage_error("run --limt 64M -- true", "no option --limt");
    check_usage_error("run --limit", "--limit");
    check_usage_error("run --limit 64Q -- true", "--limit=64Q: expected a size");
    check_usage_error("run --limit 0 -- true", "--limit=0: expected a size in bytes above 0");
    check_usage_error("run --share weight=0 true", "--share=weight=0: expected weight=1 to 1000, min=SIZE");
    check_usage_error("run --share-dir shared true", "--share-dir=shared: expected the absolute path");
    check_usage_error("run --threshold two true", "--threshold=two: expected a size in KiB");
    check_usage_error("run --frac 1.5 true", "--frac=1.5: expected a number from 0 to 1");
    check_usage_error("run --frac '' true", "--frac=: expected a number from 0 to 1");
    check_usage_error("run --meminfo big true", "--meminfo=big: expected physical or enlarged");
    check_usage_error("run --summary loud true", "--summary");
    check_usage_error("run --safety none true", "--safety=none: expected args, opaque or strict");
    check_usage_error("run --log loud true", "--log=loud: expected off, error, warn, info or debug");
    check_usage_error("run --policy lur true",
                      "--policy=lur: expected next-use, lru, lms, or the path of a plugin");
    check_usage_error("run --policy ./none.so true", "./none.so");
    check_usage_error("run --sim-memory 64M true", "--sim");
    check_usage_error("run --sim --sim-memory 64X true", "--sim-memory=64X: expected a size");
    check_usage_error("run --sim --sim-memory 0 true", "--sim-memory=0: expected a size in bytes above 0");
    check_usage_error("plan --sim-memory 0 -- true", "--sim-memory=0: expected a size in bytes above 0");
    check_usage_error("run --stats= ./mine true", "--stats=: expected a value behind the =");
    check_usage_error("plan --gpu a100 --size= 4", "--size=: expected a value behind the =");
    check_usage_error("replay any --link 25", "--link=25: expected bytes a second, at least 1M");
    check_usage_error("plan any --kernel-ms 1e15", "--kernel-ms: 1e15 is above 2147483647");
    check_usage_error("top 99999999999999", "PID: 99999999999999 is above 2147483647");
    check_usage_error("doctor --bogus", "(lms doctor --help)");
    check_usage_error("help bogus", "no command bogus");
    check_usage_error("bogus --help", "no command bogus");
    check_usage_error("doctor -- true", "no program is run here");
    check_usage_error("settings --jsn", "--jsn");
    check_usage_error("top none", "PID");
    check_usage_error("top 0", "PID");
}

TEST_CASE("lms run: the program gets the shim, the settings and its own arguments") {
    const Result plain = shell("build/lms run -- env");
    CHECK(plain.status == 0);
    CHECK(plain.err == "lms: env allocated no GPU memory under the shim; nothing moved\n");
    CHECK(plain.out.find("LD_PRELOAD=" + shim() + "\n") != std::string::npos);
    CHECK(plain.out.find("LMS_") == std::string::npos);
    CHECK(plain.out.find("LD_LIBRARY_PATH") == std::string::npos);

    const Result all = shell(
        "build/lms run --threshold 4M --frac 0.5 --limit 64M --reserve 1M --host-limit 2G --soft-limit 48M "
        "--share weight=2,min=4G,priority=1 --share-dir /shared --meminfo enlarged --frameworks jax,pytorch "
        "--safety strict --host-mapping off --check "
        "--policy build/policy/lru.so --log info:/dev/null --stats s-%p --trace t-%p --trace-size 64M "
        "--driver /d.so -- env | "
        "grep LMS_ | sort");
    CHECK(all.out ==
          "LMS_CHECK=1\nLMS_DRIVER=/"
          "d.so\nLMS_FRAC=0.5\nLMS_FRAMEWORKS=jax,pytorch\nLMS_HOST_LIMIT=2G\nLMS_HOST_MAPPING=off\nLMS_"
          "LIMIT=64M\nLMS_LOG=info:/dev/"
          "null\nLMS_MEMINFO=enlarged\n"
          "LMS_POLICY=build/policy/"
          "lru.so\nLMS_RESERVE=1M\nLMS_SAFETY=strict\nLMS_SHARE=weight=2,min=4G,priority=1\nLMS_SHARE_DIR=/"
          "shared\nLMS_SOFT_LIMIT=48M\nLMS_STATS=s-%"
          "p\nLMS_THRESHOLD=4M\n"
          "LMS_TRACE=t-%p\nLMS_TRACE_SIZE=64M\n");

    const std::string words = R"(-- --limit '[1,2]' '' 'a b' "it's" -h --)";
    const std::string shown = "--|--limit|[1,2]||a b|it's|-h|--|";
    CHECK(shell("build/lms run -- sh -c 'printf \"%s|\" \"$@\"' sh " + words).out == shown);
    CHECK(shell("build/lms run sh -c 'printf \"%s|\" \"$@\"' sh " + words).out == shown);
}

TEST_CASE("lms run: variables already set stay, options win over them") {
    CHECK(shell("LMS_FRAC=0.1 LMS_LIMIT=1G build/lms run --frac 0.2 -- env | grep LMS_ | sort").out ==
          "LMS_FRAC=0.2\nLMS_LIMIT=1G\n");
    // Something harmless that is there on every glibc system.
    const Result preloaded = shell("LD_PRELOAD=libm.so.6 build/lms run -- env");
    CHECK(preloaded.out.find("LD_PRELOAD=libm.so.6:" + shim() + "\n") != std::string::npos);
    CHECK(shell("LD_PRELOAD=libm.so.6 build/lms run --summary=off -- env").err == "");
}

TEST_CASE("lms run: which frameworks a Python program finds set up is an option, and nothing is set before") {
    CHECK(shell("build/lms run --frameworks pytorch -- env | grep -E 'FRAMEWORKS|ALLOC'").out ==
          "LMS_FRAMEWORKS=pytorch\n");
    const std::string python = "-- python3 -c 'import os; print(os.environ.get(\"TF_GPU_ALLOCATOR\"))'";
    CHECK(shell("build/lms run --frameworks tensorflow " + python).out == "cuda_malloc_async\n");
    CHECK(shell("build/lms run --frameworks off " + python).out == "None\n");
    CHECK(shell("LMS_FRAMEWORKS=tensorflow build/lms run " + python).out == "cuda_malloc_async\n");
    check_usage_error("run --frameworks torch -- true",
                      "--frameworks=torch: expected auto, off, or names between commas: jax, pytorch, "
                      "tensorflow");
}

TEST_CASE("lms run: the simulated GPU is put before what the loader searches") {
    const std::string simulated = fs::canonical("build/sim");
    const Result result = shell("LD_LIBRARY_PATH=/a:/b build/lms run --sim --sim-memory 48M -- env");
    CHECK(result.status == 0);
    CHECK(result.out.find("LD_LIBRARY_PATH=" + simulated + ":/a:/b\n") != std::string::npos);
    CHECK(result.out.find("SIMCUDA_MEMORY=48M\n") != std::string::npos);
    CHECK(shell("build/lms run --sim -- env").out.find("LD_LIBRARY_PATH=" + simulated + "\n") !=
          std::string::npos);
}

TEST_CASE("lms run: it ends as the program ends") {
    CHECK(shell("build/lms run -- sh -c 'exit 7'").status == 7);
    CHECK(shell("build/lms run -- sh -c 'kill -9 $$'").status == 128 + 9);
    CHECK(shell("build/lms run true").status == 0);
    Result missing = shell("build/lms run -- ./no-such-program");
    CHECK(missing.status == 127);
    CHECK(missing.err == "lms run: ./no-such-program: No such file or directory\n");
    missing = shell("build/lms run -- no-such-program-in-path");
    CHECK(missing.status == 127);
    const Result folder = shell("build/lms run -- ./tests");
    CHECK(folder.status == 126);
    CHECK(folder.err == "lms run: ./tests: Permission denied\n");
}

TEST_CASE("lms run: it ends as the program ends, when it waits for it and when it becomes it") {
    for (const std::string how : {"--summary=text", "--summary=json", "--summary=off"}) {
        CAPTURE(how);
        const std::string run = "build/lms run " + how + " -- ";
        CHECK(shell(run + "sh -c 'exit 7'").status == 7);
        CHECK(shell(run + "sh -c 'kill -9 $$'").status == 128 + 9);
        CHECK(shell(run + "sh -c 'kill -TERM $$'").status == 128 + 15);
        CHECK(shell(run + "./no-such-program").status == 127);
        CHECK(shell("echo words | " + run + "cat").out == "words\n");
    }
}

TEST_CASE(
    "lms run: a program that a signal ended ends it by that signal, not by a status that looks like it") {
    const pid_t lms = support::start_child([] {
        execl("build/lms", "lms", "run", "--", "sh", "-c", "kill -TERM $$", static_cast<char*>(nullptr));
    });
    int status = 0;
    REQUIRE(waitpid(lms, &status, 0) == lms);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("lms run: a signal sent to it reaches the program, and the program goes with it") {
    // Each writes what it saw once it waits.
    const Scratch scratch;
    const std::string program =
        "trap 'echo told; exit 3' USR1 TERM; echo ready; while :; do sleep 0.05; done";
    for (const std::string signal : {"USR1", "TERM"}) {
        const std::string out = scratch.path(signal);
        const Result told =
            shell("build/lms run -- sh -c \"" + program + "\" >" + out + " & p=$!; until grep -q ready " +
                  out + " 2>/dev/null; do sleep 0.05; done; kill -" + signal + " $p; wait $p");
        CHECK(told.status == 3);
        CHECK(scratch.get(signal) == "ready\ntold\n");
    }
    const std::string out = scratch.path("out");
    const Result killed =
        shell("build/lms run -- sh -c 'echo $$; exec sleep 1000' >" + out + " & p=$!; until test -s " + out +
              "; do sleep 0.05; done; kill -KILL $p; wait $p; q=$(cat " + out +
              "); for look in $(seq 200); do kill -0 $q 2>/dev/null || exit 0; sleep 0.05; done; kill -KILL "
              "$q; exit 1");
    CHECK(killed.status == 0);
}

TEST_CASE("lms run: it says why nothing could be enlarged") {
    const Scratch scratch;
    scratch.put("static.c", "int main(void) { return 4; }\n");
    REQUIRE(shell("cc -static -o " + scratch.path("static") + " " + scratch.path("static.c")).status == 0);
    Result result = shell("build/lms run -- " + scratch.path("static"));
    CHECK(result.status == 4);
    CHECK(result.err == "lms: " + scratch.path("static") +
                            " is a static program, and the loader preloads nothing into it\n");
    fs::copy_file("/bin/true", scratch.path("set-uid"));
    REQUIRE(shell("chmod u+s " + scratch.path("set-uid")).status == 0);
    result = shell("build/lms run -- " + scratch.path("set-uid"));
    CHECK(result.err == "lms: " + scratch.path("set-uid") +
                            " runs as another user (set-uid), and the loader preloads nothing into it\n");
    const auto json = nlohmann::json::parse(shell("build/lms run --summary=json -- true 2>&1").out);
    CHECK(json["processes"].empty());
    CHECK(json["sum"]["fills"] == 0);
}

TEST_CASE("lms run: installed, it finds the shim in ../lib/lmsshim; without one it says so") {
    const Scratch prefix;
    fs::create_directories(prefix.path("bin"));
    fs::copy_file("build/lms", prefix.path("bin/lms"));
    const std::string lms = prefix.path("bin/lms");
    Result result = shell(lms + " run true");
    CHECK(result.status == 125);
    CHECK(result.err == "lms run: liblmsshim.so is neither beside this program nor in ../lib/lmsshim\n");
    result = shell(lms + " doctor");
    CHECK(result.status == 1);
    CHECK(result.out.starts_with("shim: not found: neither beside"));
    CHECK_MESSAGE(result.out.find("\nto do: build it, or install") != std::string::npos, result.out);

    fs::create_directories(prefix.path("lib/lmsshim"));
    fs::copy_file("build/liblmsshim.so", prefix.path("lib/lmsshim/liblmsshim.so"));
    result = shell(lms + " run env");
    CHECK(result.status == 0);
    CHECK(result.out.find("LD_PRELOAD=" + prefix.path("lib/lmsshim/liblmsshim.so") + "\n") !=
          std::string::npos);
    result = shell(lms + " run --sim true");
    CHECK(result.status == 125);
    CHECK(result.err.find("simulated GPU is not there") != std::string::npos);

    // The loader splits LD_PRELOAD at spaces.
    fs::create_directories(prefix.path("a b"));
    fs::copy_file("build/lms", prefix.path("a b/lms"));
    fs::copy_file("build/liblmsshim.so", prefix.path("a b/liblmsshim.so"));
    result = shell("'" + prefix.path("a b/lms") + "' run true");
    CHECK(result.status == 125);
    CHECK(result.err.find("space or colon") != std::string::npos);
}

TEST_CASE("lms run: a script that is not executable is Python's by its name, one that is runs as it says") {
    const Scratch folder;
    const auto write = [&](const char* name, const std::string& text) {
        std::ofstream(folder.path(name)) << text;
        return folder.path(name);
    };
    const std::string plain =
        write("plain.py", "import os, sys\nprint(sys.argv[1:], 'LMSSHIM_PYTHON' in os.environ)\n");
    CHECK(shell("build/lms run --summary=off " + plain + " -x 2").out == "['-x', '2'] False\n");
    const std::string own = write("own.py", "#!/bin/sh\necho shell $1\n");
    fs::permissions(own, fs::perms::owner_exec, fs::perm_options::add);
    CHECK(shell("build/lms run --summary=off " + own + " 3").out == "shell 3\n");
    // A module of Python's says which Python.
    CHECK(shell("LMSSHIM_PYTHON=/bin/echo build/lms run --summary=off " + plain).out == plain + "\n");
    CHECK(shell("build/lms run --summary=off " + folder.path("none.py")).status == 127);
}

// pyarrow is no part of this machine: one that stands in for it writes the table as the CSV that it was made
// of.
TEST_CASE(
    "lms export: Parquet is written by Python's pyarrow, of what --csv tells; without one a line says so") {
    const Scratch folder;
    const auto write = [&](const std::string& name, const std::string& text) {
        fs::create_directories(fs::path(folder.path(name)).parent_path());
        std::ofstream(folder.path(name)) << text;
    };
    write("without/pyarrow.py", "raise ImportError\n");
    write("with/pyarrow/__init__.py", "class ArrowException(Exception): pass\n");
    write("with/pyarrow/csv.py",
          "ParseOptions = ConvertOptions = dict\n"
          "def read_csv(file, parse_options, convert_options):\n"
          "    text = file.read()\n"
          "    names = text.split(b'\\n')[0].decode().split(',')\n"
          "    assert set(names) == set(convert_options['column_types']), names\n"
          "    return text\n");
    write("with/pyarrow/parquet.py",
          "def write_table(table, where):\n"
          "    (where if hasattr(where, 'write') else open(where, 'wb')).write(table)\n");
    const std::string trace = "tests/unit/traces/v3.lmstrace";
    const std::string csv = shell("build/lms export --csv " + trace).out;
    REQUIRE(csv.find("\nwork over,") != csv.npos);

    const std::string with = "PYTHONPATH=" + folder.path("with") + " build/lms export --parquet ";
    CHECK(shell(with + trace).out == csv);
    const std::string file = folder.path("out.parquet");
    CHECK(shell(with + trace + " -o " + file).status == 0);
    CHECK(support::read_file(file) == csv);
    const Result nowhere = shell(with + trace + " -o /no/folder");
    CHECK(nowhere.status == 125);
    CHECK(nowhere.err.find("lms export: ") == 0);
    const Result none = shell(with + "README.md");
    CHECK(none.status == 2);
    CHECK(none.err.find("lms export: README.md: no trace of lmsshim") == 0);

    const Result without =
        shell("PYTHONPATH=" + folder.path("without") + " build/lms export --parquet " + trace);
    CHECK(without.status == 125);
    CHECK(without.out.empty());
    CHECK(without.err.find("python3 -m pip install pyarrow") != std::string::npos);
    CHECK(shell("LMSSHIM_PYTHON=/no/python build/lms export --parquet " + trace)
              .err.find("which /no/python has not") != std::string::npos);
}

TEST_CASE("lms settings: every variable, its default and its value now") {
    const Result result =
        shell("LMS_LIMIT=1024M LMS_FRAC=7 LMS_POLICY=lur LMS_LIMTI=3 build/lms settings --json");
    CHECK(result.status == 0);
    const auto json = nlohmann::json::parse(result.out);
    CHECK(json.size() == 21);
    for (const auto& setting : json) {
        for (const char* key : {"variable", "option", "current", "default", "accepted", "meaning"}) {
            CHECK(setting.contains(key));
        }
        if (setting["variable"] == "LMS_LIMIT") CHECK(setting["current"] == "1G");
        if (setting["variable"] == "LMS_FRAC") CHECK(setting["current"].is_null());
        if (setting["variable"] == "LMS_POLICY") CHECK(setting["current"] == "lru");  // it serves
        const Result text = shell("build/lms settings");
        CHECK(text.out.find(setting["variable"].get<std::string>() + "=") != std::string::npos);
    }
    CHECK(result.err.find("LMS_FRAC=7: expected a number from 0 to 1") != std::string::npos);
    CHECK(result.err.find("LMS_POLICY=lur: expected next-use, lru, lms, or the path of a plugin") !=
          std::string::npos);
    CHECK(result.err.find("LMS_LIMTI is not a setting; the nearest is LMS_LIMIT") != std::string::npos);
}

TEST_CASE("lms doctor: the simulated GPU is found, described, and fit for the shim") {
    const auto examine = [](const std::string& environment) {
        const Result result = shell(environment + " build/lms doctor --sim --json");
        CAPTURE(result.err);
        const auto json = nlohmann::json::parse(result.out);
        CHECK(result.status == (json["well"].get<bool>() ? 0 : 1));
        return json;
    };
    const auto json = examine("SIMCUDA_MEMORY=96M SIMCUDA_DEVICES=2");
    CHECK(json["well"] == true);
    CHECK(json["to_do"].empty());
    CHECK(json["shim"]["path"] == shim());
    CHECK(json["shim"]["problem"] == "");
    CHECK(json["driver"]["path"] == fs::canonical("build/sim/libcuda.so.1").string());
    CHECK(json["driver"]["problem"] == "");
    CHECK(json["driver"]["version"] >= 12000);
    REQUIRE(json["gpus"].size() == 2);
    CHECK(json["gpus"][0]["memory_bytes"] == 96 << 20);
    CHECK(json["gpus"][0]["virtual_memory"] == true);
    CHECK(json["gpus"][0]["maps_host"] == true);
    CHECK(json["host_limit_bytes"] > 0);
    CHECK(examine("LMS_HOST_LIMIT=3G")["host_limit_bytes"] == 3ull << 30);
    CHECK(shell("build/lms doctor --sim").out.ends_with("all is well\n"));
    CHECK(shell("build/lms doctor --sim --check").out.find("GPU 0, moves tried: in place\n") !=
          std::string::npos);
    const auto tried = [](const std::string& environment) {
        return nlohmann::json::parse(shell(environment + " build/lms doctor --sim --check --json").out);
    };
    CHECK(tried("SIMCUDA_HOST_VMM=0")["gpus"][0]["moves"] == "not mapped");
    CHECK(tried("SIMCUDA_PERVERSE=host-create-crashes")["gpus"][0]["moves"] == "died");
    CHECK(tried("SIMCUDA_PERVERSE=host-sets-lost")["gpus"][0]["moves"] == "not in place: a set in place");
    CHECK(tried("SIMCUDA_PERVERSE=host-writes-lost")["gpus"][0]["moves"] ==
          "not in place: a kernel in place");
    CHECK(tried("SIMCUDA_PERVERSE=host-atomics-lost")["gpus"][0]["moves"] ==
          "not in place: a kernel in place");
    CHECK(tried("SIMCUDA_PERVERSE=unmap-drains")["gpus"][0]["moves"] == "in place; remaps wait for all work");
    CHECK(tried("SIMCUDA_PERVERSE=moves-lose")["well"] == false);
}

TEST_CASE("lms: where the shim is preloaded already, it is not taken for the driver nor preloaded again") {
    const std::string before = "LD_PRELOAD=" + shim() + " LD_LIBRARY_PATH=build/sim build/lms ";
    const auto json = nlohmann::json::parse(shell(before + "doctor --json").out);
    CHECK(json["driver"]["path"] == "build/sim/libcuda.so.1");
    CHECK(json["well"] == true);
    CHECK(shell(before + "doctor --sim").out.find("driver: " + fs::canonical("build/sim").string()) !=
          std::string::npos);
    CHECK(shell(before + "run -- env").out.find("LD_PRELOAD=" + shim() + "\n") != std::string::npos);
}

TEST_CASE("lms: what cannot be written is not taken for written") {
    for (const char* command : {"settings", "settings --json", "doctor --sim"}) {
        const Result result = shell(std::string("build/lms ") + command + " >/dev/full");
        CHECK(result.status == 125);
        CHECK(result.err == "lms: cannot write: No space left on device\n");
    }
}

TEST_CASE("lms: where stderr is full or closed, a command ends as it would") {
    for (const std::string where : {" 2>/dev/full", " 2>&-"}) {
        CHECK(shell("build/lms run --sim -- true" + where).status == 0);
        CHECK(shell("build/lms run --sim -- false" + where).status == 1);
        CHECK(shell("build/lms run nofile" + where).status == 127);
        CHECK(shell("build/lms bogus" + where).status == 2);
    }
}

TEST_CASE("lms run: that no trace was written is said") {
    const std::string path = support::scratch_file("trace");
    const Result run = shell("build/lms run --sim --trace " + path + " -- true");
    CHECK(run.status == 0);
    CHECK_MESSAGE(
        run.err.find("LMS_TRACE=" + path + ": no trace, for there was nothing") != std::string::npos,
        run.err);
}

TEST_CASE("lms run: what is behind the program's name is the program's, though it ends in =") {
    CHECK(shell("build/lms run --summary off echo --stats= --trace=").out == "--stats= --trace=\n");
}

TEST_CASE("lms doctor: a driver that is not one, or is not there") {
    Result result = shell("LMS_DRIVER=/no/driver.so build/lms doctor");
    CHECK(result.status == 1);
    CHECK(result.out.find("driver: not found: /no/driver.so") != std::string::npos);
    CHECK_MESSAGE(
        result.out.find("\nto do: install NVIDIA's driver, or have LMS_DRIVER name its libcuda.so.1; "
                        "without a GPU: lms run --sim\n") != std::string::npos,
        result.out);
    result = shell("SIMCUDA_DEVICES=0 build/lms doctor --sim");
    CHECK(result.status == 1);
    CHECK_MESSAGE(result.out.find("\nto do: ") != std::string::npos, result.out);
    result = shell("LMS_DRIVER=libm.so.6 build/lms doctor");
    CHECK(result.status == 1);
    CHECK(result.out.find("libm.so.6: it has no cuInit\n") != std::string::npos);
}
