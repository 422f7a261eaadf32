// A small application: copies batches of rows to the GPU, standardises them there, and copies them back.
//
//     y[r, c] = (x[r, c] - mean[r]) / sqrt(variance[r] + 1e-5)
//
// usage: pipeline --rows=N --columns=N --steps=N
//
// Each step is an NVTX range `step`, which contains `copy in`, `compute` and `copy out`.  The results are compared with
// the same computation in double precision on the host.  Exit status 1: a result is wrong, or CUDA reports an error;
// 2: invalid arguments.
//
// Both kernels are bound by bytes: `row_moments` reads the batch, `standardize` reads it again, from L2 if it fits, and
// writes the same amount.  Copies from and to the host use pinned memory, run at the speed of the bus, and take longer
// than both kernels together; ci-perf times only the kernels.

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr float kEpsilon = 1e-5f;
// Distances from the first value of a row are exact here; their sums have an error of a few roundings (2^-24 = 6e-8).
constexpr double kTolerance = 1e-5;

// Returns the sum over all threads to every thread.
__device__ float2 block_sum(float2 value) {
    __shared__ float2 partial[kWarps];
    for (int offset = 16; offset > 0; offset /= 2) {
        value.x += __shfl_xor_sync(0xffffffffu, value.x, offset);
        value.y += __shfl_xor_sync(0xffffffffu, value.y, offset);
    }
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = value;
    }
    __syncthreads();
    float2 sum = {0.0f, 0.0f};
    for (int warp = 0; warp < kWarps; ++warp) {
        sum.x += partial[warp].x;
        sum.y += partial[warp].y;
    }
    return sum;
}

// One block per row: the distance of the mean from the row's first value, and 1 / standard deviation.  Distances from
// the first value are summed, not values: squares of values far from zero would cancel, and the rounding error of a
// mean would be as large as the differences in a row of nearly equal values.
__global__ __launch_bounds__(kThreads) void row_moments(const float* __restrict__ x, float2* __restrict__ moments,
                                                        int columns) {
    const float* row = x + size_t(blockIdx.x) * columns;
    const float origin = row[0];
    float2 sum = {0.0f, 0.0f};
    for (int c = threadIdx.x; c < columns; c += kThreads) {
        const float distance = row[c] - origin;
        sum.x += distance;
        sum.y = fmaf(distance, distance, sum.y);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        const float mean = sum.x / columns;
        const float variance = fmaxf(sum.y / columns - mean * mean, 0.0f);
        moments[blockIdx.x] = {mean, rsqrtf(variance + kEpsilon)};
    }
}

__global__ __launch_bounds__(kThreads) void standardize(const float* __restrict__ x,
                                                        const float2* __restrict__ moments, float* __restrict__ y,
                                                        int columns) {
    const size_t first = size_t(blockIdx.x) * columns;
    const float2 moment = moments[blockIdx.x];
    const float origin = x[first];
    for (int c = threadIdx.x; c < columns; c += kThreads) {
        y[first + c] = (x[first + c] - origin - moment.x) * moment.y;
    }
}

struct Range {
    explicit Range(const char* name) { nvtxRangePushA(name); }
    ~Range() { nvtxRangePop(); }
};

static void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "pipeline: %s: %s\n", what, cudaGetErrorString(status));
        std::exit(1);
    }
}

#define CHECK(call) check(call, #call)

struct Options {
    int rows = 1024, columns = 1024, steps = 20;
};

static Options parse(int count, char** words) {
    Options options;
    const struct {
        const char* name;
        int* into;
    } known[] = {{"--rows=", &options.rows}, {"--columns=", &options.columns}, {"--steps=", &options.steps}};
    for (int i = 1; i < count; ++i) {
        bool taken = false;
        for (const auto& option : known) {
            const size_t length = std::strlen(option.name);
            if (!std::strncmp(words[i], option.name, length)) {
                char* end = nullptr;
                const long value = std::strtol(words[i] + length, &end, 10);
                taken = end != words[i] + length && !*end && value >= 1 && value <= 1 << 20;
                *option.into = int(value);
            }
        }
        if (!taken) {
            std::fprintf(stderr, "pipeline: %s: expected --rows=N, --columns=N or --steps=N, N from 1 to 2^20\n", words[i]);
            std::exit(2);
        }
    }
    return options;
}

// Values from 0 to 1, shifted by a different number in each row; the same in every run.
static void fill(float* x, const Options& options) {
    unsigned state = 12345u;
    for (int r = 0; r < options.rows; ++r) {
        for (int c = 0; c < options.columns; ++c) {
            state = state * 1664525u + 1013904223u;  // Numerical Recipes' constants
            x[size_t(r) * options.columns + c] = float(state >> 8) * 0x1p-24f + float(r % 7);
        }
    }
}

// Returns the largest |y - expected| / (|expected| + 1); NaN is the largest of all.
static double worst_error(const float* x, const float* y, const Options& options) {
    double worst = 0.0;
    for (int r = 0; r < options.rows; ++r, x += options.columns, y += options.columns) {
        double sum = 0.0, squares = 0.0;
        for (int c = 0; c < options.columns; ++c) sum += x[c];
        const double mean = sum / options.columns;
        for (int c = 0; c < options.columns; ++c) squares += (x[c] - mean) * (x[c] - mean);
        const double scale = 1.0 / std::sqrt(squares / options.columns + double(kEpsilon));
        for (int c = 0; c < options.columns; ++c) {
            const double expected = (x[c] - mean) * scale;
            const double error = std::fabs(y[c] - expected) / (std::fabs(expected) + 1.0);
            if (!(error <= worst)) worst = error;
            if (std::isnan(error)) return error;
        }
    }
    return worst;
}

int main(int count, char** words) {
    const Options options = parse(count, words);
    const size_t bytes = size_t(options.rows) * options.columns * sizeof(float);

    float *host_in, *host_out, *x, *y;
    float2* moments;
    CHECK(cudaMallocHost(&host_in, bytes));
    CHECK(cudaMallocHost(&host_out, bytes));
    CHECK(cudaMalloc(&x, bytes));
    CHECK(cudaMalloc(&y, bytes));
    CHECK(cudaMalloc(&moments, options.rows * sizeof(float2)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    fill(host_in, options);
    std::memset(host_out, 0xff, bytes);  // NaN, until something is written

    for (int step = 0; step < options.steps; ++step) {
        Range whole("step");
        {
            Range range("copy in");
            CHECK(cudaMemcpyAsync(x, host_in, bytes, cudaMemcpyHostToDevice, stream));
        }
        {
            Range range("compute");
            row_moments<<<options.rows, kThreads, 0, stream>>>(x, moments, options.columns);
            CHECK(cudaGetLastError());
            standardize<<<options.rows, kThreads, 0, stream>>>(x, moments, y, options.columns);
            CHECK(cudaGetLastError());
        }
        {
            Range range("copy out");
            CHECK(cudaMemcpyAsync(host_out, y, bytes, cudaMemcpyDeviceToHost, stream));
        }
        CHECK(cudaStreamSynchronize(stream));
    }

    const double error = worst_error(host_in, host_out, options);
    std::printf("%d steps of %d x %d, largest error %.2g\n", options.steps, options.rows, options.columns, error);
    if (!(error <= kTolerance)) {
        std::fprintf(stderr, "pipeline: wrong result: error %.3g, allowed is %.3g\n", error, kTolerance);
        return 1;
    }
    return 0;
}
