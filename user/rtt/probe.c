// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * probe.c - a thread for each target: connect, take two figures, go away.
 *
 * The kernel's figure is taken where the SYN-ACK arrives, so nothing of ours is in
 * it. The connect time ends when we notice, so it has our own wake-up in it; the
 * thread does without where that is cheap: it wakes a little before the answer is
 * due and looks again and again, for a bounded time.
 *
 * A probe ends with a FIN, as a client that thought better of it, not with a RST,
 * which servers and the boxes on the way log and count as an error. Then it waits
 * for the target's own FIN: until it has accepted and closed, the connection takes a
 * place in its accept queue, and at most RP_RTT_MAX_OPEN places are taken.
 */
#include "lib/clock.h"
#include "rtt/rtt.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <linux/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL
#define US 1000LL

#define QUEUE 1024
#define STACK_SIZE (256 << 10)
/* Targets start one after the other, so that they don't disturb each other. */
#define STAGGER_NS 10000000LL
/* A target that does not close: the connection is given up, its place counted
 * as free again. */
#define LINGER_NS (60 * NS_PER_S)
#define DISCARD_MAX (64 << 10)

/* Looking instead of sleeping: from LEAD before the answer is due, at most
 * SPIN_NS, and not at all when the answers vary so much that it gains nothing. */
#define LEAD_NS (100 * US)
#define SPIN_NS (500 * US)
#define SPIN_DEV_NS (250 * US)

enum state { FREE, CONNECTING, CLOSING };

struct slot {
	enum state state;
	int fd;
	size_t discarded;
	int64_t wall, start, deadline, spin_from, spin_to;
};

struct worker {
	struct rp_prober *p;
	struct rp_rtt_target *t;
	pthread_t thread;
	int64_t next, end; /* absolute, CLOCK_MONOTONIC; end 0: none */
	uint64_t left;	   /* probes; UINT64_MAX: no end */
	int64_t srtt, dev; /* of the connect time, as TCP smooths them; srtt 0: none yet */
	struct slot slot[RP_RTT_MAX_OPEN];
};

struct rp_prober {
	const struct rp_rtt_options *o;
	int wake, stop_fd;
	atomic_bool stop;
	atomic_uint running, realtime;
	pthread_mutex_t lock;
	pthread_cond_t room;
	struct rp_rtt_result queue[QUEUE];
	unsigned head, n; /* under lock */
	unsigned started;
	struct worker w[RP_RTT_MAX_TARGETS];
};

static int64_t now(void)
{
	return rp_clock_ns(CLOCK_MONOTONIC);
}

/* ---- the queue ---- */

static void wake_up(const struct rp_prober *p)
{
	uint64_t one = 1;

	/* it can only fail when the counter is full: then it is awake */
	if (write(p->wake, &one, sizeof(one)) < 0)
		return;
}

/* Waits for room: a figure is not dropped because a terminal or a disk is slow. */
static void push(struct worker *w, const struct rp_rtt_result *r)
{
	struct rp_prober *p = w->p;

	pthread_mutex_lock(&p->lock);
	while (p->n == QUEUE)
		pthread_cond_wait(&p->room, &p->lock);
	p->queue[(p->head + p->n++) % QUEUE] = *r;
	pthread_mutex_unlock(&p->lock);
	wake_up(p);
}

bool rp_prober_next(struct rp_prober *p, struct rp_rtt_result *r)
{
	bool any;

	pthread_mutex_lock(&p->lock);
	any = p->n > 0;
	if (any) {
		*r = p->queue[p->head];
		p->head = (p->head + 1) % QUEUE;
		p->n--;
		pthread_cond_signal(&p->room);
	}
	pthread_mutex_unlock(&p->lock);
	return any;
}

bool rp_prober_done(struct rp_prober *p)
{
	bool done;

	if (atomic_load(&p->running))
		return false;
	pthread_mutex_lock(&p->lock);
	done = !p->n;
	pthread_mutex_unlock(&p->lock);
	return done;
}

/* ---- a probe ---- */

static void release(struct slot *s)
{
	close(s->fd);
	s->state = FREE;
	s->fd = -1;
}

static void failed(struct worker *w, int64_t wall, int err, bool at_once)
{
	struct rp_rtt_result r = {
		.t = w->t, .wall = wall, .connect = -1, .kernel = -1, .err = err, .at_once = at_once
	};

	push(w, &r);
}

static void learn(struct worker *w, int64_t v)
{
	int64_t d;

	if (!w->srtt) {
		w->srtt = v;
		w->dev = 50 * US;
		return;
	}
	d = v - w->srtt;
	w->srtt += d / 8;
	w->dev += ((d < 0 ? -d : d) - w->dev) / 4;
}

