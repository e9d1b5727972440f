// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Segments in, events out: order, loss, roles, limits. */
#include "util.h"

#include <sys/socket.h>

#include "source/tcp.h"

#define MS 1000000ULL

struct tap {
	struct rp_tcp *t;
	struct log log;
	struct log bytes[2]; /* of the newest connection: what DATA brought */
	uint64_t end[2], lost[2];
	uint64_t now;
	unsigned opens, closes, datas;
	int refuse;
	bool many; /* connections at once: only counted */
};

static int on_event(void *ctx, const struct rp_event_hdr *ev)
{
	static const char *const states[] = { "?", "peer-fin", "local-fin", "peer-rst",
					      "local-rst" };
	struct tap *p = ctx;

	assert_int_equal(ev->size % 8, 0);
	if (p->refuse)
		return p->refuse;
	if (p->many) {
		p->opens += ev->type == RP_EV_CONN_OPEN;
		p->closes += ev->type == RP_EV_CONN_CLOSE;
		return 0;
	}
	switch (ev->type) {
	case RP_EV_DATA: {
		const struct rp_ev_data *d = (const void *)ev;
		bool tx = d->h.dir == RP_TX;

		p->datas++;
		assert_true(d->off >= p->end[tx]);
		assert_true(sizeof(*d) + d->len <= ev->size);
		assert_true(d->call_off + d->len + d->missing <= d->call_len || !d->call_len);
		p->lost[tx] += d->off - p->end[tx];
		p->end[tx] = d->off + d->len + d->missing;
		log_bytes(&p->bytes[tx], d->payload, d->len);
		log_add(&p->log, "%s@%llu+%u", tx ? "tx" : "rx", (unsigned long long)d->off,
			d->len);
		if (d->missing)
			log_add(&p->log, "-%u", d->missing);
		log_add(&p->log, "/%llu ", (unsigned long long)(d->h.ts / MS));
		break;
	}
	case RP_EV_CONN_OPEN: {
		const struct rp_ev_conn_open *o = (const void *)ev;

		p->opens++;
		memset(p->end, 0, sizeof(p->end));
		log_add(&p->log, "open:%u<%u%s,%u,%u ", o->lport, o->rport,
			ev->flags & RP_F_PRE_ATTACH ? "*" : "", o->rtt_status, o->rtt_us);
		break;
	}
	case RP_EV_CONN_PROTO:
		log_add(&p->log, "proto:%u ",
			((const struct rp_ev_conn_proto *)(const void *)ev)->proto);
		break;
	case RP_EV_CONN_STATE:
		log_add(&p->log, "%s/%llu ",
			states[((const struct rp_ev_conn_state *)(const void *)ev)->what],
			(unsigned long long)(ev->ts / MS));
		break;
	case RP_EV_CONN_CLOSE: {
		const struct rp_ev_conn_close *c = (const void *)ev;

		p->closes++;
		log_add(&p->log, "close:%llu,%llu,%u ", (unsigned long long)c->rx,
			(unsigned long long)c->tx, c->retrans);
		break;
	}
	case RP_EV_LISTENER:
		log_add(&p->log, "listen:%u ",
			((const struct rp_ev_listener *)(const void *)ev)->port);
		break;
	default:
		fail();
	}
	return 0;
}

static struct tap *tap_opts(struct rp_tcp_opts o)
{
	struct tap *p = calloc(1, sizeof(*p));

	o.fn = on_event;
	o.ctx = p;
	if (!o.memory)
		o.memory = 4 << 20;
	p->t = rp_tcp_new(&o);
	assert_non_null(p->t);
	p->now = 1000 * MS;
	return p;
}

static struct tap *tap(void)
{
	return tap_opts((struct rp_tcp_opts){ 0 });
}

static void tap_end(struct tap *p, const char *want)
{
	rp_tcp_finish(p->t);
	if (want)
		same_text("events", &p->log, want);
	rp_tcp_free(p->t);
	free(p->log.s);
	free(p->bytes[0].s);
	free(p->bytes[1].s);
	free(p);
}

/* One end of the wire. */
struct end {
	uint32_t seq, ack;
};

struct wire {
	struct tap *p;
	struct end c, s;
	uint16_t cport, sport;
	uint16_t id; /* of IPv4; 0: none */
};

