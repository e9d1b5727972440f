/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* clock.h - the clocks, in nanoseconds. */
#ifndef REQPROBE_CLOCK_H
#define REQPROBE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t rp_clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* CLOCK_MONOTONIC, that of all events. */
static inline uint64_t rp_now_ns(void)
{
	return (uint64_t)rp_clock_ns(CLOCK_MONOTONIC);
}

#endif
