/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* world.h - a timeline, and events made by hand for it. Ending a world checks the
 * balance of its counts, and that the scrubbed events give the same records. */
#ifndef REQPROBE_TEST_WORLD_H
#define REQPROBE_TEST_WORLD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "sink/sink.h"
#include "timeline/timeline.h"

#define MS 1000000ULL
#define MAX_REC 64

struct world {
	uint64_t counted[7]; /* see never_back() */
	struct rp_timeline *t;
	struct rp_record rec[MAX_REC];
	char *json[MAX_REC];
	struct rp_mark marks[MAX_REC][600];
	size_t n;
	int64_t gaps[4096];
	bool gap_chunk[4096];
	size_t n_gaps;
	char notices[2048];
	/* everything fed, scrubbed, to feed it again */
	uint8_t *log;
	size_t log_n, log_cap;
	uint64_t off[64][2];
	uint32_t tcp_unacked; /* of writes, when not 0 */
	bool rx_acked;	      /* reads tell that nothing is unacknowledged, and since when */
	uint32_t rx_acked_ago_us;
};

static inline void on_record(void *ctx, const struct rp_record *r)
{
	struct world *w = ctx;
	size_t len;

	assert_true(w->n < MAX_REC);
	w->json[w->n] = rp_record_json(r, &len);
	w->rec[w->n] = *r;
	for (size_t i = 0; i < r->n_chunk_marks && i < 600; i++)
		w->marks[w->n][i] = r->chunk_marks[i];
	w->n++;
}

static inline void on_gap(void *ctx, const struct rp_gap_info *g)
{
	struct world *w = ctx;

	for (uint32_t i = 0; i < g->n && w->n_gaps < 4096; i++) {
		w->gap_chunk[w->n_gaps] = g->chunk;
		w->gaps[w->n_gaps++] = g->gap_ns;
	}
}

static inline void on_notice(void *ctx, const char *line)
{
	struct world *w = ctx;

	strncat(w->notices, line, sizeof(w->notices) - strlen(w->notices) - 2);
	strcat(w->notices, "\n");
}

static inline struct world *world_opts(const struct rp_timeline_opts *o)
{
	struct world *w = calloc(1, sizeof(*w));
	struct rp_observer obs = {
		.ctx = w, .record = on_record, .gap = on_gap, .notice = on_notice
	};

	w->t = rp_timeline_new(o);
	assert_non_null(w->t);
	assert_int_equal(rp_timeline_observe(w->t, &obs), 0);
	return w;
}

static inline struct world *world_new(void)
{
	struct rp_timeline_opts o;

	rp_timeline_defaults(&o);
	o.itl = true;
	return world_opts(&o);
}

/* What a scrape could see at any moment. */
static inline void never_back(struct world *w)
{
	const struct rp_stats *s = rp_timeline_stats(w->t);
	const uint64_t now[] = { s->started + s->proxied,
				 s->tokens_prompt,
				 s->tokens_completion,
				 s->bytes_rx + s->proxied_rx,
				 s->bytes_tx + s->proxied_tx,
				 s->not_joined,
				 s->other_paths };

	for (size_t i = 0; i < sizeof(now) / sizeof(*now); i++) {
		assert_true(now[i] >= w->counted[i]);
		w->counted[i] = now[i];
	}
}

static inline void feed(struct world *w, void *ev)
{
	struct rp_event_hdr *h = ev;
	uint8_t *copy;

	if (w->log_n + h->size > w->log_cap) {
		w->log_cap = (w->log_cap + h->size) * 2;
		w->log = realloc(w->log, w->log_cap);
	}
	copy = w->log + w->log_n;
	memcpy(copy, ev, h->size);
	w->log_n += h->size;
	if (rp_payload_at(h->type)) {
		size_t n = rp_payload_at(h->type);

		memset(copy + n, 'x', h->size - n);
		rp_timeline_event(w->t, h, copy + n);
	} else {
		rp_timeline_event(w->t, h, NULL);
	}
	never_back(w);
}

