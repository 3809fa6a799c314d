// vprintf of kernels, as it reaches stdout.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/ptx/device.h"

namespace simcuda::testing {
namespace {

// What is written to stdout during its life.
class CapturedStdout {
  public:
    CapturedStdout() : file_(std::tmpfile()), saved_(dup(1)) {
        std::fflush(stdout);
        dup2(fileno(file_), 1);
    }
    ~CapturedStdout() {
        restore();
        std::fclose(file_);
    }
    std::string text() {
        restore();
        std::string result;
        std::rewind(file_);
        for (int c; (c = std::fgetc(file_)) != EOF;) result += static_cast<char>(c);
        return result;
    }

  private:
    void restore() {
        if (saved_ < 0) return;
        std::fflush(stdout);
        dup2(saved_, 1);
        close(saved_);
        saved_ = -1;
    }

    std::FILE* file_;
    int saved_;
};

std::string bytes_of(std::string_view text) {
    std::string list;
    for (char c : text) list += fmt::format("{}, ", static_cast<int>(c));
    return list + "0";
}

TEST_CASE("print: conversions, widths and packed arguments, in the order of threads") {
    constexpr std::string_view kFormat = "[%d|%5u|%-4x|%lld|%.3f|%e|%c|%s|%%|%p|%*d]\n";
    constexpr std::string_view kWord = "word";
    const Module module(fmt::format(R"(.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[{}] = {{{}}};
.global .align 1 .b8 word[{}] = {{{}}};
.visible .entry k()
{{
    .local .align 8 .b8 depot[96]; .reg .b64 %rd<6>; .reg .b32 %r<6>;
    mov.u64 %rd1, depot; mov.u32 %r1, %tid.x; neg.s32 %r2, %r1;
    st.local.u32 [%rd1], %r2; st.local.u32 [%rd1+4], %r1; st.local.u32 [%rd1+8], 255;
    st.local.u64 [%rd1+16], -5000000000; st.local.f64 [%rd1+24], 0d3FF8000000000000; st.local.f64 [%rd1+32], 0d40F86A0000000000;
    st.local.u32 [%rd1+40], 90; mov.u64 %rd2, word; cvta.global.u64 %rd2, %rd2; st.local.u64 [%rd1+48], %rd2;
    st.local.u64 [%rd1+56], 4096; st.local.u32 [%rd1+64], 6; st.local.u32 [%rd1+68], 77;
    cvta.local.u64 %rd3, %rd1; mov.u64 %rd4, text; cvta.global.u64 %rd4, %rd4;
    {{ .param .b64 p0; st.param.b64 [p0], %rd4; .param .b64 p1; st.param.b64 [p1], %rd3; .param .b32 r0; call.uni (r0), vprintf, (p0, p1); ld.param.b32 %r3, [r0]; }}
    ret;
}})",
                                    kFormat.size() + 1, bytes_of(kFormat), kWord.size() + 1,
                                    bytes_of(kWord)));
    std::string wanted;
    for (int i = 0; i < 3; ++i)
        wanted +=
            fmt::format("[{}|{:5}|ff  |-5000000000|1.500|1.000000e+05|Z|word|%|0x1000|    77]\n", -i, i);
    CapturedStdout out;
    const Result result = run(module, "k", 1, 3);
    const std::string text = out.text();
    CHECK(result.outcome == exec::Outcome::Finished);
    CHECK(text == wanted);
}

}  // namespace
}  // namespace simcuda::testing
