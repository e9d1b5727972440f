// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "source/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* An acknowledgement may be captured before what it acknowledges. */
#define REORDER_NS (20 * 1000000ULL)
/* Acknowledged, and nothing came after it: lost, and there is nothing to wait for. */
#define TAIL_NS (200 * 1000000ULL)
/* A hole that nobody acknowledges: the other direction is not in the capture. */
#define HOLE_NS (10 * 1000000000ULL)
/* The same packet again, seen on another interface or by another CPU. */
#define COPY_NS 1000000ULL
/* After its end a connection's addresses are known a while: late packets are not new. */
#define DONE_NS (30 * 1000000000ULL)
#define HALF_OPEN_NS (60 * 1000000000ULL)
#define HALF_OPEN_SHARE 4 /* of all connections: a flood of SYNs gets no more */
/* No window is larger (RFC 7323). */
#define WINDOW_MAX (1 << 30)
/* A reset that lies further behind than this is an old one. */
#define RST_BEHIND (1 << 16)
/* Out of order, for one direction of one connection. */
#define PIECES_MAX 1024
#define PIECE_BYTES_MAX (1u << 20)
/* A connection met in mid-stream that shows no request within this many bytes. */
#define MIDSTREAM_LIMIT (16ULL << 20)
#define REQUEST_LINE_MAX 8192

struct piece {
	struct piece *next;
	uint64_t off, ts;
	uint32_t len, cap;
	uint32_t call_len, call_off; /* the segment, and where in it this was */
	uint8_t data[];
};

/* What one side sends. */
struct half {
	uint64_t off;		  /* of the next byte wanted */
	uint64_t told;		  /* end of what DATA has told */
	uint64_t acked;		  /* offset that the other side has acknowledged */
	uint64_t ts;		  /* newest instant told */
	uint64_t ack_ts, hole_ts; /* since when: acked is ahead, a hole is waited for; 0 */
	uint64_t fin_ts, seen_ts;
	struct piece *q, *q_last;
	uint32_t n_q, q_bytes;
	uint32_t next;	   /* sequence number of off */
	uint32_t isn, fin; /* of its SYN and of its FIN */
	uint32_t seen_seq, seen_len;
	uint32_t again;
	uint16_t seen_id;
	bool syn, synced, has_fin, fin_told, fin_acked;
};

enum list_id { LIST_HALF_OPEN, LIST_OPEN, LIST_DONE, LIST_COUNT };

struct flow {
	struct flow *hash_next;
	struct flow *older, *newer; /* in its list, by the last packet */
	struct flow *hole_prev, *hole_next;
	uint64_t id, last, t_synack, t_established;
	uint64_t first; /* bytes from the client, until it is clear what they are */
	uint32_t rtt_us;
	uint16_t family, port[2];
	uint8_t addr[2][16];
	uint8_t list;
	uint8_t have; /* bytes in first */
	uint8_t proto;
	uint8_t rtt_status;
	int8_t server; /* side, or -1 */
	bool in_holes;
	bool pre;	  /* met in mid-stream */
	bool established; /* as far as can be seen */
	bool announced;	  /* its OPEN was told */
	bool ignored;	  /* of no interest */
	bool syn_again, early_data;
	bool unanswered;       /* the client spoke last */
	bool rx_lost, tx_lost; /* bytes, since the last request that was seen to begin */
	struct half h[2];
};

struct list {
	struct flow *oldest, *newest;
	size_t n;
};

struct rp_tcp {
	struct rp_tcp_opts o;
	struct rp_tcp_stats st;
	struct flow **buckets;
	size_t n_buckets, n_flows, max_flows;
	struct list lists[LIST_COUNT];
	struct flow *holes, *holes_last;
	size_t q_bytes, q_max; /* all pieces */
	uint64_t last_id;
	int err;
	uint8_t given[8192];   /* bit: port of a server, as the user says */
	uint8_t learned[8192]; /* bit: port that got an HTTP request */
	uint8_t told[8192];    /* bit: its LISTENER was told */
	struct rp_ev_data *ev;
};

static bool bit(const uint8_t *set, uint16_t n)
{
	return set[n >> 3] >> (n & 7) & 1;
}

static void set_bit(uint8_t *set, uint16_t n)
{
	set[n >> 3] |= (uint8_t)(1u << (n & 7));
}

/* ---- telling ---- */

static void tell(struct rp_tcp *t, const void *ev)
{
	int e;

	if (t->err)
		return;
	e = t->o.fn(t->o.ctx, ev);
	if (e < 0)
		t->err = e;
}

static struct rp_event_hdr header(enum rp_event_type type, size_t size, uint64_t ts)
{
	return (struct rp_event_hdr){ .size = (uint32_t)size, .type = (uint8_t)type, .ts = ts };
}

