// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* connection.c - bytes of a connection to HTTP exchanges and stream events. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "timeline/internal.h"

enum why_gap { GAP_LOST, GAP_CUT };

static const uint8_t nothing[1];

/* ---- connections ---- */

/* `first`: this is its first event, so a refusal is counted here and once. */
static struct conn *conn_new(struct rp_timeline *t, uint64_t id, int64_t ts, bool first)
{
	struct conn *c;

	if (t->conns.len >= t->o.max_conns) {
		t->st.limit_conns += first;
		rp_tl_notice(t, SAY_LIMIT, "limit of %u connections reached: more are not followed",
			     t->o.max_conns);
		return NULL;
	}
	c = rp_tl_alloc(t, sizeof(*c));
	if (!c)
		return NULL;
	c->id = id;
	c->o.h.ts = (uint64_t)ts;
	c->alive = true;
	c->t_established = c->peer_fin = c->peer_rst = c->local_fin = c->closed = RP_NONE;
	c->accepted = c->acked = RP_NONE;
	if (rp_map_put(&t->conns, id, 0, c)) {
		rp_tl_free(t, c, sizeof(*c));
		return NULL;
	}
	t->st.connections++;
	return c;
}

static struct conn *conn_get(struct rp_timeline *t, uint64_t id)
{
	return rp_map_get(&t->conns, id, 0);
}

static void http_drop(struct rp_timeline *t, struct conn *c)
{
	if (!c->h)
		return;
	while (c->h->head)
		rp_tl_request_end(t, c->h->head, RP_END_UNKNOWN, RP_NONE);
	rp_tl_free(t, c->h, sizeof(*c->h));
	c->h = NULL;
}

static bool http_want(struct rp_timeline *t, struct conn *c)
{
	if (c->h)
		return true;
	c->h = rp_tl_alloc(t, sizeof(*c->h));
	if (!c->h)
		return false;
	c->h->line_done = true;
	rp_http1_init(&c->h->req, RP_HTTP1_REQUEST);
	rp_http1_init(&c->h->resp, RP_HTTP1_RESPONSE);
	return true;
}

static bool server_side(const struct rp_timeline *t, const struct conn *c)
{
	if (!c->known || c->o.family == AF_UNIX)
		return c->known && !c->pre_attach;
	for (unsigned i = 0; i < t->n_listeners; i++)
		if (t->listeners[i] == (c->o.lport | 0x10000u))
			return true;
	return false;
}

/* Key of a connection as one end sees it, or as its peer does. */
static void end_key(const struct conn *c, bool peer, uint64_t *a, uint64_t *b)
{
	const uint8_t *l = peer ? c->o.raddr : c->o.laddr, *r = peer ? c->o.laddr : c->o.raddr;
	uint16_t lp = peer ? c->o.rport : c->o.lport, rp = peer ? c->o.lport : c->o.rport;

	*a = (uint64_t)c->o.netns << 32 | (uint32_t)lp << 16 | rp;
	*b = 14695981039346656037ULL;
	for (int i = 0; i < 32; i++)
		*b = (*b ^ (i < 16 ? l[i] : r[i - 16])) * 1099511628211ULL;
}

/*
 * The other end of this connection is in the tree too, so its owner passes
 * requests on: the one it has from outside is this one, and counts here.
 */
static void find_proxied(struct rp_timeline *t, struct conn *c, struct request *inner)
{
	struct request *best = NULL;
	struct rp_map_slot *slot;
	struct conn *peer;
	uint64_t a, b;
	size_t i = 0;

	if (!inner->recorded || !c->known || c->o.family == AF_UNIX)
		return;
	end_key(c, true, &a, &b);
	peer = rp_map_get(&t->ends, a, b);
	if (!peer || !peer->pid)
		return;
	while ((slot = rp_map_next(&t->conns, &i))) {
		struct conn *o = slot->v;

		if (o == c || o->pid != peer->pid || !o->h)
			continue;
		for (struct request *q = o->h->head; q; q = q->next) {
			if (!q->recorded || !q->rx_done || q->midstream ||
			    q->r.operation != inner->r.operation ||
			    q->r.t_start > inner->r.t_start || strcmp(q->r.model, inner->r.model))
				continue;
			if (q->r.x_request_id[0] && inner->r.x_request_id[0] &&
			    strcmp(q->r.x_request_id, inner->r.x_request_id))
				continue;
			if (!best || q->r.t_start < best->r.t_start)
				best = q;
		}
	}
	if (best)
		rp_tl_proxied(t, best);
	rp_tl_id_again(t, inner);
}

