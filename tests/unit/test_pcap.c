// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Packets of each link type, whole, cut and wrong; and the frame of events around. */
#include "util.h"

#include <errno.h>
#include <pcap/pcap.h>
#include <sys/socket.h>

#include "source/pcap.h"

#define WALL 1700000000123456789ULL
#define FIRST (3600 * 1000000000ULL)

struct tap {
	struct log log;
	struct {
		uint32_t len, missing;
	} last; /* of the last data event */
	struct rp_ev_conn_open open;
	struct rp_ev_loss loss;
	int64_t offset;
	uint64_t ts;
	unsigned datas, ticks;
};

static int on_event(void *ctx, const struct rp_event_hdr *ev)
{
	struct tap *p = ctx;

	p->ts = ev->ts;
	switch (ev->type) {
	case RP_EV_CLOCK:
		p->offset = ((const struct rp_ev_clock *)(const void *)ev)->offset;
		log_add(&p->log, "clock ");
		break;
	case RP_EV_SESSION:
		log_add(&p->log, "session:%s ",
			((const struct rp_ev_session *)(const void *)ev)->engine);
		break;
	case RP_EV_LISTENER:
		log_add(&p->log, "listen:%u ",
			((const struct rp_ev_listener *)(const void *)ev)->port);
		break;
	case RP_EV_CONN_OPEN:
		p->open = *(const struct rp_ev_conn_open *)(const void *)ev;
		break;
	case RP_EV_DATA:
		p->last.len = ((const struct rp_ev_data *)(const void *)ev)->len;
		p->last.missing = ((const struct rp_ev_data *)(const void *)ev)->missing;
		p->datas++;
		log_add(&p->log, "data:%u-%u ", p->last.len, p->last.missing);
		break;
	case RP_EV_TICK:
		p->ticks++;
		break;
	case RP_EV_LOSS:
		p->loss = *(const struct rp_ev_loss *)(const void *)ev;
		break;
	case RP_EV_STOP:
		log_add(&p->log, "stop ");
		break;
	default:
		break;
	}
	return 0;
}

static void tap_reset(struct tap *p)
{
	free(p->log.s);
	memset(p, 0, sizeof(*p));
}

static const uint16_t *port;

static struct rp_pcap_opts opts(struct tap *p)
{
	return (struct rp_pcap_opts){
		.fn = on_event, .ctx = p, .memory = 1 << 20, .ports = port, .n_ports = port != NULL
	};
}

static const char request[] = "GET /v1/models HTTP/1.1\r\n\r\n";

struct packet {
	uint8_t b[512];
	uint32_t n;
};

static void add(struct packet *p, const void *b, uint32_t n)
{
	memcpy(p->b + p->n, b, n);
	p->n += n;
}

#define ADD(p, ...) \
	add(p, (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }))

static void add_tcp(struct packet *p)
{
	ADD(p, 0x9c, 0x40, 0x1f, 0x40, 0, 0, 0, 1, 0, 0, 0, 1, 0x60, 0x18, 1, 0, 0, 0, 0, 0, 1, 1,
	    1, 1);
	add(p, request, sizeof(request) - 1);
}

static void add_ip4(struct packet *p, uint8_t len, uint16_t frag)
{
	ADD(p, 0x46, 0, 0, len, 0, 7, frag >> 8, frag & 0xff, 64, 6, 0, 0, 10, 0, 0, 7, 10, 0, 0, 1,
	    1, 1, 1, 1);
	add_tcp(p);
}

#define TCP_LEN (24 + (sizeof(request) - 1))

