/* Copyright: (c) 2026, gpufleet.acceptance contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * libcuda.so.1 and libnvidia-ml.so.1 in one, for GPUs that nobody has: simulated by gpufleet.acceptance.
 *
 * Memory is a counter and a kernel is time: the function of a launch is the number of bytes that the kernel moves. Processes on one GPU
 * share its time equally. Each keeps a file in /var/run/simulated-gpus/UUID and a lock on the file, by which NVML's half finds its process
 * (in the reader's own PID namespace) and that it lives. node.conf has NAME, GPUS, MEMORY (MiB), IDENTITY and BANDWIDTH (bytes per second).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CONF "/opt/simulated/node.conf"
#define GPUS "/var/run/simulated-gpus"
#define MIB (1ull << 20)
#define IDLE_BYTES (300 * MIB)
#define CONTEXT_BYTES (256 * MIB)
#define OF_CUDA 0.971 /* of the driver's memory */
#define TICK_NS 2000000
#define LOOK_NS 20000000
#define MOST 64

struct process {
  uint64_t allocated, busy_ns, active;
};

static void setting(const char* name, const char* otherwise, char* value, size_t size) {
  char text[4096] = "", wanted[64];
  FILE* file = fopen(CONF, "r");
  snprintf(value, size, "%s", otherwise);
  if (!file) return;
  size_t length = fread(text + 1, 1, sizeof text - 2, file);
  fclose(file);
  text[0] = ' ';
  text[length + 1] = 0;
  snprintf(wanted, sizeof wanted, " %s=", name);
  char* found = strstr(text, wanted);
  if (!found) return;
  found += strlen(wanted);
  const char* ends = *found == '"' ? "\"" : " \n";
  found += *found == '"';
  size_t cut = strcspn(found, ends);
  snprintf(value, size, "%.*s", (int)cut, found);
}

static double number(const char* name, const char* otherwise) {
  char value[128];
  setting(name, otherwise, value, sizeof value);
  return strtod(value, NULL);
}

