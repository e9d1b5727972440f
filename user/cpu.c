// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/caps.h"
#include "lib/clock.h"

#define AGAIN_NS 10000000000ULL /* late again so soon: it came down too early */
#define SPENT_NS 60000000000ULL /* no hurry for so long once it never slept */
#define CHOOSE_NS 2000000000ULL
#define FIRST_NS 500000000ULL /* until it is known where idle time is */
#define LEAST_NS 200000000ULL /* between two looks: in less, idle time tells nothing */
#define GUARD_NS 500000000ULL
#define HURRY_US 1000000 /* of CPU without sleep */

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

bool rp_cpu_late(const struct rp_cpu_rules *r, uint64_t now, uint64_t due, uint64_t cpu)
{
	uint64_t from = due > r->since ? due : r->since;

	return now > from && now - from >= patience(r) + cpu;
}

enum rp_cpu_level rp_cpu_rule(struct rp_cpu_rules *r, uint64_t now, uint64_t due, uint64_t cpu)
{
	if (r->level == RP_CPU_HURRY && now < r->no_hurry_until) {
		go(r, RP_CPU_USUAL, now);
	} else if (rp_cpu_late(r, now, due, cpu) && r->level < r->highest &&
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
	/* it is late, and at work or asleep */
	if (at <= now)
		at = now + RP_CPU_IDLE_LATE_NS;
	return r->level > r->lowest && fall > now && fall < at ? fall : at;
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

static bool moved_by_user(const struct rp_cpu_places *p, const cpu_set_t *set, const cpu_set_t *can)
{
	cpu_set_t left;

	if (!p->placed)
		return !CPU_EQUAL(set, can);
	CPU_AND(&left, &p->set, can);
	/* all of ours are gone: it may run anywhere now (cpuset(7)) */
	return !CPU_EQUAL(set, CPU_COUNT(&left) ? &left : can);
}

void rp_cpu_obey(struct rp_cpu_places *p, const cpu_set_t *set, cpu_set_t *can)
{
	if (p->told)
		CPU_AND(can, can, &p->word);
	if (!moved_by_user(p, set, can))
		return;
	*can = p->word = *set;
	p->told = true;
	p->placed = false;
}

/* ---- policies ---- */

static const int policies[] = { SCHED_IDLE, SCHED_OTHER, SCHED_RR };

static struct {
	bool ours; /* the policy may be changed */
	bool may;  /* by the guard, which for that keeps CAP_SYS_NICE */
	int nice;
	pid_t tid, guard_tid;
	clockid_t clock;       /* of its CPU time */
	enum rp_cpu_level put; /* its policy, as we set it */

	uint64_t due, cpu;
	struct rp_cpu_rules rules;
	unsigned level, helped; /* what rules says, for other threads */
	int spent;		/* RLIMIT_RTTIME was reached */

	pthread_t guard;
	bool guarded, stop;
	unsigned hurries; /* rp_cpu_hurry(true) without its false */
	int asked;	  /* somebody waits for `done` */
	sem_t wake, done;

	pthread_mutex_t placing;
	struct rp_cpu_places places;
	unsigned at;
	uint64_t looked, next;
} cpu = { .placing = PTHREAD_MUTEX_INITIALIZER };

static int set_policy(pid_t tid, enum rp_cpu_level l)
{
	const struct sched_param p = { .sched_priority = l == RP_CPU_HURRY };

	return sched_setscheduler(tid, policies[l] | SCHED_RESET_ON_FORK, &p) ? -errno : 0;
}

static int policy_of(pid_t tid)
{
	return sched_getscheduler(tid) & ~SCHED_RESET_ON_FORK;
}

/* -EBUSY: somebody else has changed it (chrt(1)), and is right. */
static int put(enum rp_cpu_level l)
{
	int e;

	if (policy_of(cpu.tid) != policies[cpu.put])
		return -EBUSY;
	e = l == cpu.put ? 0 : set_policy(cpu.tid, l);
	if (!e)
		__atomic_store_n(&cpu.put, l, __ATOMIC_RELAXED);
	return e;
}

static void on_xcpu(int sig)
{
	int e = errno;

	(void)sig;
	/* else somebody wants it so */
	if (__atomic_load_n(&cpu.put, __ATOMIC_RELAXED) == RP_CPU_HURRY) {
		set_policy(cpu.tid, RP_CPU_USUAL);
		__atomic_store_n(&cpu.spent, 1, __ATOMIC_RELEASE);
	}
	errno = e;
}

/* The kernel adds a second each time that it is reached; at the hard limit it kills. */
static bool limit_hurry(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_RTTIME, &l) || l.rlim_max < 2 * HURRY_US)
		return false;
	l.rlim_cur = HURRY_US;
	return !setrlimit(RLIMIT_RTTIME, &l);
}

