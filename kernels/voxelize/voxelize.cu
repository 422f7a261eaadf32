// grid[i, j, k] = 1, count, or of each feature the mean or maximum, over the points p with
//     (i, j, k) = floor((p - origin) / size) in float64;   0 if there are none
//
// Points outside the grid are dropped, and so are points that are infinite or NaN.
//
// Not bound by bytes: on an H100 occupancy takes 10.9 us, while 14.4 MB would take 4.8 us at the 3.0 TB/s of a copy.
// The mean of four features, with five reductions per point instead of one, takes 51 us, while 47 MB would take 16 us.
// DRAM is 27 and 37 % busy (baselines/h100-80gb-hbm3/kernels.md, voxelize.json).  In the remaining time L2 performs 77
// and 67 billion reductions per second, and 102 billion if the same number goes to 62,000 cells instead of 422,000
// (`clustered-mean`): the number of 32-byte sectors, each touched for 4 bytes, matters as well as that of reductions.
//
// Reductions return nothing, also for occupancy: L2 performs them, and no thread waits.  Points of a warp in the same
// cell are counted as one first, because reductions to one address are serialized; there are few in the cases here,
// three neighbours in a thousand in `scan`.  Each thread has one point, not four in 16-byte packets: four times as many
// warps hide more of the latency.
//
// The index is exact at little cost: a float32 estimate decides unless it is so near to a border that its error could
// matter, which is one coordinate in 8,000 at this size; then float64 decides.

constexpr int kLanes = 32;
constexpr unsigned kAll = 0xffffffffu;

struct Lattice {
    int nx, ny, nz;
    double origin, size;
    float scale, bias, margin;  // the error of p * scale + bias is less than the margin
};

// Not inlined, because it is rarely called: near a border, and for estimates that are too large or NaN.
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

// Returns the cell of the thread's point, or -1 if it has none.
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

// Returns the number of points of the warp in the cell of this one; 0 for all but the first of them, and outside.
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

// Keys have the order of the numbers; NaN is the largest, and 0, an empty cell, is the smallest.
__device__ unsigned key_of(float value) {
    const unsigned bits = __float_as_uint(value);
    return value != value ? kAll : bits ^ (int(bits) < 0 ? kAll : 0x80000000u);
}

__device__ float value_of(unsigned key) {
    return key == 0 ? 0.0f : __uint_as_float(key ^ (int(key) < 0 ? 0x80000000u : kAll));
}

// Calls reduce(address, value) for each feature of the warp's points.  Each lane reads every 32nd feature, so that
// neighbouring lanes reduce neighbouring features of a cell, which are sent to L2 together.
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

// Divides sums by counts, four cells per thread; the counts are padded to a multiple of four.  Sums of no point or one
// point are means already: this is so for most cells, and their sums are not read.
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

// Turns keys into numbers, four per thread; most belong to empty cells and are not changed.
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