static void uuid_of(unsigned int index, char* uuid, size_t size) {
  snprintf(uuid, size, "GPU-%08x-0000-4000-8000-%012x", (unsigned int)number("IDENTITY", "1"), index);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static struct process* own;
static char own_name[64], own_uuid[96];

/* The living processes on a GPU: how many, and what each has. Our own file is left alone: whoever closes a file loses his locks on it. */
static int processes(const char* uuid, struct process* found, int* pids) {
  char folder[256], path[512];
  int count = 0;
  snprintf(folder, sizeof folder, GPUS "/%s", uuid);
  DIR* all = opendir(folder);
  for (struct dirent* one; all && (one = readdir(all)) && count < MOST;) {
    if (one->d_name[0] == '.' || !strcmp(one->d_name, own_name)) continue;
    snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
    int file = open(path, O_RDWR);
    if (file < 0) continue;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (!fcntl(file, F_GETLK, &lock) && lock.l_type != F_UNLCK) {
      if (pread(file, &found[count], sizeof *found, 0) == sizeof *found) pids[count++] = lock.l_pid;
    } else {
      unlink(path);
    }
    close(file);
  }
  if (all) closedir(all);
  return count;
}

/* CUDA ------------------------------------------------------------------------------------------------------------ */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static double pending_ns;

/* The GPU: works off what is queued, with an equal part of the time for each process that has something queued. */
static void* work(void* unused) {
  struct process others[MOST];
  int pids[MOST];
  uint64_t looked = 0, before = now_ns();
  int sharing = 1;
  (void)unused;
  for (;;) {
    struct timespec tick = {0, TICK_NS};
    nanosleep(&tick, NULL);
    uint64_t now = now_ns();
    if (now - looked > LOOK_NS) {
      int count = processes(own_uuid, others, pids);
      sharing = 1;
      for (int n = 0; n < count; n++) sharing += others[n].active != 0;
      looked = now;
    }
    pthread_mutex_lock(&mutex);
    double able = (double)(now - before) / sharing, done = pending_ns < able ? pending_ns : able;
    before = now;
    pending_ns -= done;
    if (pending_ns < 1) pending_ns = 0;
    own->busy_ns += (uint64_t)done;
    own->active = pending_ns > 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

static void begin(void) {
  char path[512];
  const char* visible = getenv("NVIDIA_VISIBLE_DEVICES");
  pthread_t thread;
  snprintf(own_uuid, sizeof own_uuid, "%.*s", (int)strcspn(visible ? visible : "", ","), visible ? visible : "");
  if (strncmp(own_uuid, "GPU-", 4)) uuid_of(0, own_uuid, sizeof own_uuid);
  snprintf(own_name, sizeof own_name, "%llx-%d", (unsigned long long)now_ns(), (int)getpid());
  mkdir(GPUS, 0777);
  snprintf(path, sizeof path, GPUS "/%s", own_uuid);
  mkdir(path, 0777);
  snprintf(path, sizeof path, GPUS "/%s/.%s", own_uuid, own_name);
  int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (file < 0 || ftruncate(file, sizeof *own) || fcntl(file, F_SETLK, &lock)) _exit(70);
  own = mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (own == MAP_FAILED) _exit(70);
  char seen[512];
  snprintf(seen, sizeof seen, GPUS "/%s/%s", own_uuid, own_name);
  if (rename(path, seen)) _exit(70); /* visible only with its lock */
  fprintf(stderr, "simulated by gpufleet.acceptance\n");
  pthread_create(&thread, NULL, work, NULL);
}

int cuInit(unsigned int flags) {
  (void)flags;
  pthread_once(&once, begin);
  return 0;
}

/* At once, where a real GPU takes a third of a second: the scheduler's first words about quotas may come later. */
int cuDevicePrimaryCtxRetain(void** context, int device) {
  return (void)device, *context = &own, 0;
}

int cuMemAllocManaged(uint64_t* pointer, size_t size, unsigned int flags) {
  size_t* block = malloc(sizeof *block);
  (void)flags;
  *block = size;
  *pointer = (uintptr_t)block;
  own->allocated += size;
  return 0;
}

int cuMemAlloc_v2(uint64_t* pointer, size_t size) { return cuMemAllocManaged(pointer, size, 1); }

int cuMemFree_v2(uint64_t pointer) {
  own->allocated -= *(size_t*)(uintptr_t)pointer;
  free((void*)(uintptr_t)pointer);
  return 0;
}

int cuMemGetInfo_v2(size_t* available, size_t* total) {
  *total = (size_t)(number("MEMORY", "143771") * MIB * OF_CUDA);
  *available = *total > own->allocated ? *total - own->allocated : 0;
  return 0;
}

int cuLaunchKernel(void* bytes, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
                   unsigned int shared, void* stream, void** parameters, void** extra) {
  static double bandwidth;
  (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)parameters, (void)extra;
  if (!bandwidth) bandwidth = number("BANDWIDTH", "4.2e12");
  pthread_mutex_lock(&mutex);
  pending_ns += (double)(uintptr_t)bytes / bandwidth * 1e9;
  own->active = 1;
  pthread_mutex_unlock(&mutex);
  return 0;
}

int cuCtxSynchronize(void) {
  pthread_mutex_lock(&mutex);
  while (pending_ns > 0) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
  return 0;
}

int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) { return (void)to, (void)from, (void)size, cuCtxSynchronize(); }
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) { return (void)to, (void)from, (void)size, cuCtxSynchronize(); }
int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t size) { return (void)to, (void)from, (void)size, 0; }
int cuMemcpy(uint64_t to, uint64_t from, size_t size) { return (void)to, (void)from, (void)size, cuCtxSynchronize(); }
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size, void* stream) { return (void)to, (void)from, (void)size, (void)stream, 0; }
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* stream) { return (void)to, (void)from, (void)size, (void)stream, 0; }
int cuMemcpyHtoDAsync_v2(uint64_t to, void* from, size_t size, void* stream) { return (void)to, (void)from, (void)size, (void)stream, 0; }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void* s) { return (void)to, (void)from, (void)size, (void)s, 0; }
int cuMemAdvise(uint64_t pointer, size_t size, int advice, int device) { return (void)pointer, (void)size, (void)advice, (void)device, 0; }
int cuCtxSetCurrent(void* context) { return (void)context, 0; }
int cuCtxGetCurrent(void** context) { return *context = &own, 0; }
int cuGetProcAddress(const char* name, void** found, int version, uint64_t flags) {
  return (void)name, (void)version, (void)flags, *found = NULL, 500;
}
int cuGetErrorString(int error, const char** text) { return (void)error, *text = "simulated", 0; }
int cuGetErrorName(int error, const char** text) { return *text = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN", 0; }

/* NVML ------------------------------------------------------------------------------------------------------------ */

struct memory {
  unsigned long long total, available, used;
};
struct load {
  unsigned int gpu, memory;
};
struct running {
  unsigned int pid;
  unsigned long long used;
  unsigned int instance, compute;
};
static struct {
  uint64_t when, busy;
  unsigned int load;
} last[MOST];

/* A device is its index and one. */
static unsigned int index_of(void* device) { return (unsigned int)(uintptr_t)device - 1; }

static int of_device(void* device, struct process* found, int* pids) {
  char uuid[96];
  uuid_of(index_of(device), uuid, sizeof uuid);
  int count = processes(uuid, found, pids);
  if (own && !strcmp(uuid, own_uuid) && count < MOST) {
    found[count] = *own;
    pids[count++] = getpid();
  }
  return count;
}

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int* count) { return *count = (unsigned int)number("GPUS", "8"), 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) { return *device = (void*)(uintptr_t)(index + 1), 0; }
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned int size) { return uuid_of(index_of(device), uuid, size), 0; }
int nvmlDeviceGetName(void* device, char* name, unsigned int size) { return (void)device, setting("NAME", "NVIDIA H200", name, size), 0; }

