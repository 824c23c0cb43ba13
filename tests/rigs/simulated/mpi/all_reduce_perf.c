// Copyright: (c) 2026, gpufleet.acceptance contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// Simulated nccl-tests 2.19.6 over several nodes: a real MPI program that prints the table of the real one, its rank list
// gathered by MPI. No GPU is used. How a node behaves stands in its /opt/simulated/fabric.conf:
//
//     busbw=380      what the group would reach (GB/s); that of rank 0 counts
//     slow=0.5       the node gives half of it; slow3=0.5: its GPU 3 does; path-gpu-02=0.5: as neighbour of gpu-02 in the ring
//     hang=1 wrong=1 exit=3
//     rail=48        what it would reach over one device (NCCL_IB_HCA==mlx5_0); slow-mlx5_0=0.5: the node's port of it gives half of it;
//     socket-mlx5_0=1: NCCL cannot use it there and takes a socket, which it says where it is asked to (NCCL_DEBUG=INFO)
//
// Waiting is by sleeping, not by spinning as MPI libraries do: many ranks share few cores here.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "simulated by gpufleet.acceptance"
#define NAME 64
#define TEXT 512

static const char *SHOWN[] = {"NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS", "NCCL_IB_GID_INDEX"};

struct rank {
    char host[NAME];
    char env[TEXT];
    int pid, devices, device[16];
    double factor;
    int wrong;
};

static char conf[8192];

static double setting(const char *name, double otherwise) {
    char key[NAME + 2];
    snprintf(key, sizeof key, "\n%s=", name);
    char *at = strstr(conf, key);
    return at ? atof(at + strlen(key)) : otherwise;
}

static void wait_for(MPI_Request *request) {
    int done = 0;
    while (MPI_Test(request, &done, MPI_STATUS_IGNORE), !done)
        usleep(2000);
}

static double bytes(const char *text) {
    char unit = text[strlen(text) - 1];
    const char *units = "KMGT", *at = strchr(units, unit);
    double value = atof(text);
    for (int i = 0; at && unit && i <= at - units; i++)
        value *= 1024;
    return value;
}