/* The handshake is over, one way or the other; end is when that was noticed. */
static void finish(struct worker *w, struct slot *s, int64_t end)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti), elen = sizeof(int);
	struct rp_rtt_result r = {
		.t = w->t, .wall = s->wall, .connect = end - s->start, .kernel = -1
	};
	int err = 0;

	memset(&ti, 0, sizeof(ti));
	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &elen))
		err = errno;
	if (err) {
		failed(w, s->wall, err, false);
		release(s);
		return;
	}
	if (!getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &ti, &len)) {
		r.retransmits = ti.tcpi_total_retrans;
		/* of a SYN that went out twice nobody knows which one was answered */
		if (!r.retransmits && ti.tcpi_rtt)
			r.kernel = (int64_t)ti.tcpi_rtt * US;
	}
	if (!r.retransmits)
		learn(w, r.connect);
	push(w, &r);
	if (shutdown(s->fd, SHUT_WR)) { /* reset meanwhile */
		release(s);
		return;
	}
	s->state = CLOSING;
	s->discarded = 0;
	s->deadline = end + LINGER_NS;
}

/* The target speaks first, or closes. */
static void drain(struct slot *s)
{
	char buf[4096];
	ssize_t n = recv(s->fd, buf, sizeof(buf), 0);

	if (n > 0) {
		s->discarded += (size_t)n;
		if (s->discarded < DISCARD_MAX)
			return;
	} else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		return;
	}
	release(s);
}

static bool address(struct worker *w)
{
	struct rp_rtt_result r = { .t = w->t, .connect = -1, .kernel = -1, .resolve = true };
	int sys = 0;

	if (w->t->addr_len)
		return true;
	r.wall = rp_clock_ns(CLOCK_REALTIME);
	r.err = rp_rtt_resolve(w->t, w->p->o->family, &sys);
	if (!r.err)
		return true;
	if (r.err == EAI_SYSTEM && sys) {
		r.err = sys;
		r.resolve = false;
		r.at_once = true;
	}
	push(w, &r);
	return false;
}

static void expect(const struct worker *w, struct slot *s)
{
	int64_t budget = w->p->o->interval / 20, from = 0, to = SPIN_NS;

	s->spin_from = s->spin_to = 0;
	if (w->srtt) {
		if (w->dev > SPIN_DEV_NS)
			return;
		from = w->srtt - LEAD_NS - 2 * w->dev;
		if (from < 0)
			from = 0;
		to = w->srtt + LEAD_NS + 2 * w->dev;
	}
	if (budget > SPIN_NS)
		budget = SPIN_NS;
	if (to - from > budget)
		to = from + budget;
	s->spin_from = s->start + from;
	s->spin_to = s->start + to;
}

/* False: no place is free, nothing was sent. */
static bool launch(struct worker *w)
{
	struct slot *s = NULL;
	int64_t end;
	int r, fd;

	for (unsigned i = 0; i < RP_RTT_MAX_OPEN && !s; i++)
		if (w->slot[i].state == FREE)
			s = &w->slot[i];
	if (!s)
		return false;
	if (!address(w))
		return true;
	fd = socket(w->t->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		failed(w, rp_clock_ns(CLOCK_REALTIME), errno, true);
		return true;
	}
	s->fd = fd;
	s->wall = rp_clock_ns(CLOCK_REALTIME);
	s->start = now();
	r = connect(fd, (struct sockaddr *)&w->t->addr, w->t->addr_len);
	end = now();
	if (r && errno != EINPROGRESS) {
		failed(w, s->wall, errno, true);
		release(s);
		return true;
	}
	s->state = CONNECTING;
	s->deadline = s->start + w->p->o->timeout;
	expect(w, s);
	if (!r)
		finish(w, s, end);
	return true;
}

/* ---- the thread ---- */

static void wait_until(struct worker *w, int64_t until)
{
	struct pollfd fds[RP_RTT_MAX_OPEN + 1];
	unsigned idx[RP_RTT_MAX_OPEN], n = 0;
	int64_t t = now(), left;
	struct timespec ts;
	bool spin = false;

	for (unsigned i = 0; i < RP_RTT_MAX_OPEN; i++) {
		const struct slot *s = &w->slot[i];

		if (s->state == FREE)
			continue;
		fds[n].fd = s->fd;
		fds[n].events = s->state == CONNECTING ? POLLOUT : POLLIN;
		idx[n++] = i;
		if (s->state != CONNECTING || t >= s->spin_to)
			continue;
		if (t >= s->spin_from)
			spin = true;
		else if (s->spin_from < until)
			until = s->spin_from;
	}
	fds[n].fd = w->p->stop_fd;
	fds[n].events = POLLIN;
	left = spin || until < t ? 0 : until - t;
	ts.tv_sec = left / NS_PER_S;
	ts.tv_nsec = left % NS_PER_S;
	if (ppoll(fds, n + 1, &ts, NULL) <= 0)
		return;
	t = now(); /* one instant for all: the second one has not waited for the first */
	for (unsigned i = 0; i < n; i++) {
		struct slot *s = &w->slot[idx[i]];

		if (!fds[i].revents)
			continue;
		if (s->state == CONNECTING)
			finish(w, s, t);
		else
			drain(s);
	}
}