static void put_at(struct wire *w, bool from_server, uint64_t ms, uint8_t flags, uint32_t seq,
		   uint32_t ack, const void *data, uint32_t len, uint32_t cap)
{
	uint8_t *copy = guard_buf(0, cap);
	struct rp_tcp_seg s = {
		.ts = ms * MS,
		.family = AF_INET,
		.sport = from_server ? w->sport : w->cport,
		.dport = from_server ? w->cport : w->sport,
		.src = { 10, 0, 0, from_server ? 1 : 7 },
		.dst = { 10, 0, 0, from_server ? 7 : 1 },
		.flags = flags,
		.seq = seq,
		.ack = ack,
		.len = len,
		.cap = cap,
		.payload = copy,
		.has_ip_id = w->id != 0,
		.ip_id = w->id,
	};

	if (cap)
		memcpy(copy, data, cap);
	rp_tcp_segment(w->p->t, &s);
}

/* In turn: the other side is told to expect it. */
static void put(struct wire *w, bool from_server, uint64_t ms, uint8_t flags, const char *text)
{
	struct end *me = from_server ? &w->s : &w->c, *you = from_server ? &w->c : &w->s;
	uint32_t n = (uint32_t)strlen(text);

	put_at(w, from_server, ms, flags, me->seq, flags & RP_TCP_ACK ? you->seq : 0, text, n, n);
	me->seq += n + !!(flags & RP_TCP_SYN) + !!(flags & RP_TCP_FIN);
}

static struct wire wire(struct tap *p, uint32_t isn_c, uint32_t isn_s)
{
	return (struct wire){
		.p = p, .c = { .seq = isn_c }, .s = { .seq = isn_s }, .cport = 40000, .sport = 8000
	};
}

static void shake(struct wire *w)
{
	put(w, false, 1, RP_TCP_SYN, "");
	put(w, true, 1, RP_TCP_SYN | RP_TCP_ACK, "");
	put(w, false, 3, RP_TCP_ACK, "");
}

#define OPEN "listen:8000 open:8000<40000,1,2000 proto:1 "

static void in_order(void **state)
{
	struct wire w = wire(tap(), 0xfffffffe, 0xffffffff); /* both wrap at once */

	(void)state;
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "GET / ");
	put(&w, false, 6, RP_TCP_ACK, "HTTP/1.1");
	put(&w, true, 9, RP_TCP_ACK, "HTTP/1.1 200");
	put(&w, false, 9, RP_TCP_ACK, "");
	put(&w, true, 10, RP_TCP_FIN | RP_TCP_ACK, "bye");
	put(&w, false, 11, RP_TCP_FIN | RP_TCP_ACK, "");
	put(&w, true, 12, RP_TCP_ACK, "");
	tap_end(w.p, OPEN "rx@0+6/5 rx@6+8/6 tx@0+12/9 tx@12+3/10 local-fin/10 peer-fin/11 "
			  "close:14,15,0 ");
}

static void late_and_twice(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	/* the second before the first; then the first; then both again, garbled */
	put_at(&w, true, 7, RP_TCP_ACK, 206, 115, "fghij", 5, 5);
	put_at(&w, true, 8, RP_TCP_ACK, 201, 115, "abcde", 5, 5);
	put_at(&w, true, 300, RP_TCP_ACK, 201, 115, "XXXXXXXXXX", 10, 10);
	/* overlaps on both sides of what waits; the FIN waits with it */
	put_at(&w, true, 310, RP_TCP_ACK, 213, 115, "no", 2, 2);
	put_at(&w, true, 311, RP_TCP_FIN | RP_TCP_ACK, 212, 115, "mNOpq", 5, 5);
	put_at(&w, true, 312, RP_TCP_ACK, 209, 115, "XXklMNO", 7, 7);
	tap_end(w.p, OPEN "rx@0+14/5 tx@0+5/8 tx@5+5/8 tx@10+1/312 tx@11+1/312 tx@12+2/312 "
			  "tx@14+2/312 local-fin/312 ");
}

/* Any cutting of a stream, sent in any order within a window, with repeats that are
 * garbled: the bytes arrive as they were. */
