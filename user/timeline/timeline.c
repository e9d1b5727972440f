// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* timeline.c - entry point, memory account, sessions, time. */
#include "timeline/timeline.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timeline/internal.h"

#define MAX_TS (1ULL << 61)

void rp_timeline_defaults(struct rp_timeline_opts *o)
{
	*o = (struct rp_timeline_opts){
		.memory_max = 48u << 20,
		.max_conns = 16384,
		.max_requests = 16384,
		.max_tasks = 16384,
		.max_marks = 65536,
	};
}

struct rp_timeline *rp_timeline_new(const struct rp_timeline_opts *o)
{
	struct rp_timeline *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->o = *o;
	t->pending_tail = &t->pending;
	snprintf(t->nobody.engine, sizeof(t->nobody.engine), "generic");
	t->nobody.hook_reason = RP_HOOKS_NONE_FOR_ENGINE;
	return t;
}

int rp_timeline_observe(struct rp_timeline *t, const struct rp_observer *o)
{
	if (t->n_obs == RP_MAX_OBSERVERS)
		return -ENOSPC;
	t->obs[t->n_obs++] = *o;
	t->tells_tokens |= o->tokens != NULL;
	return 0;
}

void *rp_tl_alloc(struct rp_timeline *t, size_t n)
{
	void *p;

	if (t->st.memory + n > t->o.memory_max) {
		t->st.limit_memory++;
		rp_tl_notice(
			t, SAY_LIMIT,
			"memory ceiling reached: some requests will be incomplete; raise --memory");
		return NULL;
	}
	p = calloc(1, n);
	if (p)
		t->st.memory += n;
	return p;
}

void rp_tl_free(struct rp_timeline *t, void *p, size_t n)
{
	if (!p)
		return;
	t->st.memory -= n;
	free(p);
}

void rp_tl_notice(struct rp_timeline *t, int kind, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (t->said & (1u << kind))
		return;
	t->said |= 1u << kind;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (unsigned i = 0; i < t->n_obs; i++)
		if (t->obs[i].notice)
			t->obs[i].notice(t->obs[i].ctx, line);
}

void rp_tl_gap(struct rp_timeline *t, const struct request *q, bool chunk, int64_t gap, uint32_t n,
	       int64_t whole)
{
	struct rp_gap_info g = {
		.model = q->r.model,
		.asked = !q->r.model_told,
		.source = chunk || !q->n_tasks ? RP_ITL_SERVER : RP_ITL_ENGINE,
		.chunk = chunk,
		.gap_ns = gap,
		.n = n,
		.whole_ns = whole,
		.index = q->r.engine_index,
	};

	if (gap < 0) {
		t->st.invalid_order++;
		return;
	}
	for (unsigned i = 0; i < t->n_obs; i++)
		if (t->obs[i].gap)
			t->obs[i].gap(t->obs[i].ctx, &g);
}

void rp_tl_started(struct rp_timeline *t, struct request *q)
{
	struct rp_request_info i = {
		.key = q->r.key,
		.ts = q->r.t_request_end != RP_NONE ? q->r.t_request_end : q->r.t_start,
		.operation = q->r.operation,
		.choices = q->r.choices,
		.guided = q->guided,
		.tools = q->tools,
		.images = q->images,
		.service_tier = q->service_tier,
	};

	if (q->start_told || !i.key)
		return;
	q->start_told = true;
	for (unsigned o = 0; o < t->n_obs; o++)
		if (t->obs[o].started)
			t->obs[o].started(t->obs[o].ctx, &i);
}

/* A rank means something where there are several. */
static int64_t rank(const struct rp_timeline *t, const struct request *q)
{
	if (!q->r.core_pid)
		return RP_NONE;
	for (unsigned i = 0; i < t->st.n_cores; i++)
		if (t->st.cores[i].index > 0)
			return q->r.engine_index;
	return RP_NONE;
}

static void tell_tokens(struct rp_timeline *t, struct request *q, int64_t ts, uint32_t tokens,
			uint32_t choice)
{
	const struct task *k = q->n_tasks == 1 && q->tasks->name ? q->tasks : NULL;
	struct rp_tokens_info i = {
		.key = q->r.key,
		.ts = ts,
		.tokens = tokens,
		.choice = choice,
		.prompt = q->r.tok_prompt,
		.cached = q->r.tok_cached,
	};

	if (k && k->prompt >= 0)
		i.prompt = k->prompt;
	if (k && k->cached >= 0 && i.cached == RP_NONE)
		i.cached = k->cached;
	i.rank = rank(t, q);
	rp_tl_started(t, q);
	for (unsigned o = 0; o < t->n_obs; o++)
		if (t->obs[o].tokens)
			t->obs[o].tokens(t->obs[o].ctx, &i);
}