/* Gives up what is too late; the earliest deadline of the rest. */
static int64_t expire(struct worker *w, int64_t t, unsigned *connecting)
{
	int64_t first = INT64_MAX;

	*connecting = 0;
	for (unsigned i = 0; i < RP_RTT_MAX_OPEN; i++) {
		struct slot *s = &w->slot[i];

		if (s->state == FREE)
			continue;
		if (t >= s->deadline) {
			if (s->state == CONNECTING) {
				struct rp_rtt_result r = { .t = w->t,
							   .wall = s->wall,
							   .connect = -1,
							   .kernel = -1,
							   .err = ETIMEDOUT,
							   .own_timeout = true };
				push(w, &r);
			}
			release(s);
			continue;
		}
		*connecting += s->state == CONNECTING;
		if (s->deadline < first)
			first = s->deadline;
	}
	return first;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct rp_prober *p = w->p;
	struct sched_param sp = { .sched_priority = 1 };
	unsigned connecting = 0;

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	/* only where allowed; nothing here runs long */
	if (!pthread_setschedparam(pthread_self(), SCHED_FIFO, &sp))
		atomic_fetch_add(&p->realtime, 1);

	while (!atomic_load(&p->stop)) {
		int64_t t = now(), until = expire(w, t, &connecting);
		bool ended = !w->left || (w->end && w->next >= w->end);

		if (ended && !connecting)
			break;
		if (!ended && t >= w->next) {
			int64_t late = (t - w->next) / p->o->interval;

			/* absolute: a late one moves none of those that follow */
			w->t->missed_late += (uint64_t)late;
			w->next += (late + 1) * p->o->interval;
			if (!launch(w))
				w->t->missed_open++;
			else if (w->left != UINT64_MAX)
				w->left--;
			continue;
		}
		if (!ended && w->next < until)
			until = w->next;
		wait_until(w, until);
	}
	for (unsigned i = 0; i < RP_RTT_MAX_OPEN; i++) {
		w->t->abandoned += w->slot[i].state == CONNECTING;
		if (w->slot[i].state != FREE)
			release(&w->slot[i]);
	}
	atomic_fetch_sub(&p->running, 1);
	wake_up(p);
	return NULL;
}

int rp_prober_start(const struct rp_rtt_options *o, int wake, struct rp_prober **out)
{
	struct rp_prober *p = calloc(1, sizeof(*p));
	int64_t start = now(), step = o->interval / o->n;
	sigset_t all, old;
	pthread_attr_t attr;
	int err = 0;

	*out = NULL;
	if (!p)
		return -ENOMEM;
	p->o = o;
	p->wake = wake;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->room, NULL);
	p->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->stop_fd < 0) {
		err = -errno;
		goto cleanup;
	}
	if (step > STAGGER_NS)
		step = STAGGER_NS;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	/* signals are the main thread's */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (unsigned i = 0; i < o->n && !err; i++) {
		struct worker *w = &p->w[i];

		w->p = p;
		w->t = &o->targets[i];
		w->next = start + i * step;
		w->end = o->duration ? start + o->duration : 0;
		w->left = o->count ? o->count : UINT64_MAX;
		atomic_fetch_add(&p->running, 1);
		err = -pthread_create(&w->thread, &attr, work, w);
		if (err)
			atomic_fetch_sub(&p->running, 1);
		else
			p->started++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
cleanup:
	if (err) {
		rp_prober_free(p);
		p = NULL;
	}
	*out = p;
	return err;
}

void rp_prober_stop(struct rp_prober *p)
{
	uint64_t one = 1;

	atomic_store(&p->stop, true);
	/* never read: it stays readable for every thread */
	if (write(p->stop_fd, &one, sizeof(one)) < 0)
		return;
}

bool rp_prober_realtime(const struct rp_prober *p)
{
	return atomic_load(&p->realtime) > 0;
}

void rp_prober_free(struct rp_prober *p)
{
	struct rp_rtt_result r;

	if (!p)
		return;
	if (p->stop_fd >= 0)
		rp_prober_stop(p);
	while (atomic_load(&p->running)) { /* one may wait for room in the queue */
		while (rp_prober_next(p, &r))
			;
		sched_yield();
	}
	for (unsigned i = 0; i < p->started; i++)
		pthread_join(p->w[i].thread, NULL);
	if (p->stop_fd >= 0)
		close(p->stop_fd);
	pthread_cond_destroy(&p->room);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