static void announce(struct rp_tcp *t, struct flow *f, uint64_t ts)
{
	int s = f->server, c = !s;
	struct rp_ev_conn_open e = {
		.h = header(RP_EV_CONN_OPEN, sizeof(e), f->t_established ? f->t_established : ts),
		.conn = f->id,
		.family = f->family,
		.lport = f->port[s],
		.rport = f->port[c],
		.rtt_status = f->rtt_status,
		.rtt_us = f->rtt_us,
	};

	if (f->announced)
		return;
	f->announced = true;
	t->st.announced++;
	if (!bit(t->told, f->port[s])) {
		struct rp_ev_listener l = {
			.h = header(RP_EV_LISTENER, sizeof(l), e.h.ts),
			.family = f->family,
			.port = f->port[s],
		};

		set_bit(t->told, f->port[s]);
		memcpy(l.addr, f->addr[s], 16);
		tell(t, &l);
	}
	if (f->pre)
		e.h.flags = RP_F_PRE_ATTACH;
	memcpy(e.laddr, f->addr[s], 16);
	memcpy(e.raddr, f->addr[c], 16);
	tell(t, &e);
}

static void set_proto(struct rp_tcp *t, struct flow *f, enum rp_proto proto, uint64_t ts)
{
	struct rp_ev_conn_proto e = { .h = header(RP_EV_CONN_PROTO, sizeof(e), ts),
				      .conn = f->id,
				      .proto = proto };

	f->proto = (uint8_t)proto;
	if (proto == RP_PROTO_HTTP1)
		set_bit(t->learned, f->port[f->server]);
	if (f->announced)
		tell(t, &e);
}

static void tell_state(struct rp_tcp *t, const struct flow *f, uint32_t what, int err, uint64_t ts)
{
	struct rp_ev_conn_state e = { .h = header(RP_EV_CONN_STATE, sizeof(e), ts),
				      .conn = f->id,
				      .what = what,
				      .err = err };

	if (f->announced)
		tell(t, &e);
}

static bool followed(const struct flow *f)
{
	return f->proto == RP_PROTO_HTTP1 || f->proto == RP_PROTO_MIDSTREAM;
}

/* What was not to be told is not counted, or it would be a loss. */
static void tell_close(struct rp_tcp *t, const struct flow *f, uint64_t ts)
{
	const struct half *s = &f->h[f->server], *c = &f->h[!f->server];
	struct rp_ev_conn_close e = { .h = header(RP_EV_CONN_CLOSE, sizeof(e), ts),
				      .conn = f->id,
				      .rx = followed(f) ? c->off : c->told,
				      .tx = followed(f) ? s->off : s->told,
				      .retrans = s->again };

	tell(t, &e);
}

/* ---- what a connection carries ---- */

enum match { NO, MAYBE, YES };

static enum match match(uint64_t w, unsigned n, const char *s)
{
	for (unsigned i = 0; s[i]; i++) {
		if (i == n)
			return MAYBE;
		if ((char)(w >> (8 * i)) != s[i])
			return NO;
	}
	return YES;
}

/*
 * The verdict of bpf/http.bpf.c (rp_verdict), which has to be written for the
 * verifier; the two must agree. w holds n bytes, the first one lowest.
 */
static enum rp_proto verdict(uint64_t w, unsigned n)
{
	static const char *const methods[] = { "POST ",	  "GET ",   "HEAD ",	"OPTIONS ", "PUT ",
					       "DELETE ", "PATCH ", "CONNECT ", "TRACE " };
	uint8_t type = (uint8_t)w;
	bool maybe = false;
	enum match m;

	for (unsigned i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		m = match(w, n, methods[i]);
		if (m == YES)
			return RP_PROTO_HTTP1;
		maybe |= m == MAYBE;
	}
	m = match(w, n, "PRI * HT");
	if (m == YES)
		return RP_PROTO_HTTP2;
	maybe |= m == MAYBE;
	if (type >= 0x14 && type <= 0x17) {
		if (n >= 2)
			return (w >> 8 & 0xff) == 3 ? RP_PROTO_TLS : RP_PROTO_OTHER;
		maybe = true;
	}
	return maybe ? RP_PROTO_UNKNOWN : RP_PROTO_OTHER;
}

static uint64_t word(const uint8_t *p, uint32_t n)
{
	uint64_t w = 0;

	for (uint32_t i = 0; i < n && i < 8; i++)
		w |= (uint64_t)p[i] << (8 * i);
	return w;
}

/* A whole request line: where the roles of a connection are not known, any text
 * may stand at the start of a packet. */
static bool request_line(const uint8_t *p, uint32_t n)
{
	const uint8_t *nl = memchr(p, '\n', n < REQUEST_LINE_MAX ? n : REQUEST_LINE_MAX);
	size_t len = nl ? (size_t)(nl - p) : 0;

	if (len && p[len - 1] == '\r')
		len--;
	return len >= 14 && verdict(word(p, 8), 8) == RP_PROTO_HTTP1 &&
	       !memcmp(p + len - 9, " HTTP/1.", 8);
}

/* Bytes from the client, and it is not yet known what they are. */
static enum rp_proto judge(struct flow *f, const uint8_t *p, uint32_t n)
{
	enum rp_proto v;

	for (uint32_t i = 0; i < n && f->have < 8; i++) {
		/* HTTP allows empty lines before a request */
		if (!f->have && (p[i] == '\r' || p[i] == '\n'))
			continue;
		f->first |= (uint64_t)p[i] << (8 * f->have++);
	}
	if (!f->have)
		return RP_PROTO_UNKNOWN;
	v = verdict(f->first, f->have);
	if (v != RP_PROTO_OTHER || !f->pre)
		return v;
	/* the rest of a request that began before the capture */
	f->have = 0;
	f->first = 0;
	return RP_PROTO_MIDSTREAM;
}