int nvmlDeviceGetHandleByUUID_v2(const char* wanted, void** device) {
  unsigned int count = (unsigned int)number("GPUS", "8");
  char uuid[96];
  for (unsigned int index = 0; index < count; index++) {
    uuid_of(index, uuid, sizeof uuid);
    if (!strcmp(uuid, wanted)) return nvmlDeviceGetHandleByIndex_v2(index, device);
  }
  return 6;
}

int nvmlDeviceGetMemoryInfo(void* device, struct memory* memory) {
  struct process found[MOST];
  int pids[MOST], count = of_device(device, found, pids);
  memory->total = (unsigned long long)number("MEMORY", "143771") * MIB;
  memory->used = IDLE_BYTES;
  for (int n = 0; n < count; n++) memory->used += found[n].allocated + CONTEXT_BYTES;
  if (memory->used > memory->total) memory->used = memory->total;
  memory->available = memory->total - memory->used;
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* device, struct load* load) {
  struct process found[MOST];
  int pids[MOST], count = of_device(device, found, pids);
  unsigned int index = index_of(device) % MOST;
  uint64_t busy = 0, now = now_ns();
  for (int n = 0; n < count; n++) busy += found[n].busy_ns;
  if (now - last[index].when > 200000000) {
    double part = busy > last[index].busy ? (double)(busy - last[index].busy) / (double)(now - last[index].when) : 0;
    last[index].load = part > 1 ? 100 : (unsigned int)(100 * part);
    last[index].when = now;
    last[index].busy = busy;
  }
  load->gpu = last[index].load;
  load->memory = load->gpu * 6 / 10;
  return 0;
}

/* Managed memory is not in what the driver says of a process. */
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned int* count, struct running* list) {
  struct process found[MOST];
  int pids[MOST], all = of_device(device, found, pids);
  if ((unsigned int)all > *count) all = (int)*count;
  for (int n = 0; n < all; n++) list[n] = (struct running){(unsigned int)pids[n], CONTEXT_BYTES, 0, 0};
  *count = (unsigned int)all;
  return 0;
}
