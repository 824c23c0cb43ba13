/* Copyright: (c) 2026, gpufleet.acceptance contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * HIP for tests without a GPU: two devices of 96 MiB in the memory of this process, and the kernels of hip_products.py with those of
 * hip_kernels.py (KERNELS) as C functions that one thread runs, `multiply` with two threads of each block, at most MULTIPLY_STEPS steps and
 * products of one lane. HIP_ON_CPU=bit flips a bit of the second device behind each fill, HIP_ON_CPU=no_code lets the compiler fail,
 * HIP_ON_CPU=parts makes both devices parts of one GPU, HIP_ON_CPU=product lets one block of the second device multiply wrong in its fifth launch, HIP_ON_CPU=products in all, by all of its blocks.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static __thread struct { unsigned x, y, z; } blockIdx, threadIdx, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};
#define KERNEL __attribute__((visibility("default"))) void
#define __device__
#define __shared__ static
#define __syncthreads()
static unsigned long long now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
#define NOW_NS() now_ns()
static unsigned long long atomicAdd(unsigned long long *p, unsigned long long v) { unsigned long long old = *p; *p += v; return old; }
/* A product of matrices of which this lane has REGISTERS pairs of numbers of each: other pairs for each of the four sums. */
static float upper(unsigned pair) { union { unsigned bits; float number; } of = {pair & 0xffff0000u}; return of.number; }
typedef float sums __attribute__((vector_size(16)));
static int is_wrong;
static sums product(const unsigned *a, const unsigned *b, unsigned registers, sums c)
{
    for (unsigned r = 0; r < 4; r++)
        for (unsigned k = 0; k < registers; k++) {
            unsigned other = b[(k + r) % registers] ^ (is_wrong && !r && !k ? 1u << 22 : 0);
            c[r] += upper(a[k]) * upper(other) + upper(a[k] << 16) * upper(other << 16);
        }
    return c;
}
#define PRODUCT(a, b, c) product((a).w, (b).w, sizeof(a) / 4, c)
#define PLACE() blockIdx.x
#define UNROLL
#define BOUNDS
#define MULTIPLY_STEPS 8
#include KERNELS

#define TOTAL ((size_t)96 << 20)
static size_t used[2];
static __thread int device;
struct room { size_t size; int device; };

