/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * cpu.h - when and where the thread that drains the ring runs. Nothing is timed by it,
 * so it takes what the engine leaves: SCHED_IDLE, on the CPUs that are idle most. But
 * engines that spin in sched_yield(2) can keep others from a CPU for seconds, at any nice
 * value (seen on 6.18), while the ring fills. So a guard looks after it: a thread of
 * real-time policy that sleeps until the other is late, and then helps it on: to
 * SCHED_OTHER, and if that does not help to SCHED_RR. One per process.
 */
#ifndef REQPROBE_CPU_H
#define REQPROBE_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum rp_cpu_level {
	RP_CPU_IDLE,  /* SCHED_IDLE */
	RP_CPU_USUAL, /* SCHED_OTHER */
	RP_CPU_HURRY, /* SCHED_RR, priority 1; ended by RLIMIT_RTTIME when it never sleeps */
};

/* How long the thread is let wait for a CPU at a level; and the first time that it then
 * stays above RP_CPU_IDLE, doubled when that was not enough up to the last. */
#define RP_CPU_IDLE_LATE_NS 50000000ULL
#define RP_CPU_USUAL_LATE_NS 300000000ULL
#define RP_CPU_CALM_NS 2000000000ULL
#define RP_CPU_CALM_MAX_NS 64000000000ULL

/*
 * The calling thread gets ready: it hurries (or, where that is not permitted, is nicer to
 * itself), and may do so again without capabilities. A policy that the user chose for the
 * process is kept, and nothing else here does anything then.
 */
void rp_cpu_begin(void);

/*
 * It is ready: the guard starts, and decides from now on. spins: engines are watched that
 * do; where hurrying could not be had again, it stays so. Signals are blocked in the guard.
 */
void rp_cpu_ready(bool spins);

/* The calling thread means to be at work again at this time (rp_now_ns()), or is now. */
void rp_cpu_due(uint64_t at);

/* Now and then: goes where there is idle time. Where there is a guard, it sees to that. */
void rp_cpu_choose(void);

/* How often the guard has helped, and the present level. */
unsigned rp_cpu_helped(enum rp_cpu_level *level);

void rp_cpu_end(void);

/* ---- the guard's rules, without a clock or a thread of their own ---- */

struct rp_cpu_rules {
	enum rp_cpu_level level, lowest, highest;
	uint64_t since; /* the present level */
	uint64_t fell;	/* the last return to the lowest level; 0: never */
	uint64_t calm;	/* how long to stay above it */
	uint64_t no_hurry_until;
	unsigned helped;
};

/* What is right at `now`, for a thread that was due at `due` and has used `cpu` ns since. */
enum rp_cpu_level rp_cpu_rule(struct rp_cpu_rules *r, uint64_t now, uint64_t due, uint64_t cpu);

/* When to look again, if nothing changes. */
uint64_t rp_cpu_look_at(const struct rp_cpu_rules *r, uint64_t now, uint64_t due);

/*
 * Which of n CPUs to run on, by what each was idle for since the last look (ticks), of
 * `ticks` in all: allowed[] in, chosen[] out. One: only the idlest, and only when it is
 * idler than `at` by a tenth of the time; else those at least half as idle as the idlest.
 * Returns the number chosen; 0: stay where you are.
 */
unsigned rp_cpu_pick(const uint64_t *idle, uint64_t ticks, const bool *allowed, unsigned n,
		     unsigned at, bool one, bool *chosen);

#endif
