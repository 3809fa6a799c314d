// A library between the program and the driver: calls back.
extern "C" int call_back(int (*function)(void*), void* argument) {
    const volatile int result = function(argument);  // not a tail call: the frame stays
    return result;
}
