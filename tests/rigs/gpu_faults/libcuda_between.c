/* Copyright: (c) 2026, gpufleet.acceptance contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A libcuda.so.1 between a program and NVIDIA's driver, which plants one fault of a GPU: the one that GPU_FAULT names (README.md).
 *
 * It is linked to a libcuda-real.so, which is a link to the real library, so that each function that is not here is found there. Those that
 * are here call the real one of the same name in GPU_FAULT_REAL.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long Address;
enum { LARGE = 1 << 20, OUT_OF_MEMORY = 2, MOST = 64 };

static const char *fault = "";
static void *real;

static int is(const char *name) { return strcmp(fault, name) == 0; }

/* The real function of a name; the program cannot go on without it. */
static void *find(const char *name) {
    void *function = real ? dlsym(real, name) : NULL;
    if (!function) {
        fprintf(stderr, "libcuda_between: the driver's library (GPU_FAULT_REAL) has no %s: %s\n", name, dlerror());
        _exit(70);
    }
    return function;
}

#define REAL(name, ...) static int (*call)(__VA_ARGS__); if (!call) *(void **)&call = find(#name)

__attribute__((constructor)) static void begin(void) {
    const char *named = getenv("GPU_FAULT"), *path = getenv("GPU_FAULT_REAL");
    if (named) fault = named;
    if (path) real = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

/* Copies ------------------------------------------------------------------------------------------------------------------------------ */

int cuMemcpyHtoDAsync_v2(Address to, const void *source, size_t size, void *stream) {
    REAL(cuMemcpyHtoDAsync_v2, Address, const void *, size_t, void *);
    if (size < LARGE) return call(to, source, size, stream);
    if (is("short")) return call(to, source, size / 2, stream);
    if (is("place")) return call(to + 4096, source, size - 4096, stream);
    int status = call(to, source, size, stream);
    if (is("slow") && !status) status = call(to, source, size, stream);
    return status;
}

int cuMemcpyDtoHAsync_v2(void *to, Address source, size_t size, void *stream) {
    REAL(cuMemcpyDtoHAsync_v2, void *, Address, size_t, void *);
    static unsigned copies;
    static int (*settle)(void *);
    if (size < LARGE) return call(to, source, size, stream);
    copies++;
    if (is("stale") && copies % 40 == 11) return 0;
    int status = call(to, source, size, stream);
    if (is("flip") && copies % 40 == 7) {
        if (!settle) *(void **)&settle = find("cuStreamSynchronize");
        settle(stream);
        ((char *)to)[size / 3] ^= 4;
    }
    return status;
}

int cuMemcpyDtoDAsync_v2(Address to, Address source, size_t size, void *stream) {
    REAL(cuMemcpyDtoDAsync_v2, Address, Address, size_t, void *);
    return call(to, source, is("inside") && size >= LARGE ? size - 4096 : size, stream);
}

int cuDeviceCanAccessPeer(int *able, int device, int peer) {
    REAL(cuDeviceCanAccessPeer, int *, int, int);
    int status = call(able, device, peer);
    /* `peer` takes it from all GPUs, `one_peer` from the first one, both ways. */
    if (is("peer") || (is("one_peer") && (device == 0 || peer == 0))) *able = 0;
    return status;
}

/* Memory ------------------------------------------------------------------------------------------------------------------------------ */

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    REAL(cuMemGetInfo_v2, size_t *, size_t *);
    int status = call(free_bytes, total);
    if (is("half") || is("less")) *free_bytes /= 2;
    if (is("less")) *total /= 2;
    return status;
}

int cuMemAlloc_v2(Address *address, size_t size) {
    REAL(cuMemAlloc_v2, Address *, size_t);
    static int failed;
    if (is("alloc") && size >= LARGE) { /* two fifths of the memory cannot be had */
        size_t free_bytes = 0, total = 0;
        cuMemGetInfo_v2(&free_bytes, &total);
        if (free_bytes < size + total / 5 * 2) return OUT_OF_MEMORY;
    }
    if (is("one_alloc") && size > (size_t)1 << 30 && !failed++) return OUT_OF_MEMORY;
    return call(address, size);
}

/* Time -------------------------------------------------------------------------------------------------------------------------------- */

int cuEventElapsedTime(float *ms, void *first, void *last) {
    REAL(cuEventElapsedTime, float *, void *, void *);
    int status = call(ms, first, last);
    if (is("clock")) *ms /= 1.5f;
    if (is("clock2")) *ms *= 1.3f;
    return status;
}

int cuStreamSynchronize(void *stream) {
    REAL(cuStreamSynchronize, void *);
    static unsigned calls;
    if (is("hang") && ++calls > 60) for (;;) pause();
    return call(stream);
}

/* Kernels, known by their names --------------------------------------------------------------------------------------------------------- */

static struct { void *function; char name[16]; } known[MOST];
static struct { Address base; double written; } memory[MOST];

int cuModuleGetFunction(void **function, void *module, const char *name) {
    REAL(cuModuleGetFunction, void **, void *, const char *);
    int status = call(function, module, name);
    for (int i = 0; !status && i < MOST; i++) {
        if (known[i].function && known[i].function != *function) continue;
        known[i].function = *function;
        strncpy(known[i].name, name, sizeof known[i].name - 1);
        break;
    }
    return status;
}

static const char *name_of(void *function) {
    for (int i = 0; i < MOST && known[i].function; i++)
        if (known[i].function == function) return known[i].name;
    return "";
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* When memory was written last; a place for it if it is new. */
static double *written(Address base) {
    int i = 0;
    while (i < MOST - 1 && memory[i].base && memory[i].base != base) i++;
    memory[i].base = base;
    return &memory[i].written;
}

static void put(Address to, Address source, size_t size, void *stream) {
    static int (*copy)(Address, Address, size_t, void *);
    if (!copy) *(void **)&copy = find("cuMemcpyDtoDAsync_v2");
    copy(to, source, size, stream);
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **parameters, void **extra) {
    REAL(cuLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
    static unsigned launches, checks;
    const char *name = name_of(function);
    int fills = !strcmp(name, "fill"), compares = !strcmp(name, "check");
    launches++;
    checks += compares;
    if (is("nolaunch") || (is("skip") && launches % 9 == 5) || (is("one_check") && compares && checks == 50)) return 0;
    if (!strncmp(fault, "no_", 3) && !strcmp(fault + 3, name)) return 0;
    Address base = 0, *words = NULL, all = 0;
    if (fills || compares) {
        base = *(Address *)parameters[0];
        words = (Address *)parameters[1];
        all = *words;
    }
    if (compares && is("part")) *words = all / 2;
    if (compares && is("forget") && *written(base) && now() - *written(base) > 1.0) put(base + 4096, base, 32, stream);
    int status = call(function, x, y, z, bx, by, bz, shared, stream, parameters, extra);
    if (words) *words = all;
    if (compares && is("blind")) {
        static int (*set)(Address, unsigned char, size_t, void *);
        if (!set) *(void **)&set = find("cuMemsetD8Async");
        set(*(Address *)parameters[5], 0, 8, stream);
    }
    if (fills || (compares && *(Address *)parameters[6])) {
        *written(base) = now();
        if (is("alias")) { /* an address line is stuck: what lies above it is the same memory */
            Address line = 1ULL << 30;
            while (line > all * 4) line >>= 1;
            put(base, base + line, LARGE, stream);
        }
    }
    return status;
}