void rp_tl_conn_open(struct rp_timeline *t, const struct rp_ev_conn_open *e)
{
	struct conn *c = conn_get(t, e->conn);

	if (!c)
		c = conn_new(t, e->conn, (int64_t)e->h.ts, true);
	if (!c)
		return;
	c->o = *e;
	c->known = true;
	c->pre_attach = e->h.flags & RP_F_PRE_ATTACH;
	if (e->h.pid)
		c->pid = e->h.pid;
	if (e->family != AF_UNIX) {
		uint64_t a, b;

		end_key(c, false, &a, &b);
		rp_map_put(&t->ends, a, b, c);
	}
	if (e->rtt_status == RP_RTT_HANDSHAKE) {
		c->t_established = (int64_t)e->h.ts;
		t->st.handshakes++;
		for (unsigned i = 0; i < t->n_obs; i++)
			if (t->obs[i].handshake)
				t->obs[i].handshake(t->obs[i].ctx, e->rtt_us);
	} else if (e->rtt_status < 5) {
		t->st.handshakes_untrusted[e->rtt_status]++;
		if (!c->pre_attach && e->rtt_status != RP_RTT_NONE)
			c->t_established = (int64_t)e->h.ts;
	}
}

static void say_tls(struct rp_timeline *t, struct conn *c)
{
	size_t n = strlen(t->tls_ports);

	t->st.unobserved_tls++;
	if (t->tls_first == 0)
		t->tls_first = t->now;
	if (n < sizeof(t->tls_ports) - 8)
		snprintf(t->tls_ports + n, sizeof(t->tls_ports) - n, "%s%u", n ? ", " : "",
			 c->o.rport);
}

void rp_tl_conn_proto(struct rp_timeline *t, const struct rp_ev_conn_proto *e)
{
	struct conn *c = conn_get(t, e->conn);

	if (e->proto >= RP_PROTO_COUNT)
		return;
	if (!c)
		c = conn_new(t, e->conn, (int64_t)e->h.ts, false);
	if (!c)
		return;
	c->proto = (enum rp_proto)e->proto;
	t->st.conns_by_proto[e->proto]++;
	switch (c->proto) {
	case RP_PROTO_TLS:
		if (server_side(t, c))
			say_tls(t, c);
		http_drop(t, c);
		break;
	case RP_PROTO_HTTP2:
		if (server_side(t, c)) {
			t->st.unobserved_http2++;
			rp_tl_notice(
				t, SAY_HTTP2,
				"HTTP/2 connections are not read yet: they are counted as unobserved");
		}
		http_drop(t, c);
		break;
	case RP_PROTO_OTHER:
		/* on a Unix socket it is what an engine's processes say to each other */
		if (server_side(t, c) && c->o.family != AF_UNIX)
			t->st.unobserved_other++;
		http_drop(t, c);
		break;
	default:
		break;
	}
}

/* ---- the end of a connection ---- */

static enum rp_end who_ended(const struct conn *c)
{
	int64_t peer = RP_NONE;

	if (c->peer_fin != RP_NONE)
		peer = c->peer_fin;
	if (c->peer_rst != RP_NONE && (peer == RP_NONE || c->peer_rst < peer))
		peer = c->peer_rst;
	if (peer != RP_NONE && (c->local_fin == RP_NONE || peer <= c->local_fin))
		return RP_END_CLIENT_DISCONNECT;
	if (c->local_fin != RP_NONE || c->owner_dead || c->closed != RP_NONE)
		return RP_END_SERVER_CLOSE;
	return RP_END_UNKNOWN;
}

static int64_t ended_at(const struct conn *c)
{
	int64_t ts = RP_NONE;
	const int64_t all[] = { c->peer_rst, c->local_fin, c->closed };

	for (unsigned i = 0; i < 3; i++)
		if (all[i] != RP_NONE && (ts == RP_NONE || all[i] < ts))
			ts = all[i];
	return ts;
}

static void response_done(struct rp_timeline *t, struct conn *c, struct request *q, int64_t ts);

/* The connection is over: every open request ends, by who closed first. */
static void end_requests(struct rp_timeline *t, struct conn *c)
{
	struct request *q;

	while (c->h && (q = c->h->head)) {
		/* where the position is lost, so is whether the response had ended */
		enum rp_end end = c->h->tx_lost || q->midstream ? RP_END_UNKNOWN : who_ended(c);

		if (q->resp_seen && !c->h->tx_lost && c->h->resp.head.framing == RP_FRAMING_CLOSE) {
			struct rp_http1_item it;

			rp_http1_eof(&c->h->resp, &it);
			/*
			 * Closing is the framing here, so a stream that broke looks like
			 * one that ended: its own end marks decide.
			 */
			if (it.type == RP_HTTP1_END &&
			    (q->done_marker || q->r.finish_reason[0] ||
			     (end == RP_END_SERVER_CLOSE && !c->owner_dead))) {
				response_done(t, c, q, q->r.t_end);
				continue;
			}
		}
		if (end == RP_END_UNKNOWN)
			q->r.flags |= RP_FLAG_PARTIAL;
		rp_tl_request_end(t, q, end, ended_at(c));
	}
}

static void settle_totals(struct rp_timeline *t, struct conn *c, uint64_t rx, uint64_t tx);

