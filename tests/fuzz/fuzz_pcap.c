// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Any bytes as packets: no crash, no more memory than was given, events in order
 * that a timeline takes. Four bytes of choices, then, by the first of them,
 *   F  a capture file, read by libpcap
 *   L  packets of a link type (second byte), each behind its length and a time step
 *   S  segments of one connection whose bytes are known: what is told must be them
 */
#include <pcap/pcap.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "lib/map.h"
#include "sink/sink.h"
#include "source/pcap.h"
#include "timeline/timeline.h"

#define MEMORY (64 << 10)

struct conn {
	uint64_t end[2];
	bool closed;
};

struct sink {
	struct rp_timeline *tl;
	struct rp_map conns;
	bool known; /* bytes are those of pattern() */
	bool stopped;
};

/* Bytes that no cut or shift of themselves equals; the first make a request. */
static uint8_t pattern(int side, uint32_t off)
{
	static const char first[2][20] = { "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n" };

	if (off < 16)
		return (uint8_t)first[side][off];
	off = (off + (uint32_t)side * 77777) * 2654435761u;
	return (uint8_t)(off >> 24);
}

static int on_event(void *ctx, const struct rp_event_hdr *ev)
{
	struct sink *s = ctx;
	const struct rp_ev_data *d = (const void *)ev;
	uint8_t *keep = NULL;
	struct conn *c;

	CHECK(!s->stopped && ev->size % 8 == 0 && ev->size >= sizeof(*ev));
	CHECK(ev->ts > 0 && ev->ts < 1ULL << 61);
	switch (ev->type) {
	case RP_EV_CONN_OPEN:
		CHECK(!rp_map_get(&s->conns, d->conn, 0));
		CHECK(!rp_map_put(&s->conns, d->conn, 0, calloc(1, sizeof(*c))));
		break;
	case RP_EV_CONN_PROTO:
	case RP_EV_CONN_STATE:
	case RP_EV_CONN_CLOSE:
		c = rp_map_get(&s->conns, d->conn, 0);
		CHECK(c && !c->closed);
		c->closed = ev->type == RP_EV_CONN_CLOSE;
		break;
	case RP_EV_DATA:
		c = rp_map_get(&s->conns, d->conn, 0);
		CHECK(c && !c->closed && d->h.dir <= 1);
		CHECK(d->len <= ev->size - sizeof(*d) && ev->size - sizeof(*d) - d->len < 8);
		CHECK(d->off >= c->end[d->h.dir]);
		c->end[d->h.dir] = d->off + d->len + d->missing;
		for (uint32_t i = 0; s->known && i < d->len; i++)
			CHECK(d->payload[i] == pattern(d->h.dir, (uint32_t)d->off + i));
		keep = malloc(d->len + 1);
		memset(keep, 'x', d->len);
		break;
	case RP_EV_STOP:
		s->stopped = true;
		break;
	default:
		break;
	}
	CHECK(rp_timeline_event(s->tl, ev, keep) == 0);
	free(keep);
	return 0;
}

static void run_file(const struct rp_pcap_opts *o, const uint8_t *data, size_t n)
{
	char err[512] = "";
	struct rp_pcap *p;
	FILE *f;

	if (!n)
		return;
	f = fmemopen((void *)(uintptr_t)data, n, "r");
	CHECK(f);
	if (rp_pcap_open_stream(o, f, "input", &p, err, sizeof(err))) {
		CHECK(*err && !strchr(err, '\n'));
		return;
	}
	while (rp_pcap_read(p, 0, err, sizeof(err)) > 0)
		;
	rp_pcap_finish(p);
	CHECK(rp_pcap_tcp(p)->memory_max <= MEMORY + RP_TCP_SEG_MAX + 4096);
	rp_pcap_close(p);
}

static void run_packets(const struct rp_pcap_opts *o, int dlt, const uint8_t *data, size_t n)
{
	uint64_t wall = 1700000000000000000ULL;
	struct rp_pcap *p;

	CHECK(!rp_pcap_open_none(o, dlt, &p));
	while (n >= 4) {
		uint32_t cap = data[0], more = data[1] & 15;
		int step = (int8_t)data[2];
		uint8_t *copy;

		wall += (uint64_t)((int64_t)step * (1LL << (data[3] & 31)));
		data += 4;
		n -= 4;
		if (cap > n)
			cap = (uint32_t)n;
		copy = malloc(cap);
		memcpy(copy, data, cap);
		rp_pcap_packet(p, wall, cap, more == 15 ? 0xffffffff : cap + (more & 7) * 300,
			       copy);
		free(copy);
		data += cap;
		n -= cap;
	}
	rp_pcap_finish(p);
	CHECK(rp_pcap_tcp(p)->memory_max <= MEMORY + RP_TCP_SEG_MAX + 4096);
	rp_pcap_close(p);
}

