/* Copyright: (c) 2026, gpufleet.acceptance contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Stands in for nccl-tests built with MPI where there are no GPUs: a real MPI program, whose ranks find each other, reduce real
 * data and check the sum; the bandwidths it prints are those that /opt/simulated/node.conf of the ranks' nodes gives them.
 * Installed once per collective: the operation is in its own name.
 *
 * node.conf: NAME, GPUS, IDENTITY, BUSBW (GB/s inside a node), NETBW (GB/s between nodes), SLEEP (seconds), and in FAULTS
 *   nccl_slow=F  this node makes every group it is in slower     nccl_pair=IDENTITY:F  only in the company of that node
 *   nccl_wrong   a rank of it adds wrongly                       nccl_hang, nccl_failure, nccl_segfault, nccl_exit
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT = 256, MOST_GPUS = 16, SUMMED = 1 << 18 };

struct rank {
    char host[64], name[64];
    int pid, gpus, first, identity;
    double busbw, netbw, slow;
    char pair[64];
};

static char faults[TEXT];

/* The value of NAME in node.conf, without its quotes. */
static void setting(const char *name, const char *otherwise, char *value)
{
    char line[TEXT * 4];
    FILE *file = fopen("/opt/simulated/node.conf", "r");
    snprintf(value, TEXT, "%s", otherwise);
    while (file && fgets(line, sizeof line, file)) {
        char *at = line;
        while ((at = strstr(at, name))) {
            size_t length = strlen(name);
            if ((at == line || at[-1] == ' ') && at[length] == '=') {
                char *start = at + length + 1;
                const char *ends = *start == '"' ? "\"\n" : " \n";
                if (*start == '"') start++;
                snprintf(value, TEXT, "%.*s", (int)strcspn(start, ends), start);
                break;
            }
            at += length;
        }
    }
    if (file) fclose(file);
}

static double number(const char *name, const char *otherwise)
{
    char value[TEXT];
    setting(name, otherwise, value);
    return atof(value);
}

/* Whether the node has this fault, and what stands behind its =. */
static int fault(const char *name, char *value)
{
    char words[TEXT], *word, *rest = words;
    snprintf(words, sizeof words, "%s", faults);
    while ((word = strsep(&rest, " "))) {
        size_t length = strlen(name);
        if (!strncmp(word, name, length) && (!word[length] || word[length] == '=')) {
            if (value) snprintf(value, TEXT, "%s", word[length] ? word + length + 1 : "");
            return 1;
        }
    }
    return 0;
}

static double bytes(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    const char *units = "KMGT", *unit = *end ? strchr(units, *end & ~32) : NULL;
    for (int i = 0; unit && i <= unit - units; i++) value *= 1024;
    return value;
}

