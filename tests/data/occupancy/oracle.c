/* NVIDIA's occupancy rules for configurations on standard input, by its own header.
 *
 * A line of input: major minor max_threads_per_sm shared_per_sm shared_per_block reserved carveout
 * threads registers shared barriers (sizes in bytes; carveout in percent, -1 for the default).
 * A line of output: blocks, then the limits by registers, shared memory, warps, blocks, barriers
 * (2147483647: none), the bytes of shared memory allocated for a block, and the limiting factors.
 */
#include <stdio.h>
#include <cuda_occupancy.h>

int main(void) {
    int major, minor, sm_threads, carveout, threads, registers, barriers;
    long sm_shared, block_shared, reserved, shared;
    while (scanf("%d %d %d %ld %ld %ld %d %d %d %ld %d", &major, &minor, &sm_threads, &sm_shared,
                 &block_shared, &reserved, &carveout, &threads, &registers, &shared,
                 &barriers) == 11) {
        cudaOccDeviceProp device = {0};
        cudaOccFuncAttributes function = {0};
        cudaOccDeviceState state = {0};
        cudaOccResult result;
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = sm_threads;
        device.regsPerBlock = 65536;
        device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = sm_shared;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = block_shared;
        device.reservedSharedMemPerBlock = reserved;
        function.maxThreadsPerBlock = 1024;
        function.numRegs = registers;
        function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        function.maxDynamicSharedSizeBytes = block_shared;
        function.numBlockBarriers = barriers;
        state.carveoutConfig = carveout;
        int status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state,
                                                             threads, shared);
        if (status != CUDA_OCC_SUCCESS) {
            printf("error %d\n", status);
            continue;
        }
        printf("%d %d %d %d %d %d %zu %u\n", result.activeBlocksPerMultiprocessor,
               result.blockLimitRegs, result.blockLimitSharedMem, result.blockLimitWarps,
               result.blockLimitBlocks, result.blockLimitBarriers,
               result.allocatedSharedMemPerBlock, result.limitingFactors);
    }
    return 0;
}