int main(int argc, char **argv) {
    double min = 32 << 20, max = 32 << 20;
    int factor = 2, gpus = 1, iters = 20, warmup = 1, size, me, status = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-b")) min = bytes(argv[i + 1]);
        if (!strcmp(argv[i], "-e")) max = bytes(argv[i + 1]);
        if (!strcmp(argv[i], "-f")) factor = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "-g")) gpus = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "-n")) iters = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "-w")) warmup = atoi(argv[i + 1]);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    struct rank mine = {.pid = getpid(), .devices = gpus, .factor = 1};
    gethostname(mine.host, sizeof mine.host - 1);
    mine.host[strcspn(mine.host, ".")] = 0;
    for (unsigned i = 0; i < sizeof SHOWN / sizeof *SHOWN; i++)
        snprintf(mine.env + strlen(mine.env), TEXT - strlen(mine.env), " %s=%s", SHOWN[i], getenv(SHOWN[i]) ? getenv(SHOWN[i]) : "-");
    conf[0] = '\n';
    FILE *file = fopen("/opt/simulated/fabric.conf", "r");
    if (file) {
        conf[1 + fread(conf + 1, 1, sizeof conf - 2, file)] = 0;
        fclose(file);
    }

    struct rank *all = calloc(size, sizeof *all);
    MPI_Request request;
    MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD, &request);
    wait_for(&request);

    // Devices as the real one numbers them: by the rank among those of the same host.
    int local = 0;
    for (int i = 0; i < me; i++)
        local += !strcmp(all[i].host, mine.host);
    char visible[TEXT];
    snprintf(visible, sizeof visible, "%s", getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "");
    int list[64], listed = 0;
    for (char *word = strtok(visible, ","); word && listed < 64; word = strtok(NULL, ","))
        list[listed++] = atoi(word);
    mine.factor = setting("slow", 1);
    for (int i = 0; i < gpus && i < 16; i++) {
        char name[NAME];
        int device = local * gpus + i;
        mine.device[i] = listed ? list[device % listed] : device;
        snprintf(name, sizeof name, "slow%d", mine.device[i]);
        mine.factor *= setting(name, 1);
    }
    for (int i = 0; i < size; i++) {
        const char *next = all[(i + 1) % size].host, *here = all[i].host;
        char name[NAME + 8];
        if (!strcmp(next, here) || (strcmp(next, mine.host) && strcmp(here, mine.host)))
            continue;
        snprintf(name, sizeof name, "path-%s", strcmp(next, mine.host) ? next : here);
        mine.factor *= setting(name, 1);
    }
    const char *rail = getenv("NCCL_IB_HCA"), *debug = getenv("NCCL_DEBUG");
    rail = rail && *rail == '=' ? rail + 1 : NULL;
    if (rail) {
        char name[NAME + 8];
        snprintf(name, sizeof name, "slow-%s", rail);
        mine.factor *= setting(name, 1);
        snprintf(name, sizeof name, "socket-%s", rail);
        int socket = setting(name, 0) > 0;
        if (debug && !strcmp(debug, "INFO")) {
            char prefix[NAME + 64];
            snprintf(prefix, sizeof prefix, "%s:%d:%d [0] NCCL INFO", mine.host, mine.pid, mine.pid);
            if (socket)
                printf("%s NET/IB : No device found.\n%s NET/IB : Using [RO]; OOB eth0:192.0.2.2<0>\n", prefix, prefix);
            else
                printf("%s NET/IB : Using [0]%s:1/RoCE [RO]; OOB eth0:192.0.2.2<0>\n", prefix, rail);
            printf("%s Channel 00/0 : %d[0] -> %d[0] [send] via NET/%s/0\n", prefix, me, (me + 1) % size, socket ? "Socket" : "IB");
            fflush(stdout);
        }
    }
    mine.wrong = setting("wrong", 0) > 0;
    while (setting("hang", 0) > 0)
        sleep(1);
    if (setting("exit", 0) > 0)
        exit((int)setting("exit", 0));
    MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD, &request);
    wait_for(&request);
    usleep((useconds_t)(1e6 * setting("seconds", 0)));

    if (me == 0) {
        double whole = rail ? setting("rail", 48) : setting("busbw", 380), busbw = whole, ranks = (double)size * gpus, sum = 0;
        int wrong = 0, rows = 0;
        for (int i = 0; i < size; i++) {
            busbw = all[i].factor < 1 && busbw > whole * all[i].factor ? whole * all[i].factor : busbw;
            wrong |= all[i].wrong;
        }
        int amd = setting("amd", 0) > 0;
        if (amd) printf("rccl-tests: Version develop:unknown\n");
        else printf("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809\n");
        printf("# Collective test starting: all_reduce_perf\n");
        printf("# nThread 1 nGpus %d minBytes %.0f maxBytes %.0f step: %d(factor) warmup iters: %d iters: %d agg iters: 1 "
               "validation: 1 graph: 0 unalign: 0\n#\n# %s\n", gpus, min, max, factor, warmup, iters, MARK);
        for (int i = 0; i < size; i++)
            printf("# rank %d on %s:%s\n", i, all[i].host, all[i].env);
        printf("# Using devices\n");
        for (int i = 0; i < size; i++)
            for (int g = 0; g < gpus; g++)
                printf("#  Rank %2d Group  0 Pid %6d on %10s device %2d [0000:%02x:00%s\n", i * gpus + g, all[i].pid, all[i].host,
                       all[i].device[g], amd ? 5 + 32 * all[i].device[g] : 0x1a + 7 * all[i].device[g],
                       amd ? ".0] AMD Instinct MI300X" : "] NVIDIA H200");
        printf("#\n#                                                              out-of-place                       in-place\n"
               "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong\n"
               "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)\n");
        for (double b = min; b <= max; b *= factor, rows++) {
            double bus = busbw * b / (b + 12e6), alg = ranks > 1 ? bus / (2 * (ranks - 1) / ranks) : bus, time = b / alg / 1e3;
            printf("%12.0f  %12.0f     float     sum      -1  %8.2f %7.2f %7.2f %6d  %8.2f %7.2f %7.2f %6d\n", b, b / 4, time, alg,
                   ranks > 1 ? bus : 0, wrong ? 7 : 0, time, alg, ranks > 1 ? bus : 0, 0);
            sum += ranks > 1 ? bus : 0;
        }
        printf("# Out of bounds values : %d %s\n# Avg bus bandwidth    : %g \n#\n# Collective test concluded: all_reduce_perf\n#\n",
               wrong ? rows : 0, wrong ? "FAILED" : "OK", sum / rows);
        fflush(stdout);
        status = wrong ? 7 : 0;
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    wait_for(&request);
#ifdef MPICH
    // Debian's MPICH 4.0.2 over UCX hangs in MPI_Finalize more often than not: some ranks wait for one another there while others
    // wait to hear from them that their last messages arrived.
    fflush(stdout);
    usleep(500000);
    _exit(status);
#endif
    MPI_Finalize();
    return status;
}