static inline void balance(struct world *w)
{
	const struct rp_stats *s = rp_timeline_stats(w->t);
	uint64_t ends = 0;

	for (int i = 0; i < RP_END_COUNT; i++)
		ends += s->ends[i];
	assert_int_equal(s->started, ends + s->in_flight);
}

/* Finishes, and checks that the scrubbed events give the same records. */
/* Two of one name would be two series of one name. */
static inline void cores_differ(const struct rp_stats *s)
{
	for (unsigned i = 0; i < s->n_cores; i++)
		for (unsigned k = 0; k < i; k++)
			assert_false(s->cores[i].pid == s->cores[k].pid &&
				     s->cores[i].index == s->cores[k].index);
}

static inline void world_end(struct world *w)
{
	struct rp_timeline_opts o;
	struct world *v;
	size_t pos = 0;

	balance(w);
	rp_timeline_finish(w->t);
	cores_differ(rp_timeline_stats(w->t));
	balance(w);
	assert_int_equal(rp_timeline_stats(w->t)->in_flight, 0);
	rp_timeline_defaults(&o);
	o.itl = w->rec[0].itl_wanted;
	v = world_opts(&o);
	if (w->n && w->rec[0].itl_wanted) {
		while (pos < w->log_n) {
			struct rp_event_hdr *h = (void *)(w->log + pos);

			rp_timeline_event(v->t, h, NULL);
			pos += h->size;
		}
		rp_timeline_finish(v->t);
		assert_int_equal(v->n, w->n);
		for (size_t i = 0; i < w->n; i++)
			assert_string_equal(v->json[i], w->json[i]);
		assert_null(memmem(w->log, w->log_n, "SECRET", 6));
	}
	for (size_t i = 0; i < w->n; i++) {
		assert_null(strstr(w->json[i], "SECRET"));
		free(w->json[i]);
		free(i < v->n ? v->json[i] : NULL);
	}
	rp_timeline_free(v->t);
	rp_timeline_free(w->t);
	free(v);
	free(w->log);
	free(w);
}

static inline struct rp_event_hdr hdr(uint8_t type, size_t size, uint64_t ts, uint32_t pid,
				      uint32_t tid)
{
	return (struct rp_event_hdr){
		.size = (uint32_t)size, .type = type, .ts = ts, .pid = pid, .tid = tid
	};
}

static inline void session(struct world *w, bool hooks)
{
	struct rp_ev_session e = { .h = hdr(RP_EV_SESSION, sizeof(e), 1, 100, 0) };
	struct rp_ev_listener l = { .h = hdr(RP_EV_LISTENER, sizeof(l), 1, 100, 0),
				    .port = 8000,
				    .family = AF_INET };
	struct rp_ev_clock c = { .h = hdr(RP_EV_CLOCK, sizeof(c), 1, 0, 0),
				 .offset = 1700000000000000000LL };

	strcpy(e.engine, hooks ? "llamacpp" : "generic");
	e.hook_reason = hooks ? RP_HOOKS_OK : RP_HOOKS_NONE_FOR_ENGINE;
	if (hooks) {
		e.hooks_attached = 0x1f;
		e.roles[0] = RP_ROLE_QUEUED;
		e.roles[1] = RP_ROLE_SCHEDULED;
		e.roles[2] = RP_ROLE_TOKEN;
		e.roles[3] = RP_ROLE_FINAL;
		e.roles[4] = RP_ROLE_RELEASED;
	}
	feed(w, &c);
	feed(w, &e);
	feed(w, &l);
}

static inline void process(struct world *w, enum rp_proc_what what, uint32_t pid, uint64_t ts)
{
	struct rp_ev_proc e = { .h = hdr(RP_EV_PROC, sizeof(e), ts, pid, pid),
				.what = what,
				.ppid = what == RP_PROC_FORK ? 100 : 0 };

	feed(w, &e);
}