void rp_tl_tokens(struct rp_timeline *t, struct request *q, bool engine, int64_t ts,
		  uint32_t tokens, uint32_t choice)
{
	if (!t->tells_tokens || !q->r.key || (engine && q->events_told))
		return;
	q->events_told |= !engine;
	tell_tokens(t, q, ts, tokens, choice);
}

void rp_tl_mark(struct rp_timeline *t, struct request *q, struct marks *m, int64_t ts,
		uint32_t tokens, uint32_t choice)
{
	if (!t->o.itl)
		return;
	if (m->n >= t->o.max_marks) {
		t->st.limit_marks++;
		q->r.flags |= RP_FLAG_LIMIT;
		return;
	}
	if (m->n == m->cap) {
		size_t cap = m->cap ? m->cap * 2 : 32;
		size_t more = (cap - m->cap) * sizeof(*m->m);
		struct rp_mark *p;

		if (t->st.memory + more > t->o.memory_max) {
			t->st.limit_memory++;
			q->r.flags |= RP_FLAG_LIMIT;
			return;
		}
		p = realloc(m->m, cap * sizeof(*p));
		if (!p) {
			q->r.flags |= RP_FLAG_LIMIT;
			return;
		}
		t->st.memory += more;
		m->m = p;
		m->cap = cap;
	}
	m->m[m->n++] = (struct rp_mark){ .ts = ts, .tokens = tokens, .choice = choice };
}

struct session *rp_tl_session(struct rp_timeline *t, uint32_t pid)
{
	struct session *s = rp_map_get(&t->procs, pid, 0);

	if (s)
		return s;
	/* One engine only: whoever holds its sockets belongs to it. */
	return t->n_sessions == 1 ? &t->sessions[0] : &t->nobody;
}

static unsigned exited_at(const struct rp_timeline *t, uint32_t pid)
{
	unsigned i = 0;

	while (i < RP_EXITED && t->exited[i] != pid)
		i++;
	return i;
}

bool rp_tl_exited(const struct rp_timeline *t, uint32_t pid)
{
	return pid && exited_at(t, pid) < RP_EXITED;
}

static void exits(struct rp_timeline *t, uint32_t pid)
{
	if (!rp_tl_exited(t, pid))
		t->exited[t->exited_at++ % RP_EXITED] = pid;
}

static void lives(struct rp_timeline *t, uint32_t pid)
{
	if (rp_tl_exited(t, pid))
		t->exited[exited_at(t, pid)] = 0;
}

int rp_tl_core_new(struct rp_timeline *t, uint32_t pid, int64_t index)
{
	struct rp_core *c = t->st.cores;
	unsigned n = t->st.n_cores, i;

	for (i = 0; i < n && (c[i].pid != pid || c[i].index != index); i++)
		;
	if (i < n) {
		if (!c[i].gone)
			return -1;
		c[i].gone = c[i].stats = c[i].log_stats = c[i].calls = false;
		c[i].running = c[i].waiting = 0;
	} else {
		if (n == RP_MAX_CORES) {
			/* engines that were restarted leave their places */
			for (i = 0; i < n && !c[i].gone; i++)
				;
			if (i == n)
				return -1;
		} else {
			t->st.n_cores++;
		}
		c[i] = (struct rp_core){
			.pid = pid,
			.index = index,
			.cached_known = true,
			.cached_parts_known = true,
		};
	}
	c[i].deferred = c[i].last_step = c[i].kv_held = RP_NONE;
	c[i].kv_capacity = c[i].kv_block = 0;
	c[i].kv_usage = NAN;
	return (int)i;
}