void rp_cpu_begin(void)
{
	const struct sigaction sa = { .sa_handler = on_xcpu, .sa_flags = SA_RESTART };

	cpu.tid = (pid_t)syscall(SYS_gettid);
	cpu.nice = getpriority(PRIO_PROCESS, 0);
	cpu.ours = sched_getscheduler(0) == SCHED_OTHER;
	if (cpu.ours) {
		cpu.may = rp_caps_have(CAP_SYS_NICE);
		sigaction(SIGXCPU, &sa, NULL);
		if (limit_hurry() && !set_policy(0, RP_CPU_HURRY)) {
			cpu.put = RP_CPU_HURRY;
			return;
		}
		cpu.may = false;
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

/* Puts the thread on these CPUs. True: it was not on one of them. */
static bool place(const bool *chosen, unsigned n, unsigned at)
{
	struct rp_cpu_places *p = &cpu.places;
	cpu_set_t set;

	CPU_ZERO(&set);
	for (unsigned i = 0; i < n; i++)
		if (chosen[i])
			CPU_SET(i, &set);
	if (sched_setaffinity(cpu.tid, sizeof(set), &set) ||
	    sched_getaffinity(cpu.tid, sizeof(p->set), &p->set))
		return false;
	p->placed = true;
	return !CPU_ISSET(at, &p->set);
}

/*
 * A thread wakes up where it ran before: of real-time policy it takes that CPU from whoever
 * has it, even when another one is idle; of SCHED_IDLE it waits there. So it is put where
 * idle time is. What it might have is what the guard has, which is left alone. True: it was
 * on a CPU that it has to leave.
 */
static bool choose_now(unsigned at)
{
	static uint64_t before[CPU_SETSIZE], now[CPU_SETSIZE], idle[CPU_SETSIZE];
	static bool allowed[CPU_SETSIZE], chosen[CPU_SETSIZE];
	static unsigned known;
	uint64_t t = rp_now_ns(), tick = 1000000000 / (uint64_t)sysconf(_SC_CLK_TCK),
		 ticks = (t - cpu.looked) / tick;
	int policy = policy_of(cpu.tid);
	bool one = policy == SCHED_RR || policy == SCHED_FIFO, moved = false;
	cpu_set_t can, set;
	unsigned n;

	if (sched_getaffinity(cpu.guard_tid, sizeof(can), &can) ||
	    sched_getaffinity(cpu.tid, sizeof(set), &set))
		return false;
	rp_cpu_obey(&cpu.places, &set, &can);
	n = CPU_COUNT(&can) < 2 ? 0 : idle_ticks(now, CPU_SETSIZE);
	if (cpu.looked && n && n == known) {
		for (unsigned i = 0; i < n; i++) {
			/* one that comes back has its idle time since the boot */
			idle[i] = now[i] > before[i] && now[i] - before[i] <= 2 * ticks ?
					  now[i] - before[i] :
					  0;
			allowed[i] = CPU_ISSET(i, &can);
		}
		if (rp_cpu_pick(idle, ticks, allowed, n, at, one, chosen))
			moved = place(chosen, n, at);
	}
	memcpy(before, now, sizeof(before));
	known = n;
	/* the first look tells nothing yet */
	cpu.next = cpu.looked ? t + CHOOSE_NS : 0;
	cpu.looked = t;
	return moved;
}

/* By the thread itself and, when that is late, by the guard: who comes second leaves it. */
static bool choose(bool late, unsigned at)
{
	bool moved = false;
	uint64_t t = rp_now_ns();

	if (pthread_mutex_trylock(&cpu.placing))
		return false;
	if (!cpu.looked || (t - cpu.looked >= LEAST_NS && (late || t >= cpu.next)))
		moved = choose_now(at);
	pthread_mutex_unlock(&cpu.placing);
	return moved;
}

void rp_cpu_choose(void)
{
	int at;

	if (!cpu.guarded || !__atomic_load_n(&cpu.guard_tid, __ATOMIC_ACQUIRE))
		return;
	at = sched_getcpu();
	if (at >= 0)
		choose(false, (unsigned)at);
}

/* ---- the guard ---- */

/* Ready to run, and not asleep for a reason of its own? */
static bool runnable(void)
{
	char path[64], buf[256], *state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", cpu.tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	buf[n > 0 ? n : 0] = '\0';
	state = strrchr(buf, ')');
	return !state || state[1] != ' ' || state[2] == 'R';
}

static uint64_t cpu_ns(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000),
				  .tv_nsec = (long)(ns % 1000000000) };
}