int main(int argc, char **argv)
{
    char op[64], value[TEXT], *end;
    const char *slash = strrchr(argv[0], '/'), *type = "float";
    double least = 33554432, most = 33554432, factor = 2, total = 0;
    int gpus = 1, iterations = 20, warmup = 1, threads = 1, check = 1, size, me, rows = 0, wrong_rows = 0;

    snprintf(op, sizeof op, "%s", slash ? slash + 1 : argv[0]);
    if ((end = strstr(op, "_perf"))) *end = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *given = argv[i + 1];
        if (argv[i][0] != '-' || strlen(argv[i]) != 2) {
            if (!me) printf("invalid option '?'\nUSAGE: %s_perf\n", op);
            MPI_Finalize();
            return 0; /* as nccl-tests does it */
        }
        switch (argv[i][1]) {
        case 'b': least = bytes(given); break;
        case 'e': most = bytes(given); break;
        case 'f': factor = atof(given); break;
        case 'g': gpus = atoi(given); break;
        case 't': threads = atoi(given); break;
        case 'n': iterations = atoi(given); break;
        case 'w': warmup = atoi(given); break;
        case 'd': type = given; break;
        case 'c': check = atoi(given); break;
        }
    }
    gpus *= threads;

    struct rank mine = {0}, *all = calloc(size, sizeof mine);
    int local, here;
    MPI_Comm node;
    gethostname(mine.host, sizeof mine.host - 1);
    unsigned color = 5381;
    for (const char *c = mine.host; *c; c++) color = color * 33 + (unsigned char)*c;
    MPI_Comm_split(MPI_COMM_WORLD, color & 0x7fffffff, me, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_size(node, &here);
    setting("FAULTS", "", faults);
    setting("NAME", "NVIDIA H200", value);
    snprintf(mine.name, sizeof mine.name, "%.63s", value);
    mine.pid = getpid();
    mine.gpus = gpus;
    mine.first = local * gpus;
    mine.identity = (int)number("IDENTITY", "1");
    mine.busbw = number("BUSBW", "478");
    mine.netbw = number("NETBW", "388");
    mine.slow = fault("nccl_slow", value) ? atof(value) : 1;
    if (fault("nccl_pair", value)) snprintf(mine.pair, sizeof mine.pair, "%.63s", value);

    int there = (int)number("GPUS", "8");
    if (here * gpus > there) {
        fprintf(stderr, "Invalid number of GPUs: %d requested but only %d were found.\n", here * gpus, there);
        fprintf(stderr, "Please check the number of processes and GPUs per process.\n");
        MPI_Abort(MPI_COMM_WORLD, 5);
    }
    if (fault("nccl_hang", NULL)) sleep(1000);
    if (fault("nccl_segfault", NULL)) raise(SIGSEGV);
    if (fault("nccl_failure", NULL)) {
        printf("%s: Test NCCL failure common.cu:1204 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '\n", mine.host);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    sleep((unsigned)number("SLEEP", "0"));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);

    int ranks = 0, nodes = 0;
    double peak = 1e9, slow = 1;
    for (int i = 0; i < size; i++) {
        ranks += all[i].gpus;
        nodes += all[i].first == 0;
        if (all[i].busbw < peak) peak = all[i].busbw;
        if (all[i].slow < slow) slow = all[i].slow;
        for (int j = 0; j < size; j++)
            if (all[i].pair[0] && atoi(all[i].pair) == all[j].identity && strchr(all[i].pair, ':'))
                if (atof(strchr(all[i].pair, ':') + 1) < slow) slow = atof(strchr(all[i].pair, ':') + 1);
    }
    for (int i = 0; nodes > 1 && i < size; i++)
        if (all[i].netbw < peak) peak = all[i].netbw;
    peak *= slow;
    int rooted = !strcmp(op, "broadcast") || !strcmp(op, "reduce") || !strcmp(op, "gather") || !strcmp(op, "scatter");
    double share = (ranks - 1.0) / ranks;
    if (!strcmp(op, "all_reduce")) share *= 2;
    if (!strcmp(op, "broadcast") || !strcmp(op, "reduce") || !strcmp(op, "sendrecv")) share = 1;
    int parted = strstr(op, "gather") || strstr(op, "scatter") || !strcmp(op, "alltoall"); // the count is that of one rank
    int width = !strcmp(type, "double") ? 8 : !strcmp(type, "half") || !strcmp(type, "bfloat16") ? 2 : 4;

    if (!me) {
        printf("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22809\n# Collective test starting: %s_perf\n", op);
        printf("# nThread %d nGpus %d minBytes %.0f maxBytes %.0f step: %g(factor) warmup iters: %d iters: %d agg iters: 1 "
               "validation: %d graph: 0 unalign: 0\n#\n# simulated by gpufleet.acceptance\n# Using devices\n",
               threads, gpus / threads, least, most, factor, warmup, iterations, check);
        for (int i = 0, rank = 0; i < size; i++)
            for (int gpu = 0; gpu < all[i].gpus; gpu++, rank++)
                printf("#  Rank %2d Group  0 Pid %6d on %10s device %2d [0000:%02x:00] %s\n", rank, all[i].pid, all[i].host,
                       all[i].first + gpu, 26 + 7 * (all[i].first + gpu), all[i].name);
        printf("#\n# %58s  %28s%s\n", "out-of-place", "in-place", "          ");
        printf("#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong \n");
        printf("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)         \n");
    }
    double *data = calloc(SUMMED, sizeof *data), *sum = calloc(SUMMED, sizeof *sum);
    for (double bytes_now = least; bytes_now <= most && factor > 1; bytes_now *= factor, rows++) {
        int count = bytes_now / 8 < SUMMED ? (int)(bytes_now / 8) : SUMMED, wrong = 0;
        for (int i = 0; i < count; i++) data[i] = me + 1 + i;
        if (fault("nccl_wrong", NULL) && count) data[0] += 1;
        MPI_Allreduce(data, sum, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; check && i < count; i++) wrong += sum[i] != size * (size + 1) / 2.0 + (double)i * size;
        double busbw = peak * bytes_now / (bytes_now + 12e6), algbw = busbw / share, time = bytes_now / algbw / 1e3;
        wrong_rows += wrong > 0;
        total += 2 * busbw;
        if (!me) {
            char in_place[16];
            snprintf(in_place, sizeof in_place, !strcmp(op, "alltoall") || !strcmp(op, "sendrecv") ? "N/A" : "0");
            printf("%12.0f  %12.0f  %8s  %6s  %6d  %7.2f %7.2f %7.2f %7d  %7.2f %7.2f %7.2f %7s\n", bytes_now,
                   bytes_now / width / (parted ? ranks : 1), type,
                   strstr(op, "reduce") ? "sum" : "none", rooted ? 0 : -1, time, algbw, busbw, wrong, time, algbw, busbw, in_place);
            fflush(stdout);
        }
    }
    if (!me) {
        printf("# Out of bounds values : %d %s\n# Avg bus bandwidth    : %g \n#\n# Collective test concluded: %s_perf\n#\n", wrong_rows,
               wrong_rows ? "FAILED" : "OK", rows ? total / (2 * rows) : 0, op);
        fflush(stdout);
    }
    int bad = fault("nccl_exit", NULL) || wrong_rows;
    MPI_Finalize();
    return bad ? 7 : 0;
}
