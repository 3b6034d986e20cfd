/* Preloaded by a program, it makes the program's wall clock wrong as the file $WRONG_CLOCK says, which has two numbers of 4 bytes: the
 * milliseconds that the clock is ahead, and the millionths by which it is fast from the program's start. As in a machine whose clock
 * is stepped, monotonic clocks and waits go on: no other function is replaced. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;
static const volatile int64_t *wrong; /* both numbers, which are read at once */
static int64_t began;                 /* in nanoseconds */

static int64_t nanoseconds(const struct timespec *time) { return time->tv_sec * SECOND + time->tv_nsec; }

__attribute__((constructor)) static void map(void) {
    int file = open(getenv("WRONG_CLOCK"), O_RDONLY);
    void *mapped = mmap(NULL, sizeof *wrong, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) abort();
    close(file);
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    began = nanoseconds(&time);
    wrong = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && wrong && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t both = *wrong, real = nanoseconds(now);
        int32_t ahead = (int32_t)both, fast = (int32_t)(both >> 32);
        int64_t shown = real + ahead * (SECOND / 1000) + (real - began) * fast / 1000000;
        *now = (struct timespec){shown / SECOND, shown % SECOND};
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &time);
    *now = (struct timeval){time.tv_sec, time.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *now) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    if (now) *now = time.tv_sec;
    return time.tv_sec;
}