/* Which side serves, on a connection whose handshake was not seen? */
static void find_roles(struct rp_tcp *t, struct flow *f, int side, const uint8_t *p, uint32_t n)
{
	for (int s = 0; s < 2 && f->server < 0; s++)
		if (bit(t->given, f->port[s]) && !bit(t->given, f->port[!s]))
			f->server = (int8_t)s;
	for (int s = 0; s < 2 && f->server < 0 && !t->o.n_ports; s++)
		if (bit(t->learned, f->port[s]) && !bit(t->learned, f->port[!s]))
			f->server = (int8_t)s;
	if (f->server < 0 && request_line(p, n))
		f->server = (int8_t)!side;
}

/*
 * Is this to be told? Sets roles and protocol, and announces, as the kernel's side
 * does: what the client sends until it is known to be no request, what the server
 * sends once there is one, or when a response was under way from the start.
 */
static bool classify(struct rp_tcp *t, struct flow *f, int side, const uint8_t *p, uint32_t n,
		     uint64_t ts)
{
	enum rp_proto v = RP_PROTO_UNKNOWN;

	if (f->proto == RP_PROTO_HTTP1)
		return true;
	if (f->ignored || !n)
		return false;
	if (f->server < 0)
		find_roles(t, f, side, p, n);
	if (f->server < 0)
		return false;
	if (f->proto == RP_PROTO_UNKNOWN || f->proto == RP_PROTO_MIDSTREAM) {
		if (side != f->server)
			v = judge(f, p, n);
		else if (f->pre && f->proto == RP_PROTO_UNKNOWN && !f->h[!side].off)
			v = n >= 2 && p[0] >= 0x14 && p[0] <= 0x17 && p[1] == 3 ?
				    RP_PROTO_TLS :
				    RP_PROTO_MIDSTREAM;
		if (f->proto == RP_PROTO_MIDSTREAM && v != RP_PROTO_HTTP1 &&
		    f->h[0].off + f->h[1].off > MIDSTREAM_LIMIT)
			v = RP_PROTO_OTHER;
		/* where no port is given, anything may be in the capture */
		if (v == RP_PROTO_OTHER && !t->o.n_ports && !f->announced) {
			f->ignored = true;
			return false;
		}
		if (side != f->server || v != RP_PROTO_UNKNOWN)
			announce(t, f, ts);
		if (v != RP_PROTO_UNKNOWN && v != f->proto)
			set_proto(t, f, v, ts);
	}
	return followed(f) || (f->proto == RP_PROTO_UNKNOWN && side != f->server);
}

/* ---- bytes in order ---- */

static void advance(struct half *h, uint64_t n)
{
	h->off += n;
	h->next += (uint32_t)n;
}

static void tell_data(struct rp_tcp *t, const struct flow *f, int side, uint64_t ts,
		      const uint8_t *p, uint32_t len, uint32_t cap, uint32_t call_len,
		      uint32_t call_off)
{
	struct rp_ev_data *d = t->ev;
	size_t size = (sizeof(*d) + cap + 7) & ~(size_t)7;

	memset((uint8_t *)d + size - 8, 0, 8); /* what pads it must not be old text */
	memset(d, 0, sizeof(*d));
	d->h = header(RP_EV_DATA, size, ts);
	d->h.dir = side == f->server ? RP_TX : RP_RX;
	d->h.flags = len > cap ? RP_F_CUT : 0;
	/* no thread, but a name that no other connection has */
	d->h.tid = (uint32_t)f->id | 1u << 31;
	d->conn = f->id;
	d->off = f->h[side].off;
	d->ret_ts = ts;
	d->call_len = call_len;
	d->call_off = call_off;
	d->len = cap;
	d->missing = len - cap;
	d->retrans = f->h[f->server].again;
	if (cap)
		memcpy(d->payload, p, cap);
	tell(t, d);
}

/* A loss that no DATA behind it tells by its offset. */
static void tell_position(struct rp_tcp *t, struct flow *f, int side)
{
	struct half *h = &f->h[side];

	if (!f->announced || !followed(f) || h->told >= h->off)
		return;
	tell_data(t, f, side, h->ts ? h->ts : f->t_established, NULL, 0, 0, 0, 0);
	h->told = h->off;
}

/*
 * Which answer is to which request is known by counting. Where an answer's beginning
 * may be lost, the next one would be taken for it: what is under way must end here,
 * unknown, and reading begin anew.
 */
static void lose_place(struct rp_tcp *t, struct flow *f, uint64_t ts)
{
	f->rx_lost = f->tx_lost = false;
	if (!f->announced || f->proto != RP_PROTO_HTTP1)
		return;
	tell_position(t, f, f->server); /* so that they say it */
	set_proto(t, f, RP_PROTO_OTHER, ts);
	set_proto(t, f, RP_PROTO_HTTP1, ts);
	t->st.lost_place++;
}

static void find_place(struct rp_tcp *t, struct flow *f, int side, const uint8_t *p, uint32_t n,
		       uint64_t ts)
{
	f->unanswered = side != f->server;
	if (!f->unanswered || verdict(word(p, n), n < 8 ? n : 8) != RP_PROTO_HTTP1)
		return;
	/* nobody asks again before the answer is there, but who pipelines */
	if (f->tx_lost)
		lose_place(t, f, ts);
	f->rx_lost = f->tx_lost = false;
}

