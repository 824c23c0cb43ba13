// Copyright: (c) 2026, gpufleet.acceptance contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// Simulated hccl_test of CANN: a real MPI program, by whatever name of hccl_test it is called, that prints the table of the real one. No NPU
// is used. How a node behaves stands in its /opt/simulated/hccl.conf:
//
//     busbw=160      what the group would reach (GB/s); that of rank 0 counts
//     slow=0.5       the node gives half of it; slow3=0.5: its NPU 3 does
//     exit=3 leave=1 kill=1 hang=1   its first rank exits with 3, or with 0, before the others are done; is killed; never comes
//     wrong=1        a rank of it computes wrong values, which it says in a line of its own: the table says success, and the status is 0
//     seconds=5      how long the test takes
//
// Waiting is by sleeping, not by spinning as MPI libraries do: many ranks share few cores here.

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "simulated by gpufleet.acceptance"
#define NAME 64

struct rank {
    char host[NAME];
    double factor;
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
    double min = 64 << 20, max = 64 << 20, factor = 2;
    int iters = 20, warmup = 10, size, me, local = 0;
    const char *visible = getenv("ASCEND_RT_VISIBLE_DEVICES"), *name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "-b")) min = bytes(argv[i + 1]);
        if (!strcmp(argv[i], "-e")) max = bytes(argv[i + 1]);
        if (!strcmp(argv[i], "-f")) factor = atof(argv[i + 1]);
        if (!strcmp(argv[i], "-n")) iters = atoi(argv[i + 1]);
        if (!strcmp(argv[i], "-w")) warmup = atoi(argv[i + 1]);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    struct rank mine = {.factor = 1}, *all = calloc(size, sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
    conf[0] = '\n';
    FILE *file = fopen("/opt/simulated/hccl.conf", "r");
    if (file) {
        conf[1 + fread(conf + 1, 1, sizeof conf - 2, file)] = 0;
        fclose(file);
    }
    MPI_Request request;
    MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD, &request);
    wait_for(&request);
    for (int i = 0; i < me; i++)
        local += !strcmp(all[i].host, mine.host);

    char key[NAME];
    int device = local;
    for (int i = 0; visible && *visible; i++) {
        if (i == local)
            device = atoi(visible);
        visible = strchr(visible, ',') ? strchr(visible, ',') + 1 : "";
    }
    snprintf(key, sizeof key, "slow%d", device);
    mine.factor = setting("slow", 1) * setting(key, 1);
    if (local == 0) {
        if (setting("exit", 0) > 0)
            exit((int)setting("exit", 0));
        if (setting("leave", 0) > 0)
            _exit(0);
        if (setting("kill", 0) > 0)
            raise(SIGKILL);
        while (setting("hang", 0) > 0)
            sleep(1);
    }
    if (me == 0) {
        printf("# %s\nthe minbytes is %.0f, maxbytes is %.0f, iters is %d, warmup_iters is %d\n", MARK, min, max, iters, warmup);
        printf("%-15s | %-12s | %-18s | %s\n", "data_size(Bytes):", "  aveg_time(us):", "alg_bandwidth(GB/s):", "check_result:");
        fflush(stdout);
    }
    // What takes part in the test must have come; whose values are wrong is told to nobody.
    MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD, &request);
    wait_for(&request);
    usleep((useconds_t)(1e6 * setting("seconds", 0)));
    if (me != 0 && local == 0 && setting("wrong", 0) > 0)
        printf("local rank_id %d, check result failed, %.0f | 764.55 | 0.00998 | failed\n", local, min);
    if (me == 0) {
        double busbw = setting("busbw", 160), slowest = 1, n = size;
        int both = !strcmp(name, "all_reduce_test"), one = !strncmp(name, "broadcast", 9) || !strcmp(name, "reduce_test");
        double moved = one ? 1 : (both ? 2 : 1) * (n - 1) / n;
        for (int i = 0; i < size; i++)
            slowest = all[i].factor < slowest ? all[i].factor : slowest;
        for (double b = min; b <= max; b *= factor) {
            double alg = busbw * slowest / (moved > 0 ? moved : 1) * b / (b + 4e5);
            double time = (long)(b / alg / 1e3 * 100 + 0.5) / 100.0;
            printf("%-17.0f | %-14.2f | %-20.5f | success\n", b, time, b / time / 1e3);
        }
        fflush(stdout);
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    wait_for(&request);
    MPI_Finalize();
    return 0;
}