static void any_order(void **state)
{
	uint32_t seed = 12345;

	(void)state;
	for (int round = 0; round < 400; round++) {
		struct wire w = wire(tap(), rnd(&seed), rnd(&seed));
		struct {
			uint32_t at, n;
			bool copy;
		} seg[400], x;
		enum { N = 3000 };
		uint8_t body[N], junk[N];
		unsigned n = 0;
		uint32_t at = 0;

		for (unsigned i = 0; i < N; i++)
			body[i] = (uint8_t)rnd(&seed);
		memcpy(body, "HTTP/1.1", 8);
		memset(junk, '?', sizeof(junk));
		shake(&w);
		put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
		while (at < N) {
			uint32_t len = 1 + rnd(&seed) % 100;

			if (len > N - at)
				len = N - at;
			seg[n].at = at;
			seg[n].n = len;
			seg[n++].copy = false;
			at += len;
		}
		/* repeats go behind what they repeat */
		for (unsigned i = 0; i + 8 < n; i++) {
			unsigned k = i + rnd(&seed) % 4;

			x = seg[i];
			seg[i] = seg[k];
			seg[k] = x;
		}
		for (unsigned i = 0; i < n; i++) {
			put_at(&w, true, 10 + i, RP_TCP_ACK, w.s.seq + seg[i].at, w.c.seq,
			       body + seg[i].at, seg[i].n, seg[i].n);
			if (rnd(&seed) % 3 == 0)
				put_at(&w, true, 10 + i, RP_TCP_ACK, w.s.seq + seg[i].at, w.c.seq,
				       junk, seg[i].n, seg[i].n);
		}
		assert_int_equal(w.p->bytes[1].n, N);
		assert_memory_equal(w.p->bytes[1].s, body, N);
		assert_int_equal(rp_tcp_stats(w.p->t)->lost, 0);
		tap_end(w.p, NULL);
	}
}

static void lost_and_acknowledged(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	put(&w, true, 6, RP_TCP_ACK, "HTTP/1.1");
	w.s.seq += 1000; /* never seen */
	put(&w, true, 7, RP_TCP_ACK, "behind");
	assert_int_equal(w.p->end[1], 8);
	put(&w, false, 8, RP_TCP_ACK, ""); /* the client has it: the capture has not */
	put(&w, false, 40, RP_TCP_ACK, "");
	assert_int_equal(w.p->lost[1], 1000);
	w.s.seq += 500; /* the last bytes, too */
	put(&w, false, 50, RP_TCP_ACK, "");
	rp_tcp_tick(w.p->t, 100 * MS);
	assert_int_equal(w.p->lost[1], 1000);
	rp_tcp_tick(w.p->t, 300 * MS);
	assert_int_equal(w.p->lost[1], 1500);
	/* a request that acknowledges the unseen end of an answer, and is itself seen */
	w.s.seq += 70;
	put(&w, false, 310, RP_TCP_ACK, "GET / HTTP/1.1");
	assert_int_equal(w.p->lost[1], 1570);
	assert_int_equal(rp_tcp_stats(w.p->t)->lost, 1570);
	tap_end(w.p, OPEN "rx@0+14/5 tx@0+8/6 tx@1008+6/7 tx@1514+0/7 tx@1584+0/7 proto:4 proto:1 "
			  "rx@14+14/310 ");
}

/* What is acknowledged may have been captured late: it is waited for a little. */
static void acknowledged_first(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	put_at(&w, true, 6, RP_TCP_ACK, 209, 115, "behind", 6, 6);
	put_at(&w, false, 7, RP_TCP_ACK, 115, 215, "", 0, 0);
	put_at(&w, true, 26, RP_TCP_ACK, 201, 115, "HTTP/1.1", 8, 8);
	put_at(&w, true, 100, RP_TCP_ACK, 219, 115, "more", 4, 4);
	put_at(&w, false, 101, RP_TCP_ACK, 115, 223, "", 0, 0);
	put_at(&w, false, 120, RP_TCP_ACK, 115, 223, "", 0, 0);
	assert_int_equal(w.p->end[1], 14);
	put_at(&w, false, 121, RP_TCP_ACK, 115, 223, "", 0, 0);
	assert_int_equal(w.p->end[1], 22);
	/* and what waits at the capture's end is told */
	put_at(&w, true, 130, RP_TCP_ACK, 230, 115, "end", 3, 3);
	tap_end(w.p, OPEN "rx@0+14/5 tx@0+8/26 tx@8+6/26 tx@18+4/100 tx@29+3/130 ");
}