void rp_tl_conn_gone(struct rp_timeline *t, struct conn *c)
{
	end_requests(t, c);
	http_drop(t, c);
	if (c->tid && rp_map_get(&t->threads, c->tid, 0) == c)
		rp_map_del(&t->threads, c->tid, 0);
	if (c->known && c->o.family != AF_UNIX) {
		uint64_t a, b;

		end_key(c, false, &a, &b);
		if (rp_map_get(&t->ends, a, b) == c)
			rp_map_del(&t->ends, a, b);
	}
	rp_map_del(&t->conns, c->id, 0);
	t->st.connections--;
	rp_tl_free(t, c, sizeof(*c));
}

void rp_tl_conn_state(struct rp_timeline *t, const struct rp_ev_conn_state *e)
{
	struct conn *c = conn_get(t, e->conn);
	int64_t ts = (int64_t)e->h.ts;

	if (!c)
		return;
	if (e->what == RP_LOCAL_FIN_ACKED) {
		rp_tl_acked(t, c, UINT64_MAX, ts);
		return;
	}
	switch (e->what) {
	case RP_PEER_FIN:
		if (c->peer_fin == RP_NONE)
			c->peer_fin = ts;
		break;
	case RP_PEER_RST:
	case RP_PEER_LOST:
		if (c->peer_rst == RP_NONE)
			c->peer_rst = ts;
		rp_tl_reset(t, c);
		break;
	case RP_LOCAL_FIN:
	case RP_LOCAL_RST:
		if (c->local_fin == RP_NONE)
			c->local_fin = ts;
		break;
	default:
		break;
	}
}

void rp_tl_conn_close(struct rp_timeline *t, const struct rp_ev_conn_close *e)
{
	struct conn *c = conn_get(t, e->conn);

	if (!c)
		return;
	c->closed = (int64_t)e->h.ts;
	c->retrans = e->retrans;
	rp_tl_acked(t, c, UINT64_MAX, RP_NONE);
	/* Many runtimes have an io_uring for files or timers, and harmless. One that
	 * moves bytes of sockets leaves connections on which nobody read or wrote. */
	if (t->uring_pid && !t->uring_reads && !e->rx && !e->tx && c->known &&
	    c->o.family != AF_UNIX) {
		t->st.unobserved_io_uring++;
		rp_tl_say_uring(t);
	}
	settle_totals(t, c, e->rx, e->tx);
	rp_tl_conn_gone(t, c);
}

void rp_tl_conn_accept(struct rp_timeline *t, const struct rp_ev_conn_accept *e)
{
	struct conn *c = conn_get(t, e->conn);

	if (c && c->accepted == RP_NONE)
		c->accepted = (int64_t)e->h.ts;
}

void rp_tl_conn_tcp(struct rp_timeline *t, const struct rp_ev_tcp *e)
{
	struct conn *c = conn_get(t, e->conn);

	if (!c)
		return;
	c->retrans = e->retrans;
	if (!e->unacked)
		rp_tl_acked(t, c, UINT64_MAX, (int64_t)e->acked_ts);
}

void rp_tl_conn_alive(struct rp_timeline *t, const struct rp_ev_conn_close *e)
{
	struct conn *c = conn_get(t, e->conn);

	if (!c)
		return;
	c->alive = true;
	/* Totals may run ahead of events still in the ring: judged later. */
	if (e->rx > c->off[RP_RX] || e->tx > c->off[RP_TX]) {
		c->suspect[RP_RX] = e->rx;
		c->suspect[RP_TX] = e->tx;
		c->suspect_ts = (int64_t)e->h.ts;
	}
}

/*
 * Bytes of a body passed in the call of that instant. Without its start, whose
 * instant is unknown, or its end as far as it was seen.
 */
static void body_bytes(struct request *q, enum rp_dir dir, uint64_t n, int64_t ts)
{
	struct rp_record *r = &q->r;
	bool call = n && q->body_call[dir] != ts;

	if (!n)
		return;
	q->body_call[dir] = ts;
	if (dir == RP_RX) {
		r->body_rx += n;
		r->calls_rx += call;
		return;
	}
	r->body_tx += n;
	r->calls_tx += call;
	if (r->t_first_body == RP_NONE && !q->body_start_lost)
		r->t_first_body = ts;
	r->t_last_body = ts;
}

/* The same, not seen: in a call that was cut, or in one that was lost. */
static void body_bytes_gap(struct request *q, enum rp_dir dir, uint64_t n, int64_t ts,
			   enum why_gap why)
{
	if (why == GAP_CUT) {
		body_bytes(q, dir, n, ts);
		return;
	}
	if (dir == RP_RX) {
		q->r.body_rx += n;
		return;
	}
	q->r.body_tx += n;
	q->body_start_lost |= q->r.t_first_body == RP_NONE;
	q->r.t_last_body = RP_NONE;
}

/* ---- responses ---- */