static void add_ip6(struct packet *p, uint8_t len, uint8_t next)
{
	ADD(p, 0x60, 0, 0, 0, 0, len, next, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	    7, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
}

/* One packet; what came of it. */
static void one(struct tap *tap, int dlt, const struct packet *p, uint32_t cap,
		struct rp_pcap_stats *st)
{
	struct rp_pcap_opts o = opts(tap);
	uint8_t *copy = guard_buf(0, cap);
	struct rp_pcap *s;

	tap_reset(tap);
	memcpy(copy, p->b, cap);
	assert_int_equal(rp_pcap_open_none(&o, dlt, &s), 0);
	assert_int_equal(rp_pcap_packet(s, WALL, cap, p->n, copy), 0);
	rp_pcap_stats(s, st);
	rp_pcap_finish(s);
	rp_pcap_finish(s);
	rp_pcap_close(s);
}

static void is_request(const struct tap *t, uint16_t family)
{
	assert_int_equal(t->datas, 1);
	assert_int_equal(t->last.len, sizeof(request) - 1);
	assert_int_equal(t->last.missing, 0);
	assert_int_equal(t->open.family, family);
	assert_int_equal(t->open.rport, 40000);
	assert_int_equal(t->open.lport, 8000);
	assert_int_equal(t->open.raddr[family == AF_INET ? 3 : 15], 7);
	assert_int_equal(t->open.laddr[family == AF_INET ? 3 : 15], 1);
	assert_int_equal(t->open.h.flags, RP_F_PRE_ATTACH);
}

static void links(void **state)
{
	static const uint8_t mac[12] = { 2 }, tail[10] = { 0xee, 0xee };
	static const int dlts[] = {
		DLT_EN10MB, DLT_LINUX_SLL, DLT_LINUX_SLL2, DLT_RAW, DLT_NULL, DLT_LOOP, -4, -6
	};
	struct tap t = { 0 };
	struct rp_pcap_stats st;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(dlts); i++)
		for (int six = 0; six < 2; six++)
			for (int tags = 0; tags < 3; tags++) {
				struct packet p = { .n = 0 };
				int dlt = dlts[i];

				if (dlt < 0) {
					if ((dlt == -4) == six)
						continue;
					dlt = six ? DLT_IPV6 : DLT_IPV4;
				}
				if (dlt == DLT_EN10MB)
					add(&p, mac, 12);
				else if (dlt == DLT_LINUX_SLL)
					add(&p, (const uint8_t[14]){ 0 }, 14);
				else if (dlt == DLT_NULL)
					ADD(&p, six ? 30 : 2, 0, 0, 0);
				else if (dlt == DLT_LOOP)
					ADD(&p, 0, 0, 0, six ? 24 : 2);
				if (dlt == DLT_EN10MB || dlt == DLT_LINUX_SLL) {
					if (tags > 1)
						ADD(&p, 0x88, 0xa8, 0, 100);
					if (tags > 0)
						ADD(&p, 0x81, 0, 0, 5);
				}
				if (dlt == DLT_EN10MB || dlt == DLT_LINUX_SLL ||
				    dlt == DLT_LINUX_SLL2)
					ADD(&p, six ? 0x86 : 0x08, six ? 0xdd : 0);
				if (dlt == DLT_LINUX_SLL2)
					add(&p, (const uint8_t[18]){ 0 }, 18);
				if (six) {
					add_ip6(&p, TCP_LEN, 6);
					add_tcp(&p);
				} else {
					add_ip4(&p, 24 + TCP_LEN, 0x4000);
				}
				add(&p, tail, sizeof(tail)); /* padding is no payload */
				one(&t, dlt, &p, p.n, &st);
				is_request(&t, six ? AF_INET6 : AF_INET);
				assert_int_equal(st.packets, 1);
				/* cut anywhere: never more than there is, never read beyond */
				for (uint32_t cap = 0; cap < p.n; cap++) {
					one(&t, dlt, &p, cap, &st);
					assert_true(t.datas <= 1);
					if (t.datas)
						assert_int_equal(t.last.len + t.last.missing,
								 sizeof(request) - 1);
					assert_int_equal(st.malformed, 0);
					assert_int_equal(st.headers_cut + st.not_tcp +
								 (st.cut || t.datas),
							 1);
				}
			}
	tap_reset(&t);
}