/* The next `len` bytes of a side, of which `cap` are at p. */
static void deliver(struct rp_tcp *t, struct flow *f, int side, uint64_t ts, const uint8_t *p,
		    uint32_t len, uint32_t cap, uint32_t call_len, uint32_t call_off)
{
	struct half *h = &f->h[side];

	h->ts = ts;
	t->st.cut += len - cap;
	if (f->proto == RP_PROTO_HTTP1)
		find_place(t, f, side, p, cap, ts);
	if (classify(t, f, side, p, cap, ts)) {
		tell_data(t, f, side, ts, p, len, cap, call_len, call_off);
		h->told = h->off + len;
	}
	advance(h, len);
}

static void piece_free(struct rp_tcp *t, struct half *h, struct piece *p)
{
	size_t n = sizeof(*p) + p->cap;

	h->n_q--;
	h->q_bytes -= (uint32_t)n;
	t->q_bytes -= n;
	t->st.memory -= n;
	free(p);
}

static void drop_pieces(struct rp_tcp *t, struct half *h)
{
	struct piece *p;

	while ((p = h->q)) {
		h->q = p->next;
		piece_free(t, h, p);
	}
	h->q_last = NULL;
}

static void hole_add(struct rp_tcp *t, struct flow *f)
{
	if (f->in_holes)
		return;
	f->in_holes = true;
	f->hole_next = NULL;
	f->hole_prev = t->holes_last;
	if (t->holes_last)
		t->holes_last->hole_next = f;
	else
		t->holes = f;
	t->holes_last = f;
}

static void hole_del(struct rp_tcp *t, struct flow *f)
{
	if (!f->in_holes)
		return;
	f->in_holes = false;
	if (f->hole_prev)
		f->hole_prev->hole_next = f->hole_next;
	else
		t->holes = f->hole_next;
	if (f->hole_next)
		f->hole_next->hole_prev = f->hole_prev;
	else
		t->holes_last = f->hole_prev;
}

/* What waits and is in turn now. */
static void drain(struct rp_tcp *t, struct flow *f, int side)
{
	struct half *h = &f->h[side];
	struct piece *p;

	while ((p = h->q) && p->off == h->off) {
		h->q = p->next;
		if (!h->q)
			h->q_last = NULL;
		deliver(t, f, side, p->ts > h->ts ? p->ts : h->ts, p->data, p->len, p->cap,
			p->call_len, p->call_off);
		piece_free(t, h, p);
	}
	if (!h->q)
		h->hole_ts = 0;
	if (h->acked <= h->off)
		h->ack_ts = 0;
	if (h->has_fin && !h->fin_told && h->next == h->fin) {
		h->fin_told = true;
		if (f->server >= 0)
			tell_state(t, f, side == f->server ? RP_LOCAL_FIN : RP_PEER_FIN, 0,
				   h->fin_ts > h->ts ? h->fin_ts : h->ts);
	}
}

static void lost_bytes(struct rp_tcp *t, struct flow *f, int side, uint64_t n, uint64_t ts)
{
	t->st.lost += n;
	advance(&f->h[side], n);
	if (f->server < 0)
		return;
	/* the rest of a request, or another one, whose answer is to come? */
	if (side != f->server)
		f->rx_lost |= !f->unanswered;
	else
		f->tx_lost = true;
	if (f->tx_lost && (f->rx_lost || (f->unanswered && side == f->server)))
		lose_place(t, f, ts);
}

/* The bytes before the next piece never came. */
static void give_up(struct rp_tcp *t, struct flow *f, int side)
{
	struct half *h = &f->h[side];

	lost_bytes(t, f, side, h->q->off - h->off, h->q->ts);
	h->hole_ts = h->q->ts;
	drain(t, f, side);
}

/* The last bytes never came, and nothing behind them did. A FIN that was not seen
 * is acknowledged as if it were a byte. */
static void give_up_tail(struct rp_tcp *t, struct flow *f, int side)
{
	struct half *h = &f->h[side];
	uint64_t n = h->acked > h->off && !h->q ? h->acked - h->off : 0;

	if (n == 1 && !h->has_fin)
		n = 0;
	if (n) {
		lost_bytes(t, f, side, n, h->ack_ts);
		tell_position(t, f, side);
	}
	drain(t, f, side);
}

/* A part of a segment that nothing waiting covers. */
static int piece_add(struct rp_tcp *t, struct half *h, struct piece *after,
		     const struct rp_tcp_seg *s, uint32_t at, uint64_t from, uint64_t to)
{
	uint32_t len = (uint32_t)(to - from);
	uint32_t cap = s->cap > at ? s->cap - at : 0;
	struct piece *p;
	size_t size;

	if (cap > len)
		cap = len;
	size = sizeof(*p) + cap;
	p = malloc(size);
	if (!p) {
		t->st.no_memory++;
		return -ENOMEM;
	}
	*p = (struct piece){
		.off = from, .ts = s->ts, .len = len, .cap = cap, .call_len = s->len, .call_off = at
	};
	if (cap)
		memcpy(p->data, s->payload + at, cap);
	p->next = after ? after->next : h->q;
	if (after)
		after->next = p;
	else
		h->q = p;
	if (!p->next)
		h->q_last = p;
	h->n_q++;
	h->q_bytes += (uint32_t)size;
	t->q_bytes += size;
	t->st.memory += size;
	if (t->st.memory > t->st.memory_max)
		t->st.memory_max = t->st.memory;
	return 0;
}