static void advance(struct conn *c)
{
	struct request *q = c->h->head;

	if (q && q->head_seen)
		rp_http1_expect(&c->h->resp, !strcmp(q->r.method, "HEAD"),
				!strcmp(q->r.method, "CONNECT"));
}

static void response_done(struct rp_timeline *t, struct conn *c, struct request *q, int64_t ts)
{
	struct request *next = q->next;

	if (c->h->body == BODY_NDJSON && rp_sse_eof(&c->h->sse) && c->h->json_open) {
		rp_json_end(&c->h->json);
		rp_tl_event(t, q, &c->h->json.f, "", ts);
	}
	c->h->json_open = false;
	if (c->h->body == BODY_JSON) {
		rp_json_end(&c->h->json);
		rp_tl_response_body(t, q, &c->h->json.f);
	}
	c->h->body = BODY_NONE;
	if (next && next->r.t_start < ts)
		next->r.flags |= RP_FLAG_PIPELINED;
	/* The client had closed before, and its reset says it read none of this. */
	if (c->peer_fin != RP_NONE && c->peer_fin < ts && c->peer_rst != RP_NONE)
		rp_tl_request_end(t, q, RP_END_CLIENT_DISCONNECT, ts);
	else
		rp_tl_request_end(t, q, q->r.has_error ? RP_END_ERROR : RP_END_COMPLETE, ts);
	if (c->h)
		advance(c);
}

static void response_head(struct rp_timeline *t, struct conn *c, struct request *q)
{
	struct http *h = c->h;
	const struct rp_http1_head *head = &h->resp.head;
	bool plain = !head->content_encoding[0] || !strcmp(head->content_encoding, "identity");

	q->resp_seen = true;
	q->r.t_first_byte = h->resp_start;
	rp_tl_response_head(t, q, head);
	find_proxied(t, c, q);
	h->body = BODY_NONE;
	h->json_open = false;
	if (!q->recorded || !plain)
		return;
	if (!strcmp(head->content_type, "text/event-stream"))
		h->body = BODY_SSE;
	else if (rp_tl_ndjson(head->content_type))
		h->body = BODY_NDJSON;
	else if (strstr(head->content_type, "json"))
		h->body = BODY_JSON;
	if (h->body == BODY_SSE || h->body == BODY_NDJSON)
		rp_sse_init(&h->sse, h->body == BODY_NDJSON);
	else
		rp_json_init(&h->json, RP_JSON_RESPONSE_BODY);
}

static bool starts_with(const uint8_t *in, size_t n, const char *s)
{
	size_t l = strlen(s);

	return n >= l && !memcmp(in, s, l);
}

static void stream_body(struct rp_timeline *t, struct http *h, struct request *q, const uint8_t *in,
			uint8_t *keep, size_t n, int64_t ts)
{
	size_t pos = 0;

	/* After a hole, a span that starts as a field does starts a line. */
	if (h->body == BODY_SSE && rp_sse_gapped(&h->sse) &&
	    (starts_with(in, n, "data:") || starts_with(in, n, "event:"))) {
		rp_sse_init(&h->sse, false);
		h->json_open = false;
	}
	for (;;) {
		struct rp_sse_item it;
		uint8_t *k = keep ? keep + pos : NULL;
		size_t used = rp_sse_next(&h->sse, in + pos, k, n - pos, &it);

		switch (it.type) {
		case RP_SSE_DATA:
			if (!h->json_open) {
				rp_json_init(&h->json, RP_JSON_RESPONSE_BODY);
				h->json_open = true;
			}
			rp_json_feed(&h->json, in + pos + it.pos, k ? k + it.pos : NULL, it.len);
			break;
		case RP_SSE_NEWLINE:
			if (h->json_open)
				rp_json_feed(&h->json, (const uint8_t *)"\n", NULL, 1);
			break;
		case RP_SSE_EVENT:
			if (h->json_open) {
				rp_json_end(&h->json);
				rp_tl_event(t, q, &h->json.f, h->sse.event, ts);
			}
			h->json_open = false;
			break;
		case RP_SSE_COMMENT:
			q->r.keepalives++;
			break;
		case RP_SSE_MORE:
			return;
		}
		pos += used;
	}
}

static void body_gap(struct rp_timeline *t, struct http *h, struct request *q, int64_t ts,
		     enum why_gap why)
{
	if (h->body == BODY_SSE || h->body == BODY_NDJSON) {
		if (h->json_open) {
			const struct rp_json_facts *f = &h->json.f;

			rp_json_gap(&h->json);
			/* What was cut is part of this call: an event whose text was seen is one. */
			if (why == GAP_CUT && (f->content | f->reasoning | f->tool)) {
				rp_tl_event(t, q, f, h->sse.event, ts);
				h->json_open = false;
			}
		}
		rp_sse_gap(&h->sse);
	} else if (h->body == BODY_JSON) {
		rp_json_gap(&h->json);
	}
	q->gap_since = true;
	q->output_missed |= q->r.t_first_output == RP_NONE;
	q->last_missed |= why == GAP_LOST || q->r.t_last_token != ts;
	if (q->r.t_first_token == RP_NONE && q->no_first == RP_WHY_NONE)
		q->no_first = why == GAP_LOST ? RP_WHY_LOST : RP_WHY_TRUNCATED;
}