static void extensions(void **state)
{
	struct packet p = { .n = 0 };
	struct rp_pcap_stats st;
	struct tap t = { 0 };

	(void)state;
	/* hop-by-hop, destination, authentication, an atomic fragment, routing */
	add_ip6(&p, 8 + 16 + 24 + 8 + 8 + TCP_LEN, 0);
	ADD(&p, 60, 0, 0, 0, 0, 0, 0, 0);
	ADD(&p, 51, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	ADD(&p, 44, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
	ADD(&p, 43, 0, 0, 0, 0, 0, 0, 9);
	ADD(&p, 6, 0, 0, 0, 0, 0, 0, 0);
	add_tcp(&p);
	one(&t, DLT_RAW, &p, p.n, &st);
	is_request(&t, AF_INET6);

	/* without end */
	p.n = 0;
	add_ip6(&p, 200, 0);
	for (int i = 0; i < 20; i++)
		ADD(&p, 0, 0, 0, 0, 0, 0, 0, 0);
	one(&t, DLT_RAW, &p, p.n, &st);
	assert_int_equal(st.not_tcp, 1);

	/* fragments: the first, a later one; no word of either but the count */
	p.n = 0;
	add_ip6(&p, 8 + TCP_LEN, 44);
	ADD(&p, 6, 0, 0, 1, 0, 0, 0, 9);
	add_tcp(&p);
	one(&t, DLT_RAW, &p, p.n, &st);
	assert_int_equal(st.fragments, 1);
	assert_int_equal(t.datas, 0);
	for (int i = 0; i < 2; i++) {
		p.n = 0;
		add_ip4(&p, 24 + TCP_LEN, i ? 0x2000 : 0x0010);
		one(&t, DLT_RAW, &p, p.n, &st);
		assert_int_equal(st.fragments, 1);
		assert_int_equal(t.datas, 0);
	}
	tap_reset(&t);
}

static void lengths(void **state)
{
	struct packet p = { .n = 0 };
	struct rp_pcap_stats st;
	struct tap t = { 0 };

	(void)state;
	add_ip4(&p, 0, 0x4000); /* TSO: as long as it is */
	one(&t, DLT_RAW, &p, p.n, &st);
	is_request(&t, AF_INET);
	p.n = 0;
	add_ip4(&p, 24 + TCP_LEN + 50, 0x4000); /* longer than the packet: was cut before */
	one(&t, DLT_RAW, &p, p.n, &st);
	assert_int_equal(t.last.missing, 50);
	assert_int_equal(st.cut, 1);
	p.n = 0;
	add_ip4(&p, 24 + 24 + 5, 0x4000);
	port = (const uint16_t[]){ 8000 };
	one(&t, DLT_RAW, &p, p.n, &st);
	port = NULL;
	assert_int_equal(t.last.len, 5);
	/* headers that are longer than their packet */
	for (uint8_t len = 1; len < 48; len++) {
		p.n = 0;
		add_ip4(&p, len, 0x4000);
		one(&t, DLT_RAW, &p, p.n, &st);
		assert_int_equal(st.malformed, 1);
		assert_int_equal(t.datas, 0);
	}
	for (int i = 0; i < 2; i++) {
		p.n = 0;
		add_ip4(&p, 24 + TCP_LEN, 0x4000);
		p.b[i ? 0 : 24 + 12] = i ? 0x41 : 0x10;
		one(&t, DLT_RAW, &p, p.n, &st);
		assert_int_equal(st.malformed, 1);
	}
	p.n = 0;
	add_ip4(&p, 24 + TCP_LEN, 0x4000);
	p.b[9] = 17;
	one(&t, DLT_RAW, &p, p.n, &st);
	assert_int_equal(st.not_tcp, 1);
	tap_reset(&t);
}

static void frame_of_events(void **state)
{
	static const uint16_t ports[] = { 8000, 8001 };
	struct tap t = { 0 };
	struct rp_pcap_opts o = opts(&t);
	struct packet p = { .n = 0 };
	struct rp_pcap *s;

	(void)state;
	o.ports = ports;
	o.n_ports = 2;
	o.engine = "vllm";
	add_ip4(&p, 24 + TCP_LEN, 0x4000);
	assert_int_equal(rp_pcap_open_none(&o, DLT_RAW, &s), 0);
	rp_pcap_packet(s, WALL, p.n, p.n, p.b);
	assert_int_equal(t.ts, FIRST);
	assert_int_equal((uint64_t)t.offset + t.ts, WALL);
	/* back in time, by a little and by more than there is; a clock gone mad */
	p.b[24 + 7] = 1 + sizeof(request) - 1;
	rp_pcap_packet(s, WALL - 5000, p.n, p.n, p.b);
	assert_int_equal(t.ts, FIRST - 5000);
	p.b[24 + 7] += sizeof(request) - 1;
	rp_pcap_packet(s, 0, p.n, p.n, p.b);
	assert_int_equal(t.ts, 1);
	p.b[24 + 7] += sizeof(request) - 1;
	rp_pcap_packet(s, UINT64_MAX / 2, p.n, p.n, p.b);
	assert_int_equal(t.ts, 1ULL << 60);
	assert_int_equal(t.ticks, 2);
	rp_pcap_finish(s);
	rp_pcap_close(s);
	assert_int_equal(t.loss.seen[RP_CLASS_DATA], 4);
	assert_int_equal(t.loss.lost[RP_CLASS_DATA], 0);
	same_text("events", &t.log,
		  "clock session:vllm listen:8000 data:27-0 data:27-0 data:27-0 "
		  "data:27-0 stop ");
	tap_reset(&t);
	/* nothing at all is a whole run, too */
	assert_int_equal(rp_pcap_open_none(&o, DLT_RAW, &s), 0);
	rp_pcap_finish(s);
	rp_pcap_close(s);
	same_text("events", &t.log, "clock session:vllm stop ");
	tap_reset(&t);
}

static size_t make_file(uint8_t *b, uint32_t magic, uint32_t link, unsigned packets)
{
	uint32_t head[6] = { magic, 2 | 4 << 16, 0, 0, 262144, link };
	struct packet p = { .n = 0 };
	size_t n = sizeof(head);

	add_ip4(&p, 24 + TCP_LEN, 0x4000);
	memcpy(b, head, sizeof(head));
	for (unsigned i = 0; i < packets; i++) {
		uint32_t h[4] = { 1700000000 + i, 500, p.n, p.n };

		memcpy(b + n, h, sizeof(h));
		memcpy(b + n + sizeof(h), p.b, p.n);
		n += sizeof(h) + p.n;
		p.b[24 + 7] += sizeof(request) - 1;
	}
	return n;
}

static int read_file(struct tap *t, const uint8_t *b, size_t n, char *err, size_t errlen)
{
	struct rp_pcap_opts o = opts(t);
	FILE *f = fmemopen((void *)(uintptr_t)b, n, "r");
	struct rp_pcap *s;
	int e;

	assert_non_null(f);
	tap_reset(t);
	err[0] = '\0';
	e = rp_pcap_open_stream(&o, f, "memory", &s, err, errlen);
	if (e)
		return e;
	do
		e = rp_pcap_read(s, 0, err, errlen);
	while (e > 0);
	rp_pcap_finish(s);
	rp_pcap_close(s);
	return e;
}

static void files(void **state)
{
	static uint8_t b[4096];
	struct tap t = { 0 };
	char err[512];
	size_t n;

	(void)state;
	n = make_file(b, 0xa1b23c4d, DLT_RAW, 3);
	assert_int_equal(read_file(&t, b, n, err, sizeof(err)), 0);
	assert_int_equal(t.datas, 3);
	assert_int_equal((uint64_t)t.offset + FIRST, 1700000000ULL * 1000000000 + 500);
	n = make_file(b, 0xa1b2c3d4, DLT_RAW, 3); /* microseconds */
	assert_int_equal(read_file(&t, b, n, err, sizeof(err)), 0);
	assert_int_equal((uint64_t)t.offset + FIRST, 1700000000ULL * 1000000000 + 500000);
	/* every way to end early: one line, and the packets before it */
	for (size_t cut = 1; cut < n; cut++) {
		int e = read_file(&t, b, n - cut, err, sizeof(err));
		size_t each = (n - 24) / 3;

		assert_int_equal(t.datas, n - cut < 24 ? 0 : (n - cut - 24) / each);
		if (n - cut >= 24 && (n - cut - 24) % each == 0) {
			assert_int_equal(e, 0);
			continue;
		}
		assert_true(e < 0);
		assert_true(strlen(err) > 10 && !strchr(err, '\n'));
	}
	make_file(b, 0xa1b2c3d4, 105, 1);
	assert_int_equal(read_file(&t, b, n, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "link type"));
	memset(b, 'x', sizeof(b));
	assert_int_equal(read_file(&t, b, n, err, sizeof(err)), -EINVAL);
	tap_reset(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(links),   cmocka_unit_test(extensions),
		cmocka_unit_test(lengths), cmocka_unit_test(frame_of_events),
		cmocka_unit_test(files),
	};

	return cmocka_run_group_tests_name("pcap", tests, NULL, NULL);
}