static int on_session(struct rp_timeline *t, const struct rp_ev_session *e)
{
	struct session *s = NULL;

	for (unsigned i = 0; i < t->n_sessions; i++)
		if (t->sessions[i].root_pid == e->h.pid)
			s = &t->sessions[i];
	if (!s) {
		if (t->n_sessions == RP_MAX_SESSIONS)
			return 0;
		s = &t->sessions[t->n_sessions++];
	}
	lives(t, e->h.pid);
	s->root_pid = e->h.pid;
	s->since = (int64_t)e->h.ts;
	snprintf(s->engine, sizeof(s->engine), "%.*s", (int)sizeof(e->engine), e->engine);
	snprintf(s->version, sizeof(s->version), "%.*s", (int)sizeof(e->version), e->version);
	snprintf(s->host, sizeof(s->host), "%.*s", (int)sizeof(e->host), e->host);
	s->hooks_attached = e->hooks_attached;
	memset(s->roles, 0, sizeof(s->roles));
	memcpy(s->roles, e->roles, sizeof(e->roles));
	if (e->h.size >= sizeof(*e)) {
		s->hooks_attached |= (uint64_t)e->hooks_attached_more << 32;
		memcpy(s->roles + sizeof(e->roles), e->roles_more, sizeof(e->roles_more));
	}
	s->hook_reason = e->hook_reason;
	s->acks = e->flags & RP_SESSION_ACKS;
	memset(s->has_role, 0, sizeof(s->has_role));
	for (unsigned i = 0; i < RP_MAX_HOOKS; i++)
		if ((s->hooks_attached >> i & 1) && s->roles[i] < RP_ROLE_COUNT)
			s->has_role[s->roles[i]] = true;
	t->st.scheduler_known = false;
	for (unsigned i = 0; i < t->n_sessions; i++)
		if (t->sessions[i].log_stats || (t->sessions[i].has_role[RP_ROLE_QUEUED] &&
						 t->sessions[i].has_role[RP_ROLE_SCHEDULED]))
			t->st.scheduler_known = true;
	return rp_map_put(&t->procs, e->h.pid, 0, s);
}

static void on_engine(struct rp_timeline *t, const struct rp_ev_engine *e)
{
	struct session *s = rp_map_get(&t->procs, e->h.pid, 0);

	if (!s)
		return;
	s->kv_tokens = e->kv_tokens <= INT64_MAX ? (int64_t)e->kv_tokens : 0;
	s->kv_blocks = e->kv_blocks <= INT64_MAX ? (int64_t)e->kv_blocks : 0;
	s->kv_block = e->block_size;
	s->pipeline = e->pipeline > 1;
	s->transfer = e->flags & RP_ENGINE_TRANSFER;
	rp_tl_msgs_configure(t);
}

static void on_proc(struct rp_timeline *t, const struct rp_ev_proc *e)
{
	struct session *s;

	switch (e->what) {
	case RP_PROC_FORK:
		lives(t, e->h.pid);
		s = rp_map_get(&t->procs, e->ppid, 0);
		if (s)
			rp_map_put(&t->procs, e->h.pid, 0, s);
		break;
	case RP_PROC_EXIT: {
		struct rp_map_slot *slot;
		size_t i = 0;

		while ((slot = rp_map_next(&t->conns, &i))) {
			struct conn *c = slot->v;

			if (c->pid == e->h.pid)
				c->owner_dead = true;
		}
		rp_tl_proc_exit(t, e->h.pid);
		exits(t, e->h.pid);
		/* the session stays: its last sockets close after this event */
		break;
	}
	default:
		break;
	}
}

static void on_loss(struct rp_timeline *t, const struct rp_ev_loss *e)
{
	struct rp_map_slot *slot;
	size_t i = 0;
	uint64_t lost = 0;
	bool hooks = e->lost[RP_CLASS_HOOK] > t->st.lost[RP_CLASS_HOOK];

	for (int c = 0; c < RP_CLASS_COUNT; c++) {
		lost += e->lost[c] - t->st.lost[c];
		t->st.seen[c] = e->seen[c];
		t->st.lost[c] = e->lost[c];
	}
	memcpy(t->st.map_full, e->map_full, sizeof(t->st.map_full));
	if (!lost)
		return;
	rp_tl_notice(
		t, SAY_LOSS,
		"events were lost: the ring buffer was full; affected records say lost_events (raise --ring)");
	if (hooks)
		rp_tl_hook_loss(t);
	t->loss_ts = (int64_t)e->h.ts;
	while ((slot = rp_map_next(&t->conns, &i)))
		((struct conn *)slot->v)->alive = false;
}

