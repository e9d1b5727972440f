// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What comes of the ring's records, without a kernel: its memory is made here. */
#include "util.h"

#include "source/live.c"

#define CONN 0x100000007ULL

struct tap {
	struct rp_live l;
	struct reqprobe_bpf skel;
	__typeof__(*((struct reqprobe_bpf *)0)->bss) *bss;
	unsigned long cons, prod;
	uint64_t ring[2 * 8192];
	struct zproc *proc;
	struct log log;
	struct rp_ev_msg last;
	int refuse; /* the event with this number, from 1 */
	int refused;
};

static int on_event(void *ctx, const struct rp_event_hdr *ev)
{
	struct tap *p = ctx;

	switch (ev->type) {
	case RP_EV_MSG: {
		const struct rp_ev_msg *m = (const void *)ev;

		p->last = *m;
		assert_true(sizeof(*m) + m->len <= ev->size);
		assert_int_equal(ev->size % 8, 0);
		assert_int_equal(m->len + m->missing, m->total - m->off);
		log_add(&p->log, "msg:%.*s%s%s/%u ", (int)m->len, (const char *)m->payload,
			m->send_flags & RP_MSG_MORE ? "+" : "", ev->flags & RP_F_CUT ? "-" : "",
			m->total);
		break;
	}
	case RP_EV_CONN_PROTO:
		log_add(&p->log, "proto:%u ",
			((const struct rp_ev_conn_proto *)(const void *)ev)->proto);
		break;
	case RP_EV_DATA:
		log_add(&p->log, "data ");
		break;
	case RP_EV_CONN_OPEN:
		log_add(&p->log, "open ");
		break;
	case RP_EV_CONN_CLOSE:
		log_add(&p->log, "close ");
		break;
	case RP_EV_LOSS:
		log_add(&p->log, "loss:%llu ",
			(unsigned long long)((const struct rp_ev_loss *)(const void *)ev)->lost[0]);
		break;
	case RP_EV_ALIVE:
		log_add(&p->log, "alive:%llu ",
			(unsigned long long)((const struct rp_ev_conn_close *)(const void *)ev)
				->conn);
		break;
	case RP_EV_ALIVE_END:
		log_add(&p->log, "alive-end ");
		break;
	case RP_EV_PROC:
		log_add(&p->log, "proc ");
		break;
	case RP_EV_CLOCK:
	case RP_EV_TICK:
		break;
	default:
		fail();
	}
	return p->refuse && !--p->refuse ? -28 : 0;
}

static struct tap *tap(void)
{
	struct tap *p = calloc(1, sizeof(*p));

	p->bss = calloc(1, sizeof(*p->bss));
	p->skel.bss = p->bss;
	p->l.skel = &p->skel;
	p->l.o.payload_max = 4096;
	p->l.ring_size = sizeof(p->ring) / 2;
	p->l.cons = &p->cons;
	p->l.prod = &p->prod;
	p->l.data = (const uint8_t *)p->ring;
	p->l.look_fd = -1;
	return p;
}

static void tap_end(struct tap *p, const char *want)
{
	if (want)
		same_text("events", &p->log, want);
	for (size_t i = 0; i < RP_JOINS; i++)
		free(p->l.joins[i].m);
	free(p->l.hooks);
	free(p->l.report.alive);
	rp_maps_close(&p->l);
	free(p->log.s);
	free(p->bss);
	free(p);
}

/* ---- messages from sockets ---- */

static void reads(struct tap *p, uint32_t pid, uint32_t hook, uint32_t shortest)
{
	struct zproc *z = calloc(1, sizeof(*z));

	z->pid = pid;
	z->hook = hook;
	z->shortest = shortest;
	assert_int_equal(rp_map_put(&p->l.zprocs, pid, 0, z), 0);
}

static int give(struct tap *p, const struct rp_event_hdr *ev)
{
	int err;

	if (!rp_zmtp_event(&p->l, ev, on_event, p, &err))
		err = on_event(p, ev);
	return err;
}

static void proto(struct tap *p, uint32_t pid, uint32_t what)
{
	struct rp_ev_conn_proto e = {
		.h = { .size = sizeof(e), .type = RP_EV_CONN_PROTO, .pid = pid },
		.conn = CONN,
		.proto = what
	};

	give(p, &e.h);
}