/*
 * Bytes of a response went by without its head: which request do they answer? The first
 * that waits; and one that was sent when an answer like that had already come, for few
 * clients send a request before they have read the answer to the last.
 */
static void answered_unseen(struct http *h)
{
	struct request *q = h->head;

	if (!q || q->resp_seen)
		return;
	while (q->unseen && q->next && q->next->after_unseen && q->next->rx_done) {
		q = q->next;
		/* but with one more behind it, this client does: it may be the first's yet */
		h->unsure |= !q->unseen && q->next;
	}
	q->unseen = true;
}

static void response_items(struct rp_timeline *t, struct conn *c, const uint8_t *in, uint8_t *keep,
			   size_t n, int64_t ts)
{
	size_t pos = 0;
	bool interim;

	while (c->h && c->h->head) {
		struct http *h = c->h;
		struct request *q = h->head;
		struct rp_http1_item it;
		uint8_t *k = keep ? keep + pos : NULL;
		size_t used = rp_http1_next(&h->resp, in + pos, k, n - pos, &it);

		if (it.type != RP_HTTP1_ERROR) {
			q->r.bytes_tx += used;
			if (q->recorded)
				t->st.bytes_tx += used;
		}
		interim = h->resp.head.status < 200 && h->resp.head.status != 101;
		switch (it.type) {
		case RP_HTTP1_START:
			h->resp_start = ts;
			break;
		case RP_HTTP1_HEAD:
			if (!interim)
				response_head(t, c, q);
			break;
		case RP_HTTP1_BODY:
			q->r.t_end = ts;
			body_bytes(q, RP_TX, it.len, ts);
			if (h->body == BODY_JSON)
				rp_json_feed(&h->json, in + pos + it.pos, k ? k + it.pos : NULL,
					     it.len);
			else if (h->body != BODY_NONE)
				stream_body(t, h, q, in + pos + it.pos, k ? k + it.pos : NULL,
					    it.len, ts);
			break;
		case RP_HTTP1_END:
			if (!interim)
				response_done(t, c, q, ts);
			break;
		case RP_HTTP1_ERROR:
			t->st.parse_errors++;
			q->r.flags |= RP_FLAG_PARSE_ERROR;
			h->tx_lost = true;
			answered_unseen(h);
			return;
		case RP_HTTP1_MORE:
			return;
		default:
			break;
		}
		pos += used;
	}
}

static bool asked_after_unseen(const struct http *h)
{
	const struct request *q = h->tx_lost ? h->head : NULL;

	while (q && q->next)
		q = q->next;
	return q && q->unseen;
}

/* All that were asked and had no answer yet: it may be among what was not seen. */
static void give_up_waiting(struct rp_timeline *t, struct conn *c, uint32_t flags)
{
	while (c->h && c->h->head && c->h->head->rx_done) {
		c->h->head->r.flags |= flags;
		rp_tl_request_end(t, c->h->head, RP_END_UNKNOWN, RP_NONE);
	}
}

/* A chunk-size line: where a chunked stream can be picked up again. */
static bool chunk_line(const uint8_t *in, size_t n)
{
	size_t i = 0;

	while (i < n && i < 9 &&
	       ((in[i] >= '0' && in[i] <= '9') || ((in[i] | 32) >= 'a' && (in[i] | 32) <= 'f')))
		i++;
	return i > 0 && i < 9 && i + 1 < n && in[i] == '\r' && in[i + 1] == '\n';
}

/*
 * Where can a response be picked up whose position was lost? At a call that
 * starts a response or a chunk; and behind any CR LF that a chunk-size line
 * follows, for JSON has its line ends escaped. Returns the offset, or n.
 */
static size_t tx_resync(struct rp_timeline *t, struct conn *c, const uint8_t *in, uint8_t *keep,
			size_t n, bool call_start)
{
	struct http *h = c->h;
	struct request *q = h->head;
	size_t at = 0;

	if (call_start && starts_with(in, n, "HTTP/1.")) {
		if (h->unsure) {
			h->unsure = false;
			if (keep) /* a recording decides alike */
				memcpy(keep, in, strlen("HTTP/1."));
			give_up_waiting(t, c, RP_FLAG_PARTIAL);
			return n;
		}
		while ((q = h->head) && (q->resp_seen || (q->unseen && q->next))) {
			q->r.flags |= RP_FLAG_PARTIAL;
			rp_tl_request_end(t, q, RP_END_UNKNOWN, RP_NONE);
		}
		rp_http1_resync(&h->resp);
		advance(c);
		h->tx_lost = false;
		return 0;
	}
	if (!q->resp_seen || h->resp.head.framing != RP_FRAMING_CHUNKED || h->body == BODY_NONE)
		return n;
	if (!call_start || !chunk_line(in, n)) {
		const uint8_t *p = in, *end = in + n;

		while ((p = memmem(p, (size_t)(end - p), "\r\n", 2)) &&
		       !chunk_line(p + 2, (size_t)(end - p) - 2))
			p += 2;
		if (!p)
			return n;
		if (keep)
			memcpy(keep + (p - in), "\r\n", 2);
		at = (size_t)(p - in) + 2;
	}
	rp_http1_resync_chunk(&h->resp);
	h->tx_lost = false;
	return at;
}