static inline void open_conn(struct world *w, uint64_t conn, uint64_t ts)
{
	struct rp_ev_conn_open e = { .h = hdr(RP_EV_CONN_OPEN, sizeof(e), ts, 0, 0),
				     .conn = conn,
				     .family = AF_INET,
				     .lport = 8000,
				     .rport = (uint16_t)(40000 + conn),
				     .laddr = { 127, 0, 0, 1 },
				     .raddr = { 127, 0, 0, 1 },
				     .rtt_status = RP_RTT_HANDSHAKE,
				     .rtt_us = 31 };
	struct rp_ev_conn_proto p = { .h = hdr(RP_EV_CONN_PROTO, sizeof(p), ts, 100, 0),
				      .conn = conn,
				      .proto = RP_PROTO_HTTP1 };

	feed(w, &e);
	feed(w, &p);
}

static inline void data_n(struct world *w, uint64_t conn, enum rp_dir dir, uint64_t ts,
			  const char *s, size_t n, uint32_t missing, bool lost)
{
	size_t size = (sizeof(struct rp_ev_data) + n + 7) & ~(size_t)7;
	struct rp_ev_data *e = calloc(1, size);

	e->h = hdr(RP_EV_DATA, size, ts, 100, 1000 + (uint32_t)conn);
	e->h.dir = (uint8_t)dir;
	e->conn = conn;
	e->off = w->off[conn][dir];
	e->ret_ts = ts + (dir == RP_TX ? 5000 : 0);
	e->call_len = (uint32_t)n + missing;
	e->len = (uint32_t)n;
	e->missing = missing;
	if (dir == RP_TX && w->tcp_unacked) {
		e->h.flags |= RP_F_TCP;
		e->unacked = w->tcp_unacked;
	}
	if (dir == RP_RX && w->rx_acked) {
		e->h.flags |= RP_F_TCP;
		e->acked_ago_us = w->rx_acked_ago_us;
	}
	memcpy(e->payload, s, n);
	w->off[conn][dir] += n + missing;
	if (!lost)
		feed(w, e);
	free(e);
}

static inline void rx(struct world *w, uint64_t conn, uint64_t ts, const char *s)
{
	data_n(w, conn, RP_RX, ts, s, strlen(s), 0, false);
}

static inline void tx(struct world *w, uint64_t conn, uint64_t ts, const char *s)
{
	data_n(w, conn, RP_TX, ts, s, strlen(s), 0, false);
}

/* one chunk */
static inline void txc(struct world *w, uint64_t conn, uint64_t ts, const char *s)
{
	char buf[8192];

	snprintf(buf, sizeof(buf), "%zx\r\n%s\r\n", strlen(s), s);
	tx(w, conn, ts, buf);
}

static inline void state(struct world *w, uint64_t conn, uint64_t ts, uint32_t what)
{
	struct rp_ev_conn_state e = { .h = hdr(RP_EV_CONN_STATE, sizeof(e), ts, 0, 0),
				      .conn = conn,
				      .what = what };

	feed(w, &e);
}

static inline void close_conn(struct world *w, uint64_t conn, uint64_t ts)
{
	struct rp_ev_conn_close e = { .h = hdr(RP_EV_CONN_CLOSE, sizeof(e), ts, 0, 0),
				      .conn = conn,
				      .rx = w->off[conn][RP_RX],
				      .tx = w->off[conn][RP_TX] };

	feed(w, &e);
}

static inline void tick(struct world *w, uint64_t ts)
{
	struct rp_ev_tick e = { .h = hdr(RP_EV_TICK, sizeof(e), ts, 0, 0) };

	feed(w, &e);
}

#define NSV(r, f) ((r)->v[RP_FIELD_##f].known ? (r)->v[RP_FIELD_##f].i : INT64_MIN)
#define is_ms(r, f, ms) assert_int_equal(NSV(r, f), (int64_t)((ms)*1000000LL))
#define is_null(r, f, reason)                                                           \
	do {                                                                            \
		assert_false((r)->v[RP_FIELD_##f].known);                               \
		assert_string_equal(rp_reason_names[(r)->v[RP_FIELD_##f].why], reason); \
	} while (0)

#endif
