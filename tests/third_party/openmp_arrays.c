// Arrays that together take more than a smaller GPU has, each counted up from its neighbour in turn by parallel loops and
// summed by a reduction; the last of the OpenMP programs, for the others take little but stacks.
#include <stdlib.h>

enum { kArrays = 24, kCount = 1 << 16, kStep = 64, kRounds = 3 };

static double* arrays[kArrays];

int main(void) {
    for (int k = 0; k < kArrays; k++) {
        double* const a = arrays[k] = malloc(kCount * sizeof *a);
        for (int i = 0; i < kCount; i++) a[i] = i + k;
#pragma omp target enter data map(to : a[0 : kCount])
    }
    double sum = 0, wanted = 0;
    for (int round = 0; round < kRounds; round++)
        for (int k = 0; k < kArrays; k++) {
            double *const a = arrays[k], *const b = arrays[(k + 1) % kArrays];
#pragma omp target teams num_teams(1) thread_limit(4) map(tofrom : sum)
#pragma omp parallel for reduction(+ : sum)
            for (int i = 0; i < kCount; i += kStep) {
                a[i] += b[i];
                sum += a[i];
            }
        }
    double own[kArrays][kCount / kStep];
    for (int k = 0; k < kArrays; k++)
        for (int i = 0; i < kCount; i += kStep) own[k][i / kStep] = i + k;
    for (int round = 0; round < kRounds; round++)
        for (int k = 0; k < kArrays; k++)
            for (int i = 0; i < kCount / kStep; i++) wanted += own[k][i] += own[(k + 1) % kArrays][i];
    if (sum != wanted) return 1;
    for (int k = 0; k < kArrays; k++) {
        double* const a = arrays[k];
#pragma omp target exit data map(from : a[0 : kCount])
        for (int i = 0; i < kCount; i++)
            if (a[i] != (i % kStep ? i + k : own[k][i / kStep])) return 1;
        free(a);
    }
    return 0;
}
