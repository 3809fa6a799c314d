// A program linked with -lcuda: the loader binds its calls before any of its code runs.
#include <cstdio>

extern "C" int cuInit(unsigned flags);
extern "C" int cuDriverGetVersion(int* version);
extern "C" int cuGetProcAddress_v2(const char* symbol, void** function, int version, unsigned long long flags,
                                   int* status);

int main() {
    int version = -1;
    const int init = cuInit(0);
    const int result = cuDriverGetVersion(&version);
    void* lookup = nullptr;
    cuGetProcAddress_v2("cuGetProcAddress", &lookup, 12000, 0, nullptr);
    // The shim swaps its own function in, which is the one this program is bound to.
    const bool hooked = lookup == reinterpret_cast<void*>(&cuGetProcAddress_v2);
    std::printf("init %d version %d %d %s\n", init, result, version, hooked ? "hooked" : "not hooked");
}