static void sent_again(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	put(&w, false, 1, RP_TCP_SYN, "");
	put_at(&w, false, 1, RP_TCP_SYN, 100, 0, "", 0, 0); /* seen twice, and sent twice */
	put_at(&w, false, 2, RP_TCP_SYN, 100, 0, "", 0, 0);
	put(&w, true, 2, RP_TCP_SYN | RP_TCP_ACK, "");
	put(&w, false, 3, RP_TCP_ACK, "");
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	put_at(&w, true, 6, RP_TCP_ACK, 209, 115, "behind", 6, 6);
	put_at(&w, true, 6, RP_TCP_ACK, 209, 115, "behind", 6, 6);
	put_at(&w, true, 8, RP_TCP_ACK, 209, 115, "behind", 6, 6);
	put_at(&w, true, 8, RP_TCP_ACK, 207, 115, ".1be", 4, 4);
	put_at(&w, true, 8, RP_TCP_ACK, 201, 115, "HTTP/1", 6, 6);
	put_at(&w, true, 9, RP_TCP_ACK, 201, 115, "HTTP/1", 6, 6);
	put_at(&w, true, 10, RP_TCP_RST, 215, 0, "", 0, 0);
	assert_int_equal(rp_tcp_stats(w.p->t)->again, 3);
	/* at the same instant: a number of its own tells that it was sent */
	for (unsigned i = 0; i < 2; i++) {
		w.cport++;
		w.c.seq = 100;
		w.s.seq = 200;
		w.id = 5;
		put(&w, false, 11, RP_TCP_SYN, "");
		w.id = i ? 6 : 5;
		put_at(&w, false, 11, RP_TCP_SYN, 100, 0, "", 0, 0);
		put(&w, true, 11, RP_TCP_SYN | RP_TCP_ACK, "");
		put(&w, false, 12, RP_TCP_ACK, "");
		w.id = 7;
		put(&w, false, 13, RP_TCP_ACK, "GET / HTTP/1.1");
		put(&w, true, 14, RP_TCP_ACK, "HTTP/1.1");
		w.id = i ? 8 : 7;
		put_at(&w, true, 14, RP_TCP_ACK, 201, 115, "HTTP/1.1", 8, 8);
		put_at(&w, true, 15, RP_TCP_RST, 209, 0, "", 0, 0);
	}
	tap_end(w.p,
		"listen:8000 open:8000<40000,2,0 proto:1 rx@0+14/5 tx@0+6/8 tx@6+2/8 "
		"tx@8+6/8 local-rst/10 close:14,14,3 "
		"open:8000<40001,1,1000 proto:1 rx@0+14/13 tx@0+8/14 local-rst/15 close:14,8,0 "
		"open:8000<40002,2,0 proto:1 rx@0+14/13 tx@0+8/14 local-rst/15 close:14,8,1 ");
}

/* What is held is told before the end, on either side. */
static void reset_over_holes(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "POST / HTTP/1.1");
	put_at(&w, true, 6, RP_TCP_ACK, 209, 116, "behind", 6, 6);
	put_at(&w, false, 7, RP_TCP_ACK, 120, 201, "body", 4, 4);
	put_at(&w, false, 8, RP_TCP_RST, 124, 0, "", 0, 0);
	tap_end(w.p, OPEN "rx@0+15/5 tx@8+6/6 proto:4 proto:1 rx@19+4/7 peer-rst/8 close:23,14,0 ");
}

/* The end is acknowledged by a packet that was captured before it. */
static void end_acknowledged_first(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	put_at(&w, false, 8, RP_TCP_ACK, 115, 205, "", 0, 0);
	put(&w, true, 9, RP_TCP_FIN | RP_TCP_ACK, "bye");
	put(&w, false, 10, RP_TCP_FIN | RP_TCP_ACK, "");
	put(&w, true, 11, RP_TCP_ACK, "");
	tap_end(w.p, OPEN "rx@0+14/5 tx@0+3/9 local-fin/9 peer-fin/10 close:14,3,0 ");

	/* what came before it is lost */
	w = wire(tap(), 100, 200);
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	w.s.seq += 500;
	put(&w, true, 9, RP_TCP_FIN | RP_TCP_ACK, "");
	put(&w, false, 10, RP_TCP_FIN | RP_TCP_ACK, "");
	put(&w, true, 11, RP_TCP_ACK, "");
	rp_tcp_tick(w.p->t, 300 * MS);
	tap_end(w.p, OPEN "rx@0+14/5 peer-fin/10 tx@500+0/3 local-fin/9 close:14,500,0 ");
}

