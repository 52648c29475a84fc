// The sum of each block. The threads at work lie ever further apart in each warp.

extern "C" __global__ void __launch_bounds__(256)
sum_of_blocks(const float *__restrict__ x, float *__restrict__ sums)
{
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
#pragma unroll
    for (int s = 1; s < 256; s *= 2) {
        if (t % (2 * s) == 0)
            part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0)
        sums[blockIdx.x] = part[0];
}