/* Written by process 7: bytes at `off`, behind which `missing` were left out. */
static int put(struct tap *p, uint64_t off, uint32_t call_off, const void *bytes, uint32_t n,
	       uint32_t missing)
{
	struct rp_ev_data *d = calloc(1, sizeof(*d) + n + 8);
	int err;

	d->h = (struct rp_event_hdr){ .size = (uint32_t)((sizeof(*d) + n + 7) & ~7UL),
				      .type = RP_EV_DATA,
				      .dir = RP_TX,
				      .pid = 7,
				      .tid = 8,
				      .ts = off + 1000 };
	d->conn = CONN;
	d->off = off;
	d->call_off = call_off;
	d->len = n;
	d->missing = missing;
	memcpy(d->payload, bytes, n);
	err = give(p, &d->h);
	free(d);
	return err;
}

static void close_it(struct tap *p)
{
	struct rp_ev_conn_close e = { .h = { .size = sizeof(e), .type = RP_EV_CONN_CLOSE },
				      .conn = CONN };

	give(p, &e.h);
}

static void frames_to_messages(void **state)
{
	struct tap *p = tap();

	(void)state;
	reads(p, 7, 9, 4);
	proto(p, 7, RP_PROTO_HTTP1);
	proto(p, 7, RP_PROTO_ZMTP);
	proto(p, 7, RP_PROTO_ZMTP); /* told twice, it is one */
	/* a command, a short message, one of two frames of which the second is short */
	put(p, 0, 0, "\4\4PING\0\2no\1\2id\0\2ok\0\4good", 24, 0);
	assert_int_equal(p->last.hook, 9);
	assert_int_equal(p->last.sock, CONN);
	assert_int_equal(p->last.h.pid, 7);
	assert_int_equal(p->last.h.tid, 8);
	assert_int_equal(p->last.h.ts, 1000);
	assert_int_equal(p->last.h.flags, RP_F_SYNTH);
	/* across writes: the instant is that of the first byte */
	put(p, 24, 0, "\0\6hal", 5, 0);
	put(p, 29, 0, "ves", 3, 0);
	assert_int_equal(p->last.h.ts, 1024);
	/* the end of a frame was left out */
	put(p, 32, 0, "\0\x09long", 6, 5);
	assert_int_equal(p->last.missing, 5);
	put(p, 43, 0, "\0\4next", 6, 0);
	tap_end(p, "proto:1 proto:4 proto:4 msg:id+/2 msg:ok/2 msg:good/4 msg:halves/6 msg:long-/9 "
		   "msg:next/4 ");
}

static void frames_lost(void **state)
{
	struct tap *p = tap();

	(void)state;
	reads(p, 7, 9, 4);
	proto(p, 7, RP_PROTO_ZMTP);
	put(p, 100, 0, "\0\4seen", 6, 0); /* its count of bytes need not begin with 0 */
	/* writes were lost: it is told, and the next one is read from its start */
	put(p, 200, 0, "\0\4more", 6, 0);
	/* in the middle of a frame, with nothing behind it */
	put(p, 206, 0,
	    "\0\x08"
	    "abcd",
	    6, 0);
	put(p, 216, 0, "\0\4then", 6, 0);
	/* the lost bytes are the end of the frame */
	put(p, 222, 0, "\0\x06xy", 4, 0);
	put(p, 230, 0, "\0\4last", 6, 0);
	/* what was told already is no news */
	put(p, 230, 0, "\0\4last", 6, 0);
	/* the rest of a call whose beginning is missing is no start */
	put(p, 240, 4, "\0\4nope", 6, 0);
	put(p, 246, 0, "\0\4yes!", 6, 0);
	/* a short one is no end of the message that was lost */
	put(p, 252, 0, "\1\2id", 4, 0);
	put(p, 260, 0, "\0\2no", 4, 0);
	p->refuse = 1;
	assert_int_equal(put(p, 270, 4, "x", 1, 0), -28);
	tap_end(p,
		"proto:4 msg:seen/4 msg:-/1 msg:more/4 msg:abcd-/8 msg:then/4 msg:xy-/6 msg:last/4 "
		"msg:-/1 msg:yes!/4 msg:id+/2 msg:-/1 msg:-/1 ");
}

