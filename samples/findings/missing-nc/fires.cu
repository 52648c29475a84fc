// y[i] = 2 a[i], every thread several elements: each load must wait for the store before it.
extern "C" __global__ void fires(float* y, const float* a, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        y[i] = 2.0f * a[i];
    }
}
