// A sum over each block in two orders. Partners that lie further apart in every step leave ever fewer
// threads of every warp at work: most branches split most warps. Adding the upper half to the lower
// one keeps the threads at work together: warps stop as a whole, until one is left.
//
//     nvcc -ptx -arch=sm_90 -lineinfo -o reduce.ptx reduce.cu
//     kanalyze traffic --launch samples/cuda/reduce.json

#define THREADS 256

extern "C" __global__ __launch_bounds__(THREADS)
void reduce_interleaved(const float *x, float *sums)
{
    __shared__ float part[THREADS];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * THREADS + t];
    __syncthreads();
#pragma unroll
    for (int s = 1; s < THREADS; s *= 2) {
        if (t % (2 * s) == 0)
            part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0)
        sums[blockIdx.x] = part[0];
}

extern "C" __global__ __launch_bounds__(THREADS)
void reduce_halves(const float *x, float *sums)
{
    __shared__ float part[THREADS];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * THREADS + t];
    __syncthreads();
#pragma unroll
    for (int s = THREADS / 2; s > 0; s /= 2) {
        if (t < s)
            part[t] += part[t + s];
        __syncthreads();
    }
    if (t == 0)
        sums[blockIdx.x] = part[0];
}
