/* Copyright: (c) 2026, gpufleet.acceptance contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Simulated perftest 4.5 (6.06): a real TCP rendezvous and the real output without an RDMA device. The server binds, listens for
 * one connection and closes its listener; the client connects once and does not retry. Its name is the test: ib_write_bw,
 * ib_send_lat ... In C, because sixty-four hosts on two cores start hundreds of them a second.
 *
 * Devices are those of /sys/class/infiniband, below $SIMULATED_ROOT where it is set. A server listens at $SIMULATED_ADDRESS then, else at its GID.
 * /opt/simulated/perftest.conf (below it too), a word and its value a line: seconds 5 | gbps 392 | slow ADDRESS FACTOR (a GID of either side) |
 * pair ADDRESS ADDRESS FACTOR | sends ADDRESS FACTOR and way FROM TO FACTOR (data in one direction only) | version 6.06 | hang ADDRESS | die ADDRESS | count 4 (iterations that are really done)
 * cuda 1, rocm 1 (built for GPUs of NVIDIA, AMD) | pace 0.1 (real seconds of each second) | deaf ADDRESS (the test breaks off) | long SECONDS ADDRESS FACTOR (tests that last so long)
 * json 0.5 (what its JSON says of the number, times that; from version 6.20 on)
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct said { char test[32], gid[64], version[16]; unsigned long size, iterations, qps, bidirectional; };

static double seconds = 0.2, gbps = 392.0, json_factor = 1, pace = 1, lasts;
static int deaf, cuda, rocm;
static unsigned long count;
static char version[16] = "6.06";
static const char *rule = "---------------------------------------------------------------------------------------\n";

static const char *root(void)
{
    return getenv("SIMULATED_ROOT") ? getenv("SIMULATED_ROOT") : "";
}

/* Where a node's servers listen, among many nodes on one loopback. */
static const char *home(const char *gid)
{
    return getenv("SIMULATED_ADDRESS") ? getenv("SIMULATED_ADDRESS") : gid;
}

static void read_conf(const char *mine, const char *other, int sends, int receives, double *factor, int *hang, int *die)
{
    char line[256], a[64], b[64];
    double value, least;
    snprintf(line, sizeof line, "%s/opt/simulated/perftest.conf", root());
    FILE *conf = fopen(line, "r");
    while (conf && fgets(line, sizeof line, conf)) {
        sscanf(line, "seconds %lf", &seconds);
        sscanf(line, "gbps %lf", &gbps);
        sscanf(line, "version %15s", version);
        sscanf(line, "json %lf", &json_factor);
        sscanf(line, "pace %lf", &pace);
        sscanf(line, "cuda %d", &cuda);
        sscanf(line, "rocm %d", &rocm);
        sscanf(line, "count %lu", &count);
        if (!mine)
            continue;
        if (sscanf(line, "slow %63s %lf", a, &value) == 2 && (!strcmp(a, mine) || !strcmp(a, other)))
            *factor *= value;
        if (sscanf(line, "pair %63s %63s %lf", a, b, &value) == 3 &&
            ((!strcmp(a, mine) && !strcmp(b, other)) || (!strcmp(b, mine) && !strcmp(a, other))))
            *factor *= value;
        if (sscanf(line, "sends %63s %lf", a, &value) == 2 && ((sends && !strcmp(a, mine)) || (receives && !strcmp(a, other))))
            *factor *= value;
        if (sscanf(line, "way %63s %63s %lf", a, b, &value) == 3 &&
            ((sends && !strcmp(a, mine) && !strcmp(b, other)) || (receives && !strcmp(b, mine) && !strcmp(a, other))))
            *factor *= value;
        if (sscanf(line, "long %lf %63s %lf", &least, a, &value) == 3 && lasts >= least && (!strcmp(a, mine) || !strcmp(a, other)))
            *factor *= value;
        if (sscanf(line, "deaf %63s", a) == 1 && (!strcmp(a, mine) || !strcmp(a, other)))
            deaf = 1;
        if (sscanf(line, "hang %63s", a) == 1 && (!strcmp(a, mine) || !strcmp(a, other)))
            *hang = 1;
        if (sscanf(line, "die %63s", a) == 1 && !strcmp(a, mine))
            *die = 1;
    }
    if (conf)
        fclose(conf);
}

