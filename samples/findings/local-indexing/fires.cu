// The median of nine neighbours by insertion: the places in v follow loop counters.
extern "C" __global__ void median_of_9(const float* x, float* y, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    float v[9];
#pragma unroll 1
    for (int k = 0; k < 9; ++k) v[k] = x[t + k * n];
#pragma unroll 1
    for (int i = 0; i < 5; ++i) {
#pragma unroll 1
        for (int k = 8; k > i; --k) {
            float low = fminf(v[k - 1], v[k]);
            v[k] = fmaxf(v[k - 1], v[k]);
            v[k - 1] = low;
        }
    }
    y[t] = v[4];
}