/* Those of its bytes that are neither told nor waiting. Returns false when some of
 * them came before. seg_off may lie before what was seen first. */
static bool insert(struct rp_tcp *t, struct half *h, const struct rp_tcp_seg *s, int64_t seg_off)
{
	uint64_t at = seg_off > (int64_t)h->off ? (uint64_t)seg_off : h->off;
	uint64_t end = (uint64_t)(seg_off + s->len);
	struct piece *prev = NULL, *p = h->q;
	bool all_new = true;

	if (h->q_last && at >= h->q_last->off + h->q_last->len) {
		prev = h->q_last;
		p = NULL;
	}
	while (at < end) {
		uint64_t to = end;

		while (p && p->off + p->len <= at) {
			prev = p;
			p = p->next;
		}
		if (p && p->off <= at) {
			at = p->off + p->len;
			all_new = false;
			continue;
		}
		if (p && p->off < to)
			to = p->off;
		if (piece_add(t, h, prev, s, (uint32_t)((int64_t)at - seg_off), at, to))
			break;
		prev = prev ? prev->next : h->q;
		at = to;
	}
	return all_new;
}

static void keep_limits(struct rp_tcp *t, struct flow *f, int side)
{
	struct half *h = &f->h[side];
	struct flow *o = t->holes;

	while (h->q && (h->n_q > PIECES_MAX || h->q_bytes > PIECE_BYTES_MAX)) {
		t->st.gave_up++;
		give_up(t, f, side);
	}
	while (t->q_bytes > t->q_max && o) {
		if (!o->h[0].q && !o->h[1].q) {
			o = o->hole_next;
			continue;
		}
		t->st.gave_up++;
		give_up(t, o, o->h[0].q ? 0 : 1);
	}
}

/* The same packet seen a second time, not sent a second time. */
static bool copied(const struct half *h, const struct rp_tcp_seg *s)
{
	return s->seq == h->seen_seq && s->len == h->seen_len &&
	       (!s->has_ip_id || s->ip_id == h->seen_id) &&
	       (s->ts > h->seen_ts ? s->ts - h->seen_ts : h->seen_ts - s->ts) < COPY_NS;
}

static void sync(struct half *h, uint32_t seq)
{
	h->next = seq;
	h->synced = true;
}

static void bytes(struct rp_tcp *t, struct flow *f, int side, const struct rp_tcp_seg *s,
		  uint32_t seq)
{
	struct half *h = &f->h[side];
	int32_t ahead;
	bool copy, fresh;

	if (!h->synced)
		sync(h, seq);
	ahead = (int32_t)(seq - h->next);
	if (ahead == -1 && s->len == 1) {
		t->st.probes++;
		return;
	}
	if (ahead > WINDOW_MAX || (h->fin_told && ahead >= 0)) {
		t->st.strange++;
		return;
	}
	copy = copied(h, s);
	h->seen_seq = s->seq;
	h->seen_len = s->len;
	h->seen_id = s->ip_id;
	h->seen_ts = s->ts;
	fresh = ahead >= 0;
	if (!ahead && !h->q) {
		deliver(t, f, side, s->ts, s->payload, s->len, s->cap, s->len, 0);
		drain(t, f, side);
		return;
	}
	t->st.early += ahead > 0;
	if (ahead + (int64_t)s->len > 0)
		fresh = insert(t, h, s, (int64_t)h->off + ahead) && fresh;
	if (!fresh && !copy) {
		t->st.again++;
		h->again++;
	}
	drain(t, f, side);
	if (h->q) {
		if (!h->hole_ts)
			h->hole_ts = s->ts;
		hole_add(t, f);
		keep_limits(t, f, side);
	}
}

/* ---- lists and limits ---- */

static void list_del(struct rp_tcp *t, struct flow *f)
{
	struct list *l = &t->lists[f->list];

	if (f->older)
		f->older->newer = f->newer;
	else
		l->oldest = f->newer;
	if (f->newer)
		f->newer->older = f->older;
	else
		l->newest = f->older;
	l->n--;
}

static void list_add(struct rp_tcp *t, struct flow *f, enum list_id id)
{
	struct list *l = &t->lists[id];

	f->list = (uint8_t)id;
	f->newer = NULL;
	f->older = l->newest;
	if (l->newest)
		l->newest->newer = f;
	else
		l->oldest = f;
	l->newest = f;
	l->n++;
}

static void list_move(struct rp_tcp *t, struct flow *f, enum list_id id)
{
	if (f->list == id && !f->newer)
		return;
	list_del(t, f);
	list_add(t, f, id);
}

static uint64_t load(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return v;
}

static size_t hash(const struct rp_tcp *t, const uint8_t *a, const uint8_t *b, uint16_t pa,
		   uint16_t pb)
{
	uint64_t v[5] = { load(a), load(a + 8), load(b), load(b + 8), (uint64_t)pa << 16 | pb };
	uint64_t h = t->o.seed;

	for (int i = 0; i < 5; i++) {
		h = (h ^ v[i]) * 0x9e3779b97f4a7c15ULL;
		h ^= h >> 29;
	}
	h *= 0xff51afd7ed558ccdULL;
	return (size_t)(h ^ h >> 33) & (t->n_buckets - 1);
}