int hipInit(unsigned flags) { (void)flags; return getenv("GPU_MAX_HW_QUEUES") ? 0 : 999; } /* else streams would wait for each other */
int hipRuntimeGetVersion(int *version) { *version = 70226015; return 0; }
int hipGetDeviceCount(int *count) { *count = 2; return 0; }
const char *hipGetErrorString(int status) { return status == 2 ? "out of memory" : "another error"; }
int hipSetDevice(int of) { device = of; return 0; }
int hipDeviceGetPCIBusId(char *text, int size, int of)
{
    const char *plan = getenv("HIP_ON_CPU");
    int parts = plan && !strcmp(plan, "parts");
    snprintf(text, size, "0000:%02X:00.%d", 0xF5 + (parts ? 0 : of), parts ? of : 0);
    return 0;
}
int hipDeviceGetUuid(char *uuid, int of) { char text[17]; snprintf(text, sizeof text, "%016x", 0x7000001 + of); memcpy(uuid, text, 16); return 0; }
int hipMemGetInfo(size_t *free_, size_t *total) { *free_ = TOTAL - used[device]; *total = TOTAL; return 0; }
int hipMalloc(void **at, size_t size)
{
    if (size > TOTAL - used[device]) return 2;
    struct room *room = aligned_alloc(64, (size + 64 + 63) / 64 * 64);
    room->size = size, room->device = device, used[device] += size;
    *at = (char *)room + 64;
    return 0;
}
int hipFree(void *at) { struct room *room = (void *)((char *)at - 64); used[room->device] -= room->size; free(room); return 0; }
int hipHostRegister(void *at, size_t size, unsigned flags) { (void)at, (void)size, (void)flags; return 0; }
int hipHostUnregister(void *at) { (void)at; return 0; }
int hipHostGetDevicePointer(void **to, void *at, unsigned flags) { (void)flags; *to = at; return 0; }
int hipStreamCreateWithFlags(void **stream, unsigned flags) { (void)flags; *stream = (void *)1; return 0; }
int hipMemcpyAsync(void *to, void *from, size_t size, int kind, void *stream) { (void)stream; memmove(to, from, size); return kind < 1 || kind > 3; }
int hipMemcpy(void *to, void *from, size_t size, int kind) { return hipMemcpyAsync(to, from, size, kind, 0); }
int hipMemcpyPeerAsync(void *to, int a, void *from, int b, size_t size, void *stream) { (void)stream; memmove(to, from, size); return a == b; }
int hipDeviceCanAccessPeer(int *able, int a, int b) { *able = a != b; return 0; }
int hipDeviceEnablePeerAccess(int peer, unsigned flags) { (void)flags; return peer == device; }
int hipMemset(void *at, int value, size_t size) { memset(at, value, size); return 0; }
int hipMemsetAsync(void *at, int value, size_t size, void *stream) { (void)stream; return hipMemset(at, value, size); }
int hipModuleLoadData(void **module, const char *image) { *module = (void *)1; return strncmp(image, "code of fill", 12) != 0; }
int hipModuleGetFunction(const char **function, void *module, const char *name) { (void)module; *function = strdup(name); return 0; }
int hipModuleLaunchKernel(const char *name, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                          void *stream, void **p, void **extra)
{
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)extra;
#define A(k) (*(word *)p[k])
#define P(k) ((word *)A(k))
    const char *plan = getenv("HIP_ON_CPU");
    if (!strcmp(name, "fill")) {
        fill(P(0), A(1), A(2), A(3), A(4));
        if (plan && !strcmp(plan, "bit") && device == 1) P(0)[A(1) / 2] ^= 4;
    } else if (!strcmp(name, "check")) check(P(0), A(1), A(2), A(3), A(4), P(5), A(6));
    else if (!strcmp(name, "same")) same(P(0), P(1), A(2), P(3));
    else if (!strcmp(name, "total")) total(P(0), A(1), P(2));
    else if (!strcmp(name, "chase")) chase(P(0), A(1), P(2));
    else if (!strcmp(name, "multiply")) {
        static int launches[2];
        int is_odd = plan && device == 1 && (!strcmp(plan, "products") || (!strcmp(plan, "product") && launches[1] == 4));
        launches[device]++;
        gridDim.x = gx;
        for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < 2; threadIdx.x++) {
                is_wrong = is_odd && (!strcmp(plan, "products") || blockIdx.x == 5);
                multiply(A(0) < MULTIPLY_STEPS ? A(0) : MULTIPLY_STEPS, A(1), P(2));
            }
        is_wrong = 0, gridDim.x = 1, blockIdx.x = 0, threadIdx.x = 0;
    }
    else if (strcmp(name, "gate")) return 1; /* whoever opens it waits for this call */
    return 0;
}
int hipEventCreate(unsigned long long **event) { *event = calloc(1, 8); return 0; }
int hipEventRecord(unsigned long long *event, void *stream) { (void)stream; *event = now_ns(); return 0; }
int hipStreamWaitEvent(void *stream, void *event, unsigned flags) { (void)stream, (void)event, (void)flags; return 0; }
int hipEventSynchronize(void *event) { (void)event; return 0; }
int hipEventDestroy(void *event) { free(event); return 0; }
int hipEventElapsedTime(float *ms, unsigned long long *a, unsigned long long *b) { *ms = (*b - *a) / 1e6f; return 0; }
int hipDeviceSynchronize(void) { return 0; }
int hipStreamSynchronize(void *stream) { (void)stream; return 0; }

/* hiprtc: the text must have all kernels. */
static int whole;
int hiprtcCreateProgram(void **program, const char *text, const char *name, int headers, void *a, void *b)
{
    (void)name, (void)headers, (void)a, (void)b;
    *program = &whole;
    whole = strstr(text, "KERNEL fill") && strstr(text, "KERNEL chase") && strstr(text, "#define COMPARED");
    const char *plan = getenv("HIP_ON_CPU");
    if (plan && !strcmp(plan, "no_code")) whole = 0;
    return 0;
}
int hiprtcCompileProgram(void *program, int options, void *a) { (void)program, (void)options, (void)a; return whole ? 0 : 6; }
int hiprtcGetProgramLogSize(void *program, size_t *size) { (void)program; *size = 20; return 0; }
int hiprtcGetProgramLog(void *program, char *log) { (void)program; strcpy(log, "error: no such arch"); return 0; }
int hiprtcGetCodeSize(void *program, size_t *size) { (void)program; *size = 13; return 0; }
int hiprtcGetCode(void *program, char *code) { (void)program; memcpy(code, "code of fill", 13); return 0; }
int hiprtcDestroyProgram(void **program) { (void)program; return 0; }
