// out[b, t, :] = (1 - w) x[b, i, :] + w x[b, i+1, :] for each of three streams, side by side
//            w = (target[b, t] - time[b, i]) / (time[b, i+1] - time[b, i])
//
// where i is the last sample of the stream with time[b, i] <= target[b, t]: of samples with equal times the last one
// counts.  Before the first and after the last sample the end value is used.  If a sample or a difference is not
// finite, the result is NaN.  Times ascend within a batch; targets may be in any order, and a target that is NaN gives
// a row of NaN.
//
// Bound by latency: 0.4 MB take 0.14 us at the 3.0 TB/s of a copy, a kernel node of a CUDA graph 1 to 2 us.  So there
// is one launch, and each thread waits for memory only twice: first for its target and all times (of up to 256 samples)
// at once, then for one packet of both rows.  A warp processes 32 packets of one stream; the warps of a block share a
// row.  Packets have 8 bytes, as 12 elements of 2 bytes have 24; rows of other sizes are read by element.

#include "../common/interpolation.cuh"

constexpr int kTimes = 8;  // per lane

// Rows of `size` packets or elements.
template <class Packet>
struct Stream {
    const Packet* __restrict__ x;
    const float* __restrict__ time;
    int samples, size;

    __device__ int warps() const { return (unsigned(size) + kLanes - 1) / kLanes; }
};

// Counts the times that are <= target, with all lanes of a warp: up to 256 are loaded before the first is compared.
__device__ int count_at_once(const float* __restrict__ time, int samples, float target, int lane) {
    if (samples > kTimes * kLanes) {
        return count_until(time, samples, target, lane);
    }
    float times[kTimes];
#pragma unroll
    for (int i = 0; i < kTimes; ++i) {
        const int sample = i * kLanes + lane;
        times[i] = sample < samples ? time[sample] : __int_as_float(0x7fffffff);  // NaN: never <= target
    }
    int count = 0;
#pragma unroll
    for (int i = 0; i < kTimes; ++i) {
        count += times[i] <= target;
    }
    return __reduce_add_sync(0xffffffffu, count);
}

// Threads are (lane, warp), blocks (target, batch, further warps of a row).
template <class Format, class Packet>
__device__ void fuse(const Stream<Packet>& first, const Stream<Packet>& second, const Stream<Packet>& third,
                     const float* __restrict__ target, Packet* __restrict__ out, int batch) {
    Stream<Packet> stream = first;
    int warp = blockIdx.z * blockDim.y + threadIdx.y, column = 0;
    if (warp >= first.warps()) {
        warp -= first.warps();
        column = first.size;
        stream = second;
        if (warp >= second.warps()) {
            warp -= second.warps();
            column += second.size;
            stream = third;
        }
    }
    const int lane = threadIdx.x;
    const int d = warp * kLanes + lane;
    const int size = first.size + second.size + third.size;
    for (int b = blockIdx.y; b < batch; b += gridDim.y) {
        const size_t row = size_t(b) * gridDim.x + blockIdx.x;
        const size_t start = size_t(b) * stream.samples;
        const float* times = stream.time + start;
        const float at = target[row];
        const int count = count_at_once(times, stream.samples, at, lane);
        const int before = max(count - 1, 0);
        const int after = min(count, stream.samples - 1);
        if (d < stream.size) {
            const Packet from = stream.x[(start + before) * stream.size + d];
            const Packet to = stream.x[(start + after) * stream.size + d];
            // Computed here, while the rows are being loaded.
            const float weight = weight_between(times, before, after, at);
            out[row * size + column + d] = lerp<Format>(from, to, weight);
        }
    }
}

#define INSTANTIATE(name, Format, Packet)                                                                         \
    extern "C" __global__ void multimodal_fusion_##name(                                                          \
        const Packet* __restrict__ x1, const float* __restrict__ time1, int samples1, int size1,                  \
        const Packet* __restrict__ x2, const float* __restrict__ time2, int samples2, int size2,                  \
        const Packet* __restrict__ x3, const float* __restrict__ time3, int samples3, int size3,                  \
        const float* __restrict__ target, Packet* __restrict__ out, int batch) {                                  \
        fuse<Format, Packet>({x1, time1, samples1, size1}, {x2, time2, samples2, size2},                          \
                             {x3, time3, samples3, size3}, target, out, batch);                                   \
    }

INSTANTIATE(bfloat16_packets, BFloat16, uint2)
INSTANTIATE(bfloat16_elements, BFloat16, BFloat16::Element)
INSTANTIATE(float16_packets, Float16, uint2)
INSTANTIATE(float16_elements, Float16, Float16::Element)
INSTANTIATE(float32_packets, Float32, uint2)
INSTANTIATE(float32_elements, Float32, Float32::Element)
