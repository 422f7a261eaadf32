// Copies 64 Mi integers with grids of several shapes: each thread steps over the array by the size of the grid, so that
// small grids leave the memory idle. nvbench gives each launch a cold L2 cache, and takes samples until they are steady.
#include <nvbench/nvbench.cuh>

__global__ void copy(const int* __restrict__ from, int* __restrict__ to, long long count) {
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) to[i] = from[i];
}

void copy_sweep_grid_shape(nvbench::state& state) {
    constexpr long long count = 64ll << 20;
    const auto block = static_cast<unsigned>(state.get_int64("BlockSize"));
    const auto blocks = static_cast<unsigned>(state.get_int64("NumBlocks"));
    int *from = nullptr, *to = nullptr;
    NVBENCH_CUDA_CALL(cudaMalloc(&from, count * sizeof(int)));
    NVBENCH_CUDA_CALL(cudaMalloc(&to, count * sizeof(int)));
    NVBENCH_CUDA_CALL(cudaMemset(from, 0, count * sizeof(int)));
    state.add_element_count(count);
    state.add_global_memory_reads<int>(count);
    state.add_global_memory_writes<int>(count);
    state.exec([=](nvbench::launch& launch) { copy<<<blocks, block, 0, launch.get_stream()>>>(from, to, count); });
    NVBENCH_CUDA_CALL(cudaFree(from));
    NVBENCH_CUDA_CALL(cudaFree(to));
}

NVBENCH_BENCH(copy_sweep_grid_shape)
    .add_int64_power_of_two_axis("BlockSize", {6, 8, 10})
    .add_int64_power_of_two_axis("NumBlocks", {6, 8, 10});
NVBENCH_MAIN
