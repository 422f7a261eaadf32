// grid[i, j, k] = 1, count, or of each feature the mean or maximum, over the points p with
//     (i, j, k) = floor((p - origin) / size) in float64;   0 where there are none
//
// Points outside the grid are dropped, and so are those that are infinite or not a number.
//
// Bound by bytes: 500,000 points and a float32 grid of 128^3 cells are 14.4 MB, 4.8 us at the 3.0 TB/s of a copy; the
// clearing of the grid is a graph node of its own, at 1 to 2 us.  Then come the writes, each of a sector of 32 bytes
// for 4: the grid is in L2 by then.  So a thread reads four points in three 16-byte packets before it uses the first;
// occupancy is a plain store, as all that race store 1; sums and maxima are reductions that return nothing, of four
// features at once where the device can (sm_90).
//
// The index is exact at little cost: a float32 estimate decides unless it lies so near a border that its error could
// matter, about 1 of 2000 coordinates; then float64 does.

constexpr int kPoints = 4;  // of a thread

struct Lattice {
    int nx, ny, nz;
    double origin, size;
    float scale, bias, margin;  // p * scale + bias errs by less than the margin
};

// Returns the index along an axis of n cells, or -1 outside of it.
__device__ int index_along(float p, int n, const Lattice& lattice) {
    const float estimate = fmaf(p, lattice.scale, lattice.bias);
    if (fabsf(estimate - rintf(estimate)) > lattice.margin) {
        const int index = __float2int_rd(estimate);
        return unsigned(index) < unsigned(n) ? index : -1;
    }
    // Near a border, too large for the estimate, or not a number.
    const double index = floor((double(p) - lattice.origin) / lattice.size);
    return index >= 0.0 && index < n ? int(index) : -1;
}

__device__ int cell_of(float x, float y, float z, const Lattice& lattice) {
    const int i = index_along(x, lattice.nx, lattice);
    const int j = index_along(y, lattice.ny, lattice);
    const int k = index_along(z, lattice.nz, lattice);
    return (i | j | k) < 0 ? -1 : (i * lattice.ny + j) * lattice.nz + k;
}

// The cells of the thread's points, which begin with the one of the number `first`; -1 for none.
struct Cells {
    int first;
    int at[kPoints];
};

__device__ Cells find_cells(const float* __restrict__ points, int count, const Lattice& lattice) {
    Cells cells;
    cells.first = (blockIdx.x * blockDim.x + threadIdx.x) * kPoints;
    const float* from = points + size_t(3) * cells.first;
    float p[3 * kPoints];
    if (cells.first + kPoints <= count && size_t(points) % sizeof(float4) == 0) {
#pragma unroll
        for (int i = 0; i < 3 * kPoints; i += 4) {
            *reinterpret_cast<float4*>(p + i) = *reinterpret_cast<const float4*>(from + i);
        }
    } else {
#pragma unroll
        for (int i = 0; i < 3 * kPoints; ++i) {
            p[i] = cells.first + i / 3 < count ? from[i] : __int_as_float(0x7fffffff);  // NaN lies in no cell
        }
    }
#pragma unroll
    for (int i = 0; i < kPoints; ++i) {
        cells.at[i] = cell_of(p[3 * i], p[3 * i + 1], p[3 * i + 2], lattice);
    }
    return cells;
}

#define POINTS                                                                                                     \
    const float *__restrict__ points, int count, int nx, int ny, int nz, double origin, double size, float scale, \
        float bias, float margin
#define LATTICE \
    { nx, ny, nz, origin, size, scale, bias, margin }

extern "C" __global__ void voxelize_occupancy(POINTS, float* __restrict__ grid) {
    const Cells cells = find_cells(points, count, LATTICE);
#pragma unroll
    for (int i = 0; i < kPoints; ++i) {
        if (cells.at[i] >= 0) {
            grid[cells.at[i]] = 1.0f;
        }
    }
}

__device__ void add_counts(const Cells& cells, int* __restrict__ grid) {
#pragma unroll
    for (int i = 0; i < kPoints; ++i) {
        if (cells.at[i] >= 0) {
            atomicAdd(grid + cells.at[i], 1);
        }
    }
}

extern "C" __global__ void voxelize_count(POINTS, int* __restrict__ grid) {
    add_counts(find_cells(points, count, LATTICE), grid);
}

__device__ void add(float* at, float value) { atomicAdd(at, value); }

__device__ void add(float4* at, float4 value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(value.x), "f"(value.y), "f"(value.z),
                 "f"(value.w)
                 : "memory");
#else
    atomicAdd(&at->x, value.x), atomicAdd(&at->y, value.y), atomicAdd(&at->z, value.z), atomicAdd(&at->w, value.w);
#endif
}

// Orders as the numbers do, NaN above all; 0, an empty cell, is below all.
__device__ unsigned key_of(float value) {
    const unsigned bits = __float_as_uint(value);
    return value != value ? 0xffffffffu : bits ^ (int(bits) < 0 ? 0xffffffffu : 0x80000000u);
}

__device__ float value_of(unsigned key) {
    return key == 0 ? 0.0f : __uint_as_float(key ^ (int(key) < 0 ? 0x80000000u : 0xffffffffu));
}

__device__ void raise(float* at, float value) { atomicMax(reinterpret_cast<unsigned*>(at), key_of(value)); }

__device__ void raise(float4* at, float4 value) {
    raise(&at->x, value.x), raise(&at->y, value.y), raise(&at->z, value.z), raise(&at->w, value.w);
}

// Calls reduce(address, value) with what a row of `width` packets (of one feature or four) holds for each point.
template <class Packet, class Reduce>
__device__ void scatter(const Cells& cells, const Packet* __restrict__ features, int width, Packet* __restrict__ grid,
                        Reduce reduce) {
#pragma unroll 1
    for (int f = 0; f < width; ++f) {
        Packet values[kPoints];
#pragma unroll
        for (int i = 0; i < kPoints; ++i) {
            if (cells.at[i] >= 0) {
                values[i] = features[size_t(cells.first + i) * width + f];
            }
        }
#pragma unroll
        for (int i = 0; i < kPoints; ++i) {
            if (cells.at[i] >= 0) {
                reduce(grid + size_t(cells.at[i]) * width + f, values[i]);
            }
        }
    }
}

#define INSTANTIATE(name, Packet)                                                                                       extern "C" __global__ void voxelize_sum_##name(POINTS, const Packet* __restrict__ features, int width,                                                             Packet* __restrict__ grid, int* __restrict__ counts) {                   const Cells cells = find_cells(points, count, LATTICE);                                                             add_counts(cells, counts);                                                                                          scatter(cells, features, width, grid, [](Packet* at, Packet value) { add(at, value); });                        }                                                                                                                   extern "C" __global__ void voxelize_max_##name(POINTS, const Packet* __restrict__ features, int width,                                                             Packet* __restrict__ grid) {                                             const Cells cells = find_cells(points, count, LATTICE);                                                             scatter(cells, features, width, grid, [](Packet* at, Packet value) { raise(at, value); });                      }

INSTANTIATE(elements, float)
INSTANTIATE(packets, float4)

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