static int file_line(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "r");
    int ok = file && fgets(line, size, file) != NULL;
    if (file)
        fclose(file);
    line[ok ? strcspn(line, "\n") : 0] = 0;
    return ok;
}

static void print_gid(const char *gid)
{
    struct in6_addr address;
    inet_pton(AF_INET6, gid, &address);
    printf(" GID: ");
    for (int i = 0; i < 16; i++)
        printf("%02d%s", address.s6_addr[i], i < 15 ? ":" : "\n");
}

static void plain(const char *gid, char *text, size_t size)
{
    struct in6_addr address;
    inet_pton(AF_INET6, gid, &address);
    if (IN6_IS_ADDR_V4MAPPED(&address))
        inet_ntop(AF_INET, address.s6_addr + 12, text, size);
    else
        inet_ntop(AF_INET6, &address, text, size);
}

static void write_json(const char *path, const char *title, const char *kind, const char *device, int gid, struct said us, const char *results)
{
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "{\n\"test_info\": {\n\"test\": \"%s_%s%s_Test\",\n\"Dual_port\": \"OFF\",\n\"Device\": \"%s\",\n\"Number_of_qps\": %lu,\n",
            title, us.bidirectional ? "Bidirectional_" : "", kind, device, us.qps);
    fprintf(file, "\"Transport_type\": \"IB\",\n\"Connection_type\": \"RC\",\n\"Mtu\": 4096,\n\"Link_type\": \"Ethernet\",\n\"GID_index\": %d\n},\n", gid);
    fprintf(file, "\"results\": {\n%s\n}\n}\n", results);
    fclose(file);
}

static int serve(int port, const char *gid)
{
    int on = 1, off = 0, peer;
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any, .sin6_port = htons(port)};
    if (*root())
        inet_pton(AF_INET6, home(gid), &any.sin6_addr);
    int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 1)) {
        fprintf(stderr, "Couldn't listen to port %d\n", port);
        return -1;
    }
    printf("\n************************************\n* Waiting for client to connect... *\n************************************\n");
    peer = accept(listener, NULL, NULL);
    close(listener);
    return peer;
}

static int ask(const char *host, int port, const char *own)
{
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (*root() && !strcmp(host, "127.0.0.1")) /* the node itself */
        host = own;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &hints, &found)) {
        fprintf(stderr, "Problem in resolving basic address and port\n");
        return -1;
    }
    int peer = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(peer, found->ai_addr, found->ai_addrlen)) {
        fprintf(stderr, "Couldn't connect to %s:%d\nUnable to open file descriptor for socket connection Unable to init the socket connection\n", host, port);
        return -1;
    }
    return peer;
}