static void on_alive_end(struct rp_timeline *t)
{
	struct rp_map_slot *slot;
	struct conn **gone;
	size_t i = 0, n = 0;

	gone = calloc(t->conns.len + 1, sizeof(*gone));
	if (!gone)
		return;
	while ((slot = rp_map_next(&t->conns, &i))) {
		struct conn *c = slot->v;

		/* those that came after the census were not asked */
		if (!c->alive && (int64_t)c->o.h.ts < t->loss_ts)
			gone[n++] = c;
	}
	for (i = 0; i < n; i++) {
		struct request *q;

		if (gone[i]->h)
			for (q = gone[i]->h->head; q; q = q->next)
				q->r.flags |= RP_FLAG_LOST_EVENTS;
		if (gone[i]->closed == RP_NONE)
			gone[i]->closed = t->now;
		rp_tl_conn_gone(t, gone[i]);
	}
	free(gone);
}

/* Once, with the ports of all that came in the first second. */
static void say_tls(struct rp_timeline *t)
{
	if (t->tls_first)
		rp_tl_notice(
			t, SAY_TLS,
			"TLS on %llu connections (client ports %s): they can't be read and are counted as unobserved",
			(unsigned long long)t->st.unobserved_tls, t->tls_ports);
}

void rp_tl_say_uring(struct rp_timeline *t)
{
	rp_tl_notice(
		t, SAY_URING,
		"pid %u uses io_uring, and a connection ended on which no byte was seen: its reads and writes pass unseen",
		t->uring_pid);
}

static void on_tick(struct rp_timeline *t)
{
	if (t->now - t->tls_first > 1000000000LL)
		say_tls(t);
	rp_tl_conns_settle(t, false);
	rp_tl_pending(t, false);
	rp_tl_msgs_tick(t);
	rp_tl_decode_tick(t);
}

static void on_listener(struct rp_timeline *t, const struct rp_ev_listener *e)
{
	uint32_t key = e->port | 0x10000;

	if (!e->port || t->n_listeners == RP_MAX_LISTENERS)
		return;
	for (unsigned i = 0; i < t->n_listeners; i++)
		if (t->listeners[i] == key)
			return;
	t->listeners[t->n_listeners++] = key;
}

/* Smallest size of each type, 0 = unknown type. */
static size_t min_size(uint8_t type)
{
	switch (type) {
	case RP_EV_DATA:
		return sizeof(struct rp_ev_data);
	case RP_EV_CONN_OPEN:
		return sizeof(struct rp_ev_conn_open);
	case RP_EV_CONN_PROTO:
		return sizeof(struct rp_ev_conn_proto);
	case RP_EV_CONN_STATE:
		return sizeof(struct rp_ev_conn_state);
	case RP_EV_CONN_CLOSE:
	case RP_EV_ALIVE:
		return sizeof(struct rp_ev_conn_close);
	case RP_EV_CONN_ACCEPT:
		return sizeof(struct rp_ev_conn_accept);
	case RP_EV_TCP:
		return sizeof(struct rp_ev_tcp);
	case RP_EV_HOOK:
		return sizeof(struct rp_ev_hook);
	case RP_EV_MSG:
		return sizeof(struct rp_ev_msg);
	case RP_EV_PROC:
		return sizeof(struct rp_ev_proc);
	case RP_EV_SESSION:
		return RP_SESSION_SIZE_MIN;
	case RP_EV_ENGINE:
		return sizeof(struct rp_ev_engine);
	case RP_EV_CLOCK:
		return sizeof(struct rp_ev_clock);
	case RP_EV_LOSS:
		return sizeof(struct rp_ev_loss);
	case RP_EV_LISTENER:
		return sizeof(struct rp_ev_listener);
	case RP_EV_URING:
	case RP_EV_TICK:
	case RP_EV_ALIVE_END:
	case RP_EV_STOP:
		return sizeof(struct rp_event_hdr);
	default:
		return 0;
	}
}

