// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/caps.h"
#include "lib/clock.h"

#define AGAIN_NS 10000000000ULL /* late again so soon: it came down too early */
#define SPENT_NS 60000000000ULL /* no hurry for so long once it never slept */
#define CHOOSE_NS 2000000000ULL
#define FIRST_CHOICE_TICKS 20 /* of 10 ms each: less tells nothing */

/* ---- rules ---- */

static void go(struct rp_cpu_rules *r, enum rp_cpu_level to, uint64_t now)
{
	if (to == r->lowest)
		r->fell = now;
	r->level = to;
	r->since = now;
}

static uint64_t patience(const struct rp_cpu_rules *r)
{
	return r->level == RP_CPU_IDLE ? RP_CPU_IDLE_LATE_NS : RP_CPU_USUAL_LATE_NS;
}

/* Did it wait for a CPU too long? A new level counts from its beginning. */
static bool late(const struct rp_cpu_rules *r, uint64_t now, uint64_t due, uint64_t cpu)
{
	uint64_t from = due > r->since ? due : r->since;

	return now > from && now - from >= patience(r) + cpu;
}

enum rp_cpu_level rp_cpu_rule(struct rp_cpu_rules *r, uint64_t now, uint64_t due, uint64_t cpu)
{
	if (r->level == RP_CPU_HURRY && now < r->no_hurry_until) {
		go(r, RP_CPU_USUAL, now);
	} else if (late(r, now, due, cpu) && r->level < r->highest &&
		   (r->level + 1 < RP_CPU_HURRY || now >= r->no_hurry_until)) {
		if (r->level == r->lowest) {
			r->calm = !r->calm || now - r->fell > AGAIN_NS ? RP_CPU_CALM_NS :
									 2 * r->calm;
			if (r->calm > RP_CPU_CALM_MAX_NS)
				r->calm = RP_CPU_CALM_MAX_NS;
		}
		go(r, r->level + 1, now);
		r->helped++;
	} else if (r->level > r->lowest && now - r->since >= r->calm) {
		go(r, r->lowest, now);
	}
	return r->level;
}

uint64_t rp_cpu_look_at(const struct rp_cpu_rules *r, uint64_t now, uint64_t due)
{
	uint64_t at = (due > r->since ? due : r->since) + patience(r), fall = r->since + r->calm;

	if (r->level >= r->highest)
		at = now + 1000000000;
	/* it is late, and at work */
	if (at <= now)
		at = now + RP_CPU_IDLE_LATE_NS;
	return r->level > r->lowest && fall < at ? fall : at;
}

unsigned rp_cpu_pick(const uint64_t *idle, uint64_t ticks, const bool *allowed, unsigned n,
		     unsigned at, bool one, bool *chosen)
{
	unsigned best = n, got = 0;

	for (unsigned i = 0; i < n; i++)
		if (allowed[i] && (best == n || idle[i] > idle[best]))
			best = i;
	if (best == n)
		return 0;
	if (one && at < n && allowed[at] && idle[best] <= idle[at] + ticks / 10)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		/* where no CPU is idle to speak of, any is as good */
		chosen[i] =
			allowed[i] &&
			(one ? i == best : idle[best] <= ticks / 10 || idle[i] >= idle[best] / 2);
		got += chosen[i];
	}
	return got;
}

/* ---- policies ---- */

static struct {
	bool ours;	  /* the policy may be changed */
	bool hurry_again; /* later, too */
	bool leave_idle;
	bool by_cap; /* limits do not allow it, CAP_SYS_NICE does: the guard keeps that */
	int nice;
	pid_t tid;
	clockid_t clock; /* of its CPU time */
	uint64_t due, cpu;
	struct rp_cpu_rules rules;
	unsigned level, helped; /* what rules says, for other threads */
	volatile sig_atomic_t spent;
	pthread_t guard;
	sem_t stop;
	bool guarded;
	/* places */
	cpu_set_t may, set; /* by the user, by us */
	bool placed;
	unsigned at;
	uint64_t looked, next;
} cpu;

static int set_policy(pid_t tid, enum rp_cpu_level l)
{
	static const int policy[] = { SCHED_IDLE, SCHED_OTHER, SCHED_RR };
	const struct sched_param p = { .sched_priority = l == RP_CPU_HURRY };

	return sched_setscheduler(tid, policy[l] | SCHED_RESET_ON_FORK, &p) ? -errno : 0;
}