static unsigned times(const struct tap *p, const char *what)
{
	unsigned n = 0;

	for (const char *s = log_str(&p->log); (s = strstr(s, what)); s++)
		n++;
	return n;
}

/* Bytes that are no frames are given up some time; losses are no sign of that. */
static void frames_patience(void **state)
{
	struct tap *p = tap();

	(void)state;
	reads(p, 7, 9, 4);
	proto(p, 7, RP_PROTO_ZMTP);
	put(p, 0, 0, "\0\4read", 6, 0);
	for (uint64_t i = 1; i <= 100; i++)
		put(p, i * 12, 0, "\0\4read", 6, 0);
	assert_int_equal(times(p, "msg:read"), 101);
	for (uint64_t i = 0; i < 20; i++)
		put(p, 1206 + i, 0, "x", 1, 0);
	put(p, 1226, 0, "\0\4late", 6, 0);
	assert_int_equal(times(p, "msg:read"), 101);
	assert_int_equal(times(p, "msg:-"), 100 + RP_ZMTP_PATIENCE + 2);
	assert_int_equal(times(p, "msg:late"), 0);
	tap_end(p, NULL);
}

static void frames_of_others(void **state)
{
	struct tap *p = tap();
	struct rp_ev_data in = {
		.h = { .size = sizeof(in), .type = RP_EV_DATA, .dir = RP_RX, .pid = 7 },
		.conn = CONN,
	};

	(void)state;
	/* nobody wants this process's */
	reads(p, 6, 9, 0);
	proto(p, 7, RP_PROTO_ZMTP);
	put(p, 0, 0, "\0\4data", 6, 0);
	/* what it reads is another one's; and where its function is hooked, that tells */
	reads(p, 7, 9, 0);
	proto(p, 7, RP_PROTO_ZMTP);
	give(p, &in.h);
	put(p, 0, 0, "\0\3one", 5, 0);
	p->l.hooks = calloc(1, sizeof(*p->l.hooks));
	p->l.hooks[0].pid = 7;
	p->l.nhooks = 1;
	put(p, 5, 0, "\0\3two", 5, 0);
	p->l.nhooks = 0;
	/* refused: the reader's error comes back */
	p->refuse = 1;
	assert_int_equal(put(p, 5, 0, "\0\3two", 5, 0), -28);
	close_it(p);
	assert_int_equal(p->l.zconns.len, 0);
	put(p, 10, 0, "\0\4data", 6, 0);
	tap_end(p, "proto:4 data proto:4 msg:one/3 msg:two/3 close data ");
}

/* ---- frames in fragments ---- */

static int piece(struct tap *p, uint32_t tid, uint32_t seq, uint32_t off, const char *s,
		 uint32_t total, bool more)
{
	uint32_t n = (uint32_t)strlen(s);
	struct rp_ev_msg *m = calloc(1, sizeof(*m) + n + 8);
	int err;

	m->h = (struct rp_event_hdr){ .size = (uint32_t)((sizeof(*m) + n + 7) & ~7UL),
				      .type = RP_EV_MSG,
				      .flags = more ? RP_F_MORE : 0,
				      .tid = tid };
	m->seq = seq;
	m->total = total;
	m->off = off;
	m->len = n;
	m->missing = total - off - n;
	memcpy(m->payload, s, n);
	err = rp_join(&p->l, m, on_event, p);
	free(m);
	return err;
}

static void fragments(void **state)
{
	struct tap *p = tap();

	(void)state;
	piece(p, 1, 1, 0, "whole", 5, false);
	/* of two threads at once */
	piece(p, 1, 2, 0, "abc", 8, true);
	piece(p, 2, 3, 0, "ABC", 6, true);
	piece(p, 1, 2, 3, "def", 8, true);
	piece(p, 2, 3, 3, "DEF", 6, false);
	piece(p, 1, 2, 6, "gh", 8, false);
	/* its middle is lost; its beginning; its end, and the next one is whole or not */
	piece(p, 1, 4, 0, "abc", 8, true);
	piece(p, 1, 4, 6, "gh", 8, false);
	piece(p, 1, 5, 3, "def", 6, false);
	piece(p, 1, 6, 0, "abc", 6, true);
	piece(p, 1, 7, 0, "next", 4, false);
	piece(p, 1, 8, 0, "abc", 6, true);
	piece(p, 1, 9, 0, "xyz", 6, true);
	piece(p, 1, 9, 3, "zzz", 6, false);
	piece(p, 1, 10, 0, "0123456789", 20, true);
	piece(p, 1, 10, 10, "0123456789", 20, false);
	tap_end(p, "msg:whole/5 msg:ABCDEF/6 msg:abcdefgh/8 msg:abc-/8 msg:abc-/6 msg:next/4 "
		   "msg:abc-/6 msg:xyzzzz/6 msg:01234567890123456789/20 ");
}