static bool ends_with(const uint8_t *in, size_t n, const char *s)
{
	size_t l = strlen(s);

	return n >= l && !memcmp(in + n - l, s, l);
}

/* A response that was under way at the attach: seen, counted, never timed. */
static void midstream(struct rp_timeline *t, struct conn *c, const struct rp_ev_data *e,
		      uint8_t *keep, int64_t ts)
{
	static const char last[] = "0\r\n\r\n";
	struct request *q = c->h->head;

	if (!q) {
		const uint8_t *p = memmem(e->payload, e->len, "data:", 5);

		if (!p || c->requests)
			return;
		if (keep)
			memcpy(keep + (p - e->payload), "data:", 5);
		q = rp_tl_request_new(t, c, RP_NONE);
		if (!q)
			return;
		q->midstream = true;
		q->recorded = true;
		q->r.flags |= RP_FLAG_PARTIAL | RP_FLAG_PRE_ATTACH;
		q->r.operation = RP_OP_OTHER;
		q->r.stream = 1;
		q->no_first = RP_WHY_NOT_SEEN;
		t->st.started++;
		t->st.in_flight++;
	}
	q->r.bytes_tx += e->call_len;
	t->st.bytes_tx += e->call_len;
	if (ends_with(e->payload, e->len, last)) {
		if (keep)
			memcpy(keep + e->len - strlen(last), last, strlen(last));
		rp_tl_request_end(t, q, RP_END_UNKNOWN, ts);
	}
}

/* ---- requests ---- */

/*
 * A request target may be anybody's words: only those of the paths that make
 * records, and what may become one, stay in a recording.
 */
static void start_line(struct http *h, const uint8_t *in, uint8_t *keep, size_t pos, size_t n)
{
	size_t from = SIZE_MAX, to = 0;

	for (; pos < n && !h->line_done; pos++) {
		uint8_t c = in[pos];

		if (c == '\n') {
			h->line_done = true;
		} else if (c == ' ') {
			h->line_part += h->line_part < 2;
		} else if (h->line_part == 1) {
			if (c == '?')
				h->line_part = 2;
			else if (h->target_n < sizeof(h->target))
				h->target[h->target_n++] = (char)c;
			from = from == SIZE_MAX ? pos : from;
			to = pos + 1;
		}
	}
	if (!keep || from == SIZE_MAX ||
	    rp_tl_target_known(h->target, h->target_n, h->line_part == 2))
		return;
	for (; from < to; from++)
		if (in[from] != '/')
			keep[from] = 'x';
}

static void request_items(struct rp_timeline *t, struct conn *c, const uint8_t *in, uint8_t *keep,
			  size_t n, int64_t ts)
{
	size_t pos = 0, line = c->h->line_done ? SIZE_MAX : 0;

	for (;;) {
		struct http *h = c->h;
		struct rp_http1_item it;
		uint8_t *k = keep ? keep + pos : NULL;
		size_t used = rp_http1_next(&h->req, in + pos, k, n - pos, &it);
		bool after;

		if (it.type == RP_HTTP1_START) {
			if (h->head && (h->head->midstream || (h->tx_lost && h->head->resp_seen))) {
				h->head->r.flags |= RP_FLAG_PARTIAL;
				rp_tl_request_end(t, h->head, RP_END_UNKNOWN, RP_NONE);
			}
			if (!h->head) {
				/* whatever was sent before answers nothing we know of */
				rp_http1_resync(&h->resp);
				h->tx_lost = h->unsure = false;
			}
			after = asked_after_unseen(h);
			h->rx = rp_tl_request_new(t, c, ts);
			if (h->rx)
				h->rx->after_unseen = after;
			used = used > it.pos ? used : it.pos;
			line = pos + it.pos;
			h->line_done = false;
			h->line_part = 0;
			h->target_n = 0;
		}
		if (line != SIZE_MAX && (it.type == RP_HTTP1_HEAD || it.type == RP_HTTP1_MORE ||
					 it.type == RP_HTTP1_ERROR)) {
			start_line(h, in, keep, line, n);
			line = SIZE_MAX;
		}
		if (h->rx && it.type != RP_HTTP1_ERROR) {
			uint64_t own = it.type == RP_HTTP1_START ? used - it.pos : used;

			h->rx->r.bytes_rx += own;
			if (h->rx->recorded)
				t->st.bytes_rx += own;
		}
		switch (it.type) {
		case RP_HTTP1_HEAD:
			if (h->rx) {
				rp_tl_request_head(t, h->rx, &h->req.head);
				if (h->rx == h->head)
					advance(c);
				rp_json_init(&h->req_json, RP_JSON_REQUEST_BODY);
			}
			break;
		case RP_HTTP1_BODY:
			if (h->rx)
				body_bytes(h->rx, RP_RX, it.len, ts);
			/* servers take JSON whatever its Content-Type says */
			if (h->rx && h->rx->recorded)
				rp_json_feed(&h->req_json, in + pos + it.pos, k ? k + it.pos : NULL,
					     it.len);
			break;
		case RP_HTTP1_END:
			if (h->rx) {
				h->rx->rx_done = true;
				h->rx->r.t_request_end = ts;
				rp_json_end(&h->req_json);
				if (h->rx->recorded)
					rp_tl_request_body(t, h->rx, &h->req_json.f);
				h->rx = NULL;
			}
			break;
		case RP_HTTP1_ERROR:
			t->st.parse_errors++;
			if (h->rx)
				h->rx->r.flags |= RP_FLAG_PARSE_ERROR;
			h->rx = NULL;
			h->rx_lost = true;
			return;
		case RP_HTTP1_MORE:
			return;
		default:
			break;
		}
		pos += used;
	}
}

