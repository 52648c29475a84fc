// A transpose through shared memory; rows of 33 elements: the column lies in 32 banks.

extern "C" __global__ void __launch_bounds__(256)
transpose(float *__restrict__ out, const float *__restrict__ in, int width)
{
    __shared__ float tile[32][32 + 1];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
    for (int j = 0; j < 32; j += 8)
        tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
#pragma unroll
    for (int j = 0; j < 32; j += 8)
        out[(size_t)(y + j) * width + x] = tile[threadIdx.x][threadIdx.y + j];
}