static void run_segments(const struct rp_pcap_opts *o, uint32_t isn, const uint8_t *data, size_t n)
{
	struct rp_tcp_opts to = { .fn = o->fn, .ctx = o->ctx, .memory = o->memory };
	struct rp_tcp *t = rp_tcp_new(&to);
	struct rp_tcp_seg s = { .family = AF_INET, .ts = 1000000000000ULL };
	uint8_t *b;

	CHECK(t);
	((struct sink *)o->ctx)->known = true;
	for (int i = -3; i < 0 || n >= 8; i++) {
		static const uint8_t shake[3] = { RP_TCP_SYN, RP_TCP_SYN | RP_TCP_ACK, RP_TCP_ACK };
		bool hand = i < 0;
		int side = hand ? i == -2 : data[0] & 1;
		uint32_t at = hand ? 0 : data[1] | (data[2] & 15) << 8;

		s.sport = side ? 8000 : 40000;
		s.dport = side ? 40000 : 8000;
		memset(s.src, 0, 4);
		memset(s.dst, 0, 4);
		s.src[3] = side ? 1 : 7;
		s.dst[3] = side ? 7 : 1;
		s.len = hand ? 0 : data[3] | (data[2] & 16 ? 256 : 0);
		s.cap = hand || !(data[2] & 32) ? s.len : s.len / 2;
		s.flags = hand ? shake[i + 3] : RP_TCP_ACK;
		if (!hand && data[0] >= 250) /* rare, since both end it */
			s.flags |= data[0] & 2 ? RP_TCP_FIN : RP_TCP_RST;
		s.seq = isn * (side ? 2u : 1u) + (i == -3 || i == -2 ? 0 : 1 + at);
		s.ack = isn * (side ? 1u : 2u) + 1 + (hand ? 0 : data[4] | (data[5] & 15) << 8);
		s.ts += hand ? 1000000 : (uint64_t)data[6] << (data[7] & 31);
		/* what a stranger says is its own, and there only to be ignored */
		b = malloc(s.cap);
		for (uint32_t k = 0; k < s.cap; k++)
			b[k] = pattern(side, at + k);
		s.payload = b;
		rp_tcp_segment(t, &s);
		free(b);
		if (!hand && data[7] & 32)
			rp_tcp_tick(t, s.ts);
		data += hand ? 0 : 8;
		n -= hand ? 0 : 8;
	}
	rp_tcp_finish(t);
	CHECK(rp_tcp_stats(t)->memory_max <= MEMORY + RP_TCP_SEG_MAX + 4096);
	rp_tcp_free(t);
}

static void on_record(void *ctx, const struct rp_record *r)
{
	size_t len;

	(void)ctx;
	free(rp_record_json(r, &len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int dlts[] = { DLT_EN10MB, DLT_LINUX_SLL, DLT_LINUX_SLL2, DLT_RAW,
				    DLT_NULL,	DLT_LOOP,      DLT_IPV4,       DLT_IPV6 };
	static const uint16_t ports[] = { 8000, 80 };
	struct rp_observer obs = { .record = on_record };
	struct sink s = { 0 };
	struct rp_pcap_opts o = { .fn = on_event, .ctx = &s, .memory = MEMORY };
	const struct rp_stats *st;
	struct rp_timeline_opts to;
	struct rp_map_slot *slot;
	uint64_t ends = 0;
	size_t i = 0;

	if (size < 4)
		return 0;
	rp_timeline_defaults(&to);
	to.itl = true;
	to.memory_max = 1 << 20;
	s.tl = rp_timeline_new(&to);
	CHECK(s.tl && !rp_timeline_observe(s.tl, &obs));
	if (data[2] & 1) {
		o.ports = ports;
		o.n_ports = 2;
	}
	if (data[2] & 2)
		o.max_flows = 3;
	if (data[0] == 'F')
		run_file(&o, data + 4, size - 4);
	else if (data[0] == 'L')
		run_packets(&o, dlts[data[1] & 7], data + 4, size - 4);
	else
		run_segments(&o, data[1] * 0x01010101u, data + 4, size - 4);
	rp_timeline_finish(s.tl);
	st = rp_timeline_stats(s.tl);
	for (int k = 0; k < RP_END_COUNT; k++)
		ends += st->ends[k];
	CHECK(st->started == ends && !st->in_flight);
	rp_timeline_free(s.tl);
	while ((slot = rp_map_next(&s.conns, &i)))
		free(slot->v);
	rp_map_free(&s.conns);
	return 0;
}
