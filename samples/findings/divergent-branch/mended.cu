// The sum of each block. The threads at work stay together; warps stop as a whole.

extern "C" __global__ void __launch_bounds__(256)
sum_of_blocks(const float *__restrict__ x, float *__restrict__ sums)
{
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
#pragma unroll
    for (int s = 128; s > 0; s /= 2) {
        if (t < s)
            part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0)
        sums[blockIdx.x] = part[0];
}