/* Both directions are one connection: the lower end is side 0. */
static int side_of(const struct rp_tcp_seg *s)
{
	int d = memcmp(s->src, s->dst, 16);

	return d ? d > 0 : s->sport > s->dport;
}

static struct flow **flow_find(struct rp_tcp *t, const struct rp_tcp_seg *s, int side)
{
	const uint8_t *a = side ? s->dst : s->src, *b = side ? s->src : s->dst;
	uint16_t pa = side ? s->dport : s->sport, pb = side ? s->sport : s->dport;
	struct flow **p = &t->buckets[hash(t, a, b, pa, pb)];

	while (*p && ((*p)->port[0] != pa || (*p)->port[1] != pb || (*p)->family != s->family ||
		      memcmp((*p)->addr[0], a, 16) || memcmp((*p)->addr[1], b, 16)))
		p = &(*p)->hash_next;
	return p;
}

static void flow_free(struct rp_tcp *t, struct flow *f)
{
	struct flow **p = &t->buckets[hash(t, f->addr[0], f->addr[1], f->port[0], f->port[1])];

	while (*p != f)
		p = &(*p)->hash_next;
	*p = f->hash_next;
	drop_pieces(t, &f->h[0]);
	drop_pieces(t, &f->h[1]);
	hole_del(t, f);
	list_del(t, f);
	t->n_flows--;
	t->st.memory -= sizeof(*f);
	free(f);
}

/* The connection is over. Its addresses are remembered for late packets. */
static void flow_done(struct rp_tcp *t, struct flow *f, uint64_t ts)
{
	if (f->list == LIST_DONE)
		return;
	for (int i = 0; i < 2; i++) {
		while (f->h[i].q)
			give_up(t, f, i);
		give_up_tail(t, f, i);
	}
	hole_del(t, f);
	if (f->announced)
		tell_close(t, f, ts);
	list_move(t, f, LIST_DONE);
}

/*
 * Nothing more will be known of this connection. Who ends it isn't seen, so what is
 * under way on it must not end by its CLOSE: from here on it is an unobserved one.
 */
static void lose_sight(struct rp_tcp *t, struct flow *f, uint64_t ts)
{
	if (f->announced && f->list != LIST_DONE && !f->h[0].fin_told && !f->h[1].fin_told) {
		for (int i = 0; i < 2; i++)
			while (f->h[i].q)
				give_up(t, f, i);
		set_proto(t, f, RP_PROTO_OTHER, ts);
	}
	flow_done(t, f, ts);
	flow_free(t, f);
}

/* Make room: those that are over, half-open ones if they are many, the longest idle. */
static void evict(struct rp_tcp *t, uint64_t ts)
{
	struct flow *f = t->lists[LIST_DONE].oldest;

	if (!f && (t->lists[LIST_HALF_OPEN].n > t->max_flows / HALF_OPEN_SHARE ||
		   !t->lists[LIST_OPEN].n)) {
		f = t->lists[LIST_HALF_OPEN].oldest;
		t->st.half_open++;
	}
	if (!f) {
		f = t->lists[LIST_OPEN].oldest;
		t->st.evicted++;
	}
	lose_sight(t, f, ts);
}

static struct flow *flow_new(struct rp_tcp *t, const struct rp_tcp_seg *s, int side)
{
	struct flow *f, **p;

	if (t->n_flows >= t->max_flows)
		evict(t, s->ts);
	f = calloc(1, sizeof(*f));
	if (!f) {
		t->st.no_memory++;
		return NULL;
	}
	f->family = s->family;
	f->port[side] = s->sport;
	f->port[!side] = s->dport;
	memcpy(f->addr[side], s->src, 16);
	memcpy(f->addr[!side], s->dst, 16);
	f->server = -1;
	f->id = ++t->last_id;
	f->rtt_status = RP_RTT_NONE;
	p = flow_find(t, s, side);
	f->hash_next = *p;
	*p = f;
	t->n_flows++;
	t->st.flows++;
	t->st.memory += sizeof(*f);
	if (t->st.memory > t->st.memory_max)
		t->st.memory_max = t->st.memory;
	list_add(t, f, LIST_HALF_OPEN);
	return f;
}

/* ---- the segments ---- */

/* One of the ports, or there is no telling yet. */
static bool wanted(const struct rp_tcp *t, const struct rp_tcp_seg *s)
{
	return !t->o.n_ports || bit(t->given, s->sport) || bit(t->given, s->dport);
}

static void on_syn(struct flow *f, int side, const struct rp_tcp_seg *s)
{
	struct half *h = &f->h[side];
	bool ack = s->flags & RP_TCP_ACK;

	if (h->syn) {
		/* the handshake is going on: sent again, or seen again */
		if (s->ts - h->seen_ts >= COPY_NS || (s->has_ip_id && s->ip_id != h->seen_id))
			f->syn_again = true;
		h->seen_ts = s->ts;
		return;
	}
	h->syn = true;
	h->isn = s->seq;
	h->seen_ts = s->ts;
	h->seen_id = s->ip_id;
	sync(h, s->seq + 1);
	if (ack)
		f->t_synack = s->ts;
	/* of two that open at once neither serves by that */
	if (f->h[0].syn && f->h[1].syn && !f->t_synack)
		f->server = -1;
	else if (f->server < 0)
		f->server = (int8_t)(ack ? side : !side);
}