static void fragments_many(void **state)
{
	struct tap *p = tap();

	(void)state;
	for (uint32_t i = 0; i < RP_JOINS; i++)
		piece(p, 10 + i, i, 0, "a", 2, true);
	piece(p, 10, 0, 1, "b", 2, false);
	piece(p, 90, 90, 0, "n", 2, true);
	piece(p, 91, 91, 0, "n", 2, true);
	same_text("the oldest makes room", &p->log, "msg:ab/2 msg:a-/2 ");
	p->refuse = 1;
	assert_int_equal(piece(p, 12, 2, 1, "c", 2, false), -28);
	piece(p, 11, 1, 1, "d", 2, false); /* it was that one */
	piece(p, 90, 90, 1, "o", 2, false);
	tap_end(p, "msg:ab/2 msg:a-/2 msg:ac/2 msg:no/2 ");
}

/* ---- the ring ---- */

static void ring_put(struct tap *p, uint8_t type, uint64_t conn, uint32_t bits)
{
	struct {
		uint32_t len, pgoff;
		struct rp_ev_conn_open e;
	} r = { .len = sizeof(r.e) | bits,
		.e = { .h = { .size = sizeof(r.e), .type = type }, .conn = conn } };

	memcpy((uint8_t *)p->ring + (p->prod & (p->l.ring_size - 1)), &r, sizeof(r));
	p->prod += sizeof(r);
}

static void drained(void **state)
{
	struct tap *p = tap();
	uint32_t *busy;

	(void)state;
	p->cons = p->prod = p->l.ring_size - 24; /* the first one lies across its end */
	ring_put(p, RP_EV_CONN_OPEN, 1, 0);
	ring_put(p, RP_EV_PROC, 0, 0);
	ring_put(p, RP_EV_CONN_OPEN, 1, BPF_RINGBUF_DISCARD_BIT);
	ring_put(p, RP_EV_DATA, 1, 0);
	busy = (uint32_t *)((uint8_t *)p->ring + (p->prod & (p->l.ring_size - 1)));
	ring_put(p, RP_EV_CONN_CLOSE, 1, BPF_RINGBUF_BUSY_BIT);
	ring_put(p, RP_EV_CONN_OPEN, 2, 0);
	/* the clock, what was asked for, and a tick */
	assert_int_equal(rp_live_drain(&p->l, on_event, p, 2), 4);
	same_text("by the piece", &p->log, "open proc ");
	assert_int_equal(rp_live_drain(&p->l, on_event, p, 0), 2);
	same_text("up to what is being written", &p->log, "open proc data ");
	*busy &= ~BPF_RINGBUF_BUSY_BIT;
	p->refuse = 1;
	assert_int_equal(rp_live_drain(&p->l, on_event, p, 0), -28);
	assert_int_equal(rp_live_backlog(&p->l), 8 + sizeof(struct rp_ev_conn_open));
	assert_true(p->l.sweep_due);
	rp_live_drain(&p->l, on_event, p, 0);
	assert_int_equal(rp_live_backlog(&p->l), 0);
	tap_end(p, "open proc data close open ");
}

/* Messages in the ring are joined, and made of what a socket carried. */
static void messages_drained(void **state)
{
	struct tap *p = tap();
	struct {
		uint32_t len, pgoff;
		struct rp_ev_msg m;
		char text[8];
	} r = { .len = sizeof(r) - 8,
		.m = { .h = { .size = sizeof(r) - 8, .type = RP_EV_MSG, .flags = RP_F_MORE },
		       .total = 8,
		       .len = 4 } };

	(void)state;
	reads(p, 7, 9, 0);
	for (unsigned i = 0; i < 2; i++) {
		memcpy(r.m.payload, i ? "efgh" : "abcd", 4);
		r.m.off = i * 4;
		r.m.h.flags = i ? 0 : RP_F_MORE;
		memcpy((uint8_t *)p->ring + p->prod, &r, sizeof(r));
		p->prod += sizeof(r);
	}
	rp_live_drain(&p->l, on_event, p, 0);
	tap_end(p, "msg:abcdefgh/8 ");
}

