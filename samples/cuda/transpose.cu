// A transpose through shared memory. Reading a column of an unpadded tile makes the 32 lanes of a
// warp hit one bank; one more column in each row of the tile spreads them over all 32.
//
//     kanalyze ptx samples/cuda/transpose.cu

#define TILE 32
#define ROWS 8

template <int PAD>
__device__ __forceinline__ void transpose(float *out, const float *in, int width, int height)
{
    __shared__ float tile[TILE][TILE + PAD];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        if (x < height && y + j < width)
            out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}

__global__ __launch_bounds__(TILE * ROWS)
void transpose_conflicts(float *out, const float *in, int width, int height)
{
    transpose<0>(out, in, width, height);
}

__global__ __launch_bounds__(TILE * ROWS)
void transpose_padded(float *out, const float *in, int width, int height)
{
    transpose<1>(out, in, width, height);
}