static bool request_line(const uint8_t *in, size_t n)
{
	static const char *const m[] = { "GET ",    "POST ",	"PUT ",	  "HEAD ",
					 "DELETE ", "OPTIONS ", "PATCH ", NULL };

	for (int i = 0; m[i]; i++)
		if (starts_with(in, n, m[i]))
			return true;
	return false;
}

/* ---- bytes that are missing ---- */

static void gap(struct rp_timeline *t, struct conn *c, enum rp_dir dir, uint64_t n, int64_t ts,
		enum why_gap why)
{
	struct http *h = c->h;
	struct request *q;
	struct rp_http1 *p;
	uint32_t flag = why == GAP_LOST ? RP_FLAG_LOST_EVENTS : RP_FLAG_TRUNCATED;

	if (why == GAP_LOST)
		t->st.bytes_lost += n;
	else
		t->st.bytes_cut += n;
	if (!h)
		return;
	p = dir == RP_RX ? &h->req : &h->resp;
	if (dir == RP_RX ? h->rx_lost : h->tx_lost) {
		if (dir == RP_TX)
			answered_unseen(h);
		return;
	}
	while (n) {
		struct rp_http1_item it;
		uint64_t used;

		q = dir == RP_RX ? h->rx : h->head;
		if (q)
			q->r.flags |= flag;
		used = rp_http1_gap(p, n, &it);
		if (it.type == RP_HTTP1_ERROR) {
			if (dir == RP_RX) {
				h->rx_lost = true;
				h->rx = NULL;
			} else {
				h->tx_lost = true;
				if (q) {
					body_gap(t, h, q, ts, why);
					q->r.bytes_tx += n;
				}
				/* Whose is the next head? Not surely theirs. */
				if (why == GAP_CUT)
					answered_unseen(h);
				else if (q && !q->resp_seen)
					give_up_waiting(t, c,
							RP_FLAG_LOST_EVENTS | RP_FLAG_PARTIAL);
			}
			return;
		}
		if (q && dir == RP_RX) {
			q->r.bytes_rx += used;
			body_bytes_gap(q, dir, it.len, ts, why);
			if (q->recorded)
				rp_json_gap(&h->req_json);
		} else if (q) {
			q->r.bytes_tx += used;
			body_bytes_gap(q, dir, it.len, ts, why);
			q->r.t_end = ts;
			body_gap(t, h, q, ts, why);
		}
		n -= used;
		/* an END that needs no further byte */
		if (dir == RP_RX)
			request_items(t, c, nothing, NULL, 0, ts);
		else
			response_items(t, c, nothing, NULL, 0, ts);
		if (!c->h || !used)
			return;
		h = c->h;
	}
}

static void settle_totals(struct rp_timeline *t, struct conn *c, uint64_t rx, uint64_t tx)
{
	/* bytes that nobody asked for are not lost */
	if (c->proto == RP_PROTO_TLS || c->proto == RP_PROTO_HTTP2 || c->proto == RP_PROTO_OTHER)
		return;
	if (rx > c->off[RP_RX]) {
		gap(t, c, RP_RX, rx - c->off[RP_RX], t->now, GAP_LOST);
		c->off[RP_RX] = rx;
	}
	if (tx > c->off[RP_TX]) {
		gap(t, c, RP_TX, tx - c->off[RP_TX], t->now, GAP_LOST);
		c->off[RP_TX] = tx;
	}
}

/* ---- data ---- */

static void thread_reads(struct rp_timeline *t, struct conn *c, uint32_t tid)
{
	if (c->tid == tid && rp_map_get(&t->threads, tid, 0) == c)
		return;
	if (c->tid && rp_map_get(&t->threads, c->tid, 0) == c)
		rp_map_del(&t->threads, c->tid, 0);
	c->tid = tid;
	rp_map_put(&t->threads, tid, 0, c);
}

