// For assembly that stands in for functions of any signature: every register that may carry an argument.
#pragma once

#define LMS_EACH_ARGUMENT_(word, vector)                                                               \
    word("0", "%rdi") word("8", "%rsi") word("16", "%rdx") word("24", "%rcx") word("32", "%r8")        \
        word("40", "%r9") word("48", "%rax") vector("64", "%xmm0") vector("80", "%xmm1")               \
            vector("96", "%xmm2") vector("112", "%xmm3") vector("128", "%xmm4") vector("144", "%xmm5") \
                vector("160", "%xmm6") vector("176", "%xmm7")

#define LMS_SAVE_WORD_(at, name) "movq " name ", " at "(%rsp)\n"
#define LMS_SAVE_VECTOR_(at, name) "movups " name ", " at "(%rsp)\n"
#define LMS_LOAD_WORD_(at, name) "movq " at "(%r10), " name "\n"
#define LMS_LOAD_VECTOR_(at, name) "movups " at "(%r10), " name "\n"

// Into the 192 bytes at %rsp.
#define LMS_SAVE_ARGUMENTS LMS_EACH_ARGUMENT_(LMS_SAVE_WORD_, LMS_SAVE_VECTOR_)
// Out of those at %r10, which carries no argument itself.
#define LMS_LOAD_ARGUMENTS LMS_EACH_ARGUMENT_(LMS_LOAD_WORD_, LMS_LOAD_VECTOR_)
