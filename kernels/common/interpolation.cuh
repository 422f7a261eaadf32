// Shared by the kernels that interpolate between rows of samples: formats, and the search in ascending times.
//
// No header is included: the wheels that torch depends on contain NVRTC, but not everything that cuda_bf16.h needs.

constexpr int kLanes = 32;

// A format unpacks a 32-bit word into its two elements (or one), and packs them again.
struct BFloat16 {
    using Element = unsigned short;

    static __device__ float2 unpack(unsigned word) {
        return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
    }

    static __device__ unsigned pack(float2 pair) {
        unsigned word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(pair.y), "f"(pair.x));
        return word;
    }
};

struct Float16 {
    using Element = unsigned short;

    static __device__ float2 unpack(unsigned word) {
        float2 pair;
        asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
            : "=f"(pair.x), "=f"(pair.y)
            : "r"(word));
        return pair;
    }

    static __device__ unsigned pack(float2 pair) {
        unsigned word;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(pair.y), "f"(pair.x));
        return word;
    }
};

struct Float32 {
    using Element = unsigned;

    static __device__ float2 unpack(unsigned word) { return {__uint_as_float(word), 0.0f}; }

    static __device__ unsigned pack(float2 pair) { return __float_as_uint(pair.x); }
};

template <class Format>
__device__ unsigned lerp(unsigned from, unsigned to, float weight) {
    const float2 a = Format::unpack(from), b = Format::unpack(to);
    return Format::pack({fmaf(weight, b.x - a.x, a.x), fmaf(weight, b.y - a.y, a.y)});
}

template <class Format>
__device__ uint2 lerp(uint2 from, uint2 to, float weight) {
    return {lerp<Format>(from.x, to.x, weight), lerp<Format>(from.y, to.y, weight)};
}

template <class Format>
__device__ uint4 lerp(uint4 from, uint4 to, float weight) {
    return {lerp<Format>(from.x, to.x, weight), lerp<Format>(from.y, to.y, weight),
            lerp<Format>(from.z, to.z, weight), lerp<Format>(from.w, to.w, weight)};
}

// Counts the times that are <= target, with all lanes of a warp.  The count is in [low, low + width]; a ballot over 32
// evenly spaced probes reduces the width to less than a 32nd.
__device__ int count_until(const float* __restrict__ time, int samples, float target, int lane) {
    int low = 0;
    for (int width = samples; width > 0;) {
        const int step = (width - 1) / kLanes + 1;
        const int ahead = step * (lane + 1);
        const bool passed = ahead <= width && time[low + ahead - 1] <= target;
        const int skipped = step * __popc(__ballot_sync(0xffffffffu, passed));
        low += skipped;
        width = min(step - 1, width - skipped);
    }
    return low;
}

// Returns the position of a target between the samples before and after it, from 0 to 1.  The two samples are the same
// only outside the samples: otherwise time[before] <= target < time[after].  A target that is NaN gives NaN.
__device__ float weight_between(const float* __restrict__ time, int before, int after, float target) {
    return before == after && target == target ? 0.0f : (target - time[before]) / (time[after] - time[before]);
}