/* One look; returns when the next one is due. */
static uint64_t look(struct rp_cpu_rules *r)
{
	uint64_t due = __atomic_load_n(&cpu.due, __ATOMIC_ACQUIRE),
		 used = cpu_ns(cpu.clock) - __atomic_load_n(&cpu.cpu, __ATOMIC_RELAXED),
		 now = rp_now_ns();
	struct rp_cpu_rules was;

	if (__atomic_exchange_n(&cpu.spent, 0, __ATOMIC_ACQUIRE)) {
		r->no_hurry_until = now + SPENT_NS;
		__atomic_store_n(&cpu.put, RP_CPU_USUAL, __ATOMIC_RELAXED);
	}
	if (__atomic_load_n(&cpu.hurries, __ATOMIC_ACQUIRE)) {
		put(now < r->no_hurry_until ? RP_CPU_USUAL : RP_CPU_HURRY);
		r->since = now;
		return now + 1000000000;
	}
	if (rp_cpu_late(r, now, due, used)) {
		if (!runnable())
			return now + RP_CPU_IDLE_LATE_NS;
		/* another place may be help enough */
		if (choose(true, __atomic_load_n(&cpu.at, __ATOMIC_RELAXED)) &&
		    r->level == r->lowest)
			r->since = now;
	}
	was = *r;
	if (put(rp_cpu_rule(r, now, due, used))) {
		*r = was;
		return now + 1000000000;
	}
	/* it has slept while it hurried */
	if (was.level == RP_CPU_HURRY && r->level == r->lowest)
		limit_hurry();
	__atomic_store_n(&cpu.level, r->level, __ATOMIC_RELAXED);
	__atomic_store_n(&cpu.helped, r->helped, __ATOMIC_RELAXED);
	return rp_cpu_look_at(r, now, due);
}

