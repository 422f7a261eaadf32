// out[b, t, :] = (1 - w) x[b, i, :] + w x[b, i+1, :]
//            w = (target[b, t] - time[b, i]) / (time[b, i+1] - time[b, i])
//
// where i is the last sample with time[b, i] <= target[b, t]: of samples with equal times the last one counts.  Before
// the first and after the last sample the end value is used.  If a sample or a difference is not finite, the result is
// NaN.  Times ascend within a batch; targets may be in any order, and a target that is NaN gives a row of NaN.
//
// With many targets it is bound by bytes, two rows read and one written for 3 FLOP per element: 100 MB take 29 us on an
// H100, where a copy of the same size takes 35 us.  Few targets take 2.0 to 2.5 us for any amount of data: the latency
// of a launch and of the search (baselines/h100-80gb-hbm3/kernels.md).  One warp processes one target.  Its 32 lanes
// probe the times at once: the interval among up to 1024 samples is found with two dependent loads, where a binary
// search needs ten.  Then the lanes move the rows in 16-byte packets.  Every warp slot is occupied, with 32 registers
// per thread on an H100 and 40 on an L4, which hides the latency of the dependent loads: with several targets per warp
// fewer of them would be in flight.  Neighbouring targets are in one block and share rows and times in L1.

#include "../common/interpolation.cuh"

constexpr int kWarps = 4;

// Writes one row of `size` packets or elements; each lane writes every 32nd.
template <class Format, class Packet>
__device__ void lerp_row(const Packet* __restrict__ from, const Packet* __restrict__ to, Packet* __restrict__ out,
                         float weight, int size, int lane) {
    for (int d = lane; d < size; d += kLanes) {
        out[d] = lerp<Format>(from[d], to[d], weight);
    }
}

template <class Format>
__device__ void resample(const typename Format::Element* __restrict__ x, const float* __restrict__ time,
                         const float* __restrict__ target, typename Format::Element* __restrict__ out, int rows,
                         int samples, int targets, int dim) {
    const int lane = threadIdx.x % kLanes;
    const int row = blockIdx.x * kWarps + threadIdx.x / kLanes;
    if (row >= rows) {
        return;
    }
    const size_t first = size_t(row / targets) * samples;
    const float* times = time + first;
    const float at = target[row];
    const int count = count_until(times, samples, at, lane);
    const int before = max(count - 1, 0);
    const int after = min(count, samples - 1);
    const float weight = weight_between(times, before, after, at);

    const auto* from = x + (first + before) * dim;
    const auto* to = x + (first + after) * dim;
    auto* into = out + size_t(row) * dim;
    constexpr int kPacket = sizeof(uint4) / sizeof(*x);
    const bool packed = dim % kPacket == 0 && (size_t(x) | size_t(out)) % sizeof(uint4) == 0;
    if (packed) {
        lerp_row<Format>(reinterpret_cast<const uint4*>(from), reinterpret_cast<const uint4*>(to),
                         reinterpret_cast<uint4*>(into), weight, dim / kPacket, lane);
    } else {
        lerp_row<Format>(from, to, into, weight, dim, lane);
    }
}

#define INSTANTIATE(name, Format)                                                                             \
    extern "C" __global__ __launch_bounds__(kWarps* kLanes) void trajectory_resample_##name(                  \
        const Format::Element* __restrict__ x, const float* __restrict__ time,                                \
        const float* __restrict__ target, Format::Element* __restrict__ out, int rows, int samples,           \
        int targets, int dim) {                                                                               \
        resample<Format>(x, time, target, out, rows, samples, targets, dim);                                  \
    }

INSTANTIATE(bfloat16, BFloat16)
INSTANTIATE(float16, Float16)
INSTANTIATE(float32, Float32)
