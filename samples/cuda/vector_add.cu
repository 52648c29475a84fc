// Vector addition three times: neighbouring threads take neighbouring elements (coalesced), four
// neighbouring elements each in one access, or elements that lie apart (strided).
//
//     kanalyze ptx samples/cuda/vector_add.cu
//     kanalyze ptx samples/cuda/vector_add.cu:add_strided --arch sm_80

extern "C" __global__ void add_coalesced(const float *a, const float *b, float *sum, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        sum[i] = a[i] + b[i];
}

extern "C" __global__ void add_vector4(const float4 *a, const float4 *b, float4 *sum, int n4)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n4) {
        float4 x = a[i], y = b[i];
        sum[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
}

// Lanes touch elements that lie 32 apart: a warp's load takes 32 sectors instead of 4.
extern "C" __global__ void add_strided(const float *a, const float *b, float *sum, int n)
{
    const int stride = 32;
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * stride;
    if (i < n)
        sum[i] = a[i] + b[i];
}