static void of_no_interest(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	/* an acknowledgement begins nothing */
	put(&w, false, 1, RP_TCP_ACK, "");
	assert_int_equal(rp_tcp_stats(w.p->t)->flows, 0);
	/* encrypted: neither bytes nor their loss */
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "\x16\x03\x01");
	put(&w, true, 6, RP_TCP_ACK, "\x16\x03\x01");
	w.s.seq += 500;
	put(&w, false, 7, RP_TCP_ACK, "");
	rp_tcp_tick(w.p->t, 300 * MS);
	assert_int_equal(rp_tcp_stats(w.p->t)->lost, 500);
	tap_end(w.p, "listen:8000 open:8000<40000,1,2000 proto:2 ");

	/* what the server says first is no answer */
	w = wire(tap(), 100, 200);
	shake(&w);
	put(&w, true, 4, RP_TCP_ACK, "220 hi");
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	put(&w, true, 6, RP_TCP_ACK, "HTTP/1.1");
	tap_end(w.p, OPEN "rx@0+14/5 tx@6+8/6 ");
}

/* Bytes of an answer are lost: its request goes on, and the next one is in doubt. */
static void place(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "POST / HTTP/1.1");
	put(&w, true, 6, RP_TCP_ACK, "HTTP/1.1");
	w.s.seq += 10;
	put(&w, false, 7, RP_TCP_ACK, "the body's rest");
	assert_int_equal(rp_tcp_stats(w.p->t)->lost_place, 0);
	put(&w, true, 8, RP_TCP_ACK, "the answer's");
	put(&w, false, 9, RP_TCP_ACK, "GET / HTTP/1.1");
	assert_int_equal(rp_tcp_stats(w.p->t)->lost_place, 1);
	put(&w, true, 10, RP_TCP_ACK, "HTTP/1.1");
	put(&w, false, 11, RP_TCP_ACK, "GET / HTTP/1.1");
	tap_end(w.p, OPEN "rx@0+15/5 tx@0+8/6 tx@18+0/6 rx@15+15/7 tx@18+12/8 proto:4 proto:1 "
			  "rx@30+14/9 tx@30+8/10 rx@44+14/11 ");
}

static void not_captured(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	shake(&w);
	put_at(&w, false, 5, RP_TCP_ACK, 101, 201, "GET / HTTP/1.1", 300, 14);
	put_at(&w, true, 6, RP_TCP_ACK, 201, 401, "HTTP/1.1 200", 1000, 12);
	put_at(&w, true, 7, RP_TCP_ACK, 1201, 401, "", 50, 0);
	assert_int_equal(rp_tcp_stats(w.p->t)->cut, 286 + 988 + 50);
	tap_end(w.p, OPEN "rx@0+14-286/5 tx@0+12-988/6 tx@1000+0-50/7 ");
}

static void handshakes(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	/* the ACK comes with the request: the client's own time is in it */
	put(&w, false, 1, RP_TCP_SYN, "");
	put(&w, true, 1, RP_TCP_SYN | RP_TCP_ACK, "");
	put(&w, false, 90, RP_TCP_ACK, "GET / HTTP/1.1");
	/* fast open: data with the SYN */
	w.cport++;
	w.c.seq = 5000;
	put(&w, false, 91, RP_TCP_SYN, "GET / ");
	put(&w, true, 91, RP_TCP_SYN | RP_TCP_ACK, "");
	put(&w, false, 92, RP_TCP_ACK, "HTTP/1.1");
	tap_end(w.p, "listen:8000 open:8000<40000,3,0 proto:1 rx@0+14/90 "
		     "open:8000<40001,0,0 proto:1 rx@0+6/91 rx@6+8/92 ");
}

