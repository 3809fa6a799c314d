// The interpreter of a CPython that was built with a shared libpython.
extern "C" int Py_BytesMain(int, char**);

int main(int argc, char** argv) {
    return Py_BytesMain(argc, argv);
}