int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    const char *device = "mlx5_0", *peer = NULL, *port = "1", *json = NULL;
    const char *title = strstr(name, "write") ? "RDMA_Write" : strstr(name, "read") ? "RDMA_Read" : strstr(name, "send") ? "Send" : "Atomic";
    int latency = strstr(name, "_lat") != NULL, gid = 0, tcp = 18515, gigabits = 0, no_peak = 0, hang = 0, die = 0;
    struct said us = {.size = latency ? 2 : 65536, .iterations = latency ? 1000 : 5000, .qps = 1}, them;
    char path[256], text[128], mine[64], other[64], results[512];
    double factor = 1, duration = 0;

    read_conf(NULL, NULL, 0, 0, NULL, NULL, NULL);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(word, "--version")) { printf("Version: %s\n", version); return 1; }
        else if (!strcmp(word, "--report_gbits")) gigabits = 1;
        else if (!strcmp(word, "--noPeak") || !strcmp(word, "-N")) no_peak = 1;
        else if (!strcmp(word, "-F")) ;
        else if (!strcmp(word, "--out_json") && strcmp(version, "6.20") >= 0) ;
        else if (!strncmp(word, "--out_json_file=", 16) && strcmp(version, "6.20") >= 0) json = word + 16;
        else if (!strncmp(word, "--use_cuda", 10) && cuda) ;
        else if (!strncmp(word, "--use_rocm=", 11) && rocm) printf("initializing HIP\n\nPicking device No. %s\n", word + 11);
        else if (!strcmp(word, "--use_rocm_dmabuf") && rocm) ;
        else if (!strcmp(word, "-b")) us.bidirectional = 1;
        else if (word[0] != '-') peer = word;
        else if (word[1] && !word[2] && strchr("dixsqnpD", word[1])) {
            i++;
            switch (word[1]) {
            case 'd': device = value; break;
            case 'i': port = value; break;
            case 'x': gid = atoi(value); break;
            case 's': us.size = strtoul(value, NULL, 10); break;
            case 'q': us.qps = strtoul(value, NULL, 10); break;
            case 'n': us.iterations = strtoul(value, NULL, 10); break;
            case 'p': tcp = atoi(value); break;
            case 'D': duration = atof(value); break;
            }
        } else { fprintf(stderr, "%s: unrecognized option '%s'\n Invalid Command or flag.\n", name, word); return 1; }
    }
    snprintf(path, sizeof path, "%s/sys/class/infiniband/%s/ports/%s/state", root(), device, port);
    if (!file_line(path, text, sizeof text)) {
        fprintf(stderr, "IB device %s not found\n Unable to find the Infiniband/RoCE device\n", device);
        return 1;
    }
    if (!strstr(text, "ACTIVE")) {
        fprintf(stderr, " Port number %s state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n", port);
        return 1;
    }
    snprintf(path, sizeof path, "%s/sys/class/infiniband/%s/ports/%s/gids/%d", root(), device, port, gid);
    if (!file_line(path, us.gid, sizeof us.gid)) {
        fprintf(stderr, " Unable to set up socket connection\n");
        return 1;
    }
    snprintf(us.test, sizeof us.test, "%s", name);
    snprintf(us.version, sizeof us.version, "%s", version);
    printf("# simulated by gpufleet.acceptance\n");
    if (no_peak && !latency)
        printf(" WARNING: BW peak won't be measured in this run.\n");
    fflush(stdout);
    plain(us.gid, mine, sizeof mine);
    int link = peer ? ask(peer, tcp, home(mine)) : serve(tcp, us.gid);
    if (link < 0)
        return 1;
    struct rlimit memlock;
    if (!getrlimit(RLIMIT_MEMLOCK, &memlock) && memlock.rlim_cur < 2 * us.size * us.qps) { /* what its buffers take */
        fprintf(stderr, "Couldn't allocate MR\n Failed to create MR\n Couldn't create IB resources\n");
        return 1;
    }
    if (send(link, &us, sizeof us, MSG_NOSIGNAL) != sizeof us || recv(link, &them, sizeof them, MSG_WAITALL) != sizeof them) {
        fprintf(stderr, "ethernet_read_keys: Couldn't read remote address\n Unable to read to socket/rdma_cm\n Failed to exchange data between server and clients\n");
        return 1;
    }
    if (strcmp(us.version, them.version)) {
        fprintf(stderr, "Current implementation is not compatible with versions older than 5.70\n");
        return 1;
    }
    plain(them.gid, other, sizeof other);
    /* Who asks fetches by a read, and brings by everything else; a latency goes both ways. */
    lasts = duration;
    int fetches = (strstr(name, "read") != NULL) == (peer != NULL), both = latency || us.bidirectional;
    read_conf(mine, other, both || !fetches, both || fetches, &factor, &hang, &die);
    printf("%s                    %s%s %s Test\n", rule, title, us.bidirectional ? " Bidirectional" : "", latency ? "Latency" : "BW");
    printf(" Dual-port       : OFF\t\tDevice         : %s\n Number of qps   : %lu\t\tTransport type : IB\n", device, us.qps);
    printf(" Connection type : RC\t\tUsing SRQ      : OFF\n PCIe relax order: ON\n ibv_wr* API     : ON\n");
    int sends = title[0] == 'S', reads = !strcmp(title, "RDMA_Read") || title[0] == 'A';
    const char *out = strstr(title, "Read") ? " OUT 0x10" : "", *key = title[0] == 'R' ? " RKey 0x000ebc VAddr 0x0055b154fa9000" : "";
    if (peer || us.bidirectional)
        printf(" TX depth        : 128\n");
    if (sends && (!peer || us.bidirectional))
        printf(" RX depth        : 512\n");
    printf(" CQ Moderation   : 1\n Mtu             : 4096[B]\n Link type       : Ethernet\n GID index       : %d\n", gid);
    printf("%s rdma_cm QPs\t : OFF\n Data ex. method : Ethernet\n%s", reads ? " Outstand reads  : 16\n" : " Max inline data : 0[B]\n", rule);
    for (unsigned long i = 0; i < us.qps; i++) {
        printf(" local address: LID 0000 QPN 0x%04lx PSN 0xabb555%s%s\n", 0x20 + i, out, key);
        print_gid(us.gid);
    }
    for (unsigned long i = 0; i < us.qps; i++) {
        printf(" remote address: LID 0000 QPN 0x%04lx PSN 0x801b7%s%s\n", 0x20 + i, out, key);
        print_gid(them.gid);
    }
    fputs(rule, stdout);
    if (latency)
        printf(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   99.9%% percentile[usec] \n");
    else
        printf(" #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]\n", gigabits ? "Gb/sec" : "MB/sec", gigabits ? "Gb/sec" : "MB/sec");
    if (strcmp(us.test, them.test) || us.size != them.size || us.qps != them.qps || us.iterations != them.iterations) {
        fprintf(stderr, " Completion with error at %s\n Failed status 10: wr_id 0 syndrom 0x0\nscnt=100, ccnt=0\n", peer ? "client" : "server");
        return 1;
    }
    if (deaf) {
        fprintf(stderr, " Completion with error at %s\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n", peer ? "client" : "server");
        return 1;
    }
    if (die)
        return 1;
    double length = hang ? 1e6 : duration > 0 ? duration : seconds;
    struct pollfd gone = {.fd = link, .events = POLLIN};
    if (peer) {
        struct timespec rest = {.tv_sec = (time_t)(length * pace), .tv_nsec = (long)((length * pace - (time_t)(length * pace)) * 1e9)};
        nanosleep(&rest, NULL);
        double now = gbps * factor * (1 + us.bidirectional);
        if (send(link, &now, sizeof now, MSG_NOSIGNAL) != sizeof now)
            return 1;
        gbps = now;
    } else {
        double now;
        poll(&gone, 1, -1);
        if (recv(link, &now, sizeof now, MSG_WAITALL) != sizeof now) {
            poll(NULL, 0, 1000000); /* as the real one, which hangs */
            return 1;
        }
        gbps = now;
    }
    if (count)
        us.iterations = count;
    if (latency) {
        double t = 3.4 / factor, tail = us.iterations < 103 ? 4 : 1.2; /* few samples: the last one is every percentile */
        printf(" %-7lu %-10lu %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t%-7.2f\n", us.size, us.iterations, t * 0.95, t * 4, t, t * 1.02, t * 0.1, t * tail, t * 4);
        snprintf(results, sizeof results, "\"MsgSize\": %lu,\n\"n_iterations\": %lu,\n\"t_min\": %f,\n\"t_max\": %f,\n\"t_typical\": %f,\n\"t_avg\": %f,\n\"t_stdev\": %f,\n\"percentile_99\": %f,\n\"percentile_99.9\": %f",
                 us.size, us.iterations, t * 0.95, t * 4, t, t * 1.02 * json_factor, t * 0.1, t * tail, t * 4);
    } else {
        double shown = gigabits ? gbps : gbps * 1e9 / 8 / 1048576;
        int digits = gigabits && shown < 0.1 ? 6 : 2;
        if (duration > 0) /* counted while the margins let it, over all QPs */
            us.iterations = (unsigned long)(gbps * 1e9 / 8 / us.size / us.qps * ((long)duration - 2 * ((long)duration / 4)));
        printf(" %-7lu    %-10lu       %-7.*f            %-7.*f\t\t     %-7.6f\n",
               us.size, us.iterations * us.qps, digits, no_peak || duration > 0 ? 0 : shown, digits, shown, gbps * 1e3 / 8 / us.size);
        snprintf(results, sizeof results, "\"MsgSize\": %lu,\n\"n_iterations\": %lu,\n\"BW_peak\": %f,\n\"BW_average\": %f,\n\"MsgRate\": %f",
                 us.size, us.iterations * us.qps, no_peak || duration > 0 ? 0 : shown, shown * json_factor, gbps * json_factor * 1e3 / 8 / us.size);
    }
    write_json(json, title, latency ? "Latency" : "BW", device, gid, us, results);
    fputs(rule, stdout);
    return 0;
}
