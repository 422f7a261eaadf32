// grid[i, j, k] = 1, count, or of each feature the mean or maximum, over the points p with
//     (i, j, k) = floor((p - origin) / size) in float64;   0 where there are none
//
// Points outside the grid are dropped, and so are those that are infinite or not a number.
//
// Not bound by bytes: on an H100 occupancy takes 10.9 us where its 14.4 MB would take 4.8 us at the 3.0 TB/s of a copy,
// and the mean of four features, five reductions a point for one, 51 us where 47 MB would take 16 us, while DRAM is 27
// and 37 % busy (baselines/h100-80gb-hbm3/kernels.md, voxelize.json).  In the rest of the time L2 makes 77 and 67
// billion reductions a second, and 102 billion where as many go to 62,000 cells in place of 422,000 (`clustered-mean`):
// how many sectors of 32 bytes they touch, each for the sake of 4, counts as well as how many there are.
//
// Reductions return nothing, for occupancy too: L2 makes them where the sector lies, and no thread waits.  Points of a
// warp that share a cell count as one first, as those of one address come one after another; few do in the cases here,
// three neighbours in a thousand in `scan`.  One point a thread, not four in 16-byte packets: four times as many warps
// hide more of the latency.
//
// The index is exact at little cost: a float32 estimate decides unless it lies so near a border that its error could
// matter, one coordinate in 8,000 at this size; then float64 does.

constexpr int kLanes = 32;
constexpr unsigned kAll = 0xffffffffu;

struct Lattice {
    int nx, ny, nz;
    double origin, size;
    float scale, bias, margin;  // p * scale + bias errs by less than the margin
};

// Out of line, as it is rarely called: near a border, where the estimate is too large, and where it is not a number.
__device__ __noinline__ int exact_index(float p, int n, double origin, double size) {
    const double index = floor((double(p) - origin) / size);
    return index >= 0.0 && index < n ? int(index) : -1;
}

// Returns the index along an axis of n cells, or -1 outside of it.
__device__ int index_along(float p, int n, const Lattice& lattice) {
    const float estimate = fmaf(p, lattice.scale, lattice.bias);
    if (fabsf(estimate - rintf(estimate)) > lattice.margin) {
        const int index = __float2int_rd(estimate);
        return unsigned(index) < unsigned(n) ? index : -1;
    }
    return exact_index(p, n, lattice.origin, lattice.size);
}

// Returns the cell of the thread's point, or -1 for none.
__device__ int find_cell(const float* __restrict__ points, int count, const Lattice& lattice) {
    const int point = blockIdx.x * blockDim.x + threadIdx.x;
    if (point >= count) {
        return -1;
    }
    const float* p = points + size_t(3) * point;
    const float x = p[0], y = p[1], z = p[2];
    const int i = index_along(x, lattice.nx, lattice);
    const int j = index_along(y, lattice.ny, lattice);
    const int k = index_along(z, lattice.nz, lattice);
    return (i | j | k) < 0 ? -1 : (i * lattice.ny + j) * lattice.nz + k;
}

// Says how many points of the warp lie in the cell of this one; 0 to all but the first of them, and outside.
__device__ int count_in_warp(int cell) {
    const unsigned same = __match_any_sync(kAll, cell);
    const bool first = threadIdx.x % kLanes == __ffs(same) - 1;
    return first && cell >= 0 ? __popc(same) : 0;
}

#define POINTS                                                                                                    \
    const float *__restrict__ points, int count, int nx, int ny, int nz, double origin, double size, float scale, \
        float bias, float margin
#define LATTICE \
    { nx, ny, nz, origin, size, scale, bias, margin }

extern "C" __global__ void voxelize_occupancy(POINTS, unsigned* __restrict__ grid) {
    const int cell = find_cell(points, count, LATTICE);
    if (count_in_warp(cell)) {
        atomicOr(grid + cell, __float_as_uint(1.0f));
    }
}