/*
 * Any segment behind the handshake. The sample runs from SYN-ACK to ACK: the round
 * trip between this point and the client, whatever lies on the server's side.
 */
static void establish(struct rp_tcp *t, struct flow *f, int side, const struct rp_tcp_seg *s)
{
	const struct half *srv = f->server >= 0 ? &f->h[f->server] : NULL;

	f->established = true;
	f->t_established = s->ts;
	list_move(t, f, LIST_OPEN);
	if (!f->h[0].syn && !f->h[1].syn) {
		f->pre = true;
		t->st.midstream++;
	} else if (f->syn_again) {
		f->rtt_status = RP_RTT_RETRANS;
	} else if (!srv || !srv->syn || !f->h[!f->server].syn || !f->t_synack ||
		   side == f->server || s->len || f->early_data || s->flags & RP_TCP_RST ||
		   s->ack != srv->isn + 1 || s->seq != f->h[!f->server].isn + 1 ||
		   s->ts < f->t_synack || s->ts - f->t_synack > UINT32_MAX * 1000ULL) {
		f->rtt_status = RP_RTT_NO_SAMPLE;
	} else {
		f->rtt_status = RP_RTT_HANDSHAKE;
		f->rtt_us = (uint32_t)((s->ts - f->t_synack + 500) / 1000);
	}
	if (!t->o.n_ports)
		return; /* of interest only with a request */
	if (f->server < 0)
		find_roles(t, f, side, s->payload, s->cap);
	if (f->server >= 0 && bit(t->given, f->port[f->server]))
		announce(t, f, s->ts);
	else if (f->server >= 0)
		f->ignored = true; /* the port is the client's */
}

static void on_ack(struct rp_tcp *t, struct flow *f, int side, const struct rp_tcp_seg *s)
{
	struct half *o = &f->h[!side];
	int64_t a;

	if (!o->synced) {
		/* its SYN-ACK was not seen, and nothing of it can have come before this */
		if (f->h[side].syn && !f->pre)
			sync(o, s->ack);
		return;
	}
	a = (int64_t)o->off + (int32_t)(s->ack - o->next);
	if (o->has_fin && s->ack == o->fin + 1) {
		o->fin_acked = true;
		a--;
	}
	if (a <= (int64_t)o->acked || (int32_t)(s->ack - o->next) > WINDOW_MAX)
		return;
	o->acked = (uint64_t)a;
	if (o->acked > o->off) {
		if (!o->ack_ts)
			o->ack_ts = s->ts;
		hole_add(t, f);
	}
}

/*
 * Give up what the receiver has got and this capture has not. At once when the
 * receiver speaks: what it says may be the answer.
 */
static void settle(struct rp_tcp *t, struct flow *f, uint64_t ts, int speaks)
{
	for (int i = 0; i < 2; i++) {
		struct half *h = &f->h[i];

		while (h->q) {
			bool acked = h->acked >= h->q->off;
			bool late = ts > h->hole_ts && ts - h->hole_ts > HOLE_NS;

			if (!late && (!acked || (speaks != !i &&
						 (ts < h->ack_ts || ts - h->ack_ts < REORDER_NS))))
				break;
			t->st.gave_up += late && !acked;
			give_up(t, f, i);
		}
		if (speaks == !i)
			give_up_tail(t, f, i);
	}
}

static void on_rst(struct rp_tcp *t, struct flow *f, int side, const struct rp_tcp_seg *s)
{
	struct half *h = &f->h[side];
	int32_t ahead = (int32_t)(s->seq - h->next);

	if (h->synced && !f->ignored && (ahead < -RST_BEHIND || ahead > WINDOW_MAX)) {
		t->st.strange++;
		return;
	}
	for (int i = 0; i < 2; i++) {
		while (f->h[i].q)
			give_up(t, f, i);
		give_up_tail(t, f, i);
	}
	if (f->server >= 0)
		tell_state(t, f, side == f->server ? RP_LOCAL_RST : RP_PEER_RST, ECONNRESET, s->ts);
	flow_done(t, f, s->ts);
}

static void on_fin(struct rp_tcp *t, struct flow *f, int side, const struct rp_tcp_seg *s)
{
	struct half *h = &f->h[side];

	int32_t ahead;

	if (h->has_fin)
		return;
	if (!h->synced)
		sync(h, s->seq + s->len);
	ahead = (int32_t)(s->seq + s->len - h->next);
	if (!f->ignored && (ahead < 0 || ahead > WINDOW_MAX)) {
		t->st.strange++;
		return;
	}
	h->has_fin = true;
	h->fin = s->seq + s->len;
	h->fin_ts = s->ts;
	/* it was acknowledged before it was seen */
	if (h->acked == h->off + (uint32_t)ahead + 1) {
		h->fin_acked = true;
		h->acked--;
	}
	drain(t, f, side);
}

/* Both have closed, and know it. */
static bool over(const struct flow *f)
{
	const struct half *a = &f->h[0], *b = &f->h[1];

	if (f->ignored)
		return a->has_fin && b->has_fin;
	return a->fin_told && b->fin_told && a->fin_acked && b->fin_acked;
}