static void many_alive(void **state)
{
	struct loss_report r = { .n = 0 };

	(void)state;
	for (uint64_t i = 0; i < 1000; i++)
		rp_alive_add(&r)->conn = i;
	assert_int_equal(r.n, 1000);
	assert_int_equal(r.alive[999].conn, 999);
	free(r.alive);
}

/* A loss is told behind all that was in the ring when it was seen, and once. */
static void loss_in_turn(void **state)
{
	struct tap *p = tap();

	(void)state;
	p->bss->last_conn = 5;
	ring_put(p, RP_EV_CONN_OPEN, 5, 0);
	ring_put(p, RP_EV_CONN_OPEN, 6, 0); /* behind the walk: not in it */
	p->bss->stats[0].lost[0] = 2;
	p->bss->stats[1].lost[0] = 1;
	rp_live_drain(&p->l, on_event, p, 1);
	ring_put(p, RP_EV_DATA, 6, 0);
	rp_live_drain(&p->l, on_event, p, 0);
	rp_live_drain(&p->l, on_event, p, 0);
	same_text("once", &p->log, "open open loss:3 alive:6 alive-end data ");
	p->bss->stats[0].map_full[0] = 1;
	p->l.report.not_before = 0;
	rp_live_drain(&p->l, on_event, p, 0);
	tap_end(p, "open open loss:3 alive:6 alive-end data loss:3 alive-end ");
}

static void acknowledgements_waited_for(void **state)
{
	struct tap *p = tap();
	struct rp_ev_data d = {
		.h = { .size = sizeof(d), .type = RP_EV_DATA, .dir = RP_TX, .flags = RP_F_TCP },
		.conn = CONN,
		.ret_ts = 1000,
		.unacked = 5
	};
	struct rp_ev_conn_close c = { .h = { .size = sizeof(c), .type = RP_EV_CONN_CLOSE },
				      .conn = CONN };
	const struct wait *w;

	(void)state;
	rp_wait_event(&p->l, &d.h);
	assert_int_equal(p->l.waits.len, 0); /* there is no way to look */
	p->l.look_fd = 1 << 20;
	d.h.dir = RP_RX;
	rp_wait_event(&p->l, &d.h);
	d.h.dir = RP_TX;
	d.h.flags = 0;
	rp_wait_event(&p->l, &d.h);
	assert_int_equal(p->l.waits.len, 0);
	d.h.flags = RP_F_TCP;
	rp_wait_event(&p->l, &d.h);
	w = rp_map_get(&p->l.waits, CONN, 0);
	assert_non_null(w);
	d.ret_ts = 2000;
	rp_wait_event(&p->l, &d.h);
	assert_int_equal(w->since, 2000);
	assert_int_equal(w->next, 2000 + RP_WAIT_QUIET);
	d.unacked = 0;
	rp_wait_event(&p->l, &d.h);
	assert_int_equal(p->l.waits.len, 0);
	d.unacked = 5;
	rp_wait_event(&p->l, &d.h);
	rp_wait_event(&p->l, &c.h);
	assert_int_equal(p->l.waits.len, 0);
	/* none that is not found is looked at again */
	rp_wait_event(&p->l, &d.h);
	assert_int_equal(rp_wait_looks(&p->l, on_event, p), 1);
	assert_int_equal(p->l.waits.len, 0);
	tap_end(p, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_to_messages),
		cmocka_unit_test(frames_lost),
		cmocka_unit_test(frames_patience),
		cmocka_unit_test(frames_of_others),
		cmocka_unit_test(fragments),
		cmocka_unit_test(fragments_many),
		cmocka_unit_test(drained),
		cmocka_unit_test(messages_drained),
		cmocka_unit_test(many_alive),
		cmocka_unit_test(loss_in_turn),
		cmocka_unit_test(acknowledgements_waited_for),
	};

	return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}