int rp_tl_data(struct rp_timeline *t, const struct rp_ev_data *e, uint8_t *keep)
{
	enum rp_dir dir = e->h.dir == RP_TX ? RP_TX : RP_RX;
	int64_t ts = (int64_t)e->h.ts;
	const uint8_t *in = e->payload;
	struct conn *c;

	if (e->len > e->h.size - sizeof(*e)) {
		t->st.parse_errors++;
		return -EBADMSG;
	}
	c = conn_get(t, e->conn);
	if (!c) {
		/* its opening was lost: the peer stays unknown */
		c = conn_new(t, e->conn, ts, false);
		if (!c)
			return 0;
		c->pre_attach = true;
	}
	if (e->h.pid)
		c->pid = e->h.pid;
	t->uring_reads |= t->uring_pid && c->pid == t->uring_pid;
	c->retrans = e->retrans;
	if (dir == RP_RX && e->h.flags & RP_F_TCP && !e->unacked) {
		int64_t acked = ts / 1000 - e->acked_ago_us;

		rp_tl_acked(t, c, c->off[RP_TX], acked * 1000);
	}
	if (dir == RP_TX) {
		uint64_t end = e->off - e->call_off + e->call_len;

		if (e->h.flags & RP_F_TCP && e->unacked <= end)
			rp_tl_acked(t, c, end - e->unacked, RP_NONE);
		c->last_tx = t->now;
		c->tcp = e->h.flags & RP_F_TCP;
		c->unacked = e->unacked;
		c->notsent = e->notsent;
		c->srtt_us = e->srtt_us;
		c->min_rtt_us = e->min_rtt_us;
		c->call_len = e->call_len;
	}
	if (!c->have_off[dir]) {
		c->have_off[dir] = true;
		if (c->pre_attach)
			c->off[dir] = e->off;
	}
	if (e->off < c->off[dir]) {
		/* two threads on one socket: order unknown, the bytes are not ours to guess */
		t->st.invalid_order++;
		return 0;
	}
	if (e->off > c->off[dir])
		gap(t, c, dir, e->off - c->off[dir], ts, GAP_LOST);
	c->off[dir] = e->off + e->len + e->missing;

	if (c->proto == RP_PROTO_TLS || c->proto == RP_PROTO_HTTP2 || c->proto == RP_PROTO_OTHER)
		return 0;
	if (!c->h && dir == RP_TX && c->proto != RP_PROTO_MIDSTREAM && c->proto != RP_PROTO_HTTP1)
		return 0;
	if (!http_want(t, c))
		return 0;
	if (dir == RP_RX) {
		thread_reads(t, c, e->h.tid);
		if (c->h->rx_lost && e->call_off == 0 && request_line(in, e->len)) {
			rp_http1_resync(&c->h->req);
			c->h->rx_lost = false;
		}
		if (!c->h->rx_lost && e->len)
			request_items(t, c, in, keep, e->len, ts);
	} else {
		if (c->proto == RP_PROTO_MIDSTREAM && (!c->h->head || c->h->head->midstream)) {
			midstream(t, c, e, keep, ts);
			return 0;
		}
		if (!c->h->head)
			return 0;
		size_t at = 0;

		if (c->h->tx_lost) {
			struct request *q = c->h->head;

			at = tx_resync(t, c, in, keep, e->len, e->call_off == 0);
			if (c->h->head == q)
				q->r.bytes_tx += at;
			if (at == e->len)
				answered_unseen(c->h);
		}
		if (!c->h->head)
			return 0;
		if (at < e->len)
			response_items(t, c, in + at, keep ? keep + at : NULL, e->len - at, ts);
	}
	if (e->missing)
		gap(t, c, dir, e->missing, ts, GAP_CUT);
	return 0;
}

/* Time has passed: settle what waited for late events. */
void rp_tl_conns_settle(struct rp_timeline *t, bool all)
{
	struct rp_map_slot *slot;
	size_t i = 0;

	while ((slot = rp_map_next(&t->conns, &i))) {
		struct conn *c = slot->v;
		int64_t end = ended_at(c);

		if (c->suspect_ts && (all || t->now - c->suspect_ts > RP_SUSPECT_NS)) {
			settle_totals(t, c, c->suspect[RP_RX], c->suspect[RP_TX]);
			c->suspect_ts = 0;
		}
		if (!c->h || !c->h->head)
			continue;
		if (end != RP_NONE && (all || t->now - end > RP_GRACE_NS)) {
			end_requests(t, c);
		} else if (c->h->tx_lost && t->now - c->last_tx > RP_LOST_QUIET_NS) {
			c->h->head->r.flags |= RP_FLAG_PARTIAL;
			rp_tl_request_end(t, c->h->head, RP_END_UNKNOWN, RP_NONE);
		}
	}
}