static void ends(void **state)
{
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	/* probes: an old byte, and none */
	put_at(&w, false, 6, RP_TCP_ACK, 114, 201, "z", 1, 1);
	put_at(&w, false, 6, RP_TCP_ACK, 114, 201, "", 0, 0);
	/* resets and a FIN of another life */
	put_at(&w, true, 7, RP_TCP_RST, 201 + (1u << 31), 0, "", 0, 0);
	put_at(&w, true, 7, RP_TCP_RST | RP_TCP_ACK, 201 - (1u << 20), 115, "", 0, 0);
	put_at(&w, true, 7, RP_TCP_FIN | RP_TCP_ACK, 201 - 5000, 115, "", 0, 0);
	/* half closed, then reset */
	put(&w, false, 8, RP_TCP_FIN | RP_TCP_ACK, "");
	put(&w, true, 9, RP_TCP_ACK, "HTTP/1.1");
	put_at(&w, false, 10, RP_TCP_RST, 116, 0, "", 0, 0);
	/* late packets of it are nothing new; a new SYN is */
	put(&w, true, 11, RP_TCP_ACK, "more");
	assert_int_equal(rp_tcp_stats(w.p->t)->strange, 3);
	assert_int_equal(rp_tcp_stats(w.p->t)->probes, 1);
	w.c.seq = 7000;
	w.s.seq = 9000;
	put(&w, false, 21, RP_TCP_SYN, "");
	put(&w, true, 21, RP_TCP_SYN | RP_TCP_ACK, "");
	put(&w, false, 23, RP_TCP_ACK, "");
	put(&w, false, 25, RP_TCP_ACK, "GET / HTTP/1.1");
	/* and again, though it was not over: nobody knows how it ended */
	w.c.seq = 17000;
	put(&w, false, 31, RP_TCP_SYN, "");
	assert_int_equal(rp_tcp_stats(w.p->t)->reused, 1);
	tap_end(w.p, OPEN "rx@0+14/5 peer-fin/8 tx@0+8/9 peer-rst/10 close:14,8,0 "
			  "open:8000<40000,1,2000 proto:1 rx@0+14/25 proto:4 close:14,0,0 ");
}

static void roles(void **state)
{
	uint16_t port = 8000;
	struct wire w = wire(tap(), 100, 200);

	(void)state;
	/* in mid-stream nothing is known until there is a request */
	put(&w, true, 5, RP_TCP_ACK, "GET no such luck\r\n");
	put(&w, true, 6, RP_TCP_ACK, "data: POST /v1 HTTP/1.1\r\n");
	put(&w, false, 7, RP_TCP_ACK, "POST /v1 HTTP/1.1\r\n");
	put(&w, true, 8, RP_TCP_ACK, "HTTP/1.1");
	/* another one of the same server: its port is known now */
	w.cport++;
	put(&w, true, 9, RP_TCP_ACK, "data: x");
	put(&w, false, 10, RP_TCP_ACK, "half a request");
	put(&w, false, 11, RP_TCP_ACK, "GET / HTTP/1.1");
	tap_end(w.p, "listen:8000 open:8000<40000*,0,0 proto:1 rx@0+19/7 tx@43+8/8 "
		     "open:8000<40001*,0,0 proto:5 tx@0+7/9 rx@0+14/10 proto:1 rx@14+14/11 ");

	/* with a port: from the first packet, and nothing else */
	w = wire(tap_opts((struct rp_tcp_opts){ .ports = &port, .n_ports = 1 }), 100, 200);
	put(&w, true, 5, RP_TCP_ACK, "data: x");
	w.sport = 9000;
	put(&w, false, 6, RP_TCP_ACK, "POST /v1 HTTP/1.1\r\n");
	w.sport = 9001;
	w.cport = 8000; /* a client's own port */
	shake(&w);
	put(&w, false, 7, RP_TCP_ACK, "POST /v1 HTTP/1.1\r\n");
	tap_end(w.p, "listen:8000 open:8000<40000*,0,0 proto:5 tx@0+7/5 ");
}

static void verdicts(void **state)
{
	static const struct {
		const char *first;
		unsigned n;
		int proto; /* -1: not told of; 0: not yet clear */
	} table[] = {
		{ "POST /", 6, 1 },    { "GET ", 4, 1 },
		{ "HEAD /", 6, 1 },    { "OPTIONS *", 9, 1 },
		{ "PUT /", 5, 1 },     { "DELETE /", 8, 1 },
		{ "PATCH /", 7, 1 },   { "CONNECT a", 9, 1 },
		{ "TRACE /", 7, 1 },   { "\r\n\nGET /", 8, 1 },
		{ "G", 1, 0 },	       { "OPTION", 6, 0 },
		{ "\r\n", 2, 0 },      { "PRI * HTTP/2", 12, 3 },
		{ "PRI * H", 7, 0 },   { "\x16\x03\x01", 3, 2 },
		{ "\x17\x03", 2, 2 },  { "\x16", 1, 0 },
		{ "\x16\x02", 2, -1 }, { "get /", 5, -1 },
		{ "SSH-2", 5, -1 },    { "GET\t/", 5, -1 },
		{ "\xff", 1, -1 },     { "POSTS", 5, -1 },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(table); i++) {
		struct wire w = wire(tap(), 100, 200);
		char want[64] = "";

		shake(&w);
		put_at(&w, false, 5, RP_TCP_ACK, 101, 201, table[i].first, table[i].n, table[i].n);
		if (table[i].proto >= 0)
			strcat(want, "listen:8000 open:8000<40000,1,2000 ");
		if (table[i].proto > 0)
			sprintf(want + strlen(want), "proto:%d ", table[i].proto);
		if (table[i].proto == 0 || table[i].proto == 1)
			sprintf(want + strlen(want), "rx@0+%u/5 ", table[i].n);
		tap_end(w.p, want);
	}
}

