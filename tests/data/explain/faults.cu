// Pairs of kernels: base_X does its work well, head_X has one fault. sm90-opcodes.json holds their machine code.

#include <cuda_fp16.h>
#include <cuda_pipeline.h>

extern "C" {

// lost unrolling
__global__ void base_unroll(const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float s = 0;
  #pragma unroll
  for (int k = 0; k < 16; ++k) s += in[i + k * n];
  out[i] = s;
}
__global__ void head_unroll(const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float s = 0;
  #pragma unroll 1
  for (int k = 0; k < 16; ++k) s += in[i + k * n];
  out[i] = s;
}

// integer division by a variable, of 32 and of 64 bits
__global__ void base_intdiv(const float* __restrict__ in, float* __restrict__ out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
  out[(z * h + y) * w + x] = in[(z * h + y) * w + x] * y + z;
}
__global__ void head_intdiv(const float* __restrict__ in, float* __restrict__ out, int w, int h) {
  int i = ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  int x = i % w, y = i / w % h, z = i / w / h;
  out[(z * h + y) * w + x] = in[(z * h + y) * w + x] * y + z;
}
__global__ void base_intdiv64(const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = in[i >> 3];
}
__global__ void head_intdiv64(const float* __restrict__ in, float* __restrict__ out, long long n, long long w) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; if (i < n) out[i] = in[i / w];
}

// a literal without f
__global__ void base_fp64(const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float v = in[i];
  for (int k = 0; k < n; ++k) v = v * 0.5f + __expf(v);
  out[i] = v;
}
__global__ void head_fp64(const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float v = in[i];
  for (int k = 0; k < n; ++k) v = v * 0.5 + __expf(v);
  out[i] = v;
}

// fp16 through float
__global__ void base_half(const half2* __restrict__ a, const half2* __restrict__ b, half2* __restrict__ c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; half2 v = a[i], x = b[i], y = v;
  #pragma unroll 8
  for (int k = 0; k < n; ++k) v = __hfma2(v, x, y);
  c[i] = v;
}
__global__ void head_half(const half2* __restrict__ a, const half2* __restrict__ b, half2* __restrict__ c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float2 v = __half22float2(a[i]), x = __half22float2(b[i]), y = v;
  #pragma unroll 8
  for (int k = 0; k < n; ++k) { v.x = v.x * x.x + y.x; v.y = v.y * x.y + y.y; }
  c[i] = __float22half2_rn(v);
}

// no __restrict__
__global__ void base_restrict(const float* __restrict__ w, const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < 8; ++k) out[i + k * n] = in[i + k * n] * w[0] + w[1];
}
__global__ void head_restrict(const float* w, const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < 8; ++k) out[i + k * n] = in[i + k * n] * w[0] + w[1];
}

// float in place of float4
__global__ void base_vector(const float4* __restrict__ in, float4* __restrict__ out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float4 v = in[i]; v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2; out[i] = v;
}
__global__ void head_vector(const float* __restrict__ in, float* __restrict__ out) {
  int i = blockIdx.x * blockDim.x * 4 + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < 4; ++k) out[i + k * blockDim.x] = in[i + k * blockDim.x] * 2;
}

// two barriers in each turn
__global__ void base_barrier(const float* __restrict__ in, float* __restrict__ out) {
  __shared__ float t[256]; int i = threadIdx.x; float s = 0;
  #pragma unroll
  for (int k = 0; k < 8; ++k) { t[i] = in[blockIdx.x * 2048 + k * 256 + i]; __syncwarp(); s += t[i ^ 1]; }
  out[blockIdx.x * 256 + i] = s;
}
__global__ void head_barrier(const float* __restrict__ in, float* __restrict__ out) {
  __shared__ float t[256]; int i = threadIdx.x; float s = 0;
  #pragma unroll
  for (int k = 0; k < 8; ++k) { t[i] = in[blockIdx.x * 2048 + k * 256 + i]; __syncthreads(); s += t[i ^ 1]; __syncthreads(); }
  out[blockIdx.x * 256 + i] = s;
}

// a local array indexed at run time
__global__ void base_local(const float* __restrict__ in, float* __restrict__ out, const int* __restrict__ p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float a[16];
  #pragma unroll
  for (int k = 0; k < 16; ++k) a[k] = in[i + k * n];
  float s = 0;
  #pragma unroll
  for (int k = 0; k < 16; ++k) s += a[k] * a[15 - k];
  out[i] = s;
}
__global__ void head_local(const float* __restrict__ in, float* __restrict__ out, const int* __restrict__ p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float a[16];
  #pragma unroll
  for (int k = 0; k < 16; ++k) a[k] = in[i + k * n];
  float s = 0;
  #pragma unroll 1
  for (int k = 0; k < 16; ++k) s += a[k] * a[p[k]];
  out[i] = s;
}

