// Local memory for four reasons: an index from data, none at all, a call, a sine.
extern "C" __global__ void pick_dyn(const float* x, const int* idx, float* y, int n) {
    float v[16];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = x[t + k * n];
    float s = 0.f;
#pragma unroll 1
    for (int k = 0; k < 16; ++k) s += v[idx[k * n + t] & 15];
    y[t] = s;
}
extern "C" __global__ void pick_fixed(const float* x, const int* idx, float* y, int n) {
    float v[16];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = x[t + k * n];
    float s = 0.f;
#pragma unroll
    for (int k = 0; k < 16; ++k) s += v[k];
    y[t] = s;
}
__device__ __noinline__ float poly(float x, int n) { float b[4]; for (int i=0;i<4;++i) b[i]=x*i; for (int i=0;i<n;++i) b[(i*7)&3]+=x; return b[n&3]; }
extern "C" __global__ void calls(const float* x, float* y, int n) { int t = blockIdx.x*blockDim.x+threadIdx.x; y[t]=poly(x[t],n); }
extern "C" __global__ void trig(const float* x, float* y, int n) { int t = blockIdx.x*blockDim.x+threadIdx.x; y[t]=sinf(x[t]); }