/* Whatever comes: no more memory than was given, and the newest is followed. */
static void limits(void **state)
{
	struct wire w = wire(tap_opts((struct rp_tcp_opts){ .memory = 256 << 10 }), 100, 200);
	const struct rp_tcp_stats *st = rp_tcp_stats(w.p->t);
	static char big[60000];
	uint32_t seed = 77;

	(void)state;
	w.p->many = true;
	memset(big, 'x', sizeof(big));
	for (unsigned i = 0; i < 20000; i++) { /* a flood of SYNs */
		w.cport = (uint16_t)(i * 7 + 1024);
		w.c.seq = i;
		put(&w, false, 1 + i / 100, RP_TCP_SYN, "");
	}
	assert_true(st->half_open > 15000 && st->evicted == 0 && w.p->opens == 0);
	assert_true(st->memory_max <= 256 << 10);
	for (unsigned i = 0; i < 5000; i++) { /* connections that stay open */
		w.cport = (uint16_t)(i * 3 + 1024);
		w.c.seq = 100 + i;
		w.s.seq = 200 + i;
		shake(&w);
		put(&w, false, 300 + i, RP_TCP_ACK, "GET / HTTP/1.1");
		/* each with a hole that nobody acknowledges */
		put_at(&w, false, 300 + i, RP_TCP_ACK, w.c.seq + 1000 + rnd(&seed) % 9999, 0, big,
		       1000, 1000);
	}
	assert_int_equal(w.p->opens, 5000);
	assert_true(st->evicted > 4000 && w.p->closes == st->evicted);
	assert_true(st->gave_up > 0);
	assert_true(st->memory_max <= (256 << 10) + 2000);
	/* one connection alone gets no more than its share */
	w.cport = 999;
	shake(&w);
	put(&w, false, 9000, RP_TCP_ACK, "GET / HTTP/1.1");
	for (unsigned i = 0; i < 3000; i++)
		put_at(&w, false, 9000, RP_TCP_ACK, w.c.seq + 10 + i * 70000, 0, big, sizeof(big),
		       sizeof(big));
	assert_true(st->memory_max <= (256 << 10) + 2 * sizeof(big));
	/* what is held is told at the end, and nothing is left */
	rp_tcp_finish(w.p->t);
	tap_end(w.p, NULL);
}

/* A hole without end: given up by number, by bytes, by age. */
static void holes(void **state)
{
	struct wire w = wire(tap(), 100, 200);
	const struct rp_tcp_stats *st = rp_tcp_stats(w.p->t);
	static char big[60000];

	(void)state;
	shake(&w);
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	for (uint32_t i = 0; i < 1100; i++)
		put_at(&w, true, 6, RP_TCP_ACK, 300 + i * 2, 115, "y", 1, 1);
	assert_true(st->gave_up >= 70 && st->gave_up <= 80);
	assert_int_equal(w.p->lost[1], 99 + st->gave_up - 1);
	put_at(&w, true, 7, RP_TCP_ACK, 300 + 2199, 115, "z", 1, 1);
	rp_tcp_tick(w.p->t, 12000 * MS);
	assert_int_equal(w.p->lost[1], 99 + 1099);
	assert_int_equal(w.p->end[1], 2300 - 1);
	for (uint32_t i = 0; i < 20; i++)
		put_at(&w, true, 12001, RP_TCP_ACK, 5000 + i * 60000, 115, big, 60000, 60000);
	assert_true(st->memory < 2 << 20);
	assert_true(w.p->end[1] > 60000);
	tap_end(w.p, NULL);
}