// too few registers allowed
__global__ void base_bounds(const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float a[64];
  #pragma unroll
  for (int k = 0; k < 64; ++k) a[k] = in[i + k * n];
  #pragma unroll 1
  for (int r = 0; r < 8; ++r) {
    #pragma unroll
    for (int k = 0; k < 64; ++k) a[k] = a[k] * a[(k + 1) & 63] + 1;
  }
  float s = 0;
  #pragma unroll
  for (int k = 0; k < 64; ++k) s += a[k];
  out[i] = s;
}
__global__ void __launch_bounds__(1024, 2) head_bounds(const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float a[64];
  #pragma unroll
  for (int k = 0; k < 64; ++k) a[k] = in[i + k * n];
  #pragma unroll 1
  for (int r = 0; r < 8; ++r) {
    #pragma unroll
    for (int k = 0; k < 64; ++k) a[k] = a[k] * a[(k + 1) & 63] + 1;
  }
  float s = 0;
  #pragma unroll
  for (int k = 0; k < 64; ++k) s += a[k];
  out[i] = s;
}

// an atomic of each thread
__global__ void base_atomic(const float* __restrict__ in, float* out) {
  float v = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int k = 16; k; k >>= 1) v += __shfl_down_sync(~0u, v, k);
  if (threadIdx.x % 32 == 0) atomicAdd(out, v);
}
__global__ void head_atomic(const float* __restrict__ in, float* out) {
  atomicAdd(out, in[blockIdx.x * blockDim.x + threadIdx.x]);
}

// atomics of float in shared memory
__global__ void base_satomic(const float* __restrict__ in, float* out) {
  __shared__ float s[32]; int i = threadIdx.x; if (i < 32) s[i] = 0; __syncthreads();
  float v = in[blockIdx.x * blockDim.x + i];
  for (int k = 16; k; k >>= 1) v += __shfl_down_sync(~0u, v, k);
  if (i % 32 == 0) s[i / 32] = v; __syncthreads();
  if (i < 32) atomicAdd(out + i, s[i]);
}
__global__ void head_satomic(const float* __restrict__ in, float* out) {
  __shared__ float s[32]; int i = threadIdx.x; if (i < 32) s[i] = 0; __syncthreads();
  atomicAdd(&s[i % 32], in[blockIdx.x * blockDim.x + i]); __syncthreads();
  if (i < 32) atomicAdd(out + i, s[i]);
}

// a branch of odd threads
__global__ void base_diverge(const float* __restrict__ in, float* __restrict__ out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float v = in[i];
  if ((i / 32) & 1) { for (int k = 0; k < 32; ++k) v = sinf(v); } else { for (int k = 0; k < 32; ++k) v = v * v + 0.5f; }
  out[i] = v;
}
__global__ void head_diverge(const float* __restrict__ in, float* __restrict__ out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; float v = in[i];
  if (i & 1) { for (int k = 0; k < 32; ++k) v = sinf(v); } else { for (int k = 0; k < 32; ++k) v = v * v + 0.5f; }
  out[i] = v;
}

// powf and a division in place of __expf and a reciprocal
__global__ void base_slow(const float* __restrict__ in, float* __restrict__ out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = __expf(in[i]) * __frcp_rn(2.5f);
}
__global__ void head_slow(const float* __restrict__ in, float* __restrict__ out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = powf(in[i], 1.7f) / (in[i] + 3.f);
}

// a fence in each turn
__global__ void base_fence(const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; for (int k = 0; k < 8; ++k) out[i + k * n] = in[i + k * n];
}
__global__ void head_fence(const float* __restrict__ in, float* __restrict__ out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; for (int k = 0; k < 8; ++k) { out[i + k * n] = in[i + k * n]; __threadfence(); }
}

// loads in place of asynchronous copies to shared memory
__global__ void base_async(const float4* __restrict__ in, float4* __restrict__ out, int n) {
  __shared__ float4 t[2][256]; int i = threadIdx.x; float4 s = {};
  __pipeline_memcpy_async(&t[0][i], &in[i], 16); __pipeline_commit();
  for (int k = 0; k < n; ++k) {
    __pipeline_memcpy_async(&t[(k + 1) & 1][i], &in[(k + 1) * 256 + i], 16); __pipeline_commit();
    __pipeline_wait_prior(1); __syncthreads();
    s.x += t[k & 1][i ^ 1].x; __syncthreads();
  }
  out[blockIdx.x * 256 + i] = s;
}
__global__ void head_async(const float4* __restrict__ in, float4* __restrict__ out, int n) {
  __shared__ float4 t[256]; int i = threadIdx.x; float4 s = {};
  for (int k = 0; k < n; ++k) {
    t[i] = in[k * 256 + i]; __syncthreads();
    s.x += t[i ^ 1].x; __syncthreads();
  }
  out[blockIdx.x * 256 + i] = s;
}

// float in place of half
__global__ void base_wider(const half* __restrict__ in, half* __restrict__ out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = __float2half(__half2float(in[i]) + 1);
}
__global__ void head_wider(const float* __restrict__ in, float* __restrict__ out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = in[i] + 1;
}

}