int rp_timeline_event(struct rp_timeline *t, const struct rp_event_hdr *ev, uint8_t *keep)
{
	size_t min;
	int64_t ts = (int64_t)ev->ts;

	if (ev->size < sizeof(*ev))
		return -EBADMSG;
	min = min_size(ev->type);
	if (!min)
		return 0;
	if (ev->size < min) {
		t->st.parse_errors++;
		return -EBADMSG;
	}
	/* No clock reads 73 years: sums and differences of instants can't overflow. */
	if (ev->ts >= MAX_TS ||
	    (ev->type == RP_EV_DATA && ((const struct rp_ev_data *)ev)->ret_ts >= MAX_TS) ||
	    (ev->type == RP_EV_CLOCK &&
	     llabs(((const struct rp_ev_clock *)ev)->offset) >= (int64_t)MAX_TS)) {
		t->st.parse_errors++;
		return -EBADMSG;
	}
	t->st.events++;
	/* A write's event carries its entry, which may lie far back. */
	if (ev->type == RP_EV_DATA)
		ts = (int64_t)((const struct rp_ev_data *)ev)->ret_ts;
	if (ts > t->now)
		t->now = ts;

	switch (ev->type) {
	case RP_EV_DATA:
		return rp_tl_data(t, (const void *)ev, keep);
	case RP_EV_CONN_OPEN:
		rp_tl_conn_open(t, (const void *)ev);
		break;
	case RP_EV_CONN_PROTO:
		rp_tl_conn_proto(t, (const void *)ev);
		break;
	case RP_EV_CONN_STATE:
		rp_tl_conn_state(t, (const void *)ev);
		break;
	case RP_EV_CONN_CLOSE:
		rp_tl_conn_close(t, (const void *)ev);
		break;
	case RP_EV_ALIVE:
		rp_tl_conn_alive(t, (const void *)ev);
		break;
	case RP_EV_ALIVE_END:
		on_alive_end(t);
		break;
	case RP_EV_HOOK:
		rp_tl_hook(t, (const void *)ev);
		break;
	case RP_EV_CONN_ACCEPT:
		rp_tl_conn_accept(t, (const void *)ev);
		break;
	case RP_EV_TCP:
		rp_tl_conn_tcp(t, (const void *)ev);
		break;
	case RP_EV_MSG:
		if (((const struct rp_ev_msg *)(const void *)ev)->len >
		    ev->size - sizeof(struct rp_ev_msg)) {
			t->st.parse_errors++;
			return -EBADMSG;
		}
		rp_tl_msg(t, (const void *)ev, keep);
		break;
	case RP_EV_PROC:
		on_proc(t, (const void *)ev);
		break;
	case RP_EV_SESSION:
		return on_session(t, (const void *)ev);
	case RP_EV_ENGINE:
		on_engine(t, (const void *)ev);
		break;
	case RP_EV_CLOCK: {
		const struct rp_ev_clock *c = (const void *)ev;

		t->wall_offset = c->offset;
		break;
	}
	case RP_EV_LOSS:
		on_loss(t, (const void *)ev);
		break;
	case RP_EV_LISTENER:
		on_listener(t, (const void *)ev);
		break;
	case RP_EV_URING:
		t->uring_pid = ev->pid;
		break;
	case RP_EV_TICK:
		on_tick(t);
		break;
	default:
		break;
	}
	return 0;
}

void rp_timeline_finish(struct rp_timeline *t)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	say_tls(t);
	rp_tl_conns_settle(t, true);
	while ((slot = rp_map_next(&t->conns, &i))) {
		struct conn *c = slot->v;

		while (c->h && c->h->head) {
			if (c->h->head->recorded)
				c->h->head->r.flags |= RP_FLAG_PARTIAL;
			rp_tl_request_end(t, c->h->head, RP_END_UNKNOWN, RP_NONE);
		}
	}
	rp_tl_pending(t, true);
	rp_tl_msgs_finish(t);
	rp_tl_decode_finish(t);
	t->st.tokens_completion -= t->tokens_owed;
	t->tokens_owed = 0;
}

void rp_timeline_free(struct rp_timeline *t)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	if (!t)
		return;
	t->n_obs = 0;
	rp_timeline_finish(t);
	while ((slot = rp_map_next(&t->conns, &i))) {
		struct conn *c = slot->v;

		free(c->h);
		free(c);
	}
	rp_tl_msgs_free(t);
	rp_tl_tasks_free(t);
	rp_tl_decode_free(t);
	rp_map_free(&t->conns);
	rp_map_free(&t->ends);
	rp_map_free(&t->threads);
	rp_map_free(&t->tasks);
	rp_map_free(&t->slots);
	rp_map_free(&t->procs);
	free(t);
}

const struct rp_stats *rp_timeline_stats(const struct rp_timeline *t)
{
	return &t->st;
}