static void *guard(void *arg)
{
	const int nice = CAP_SYS_NICE;
	struct timespec ts;
	uint64_t at;
	int asked;

	(void)arg;
	rp_thread_begin(&nice, 1);
	__atomic_store_n(&cpu.guard_tid, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	/* down only if there is a way back: something may forbid it that is no capability */
	if (put(RP_CPU_IDLE) || put(RP_CPU_HURRY))
		cpu.rules.lowest = RP_CPU_USUAL;
	while (!__atomic_load_n(&cpu.stop, __ATOMIC_ACQUIRE)) {
		asked = __atomic_exchange_n(&cpu.asked, 0, __ATOMIC_ACQUIRE);
		at = look(&cpu.rules);
		if (asked)
			sem_post(&cpu.done);
		ts = timespec_of(at);
		sem_clockwait(&cpu.wake, CLOCK_MONOTONIC, &ts);
	}
	put(RP_CPU_USUAL);
	return NULL;
}

/* Real-time from its first moment: a thread that spins would not let it begin. */
static int start_guard(void)
{
	const struct sched_param p = { .sched_priority = 1 };
	sigset_t all, old;
	pthread_attr_t a;
	int e;

	if (pthread_attr_init(&a))
		return -ENOMEM;
	pthread_attr_setinheritsched(&a, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&a, SCHED_RR);
	pthread_attr_setschedparam(&a, &p);
	/* SIGINT and friends are for the main thread */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	e = -pthread_create(&cpu.guard, &a, guard, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&a);
	if (!e)
		pthread_setname_np(cpu.guard, "guard");
	return e;
}

void rp_cpu_ready(void)
{
	setpriority(PRIO_PROCESS, 0, cpu.nice);
	if (!cpu.ours)
		return;
	cpu.rules = (struct rp_cpu_rules){
		.level = RP_CPU_HURRY,
		.lowest = RP_CPU_IDLE,
		.highest = RP_CPU_HURRY,
		.calm = FIRST_NS,
		.since = rp_now_ns(),
	};
	cpu.level = cpu.rules.level;
	rp_cpu_due(cpu.rules.since);
	if (cpu.may && !pthread_getcpuclockid(pthread_self(), &cpu.clock) &&
	    !sem_init(&cpu.wake, 0, 0) && !sem_init(&cpu.done, 0, 0))
		cpu.guarded = !start_guard();
	/* with one, it decides */
	if (!cpu.guarded)
		set_policy(0, RP_CPU_USUAL);
}

/* The guard answers at once, unless somebody took its policy away. */
static struct timespec patience_until(void)
{
	return timespec_of(rp_now_ns() + GUARD_NS);
}

void rp_cpu_hurry(bool on)
{
	struct timespec ts;

	if (!cpu.guarded)
		return;
	if (on) {
		if (__atomic_add_fetch(&cpu.hurries, 1, __ATOMIC_RELEASE) > 1)
			return;
		while (!sem_trywait(&cpu.done))
			; /* answers that came too late */
		__atomic_store_n(&cpu.asked, 1, __ATOMIC_RELEASE);
		sem_post(&cpu.wake);
		ts = patience_until();
		while (sem_clockwait(&cpu.done, CLOCK_MONOTONIC, &ts) && errno == EINTR)
			;
	} else if (!__atomic_sub_fetch(&cpu.hurries, 1, __ATOMIC_RELEASE)) {
		rp_cpu_due(rp_now_ns());
		sem_post(&cpu.wake);
	}
}

void rp_cpu_due(uint64_t at)
{
	int here = sched_getcpu();

	__atomic_store_n(&cpu.cpu, cpu_ns(CLOCK_THREAD_CPUTIME_ID), __ATOMIC_RELAXED);
	__atomic_store_n(&cpu.at, here < 0 ? 0 : (unsigned)here, __ATOMIC_RELAXED);
	__atomic_store_n(&cpu.due, at, __ATOMIC_RELEASE);
}

unsigned rp_cpu_helped(enum rp_cpu_level *level)
{
	*level = __atomic_load_n(&cpu.level, __ATOMIC_RELAXED);
	return __atomic_load_n(&cpu.helped, __ATOMIC_RELAXED);
}

void rp_cpu_end(void)
{
	struct timespec ts;

	if (!cpu.guarded)
		return;
	__atomic_store_n(&cpu.stop, true, __ATOMIC_RELEASE);
	sem_post(&cpu.wake);
	ts = patience_until();
	/* else it ends with the process */
	if (!pthread_clockjoin_np(cpu.guard, NULL, CLOCK_MONOTONIC, &ts)) {
		sem_destroy(&cpu.wake);
		sem_destroy(&cpu.done);
	}
	cpu.guarded = false;
}
