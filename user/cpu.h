/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * cpu.h - when and where the thread that drains the ring runs. Nothing is timed by it,
 * so it takes what the engine leaves: SCHED_IDLE, on the CPUs that are idle most. But
 * engines that spin in sched_yield(2) can keep others from a CPU for seconds, at any nice
 * value (seen on 6.18), while the ring fills. So a guard looks after it: a thread of
 * real-time policy that looks now and then whether it is late, and helps it on: to other
 * CPUs, to SCHED_OTHER, and if that is not enough to SCHED_RR. One per process.
 *
 * SCHED_IDLE ranks within a control group (sched(7)), and is inherited: threads that the
 * calling one starts later would have it, too (none is).
 */
#ifndef REQPROBE_CPU_H
#define REQPROBE_CPU_H

#include <sched.h>
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
 * The calling thread gets ready in haste: at RP_CPU_HURRY or, where that is not permitted,
 * at a nice value of -10. A policy that the user chose for the process is kept, and nothing
 * but that nice value, until rp_cpu_ready(), is changed then.
 */
void rp_cpu_begin(void);

/*
 * It is ready: the guard starts, and decides from now on, at first to let it hurry until it
 * is known where idle time is (0.5 s); where it can't be had, the thread
 * goes on as SCHED_OTHER. The guard keeps CAP_SYS_NICE, and is not there without: call this
 * before capabilities are dropped. Limits (RLIMIT_RTPRIO, RLIMIT_NICE) would not do: who has
 * fewer capabilities than another thread may not change its policy (capabilities(7)).
 * Signals are blocked in the guard.
 */
void rp_cpu_ready(void);

/*
 * From true to false the thread hurries: it holds locks of the engine's (its memory map,
 * its uprobes), or somebody waits. Pairs may be nested. Without a guard nothing happens.
 */
void rp_cpu_hurry(bool on);

/* The calling thread means to be at work again at this time (rp_now_ns()), or is now. */
void rp_cpu_due(uint64_t at);

/* Now and then: goes where there is idle time. Without a guard it stays where it is put. */
void rp_cpu_choose(void);

/* How often the guard has helped, and the present level. */
unsigned rp_cpu_helped(enum rp_cpu_level *level);

/* Ends the guard; the thread is at RP_CPU_USUAL then, or as the user wants it. */
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

/* Is it late at its level? Times before `since` do not count. */
bool rp_cpu_late(const struct rp_cpu_rules *r, uint64_t now, uint64_t due, uint64_t cpu);

/* When to look again, if nothing changes; after `now`. */
uint64_t rp_cpu_look_at(const struct rp_cpu_rules *r, uint64_t now, uint64_t due);

/*
 * Which of n CPUs to run on, by what each was idle for since the last look (ticks), of
 * `ticks` in all: allowed[] in, chosen[] out. One: only the idlest, and only when it is
 * idler than `at` by a tenth of the time; else those at least half as idle as the idlest.
 * Returns the number chosen; 0: stay where you are.
 */
unsigned rp_cpu_pick(const uint64_t *idle, uint64_t ticks, const bool *allowed, unsigned n,
		     unsigned at, bool one, bool *chosen);

struct rp_cpu_places {
	cpu_set_t set, word; /* by us, by the user */
	bool placed, told;
};

/*
 * The thread's CPUs are `set`, and `can` is what it might have: in, by the kernel; out, also
 * by whoever said where it is to run (taskset(1)), now or at an earlier look. A CPU that goes
 * offline or leaves the cpuset says nothing.
 */
void rp_cpu_obey(struct rp_cpu_places *p, const cpu_set_t *set, cpu_set_t *can);

#endif
