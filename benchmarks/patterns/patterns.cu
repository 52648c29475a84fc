// One warp, one memory instruction, one pattern of lane offsets: what the counters say of it.
// usage: patterns FILE, a line each: OP WIDTH MASK OFFSET0 ... OFFSET31 (bytes; OP is one of
// lds sts ldsm stsm ldg stg red atom; lanes that are 0 in MASK take no part).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { \
    fprintf(stderr, "%s: %s\n", #x, cudaGetErrorString(e)); exit(1); } } while (0)

extern __shared__ __align__(128) char pool[];

template <int OP, int WIDTH>
__global__ void access(const uint32_t* offsets, uint32_t mask, char* memory, uint32_t* out) {
    uint32_t lane = threadIdx.x, offset = offsets[lane], a = lane, b = lane, c = lane, d = lane;
    uint32_t near = (uint32_t)__cvta_generic_to_shared(pool) + offset;
    char* far = memory + offset;
    bool on = mask >> lane & 1;
    if constexpr (OP == 0) {  // lds
        if (on) {
            if constexpr (WIDTH == 1) asm volatile("ld.shared.u8 %0, [%1];" : "=r"(a) : "r"(near));
            if constexpr (WIDTH == 2) { uint16_t h; asm volatile("ld.shared.u16 %0, [%1];" : "=h"(h) : "r"(near)); a = h; }
            if constexpr (WIDTH == 4) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(a) : "r"(near));
            if constexpr (WIDTH == 8) asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "r"(near));
            if constexpr (WIDTH == 16) asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(near));
        }
        out[lane] = a + b + c + d;
    } else if constexpr (OP == 1) {  // sts
        if (on) {
            if constexpr (WIDTH == 1) asm volatile("st.shared.u8 [%0], %1;" :: "r"(near), "r"(a) : "memory");
            if constexpr (WIDTH == 2) asm volatile("st.shared.u16 [%0], %1;" :: "r"(near), "h"((uint16_t)a) : "memory");
            if constexpr (WIDTH == 4) asm volatile("st.shared.u32 [%0], %1;" :: "r"(near), "r"(a) : "memory");
            if constexpr (WIDTH == 8) asm volatile("st.shared.v2.u32 [%0], {%1,%2};" :: "r"(near), "r"(a), "r"(b) : "memory");
            if constexpr (WIDTH == 16) asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" :: "r"(near), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
        }
    } else if constexpr (OP == 2) {  // ldsm: WIDTH is the number of matrices
        if constexpr (WIDTH == 1) asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(a) : "r"(near));
        if constexpr (WIDTH == 2) asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "r"(near));
        if constexpr (WIDTH == 4) asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(near));
        out[lane] = a + b + c + d;
    } else if constexpr (OP == 3) {  // stsm
        if constexpr (WIDTH == 1) asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" :: "r"(near), "r"(a) : "memory");
        if constexpr (WIDTH == 2) asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};" :: "r"(near), "r"(a), "r"(b) : "memory");
        if constexpr (WIDTH == 4) asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" :: "r"(near), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
    } else if constexpr (OP == 4) {  // ldg
        if (on) {
            if constexpr (WIDTH == 1) asm volatile("ld.global.u8 %0, [%1];" : "=r"(a) : "l"(far));
            if constexpr (WIDTH == 2) { uint16_t h; asm volatile("ld.global.u16 %0, [%1];" : "=h"(h) : "l"(far)); a = h; }
            if constexpr (WIDTH == 4) asm volatile("ld.global.u32 %0, [%1];" : "=r"(a) : "l"(far));
            if constexpr (WIDTH == 8) asm volatile("ld.global.v2.u32 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "l"(far));
            if constexpr (WIDTH == 16) asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(far));
        }
        if (a + b + c + d == 0x12345678) out[0] = a;
    } else if constexpr (OP == 5) {  // stg
        if (on) {
            if constexpr (WIDTH == 1) asm volatile("st.global.u8 [%0], %1;" :: "l"(far), "r"(a) : "memory");
            if constexpr (WIDTH == 2) asm volatile("st.global.u16 [%0], %1;" :: "l"(far), "h"((uint16_t)a) : "memory");
            if constexpr (WIDTH == 4) asm volatile("st.global.u32 [%0], %1;" :: "l"(far), "r"(a) : "memory");
            if constexpr (WIDTH == 8) asm volatile("st.global.v2.u32 [%0], {%1,%2};" :: "l"(far), "r"(a), "r"(b) : "memory");
            if constexpr (WIDTH == 16) asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" :: "l"(far), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
        }
    } else if constexpr (OP == 6) {  // red
        if (on) {
            if constexpr (WIDTH == 4) asm volatile("red.global.add.u32 [%0], %1;" :: "l"(far), "r"(a) : "memory");
            if constexpr (WIDTH == 8) asm volatile("red.global.add.u64 [%0], %1;" :: "l"(far), "l"((uint64_t)a) : "memory");
        }
    } else {  // atom
        uint64_t r = 0;
        if (on) {
            if constexpr (WIDTH == 4) { uint32_t q; asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(q) : "l"(far), "r"(a) : "memory"); r = q; }
            if constexpr (WIDTH == 8) asm volatile("atom.global.add.u64 %0, [%1], %2;" : "=l"(r) : "l"(far), "l"((uint64_t)a) : "memory");
        }
        if (r == 0x123456789ull) out[0] = 1;
    }
}

template <int OP, int WIDTH>
static void launch(const uint32_t* offsets, uint32_t mask, char* memory, uint32_t* out) {
    access<OP, WIDTH><<<1, 32, 40960>>>(offsets, mask, memory, out);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}

int main(int argc, char** argv) {
    FILE* file = argc > 1 ? fopen(argv[1], "r") : nullptr;
    if (!file) { fprintf(stderr, "usage: patterns FILE\n"); return 2; }
    uint32_t *offsets, *out; char* memory;
    CHECK(cudaMalloc(&offsets, 128)); CHECK(cudaMalloc(&out, 128)); CHECK(cudaMalloc(&memory, 1 << 20));
    CHECK(cudaMemset(memory, 0, 1 << 20));
    char op[16]; int width; uint32_t mask, host[32];
    while (fscanf(file, "%15s %d %x", op, &width, &mask) == 3) {
        for (int i = 0; i < 32; i++) if (fscanf(file, "%u", host + i) != 1) return 3;
        CHECK(cudaMemcpy(offsets, host, 128, cudaMemcpyHostToDevice));
        const char* names[] = {"lds", "sts", "ldsm", "stsm", "ldg", "stg", "red", "atom"};
        int which = 0; while (which < 8 && strcmp(op, names[which])) which++;
#define CASE(o, w) if (which == o && width == w) { launch<o, w>(offsets, mask, memory, out); continue; }
#define WIDTHS(o) CASE(o, 1) CASE(o, 2) CASE(o, 4) CASE(o, 8) CASE(o, 16)
        WIDTHS(0) WIDTHS(1) CASE(2, 1) CASE(2, 2) CASE(2, 4) CASE(3, 1) CASE(3, 2) CASE(3, 4)
        WIDTHS(4) WIDTHS(5) CASE(6, 4) CASE(6, 8) CASE(7, 4) CASE(7, 8)
        fprintf(stderr, "no such case: %s %d\n", op, width); return 4;
    }
    return 0;
}
