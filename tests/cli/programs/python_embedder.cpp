// A program that has Python in it, and is none.
extern "C" int PyRun_SimpleString(const char*);

int main() {
    return PyRun_SimpleString("train()");
}
