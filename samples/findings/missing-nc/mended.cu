// y[i] = 2 a[i], every thread several elements, with arrays that are said not to overlap.
extern "C" __global__ void mended(float* __restrict__ y, const float* __restrict__ a, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        y[i] = 2.0f * a[i];
    }
}