__device__ void add_count(int cell, int* __restrict__ grid) {
    const int number = count_in_warp(cell);
    if (number) {
        atomicAdd(grid + cell, number);
    }
}

extern "C" __global__ void voxelize_count(POINTS, int* __restrict__ grid) {
    add_count(find_cell(points, count, LATTICE), grid);
}

// Orders as the numbers do, NaN above all; 0, an empty cell, is below all.
__device__ unsigned key_of(float value) {
    const unsigned bits = __float_as_uint(value);
    return value != value ? kAll : bits ^ (int(bits) < 0 ? kAll : 0x80000000u);
}

__device__ float value_of(unsigned key) {
    return key == 0 ? 0.0f : __uint_as_float(key ^ (int(key) < 0 ? 0x80000000u : kAll));
}

// Calls reduce(address, value) with each feature of the warp's points.  The lanes read these in order, each every 32nd,
// so that neighbours reduce neighbouring features of a cell, which travel together.
template <class Reduce>
__device__ void scatter(int cell, const float* __restrict__ features, int count, int width, Reduce reduce) {
    const int lane = threadIdx.x % kLanes;
    const int first = blockIdx.x * blockDim.x + threadIdx.x - lane;
    const float* from = features + size_t(first) * width;
    const int elements = min(count - first, kLanes) * width;
#pragma unroll 4
    for (int start = 0; start < elements; start += kLanes) {
        const int element = start + lane;
        const float value = element < elements ? from[element] : 0.0f;
        const int point = unsigned(element) / unsigned(width);
        const int its_cell = __shfl_sync(kAll, cell, point);
        if (element < elements && its_cell >= 0) {
            reduce(size_t(its_cell) * width + element - point * width, value);
        }
    }
}

extern "C" __global__ void voxelize_sum(POINTS, const float* __restrict__ features, int width,
                                        float* __restrict__ grid, int* __restrict__ counts) {
    const int cell = find_cell(points, count, LATTICE);
    add_count(cell, counts);
    scatter(cell, features, count, width, [&](size_t at, float value) { atomicAdd(grid + at, value); });
}

extern "C" __global__ void voxelize_max(POINTS, const float* __restrict__ features, int width,
                                        unsigned* __restrict__ grid) {
    const int cell = find_cell(points, count, LATTICE);
    scatter(cell, features, count, width, [&](size_t at, float value) { atomicMax(grid + at, key_of(value)); });
}

// Turns sums into means, of four cells a thread; there are counts for whole fours.  Sums of no point or one are means
// already: most cells are such, and their sums are not read.
extern "C" __global__ void voxelize_divide(const int4* __restrict__ counts, float* __restrict__ grid, int width,
                                           int fours) {
    const int four = blockIdx.x * blockDim.x + threadIdx.x;
    if (four >= fours) {
        return;
    }
    const int4 packet = counts[four];
    const int count[4] = {packet.x, packet.y, packet.z, packet.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (count[i] > 1) {
            float* row = grid + (size_t(four) * 4 + i) * width;
            for (int f = 0; f < width; ++f) {
                row[f] /= count[i];
            }
        }
    }
}

// Turns keys into numbers, four a thread; most are of empty cells, and stay.
extern "C" __global__ void voxelize_decode(float* __restrict__ grid, long long elements) {
    const long long first = 4 * (size_t(blockIdx.x) * blockDim.x + threadIdx.x);
    if (first + 4 <= elements) {
        const float4 keys = *reinterpret_cast<const float4*>(grid + first);
        const unsigned x = __float_as_uint(keys.x), y = __float_as_uint(keys.y), z = __float_as_uint(keys.z),
                       w = __float_as_uint(keys.w);
        if (x | y | z | w) {
            *reinterpret_cast<float4*>(grid + first) = {value_of(x), value_of(y), value_of(z), value_of(w)};
        }
    } else {
        for (long long i = first; i < elements; ++i) {
            grid[i] = value_of(__float_as_uint(grid[i]));
        }
    }
}
