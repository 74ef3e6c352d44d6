/* Preloaded into a server, this sets the wall clock that it sees by two numbers of microseconds in the file that
   FENCELOCK_CLOCK names: by how much the clock is shifted, and the time at which it stands still, 0 if it runs. The file
   is mapped, so that the test can set the clock while the server runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *clock_us;

__attribute__((constructor)) static void map_shift(void) {
    const char *name = getenv("FENCELOCK_CLOCK");
    int fd = name ? open(name, O_RDONLY) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) clock_us = page;
    close(fd);
}

static int64_t shifted_us(struct timespec *real) {
    int64_t stands = clock_us ? clock_us[1] : 0;
    if (stands) {
        real->tv_nsec = 0;
        return stands;
    }
    syscall(SYS_clock_gettime, CLOCK_REALTIME, real);
    return real->tv_sec * INT64_C(1000000) + real->tv_nsec / 1000 + (clock_us ? *clock_us : 0);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, clock, out);
    struct timespec real;
    int64_t us = shifted_us(&real);
    out->tv_sec = us / 1000000;
    out->tv_nsec = us % 1000000 * 1000 + real.tv_nsec % 1000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec real;
    int64_t us = shifted_us(&real);
    out->tv_sec = us / 1000000;
    out->tv_usec = us % 1000000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec real;
    time_t now = shifted_us(&real) / 1000000;
    if (out) *out = now;
    return now;
}

/* Valkey 9.1 reads the wall clock once a millisecond, and adds what the processor has counted since. Where it does not
   find out how fast that counts, it asks the functions above. */
static FILE *open_but_cpuinfo(const char *function, const char *path, const char *mode) {
    if (!strcmp(path, "/proc/cpuinfo")) return NULL;
    FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, function);
    return next(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) { return open_but_cpuinfo("fopen", path, mode); }

FILE *fopen64(const char *restrict path, const char *restrict mode) { return open_but_cpuinfo("fopen64", path, mode); }