static void on_xcpu(int sig)
{
	(void)sig;
	set_policy(cpu.tid, RP_CPU_USUAL);
	cpu.spent = 1;
}

/* A soft limit of at least this. */
static bool limit(int what, rlim_t least)
{
	struct rlimit l;

	if (getrlimit(what, &l))
		return false;
	if (l.rlim_cur >= least)
		return true;
	l.rlim_cur = least;
	if (l.rlim_max < least)
		l.rlim_max = least;
	return !setrlimit(what, &l);
}

void rp_cpu_begin(void)
{
	const struct sigaction sa = { .sa_handler = on_xcpu, .sa_flags = SA_RESTART };
	const struct rlimit busy = { 1000000, RLIM_INFINITY }; /* us */

	cpu.tid = (pid_t)syscall(SYS_gettid);
	cpu.nice = getpriority(PRIO_PROCESS, 0);
	cpu.ours = sched_getscheduler(0) == SCHED_OTHER;
	if (cpu.ours) {
		sigaction(SIGXCPU, &sa, NULL);
		cpu.hurry_again = limit(RLIMIT_RTPRIO, 1);
		cpu.leave_idle = limit(RLIMIT_NICE, (rlim_t)(20 - cpu.nice));
		cpu.by_cap = !(cpu.hurry_again && cpu.leave_idle) && rp_caps_have(CAP_SYS_NICE);
		if (cpu.by_cap)
			cpu.hurry_again = cpu.leave_idle = true;
		if (!setrlimit(RLIMIT_RTTIME, &busy) && !set_policy(0, RP_CPU_HURRY))
			return;
		cpu.hurry_again = false;
	}
	setpriority(PRIO_PROCESS, 0, -10);
}

/* ---- places ---- */

