// Runs one side of faults.cu, each kernel in an NVTX range named after its fault. scripts/explain-faults compiles it
// twice, so that the kernels of both sides have the same names.

#include <cstdio>
#include <cstdlib>
#include <vector>

#include <nvtx3/nvToolsExt.h>

#include "faults.cu"

static void check(cudaError_t status) {
  if (status != cudaSuccess) { std::fprintf(stderr, "%s\n", cudaGetErrorString(status)); std::exit(1); }
}

template <class... Arguments>
static void run(const char* name, const void* kernel, dim3 grid, int threads, Arguments... arguments) {
  std::vector<void*> places = {static_cast<void*>(&arguments)...};
  nvtxRangePushA(name);
  check(cudaLaunchKernel(kernel, grid, dim3(threads), places.data(), 0, nullptr));
  check(cudaDeviceSynchronize());
  nvtxRangePop();
}

#define RUN(name, ...) run(#name, reinterpret_cast<const void*>(&fault_##name), __VA_ARGS__)

int main() {
  const long long kElements = 1 << 24, kMany = 1 << 20;
  void *in, *out, *other;
  check(cudaMalloc(&in, 64 * kMany * sizeof(float)));
  check(cudaMalloc(&out, 64 * kMany * sizeof(float)));
  check(cudaMalloc(&other, 64 * kMany * sizeof(float)));
  for (void* memory : {in, out, other}) check(cudaMemset(memory, 0, 64 * kMany * sizeof(float)));
  const int blocks = kElements / 256, few = kMany / 256;
  const long long eight = 8, steps = 64, turns = 256, width = 4096, height = 64;
  RUN(unroll, few, 256, in, out, kMany);
  RUN(intdiv, dim3(16, 64, 16), 256, in, out, width, height);
  RUN(intdiv64, blocks, 256, in, out, kElements, eight);
  RUN(fp64, blocks, 256, in, out, steps);
  RUN(half, blocks / 2, 256, in, other, out, turns);
  RUN(restrict, few, 256, other, in, out, kMany);
  RUN(vector, blocks / 4, 256, in, out);
  RUN(barrier, blocks / 8, 256, in, out);
  RUN(local, few, 256, in, out, other, kMany);
  RUN(bounds, few, 256, in, out, kMany);
  RUN(atomic, blocks, 256, in, out);
  RUN(satomic, blocks, 256, in, out);
  RUN(diverge, blocks, 256, in, out);
  RUN(slow, blocks, 256, in, out);
  RUN(fence, 2 * few, 256, in, out, 2 * kMany);
  RUN(async, 2112, 256, in, out, steps);
  RUN(wider, blocks, 256, in, out);
}
