// Several threads that share the legacy default stream.
#include "threads.h"

int main(int argc, char** argv) {
    return run_threads(bytes_to_use(argc, argv, 8));
}