/* Where each CPU's idle time stands, in ticks; the number of CPUs told. */
static unsigned idle_ticks(uint64_t *idle, unsigned max)
{
	static char buf[64 << 10];
	unsigned long long v, io;
	unsigned i, n = 0;
	ssize_t len;
	int fd = open("/proc/stat", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	len = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (len <= 0)
		return 0;
	buf[len] = '\0';
	memset(idle, 0, max * sizeof(*idle));
	/* the first line is the sum */
	for (char *l = strchr(buf, '\n'); l && !strncmp(l, "\ncpu", 4); l = strchr(l + 1, '\n')) {
		if (sscanf(l, "\ncpu%u %*u %*u %*u %llu %llu", &i, &v, &io) != 3 || i >= max)
			continue;
		idle[i] = v + io;
		n = i + 1 > n ? i + 1 : n;
	}
	return n;
}

/*
 * A thread wakes up where it ran before: of real-time policy it takes that CPU from whoever
 * has it, even when another one is idle; of SCHED_IDLE it waits there. So it is put where
 * idle time is. True: it was on a CPU that it has to leave.
 */
static bool choose(bool at_once)
{
	static uint64_t before[CPU_SETSIZE], now[CPU_SETSIZE], idle[CPU_SETSIZE];
	static bool allowed[CPU_SETSIZE], chosen[CPU_SETSIZE];
	static unsigned known;
	uint64_t t = rp_now_ns(),
		 ticks = (t - cpu.looked) / (1000000000 / (uint64_t)sysconf(_SC_CLK_TCK));
	unsigned n, at = __atomic_load_n(&cpu.at, __ATOMIC_RELAXED);
	bool one, moved = false;
	cpu_set_t set;
	int policy;

	if (cpu.looked && (ticks < FIRST_CHOICE_TICKS || (!at_once && t < cpu.next)))
		return false;
	policy = sched_getscheduler(cpu.tid) & ~SCHED_RESET_ON_FORK;
	one = policy == SCHED_RR || policy == SCHED_FIFO;
	if (sched_getaffinity(cpu.tid, sizeof(set), &set))
		return false;
	/* the user's word, then and now */
	if (!cpu.placed || !CPU_EQUAL(&set, &cpu.set))
		cpu.may = set;
	n = idle_ticks(now, CPU_SETSIZE);
	if (cpu.looked && n && n == known) {
		for (unsigned i = 0; i < n; i++) {
			idle[i] = now[i] > before[i] ? now[i] - before[i] : 0;
			allowed[i] = CPU_ISSET(i, &cpu.may);
		}
		if (rp_cpu_pick(idle, ticks, allowed, n, at, one, chosen)) {
			CPU_ZERO(&set);
			for (unsigned i = 0; i < n; i++)
				if (chosen[i])
					CPU_SET(i, &set);
			if (!sched_setaffinity(cpu.tid, sizeof(set), &set)) {
				moved = !CPU_ISSET(at, &set);
				cpu.placed = true;
				cpu.set = set;
			}
		}
	}
	memcpy(before, now, sizeof(before));
	known = n;
	/* the first look tells nothing yet */
	cpu.next = cpu.looked ? t + CHOOSE_NS : 0;
	cpu.looked = t;
	return moved;
}

void rp_cpu_choose(void)
{
	if (!cpu.guarded)
		choose(false);
}

/* ---- the guard ---- */

static void *guard(void *arg)
{
	uint64_t due, used, at, now;
	struct timespec ts;
	enum rp_cpu_level was;
	const int nice = CAP_SYS_NICE;

	(void)arg;
	prctl(PR_SET_NAME, "guard", 0, 0, 0);
	rp_thread_begin(&nice, cpu.by_cap);
	set_policy(0, RP_CPU_HURRY);
	for (;;) {
		due = __atomic_load_n(&cpu.due, __ATOMIC_ACQUIRE);
		used = __atomic_load_n(&cpu.cpu, __ATOMIC_RELAXED);
		used = clock_gettime(cpu.clock, &ts) ?
			       0 :
			       (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec - used;
		now = rp_now_ns();
		if (cpu.spent) {
			cpu.spent = 0;
			cpu.rules.no_hurry_until = now + SPENT_NS;
		}
		was = cpu.rules.level;
		/* another place may be help enough */
		if (choose(late(&cpu.rules, now, due, used)) && was == cpu.rules.lowest)
			cpu.rules.since = now;
		if (rp_cpu_rule(&cpu.rules, now, due, used) != was) {
			set_policy(cpu.tid, cpu.rules.level);
			__atomic_store_n(&cpu.level, cpu.rules.level, __ATOMIC_RELAXED);
			__atomic_store_n(&cpu.helped, cpu.rules.helped, __ATOMIC_RELAXED);
		}
		at = rp_cpu_look_at(&cpu.rules, now, due);
		ts = (struct timespec){ .tv_sec = (time_t)(at / 1000000000),
					.tv_nsec = (long)(at % 1000000000) };
		if (!sem_clockwait(&cpu.stop, CLOCK_MONOTONIC, &ts))
			return NULL;
	}
}

void rp_cpu_ready(bool spins)
{
	sigset_t all, old;

	setpriority(PRIO_PROCESS, 0, cpu.nice);
	if (!cpu.ours)
		return;
	if (!cpu.hurry_again) {
		if (!spins)
			set_policy(0, RP_CPU_USUAL);
		return;
	}
	cpu.rules.lowest = cpu.leave_idle ? RP_CPU_IDLE : RP_CPU_USUAL;
	cpu.rules.highest = RP_CPU_HURRY;
	cpu.rules.level = cpu.level = cpu.rules.lowest;
	cpu.rules.since = rp_now_ns();
	rp_cpu_due(cpu.rules.since);
	if (pthread_getcpuclockid(pthread_self(), &cpu.clock) || sem_init(&cpu.stop, 0, 0)) {
		set_policy(0, spins ? RP_CPU_HURRY : RP_CPU_USUAL);
		return;
	}
	/* SIGINT and friends are for the main thread */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	cpu.guarded = !pthread_create(&cpu.guard, NULL, guard, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	/* without a guard nobody would help */
	set_policy(0, cpu.guarded ? cpu.rules.level : spins ? RP_CPU_HURRY : RP_CPU_USUAL);
}

void rp_cpu_due(uint64_t at)
{
	struct timespec ts;

	if (!clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts))
		__atomic_store_n(&cpu.cpu, (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec,
				 __ATOMIC_RELAXED);
	__atomic_store_n(&cpu.at, (unsigned)sched_getcpu(), __ATOMIC_RELAXED);
	__atomic_store_n(&cpu.due, at, __ATOMIC_RELEASE);
}

unsigned rp_cpu_helped(enum rp_cpu_level *level)
{
	*level = __atomic_load_n(&cpu.level, __ATOMIC_RELAXED);
	return __atomic_load_n(&cpu.helped, __ATOMIC_RELAXED);
}

void rp_cpu_end(void)
{
	if (!cpu.guarded)
		return;
	sem_post(&cpu.stop);
	pthread_join(cpu.guard, NULL);
	sem_destroy(&cpu.stop);
	cpu.guarded = false;
}