/* A SYN that is not of the connection its addresses belong to? */
static bool new_life(const struct flow *f, int side, const struct rp_tcp_seg *s)
{
	const struct half *h = &f->h[side];

	if (h->syn)
		return s->seq != h->isn;
	/* a SYN-ACK in turn, or captured behind its ACK */
	if (s->flags & RP_TCP_ACK && f->list != LIST_DONE &&
	    (!f->established || (!f->pre && !h->off && s->seq + 1 == h->next)))
		return false;
	return f->established || f->list == LIST_DONE;
}

int rp_tcp_segment(struct rp_tcp *t, const struct rp_tcp_seg *s)
{
	int side = side_of(s);
	bool syn = s->flags & RP_TCP_SYN, rst = s->flags & RP_TCP_RST;
	struct flow *f;

	t->st.segments++;
	if (s->len > RP_TCP_SEG_MAX || s->cap > s->len || (syn && rst)) {
		t->st.strange++;
		return t->err;
	}
	if (!wanted(t, s))
		return t->err;
	f = *flow_find(t, s, side);
	if (f && syn && new_life(f, side, s)) {
		/* the addresses are used again: whatever was there is over */
		t->st.reused += f->list != LIST_DONE;
		lose_sight(t, f, s->ts);
		f = NULL;
	}
	if (!f) {
		/* what carries nothing starts nothing */
		if ((!syn && !s->len) || rst)
			return t->err;
		f = flow_new(t, s, side);
		if (!f)
			return t->err;
	}
	f->last = s->ts;
	list_move(t, f, f->list);
	if (f->list == LIST_DONE)
		return t->err;
	if (syn) {
		on_syn(f, side, s);
		f->early_data |= s->len > 0;
	} else if (!f->established && !rst) {
		/* of the client's SYN nothing is known by what a stranger says */
		establish(t, f, side, s);
	}
	if (s->flags & RP_TCP_ACK && !rst)
		on_ack(t, f, side, s);
	if (f->in_holes)
		settle(t, f, s->ts, s->len ? side : -1);
	if (s->len && !rst && !f->ignored)
		bytes(t, f, side, s, s->seq + syn);
	if (rst)
		on_rst(t, f, side, s);
	else if (s->flags & RP_TCP_FIN)
		on_fin(t, f, side, s);
	if (f->ignored) {
		drop_pieces(t, &f->h[0]);
		drop_pieces(t, &f->h[1]);
	}
	if (over(f))
		flow_done(t, f, s->ts);
	return t->err;
}

int rp_tcp_tick(struct rp_tcp *t, uint64_t ts)
{
	struct flow *f, *next;

	for (f = t->holes; f; f = next) {
		bool wait = false;

		next = f->hole_next;
		settle(t, f, ts, -1);
		for (int i = 0; i < 2; i++) {
			struct half *h = &f->h[i];

			if (h->q || (h->ack_ts && ts < h->ack_ts + TAIL_NS))
				wait = true;
			else
				give_up_tail(t, f, i);
		}
		if (over(f))
			flow_done(t, f, ts);
		else if (!wait)
			hole_del(t, f);
	}
	while ((f = t->lists[LIST_DONE].oldest) && f->last + DONE_NS < ts)
		flow_free(t, f);
	while ((f = t->lists[LIST_HALF_OPEN].oldest) && f->last + HALF_OPEN_NS < ts)
		lose_sight(t, f, ts);
	return t->err;
}

int rp_tcp_finish(struct rp_tcp *t)
{
	struct flow *f;

	for (f = t->holes; f; f = f->hole_next) {
		for (int i = 0; i < 2; i++) {
			while (f->h[i].q)
				give_up(t, f, i);
			give_up_tail(t, f, i);
		}
	}
	return t->err;
}

/* ---- life ---- */

struct rp_tcp *rp_tcp_new(const struct rp_tcp_opts *o)
{
	struct rp_tcp *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->o = *o;
	t->max_flows = o->memory / 2 / (sizeof(struct flow) + 2 * sizeof(*t->buckets));
	if (o->max_flows && o->max_flows < t->max_flows)
		t->max_flows = o->max_flows;
	if (!t->max_flows)
		t->max_flows = 1;
	t->q_max = o->memory / 2;
	for (t->n_buckets = 64; t->n_buckets < t->max_flows; t->n_buckets *= 2)
		;
	t->buckets = calloc(t->n_buckets, sizeof(*t->buckets));
	t->ev = malloc(sizeof(*t->ev) + RP_TCP_SEG_MAX + 8);
	if (!t->buckets || !t->ev) {
		free(t->buckets);
		free(t->ev);
		free(t);
		return NULL;
	}
	t->st.memory = t->st.memory_max = t->n_buckets * sizeof(*t->buckets);
	for (unsigned i = 0; i < o->n_ports; i++)
		set_bit(t->given, o->ports[i]);
	t->o.ports = NULL;
	return t;
}

const struct rp_tcp_stats *rp_tcp_stats(const struct rp_tcp *t)
{
	return &t->st;
}

void rp_tcp_free(struct rp_tcp *t)
{
	struct flow *f, *next;

	if (!t)
		return;
	for (int i = 0; i < LIST_COUNT; i++) {
		for (f = t->lists[i].oldest; f; f = next) {
			next = f->newer;
			flow_free(t, f);
		}
	}
	free(t->buckets);
	free(t->ev);
	free(t);
}