/* Which one goes, which stay; and what holes held is not counted for ever. */
static void the_longest_idle(void **state)
{
	struct wire w[3];
	struct tap *p = tap_opts((struct rp_tcp_opts){ .max_flows = 2, .memory = 256 << 10 });
	static char big[1000];

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		w[i] = wire(p, 100, 200);
		w[i].cport = (uint16_t)(40000 + i);
	}
	for (unsigned i = 0; i < 2; i++) {
		shake(&w[i]);
		put(&w[i], false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	}
	put(&w[0], true, 6, RP_TCP_ACK, "HTTP/1.1");
	put(&w[2], false, 7, RP_TCP_SYN, "");
	assert_int_equal(p->closes, 1);
	assert_non_null(strstr(log_str(&p->log), "close:14,0,0 "));
	put(&w[0], true, 8, RP_TCP_ACK, "goes on");
	assert_int_equal(p->datas, 4);
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t at = w[0].s.seq + i * 1001;

		put_at(&w[0], true, 9 + i, RP_TCP_ACK, at + 1, 115, big, 1000, 1000);
		put_at(&w[0], true, 9 + i, RP_TCP_ACK, at, 115, "x", 1, 1);
	}
	assert_int_equal(rp_tcp_stats(p->t)->gave_up, 0);
	assert_true(rp_tcp_stats(p->t)->memory_max > rp_tcp_stats(p->t)->memory);
	tap_end(p, NULL);
}

/* Of three connections with holes the one in the middle is mended, and goes. */
static void holes_of_many(void **state)
{
	struct wire w[3];
	struct tap *p = tap();

	(void)state;
	p->many = true;
	for (unsigned i = 0; i < 3; i++) {
		w[i] = wire(p, 100, 200);
		w[i].cport = (uint16_t)(40000 + i);
		shake(&w[i]);
		put(&w[i], false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
		put_at(&w[i], true, 6, RP_TCP_ACK, 209, 115, "behind", 6, 6);
	}
	put_at(&w[1], true, 7, RP_TCP_ACK, 201, 115, "HTTP/1.1", 8, 8);
	rp_tcp_tick(p->t, 100 * MS);
	w[1].c.seq = 5000;
	put(&w[1], false, 101, RP_TCP_SYN, "");
	assert_int_equal(rp_tcp_stats(p->t)->lost, 0);
	rp_tcp_tick(p->t, 12000 * MS);
	assert_int_equal(rp_tcp_stats(p->t)->lost, 16);
	rp_tcp_tick(p->t, 12001 * MS);
	tap_end(p, NULL);
}

static void refused(void **state)
{
	struct wire w = wire(tap(), 100, 200);
	struct rp_tcp_seg s = { .ts = MS, .family = AF_INET, .len = RP_TCP_SEG_MAX + 1 };

	(void)state;
	assert_int_equal(rp_tcp_segment(w.p->t, &s), 0);
	s.len = 4;
	s.cap = 5;
	assert_int_equal(rp_tcp_segment(w.p->t, &s), 0);
	assert_int_equal(rp_tcp_stats(w.p->t)->strange, 2);
	shake(&w);
	w.p->refuse = -28;
	put(&w, false, 5, RP_TCP_ACK, "GET / HTTP/1.1");
	w.p->refuse = 0;
	assert_int_equal(rp_tcp_tick(w.p->t, 6 * MS), -28);
	tap_end(w.p, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_order),
		cmocka_unit_test(late_and_twice),
		cmocka_unit_test(any_order),
		cmocka_unit_test(lost_and_acknowledged),
		cmocka_unit_test(not_captured),
		cmocka_unit_test(handshakes),
		cmocka_unit_test(ends),
		cmocka_unit_test(roles),
		cmocka_unit_test(verdicts),
		cmocka_unit_test(limits),
		cmocka_unit_test(holes),
		cmocka_unit_test(refused),
		cmocka_unit_test(acknowledged_first),
		cmocka_unit_test(sent_again),
		cmocka_unit_test(reset_over_holes),
		cmocka_unit_test(end_acknowledged_first),
		cmocka_unit_test(of_no_interest),
		cmocka_unit_test(place),
		cmocka_unit_test(the_longest_idle),
		cmocka_unit_test(holes_of_many),
	};

	return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
