// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "source/pcap.h"

#include "sink/sink.h"

#include <errno.h>
#include <pcap/pcap.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/clock.h"

/* hdr.ts of the first packet: one that is a little older has an instant too. */
#define FIRST_TS (3600 * 1000000000ULL)
/* Twice that is more than the timeline takes: a file may say anything. */
#define LAST_TS (1ULL << 60)
#define TICK_NS 100000000ULL
/* From an interface packets come late by up to this: time may not pass them. */
#define LATE_NS 300000000ULL
#define LOSS_NS 1000000000ULL
/* Packets may be a little out of order; further back is a clock that was set. */
#define BACK_NS 1000000000ULL
#define BLOCK_MS 50
#define BATCH 4096
#define SNAPLEN (256 * 1024)
#define MAX_TAGS 4
#define MAX_EXT 8
#define LINE_MAX_PORTS 4096 /* characters of a filter */

enum { P_TCP = 6, P_HOP = 0, P_ROUTING = 43, P_FRAGMENT = 44, P_AH = 51, P_DEST = 60 };
enum { ETH_IP4 = 0x0800, ETH_IP6 = 0x86dd, ETH_VLAN = 0x8100, ETH_QINQ = 0x88a8 };
enum { ETH_OLD_QINQ = 0x9100 };

struct rp_pcap {
	pcap_t *h;
	struct rp_tcp *tcp;
	struct rp_pcap_opts o;
	struct rp_pcap_stats st;
	uint16_t *ports;
	int dlt;
	bool live, started, finished;
	uint64_t first;		  /* wall time of FIRST_TS */
	uint64_t now, tick, loss; /* instants of the newest packet, TICK, LOSS */
	uint64_t told_dropped;
	int err; /* of fn */
	char engine[32];
	char name[128];
};

/* ---- events of our own ---- */

static int tell(struct rp_pcap *p, const void *ev)
{
	if (!p->err) {
		int e = p->o.fn(p->o.ctx, ev);

		p->err = e < 0 ? e : 0;
	}
	return p->err;
}

static struct rp_event_hdr header(enum rp_event_type type, size_t size, uint64_t ts)
{
	return (struct rp_event_hdr){ .size = (uint32_t)size, .type = (uint8_t)type, .ts = ts };
}

static void start(struct rp_pcap *p, uint64_t wall)
{
	struct rp_ev_clock c = { .h = header(RP_EV_CLOCK, sizeof(c), FIRST_TS),
				 .offset = (int64_t)((wall < LAST_TS * 2 ? wall : 0) - FIRST_TS) };
	struct rp_ev_session s = { .h = header(RP_EV_SESSION, sizeof(s), FIRST_TS),
				   .hook_reason = RP_HOOKS_NONE_FOR_ENGINE };

	p->started = true;
	p->first = wall;
	p->now = p->tick = p->loss = FIRST_TS;
	snprintf(s.engine, sizeof(s.engine), "%s", p->engine);
	snprintf(s.reqprobe, sizeof(s.reqprobe), "%s", RP_VERSION);
	/* of a file it is not known where it was made */
	if (p->live && gethostname(s.host, sizeof(s.host) - 1))
		s.host[0] = '\0';
	tell(p, &c);
	tell(p, &s);
}

static uint64_t instant(const struct rp_pcap *p, uint64_t wall)
{
	int64_t d = (int64_t)(wall - p->first);

	if (d < 1 - (int64_t)FIRST_TS)
		return 1;
	if (d > (int64_t)(LAST_TS - FIRST_TS))
		return LAST_TS;
	return FIRST_TS + (uint64_t)d;
}

static void time_passes(struct rp_pcap *p, uint64_t ts)
{
	struct rp_event_hdr h = header(RP_EV_TICK, sizeof(h), ts);

	if (ts >= p->tick ? ts - p->tick < TICK_NS : p->tick - ts < BACK_NS)
		return;
	p->tick = ts;
	rp_tcp_tick(p->tcp, ts);
	tell(p, &h);
}

static void tell_loss(struct rp_pcap *p, uint64_t ts)
{
	struct rp_ev_loss e = { .h = header(RP_EV_LOSS, sizeof(e), ts) };
	struct rp_pcap_stats st;

	rp_pcap_stats(p, &st);
	p->loss = ts;
	p->told_dropped = st.dropped;
	e.seen[RP_CLASS_DATA] = st.packets + st.dropped;
	e.lost[RP_CLASS_DATA] = st.dropped;
	tell(p, &e);
}

/* ---- from a packet to a segment ---- */

/* Bytes of a packet: those that passed, and of them those captured. */
struct span {
	const uint8_t *p;
	uint32_t len, cap;
};

static void skip(struct span *s, uint32_t n)
{
	uint32_t c = n < s->cap ? n : s->cap;

	s->p += c;
	s->cap -= c;
	s->len = s->len > n ? s->len - n : 0;
}

static uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static uint32_t be32(const uint8_t *p)
{
	return (uint32_t)be16(p) << 16 | be16(p + 2);
}

/* The packet's own word on its length, which padding and snaplen do not change.
 * 0: a packet larger than the field can say (TSO, GSO): it is as long as it is. */
static void own_length(struct span *s, uint32_t len)
{
	if (!len)
		return;
	s->len = len;
	if (s->cap > len)
		s->cap = len;
}

static void on_tcp(struct rp_pcap *p, struct span *s, struct rp_tcp_seg *seg)
{
	uint32_t hlen;

	if (s->cap < 20) {
		*(s->len < 20 ? &p->st.malformed : &p->st.headers_cut) += 1;
		return;
	}
	hlen = (uint32_t)(s->p[12] >> 4) * 4;
	if (hlen < 20 || hlen > s->len) {
		p->st.malformed++;
		return;
	}
	seg->sport = be16(s->p);
	seg->dport = be16(s->p + 2);
	seg->seq = be32(s->p + 4);
	seg->ack = be32(s->p + 8);
	seg->flags = s->p[13];
	skip(s, hlen);
	seg->len = s->len;
	seg->cap = s->cap;
	seg->payload = s->p;
	p->st.cut += s->cap < s->len;
	rp_tcp_segment(p->tcp, seg);
}

static void on_ip4(struct rp_pcap *p, struct span *s, struct rp_tcp_seg *seg)
{
	uint32_t hlen;

	if (s->cap < 20) {
		*(s->len < 20 ? &p->st.malformed : &p->st.headers_cut) += 1;
		return;
	}
	hlen = (uint32_t)(s->p[0] & 15) * 4;
	own_length(s, be16(s->p + 2));
	if (hlen < 20 || hlen > s->len) {
		p->st.malformed++;
		return;
	}
	if (s->p[9] != P_TCP) {
		p->st.not_tcp++;
		return;
	}
	if (be16(s->p + 6) & 0x3fff) {
		p->st.fragments++;
		return;
	}
	seg->family = AF_INET;
	seg->ip_id = be16(s->p + 4);
	seg->has_ip_id = seg->ip_id; /* 0: the sender gives none */
	memcpy(seg->src, s->p + 12, 4);
	memcpy(seg->dst, s->p + 16, 4);
	skip(s, hlen);
	on_tcp(p, s, seg);
}

static void on_ip6(struct rp_pcap *p, struct span *s, struct rp_tcp_seg *seg)
{
	uint8_t next;

	if (s->cap < 40) {
		*(s->len < 40 ? &p->st.malformed : &p->st.headers_cut) += 1;
		return;
	}
	next = s->p[6];
	seg->family = AF_INET6;
	memcpy(seg->src, s->p + 8, 16);
	memcpy(seg->dst, s->p + 24, 16);
	own_length(s, be16(s->p + 4) ? be16(s->p + 4) + 40u : 0);
	skip(s, 40);
	for (int i = 0; next != P_TCP; i++) {
		uint32_t n;

		if (i == MAX_EXT || (next != P_HOP && next != P_ROUTING && next != P_FRAGMENT &&
				     next != P_AH && next != P_DEST)) {
			p->st.not_tcp++;
			return;
		}
		if (s->cap < 8) {
			*(s->len < 8 ? &p->st.malformed : &p->st.headers_cut) += 1;
			return;
		}
		/* a fragment that is all there is one in name only */
		if (next == P_FRAGMENT && be16(s->p + 2) & 0xfff9) {
			p->st.fragments++;
			return;
		}
		n = next == P_FRAGMENT ? 8 : next == P_AH ? (s->p[1] + 2u) * 4 : (s->p[1] + 1u) * 8;
		next = s->p[0];
		skip(s, n);
	}
	on_tcp(p, s, seg);
}

static void on_ip(struct rp_pcap *p, struct span *s, struct rp_tcp_seg *seg)
{
	if (s->cap && s->p[0] >> 4 == 4)
		on_ip4(p, s, seg);
	else if (s->cap && s->p[0] >> 4 == 6)
		on_ip6(p, s, seg);
	else
		p->st.not_tcp++;
}

/* What follows a link header whose type is ether-like. */
static void on_type(struct rp_pcap *p, struct span *s, struct rp_tcp_seg *seg, uint16_t type)
{
	for (int i = 0; i < MAX_TAGS && s->cap >= 4 &&
			(type == ETH_VLAN || type == ETH_QINQ || type == ETH_OLD_QINQ);
	     i++) {
		type = be16(s->p + 2);
		skip(s, 4);
	}
	if (type == ETH_IP4 || type == ETH_IP6)
		on_ip(p, s, seg);
	else
		p->st.not_tcp++;
}

static bool link_known(int dlt)
{
	switch (dlt) {
	case DLT_EN10MB:
	case DLT_LINUX_SLL:
	case DLT_LINUX_SLL2:
	case DLT_RAW:
	case DLT_IPV4:
	case DLT_IPV6:
	case DLT_NULL:
	case DLT_LOOP:
		return true;
	default:
		return false;
	}
}

static void on_link(struct rp_pcap *p, struct span *s, struct rp_tcp_seg *seg)
{
	/* offset of the type, length of the header */
	uint32_t at = 0, n = 0;

	switch (p->dlt) {
	case DLT_EN10MB:
		at = 12;
		n = 14;
		break;
	case DLT_LINUX_SLL:
		at = 14;
		n = 16;
		break;
	case DLT_LINUX_SLL2:
		at = 0;
		n = 20;
		break;
	case DLT_NULL: /* an address family, which is numbered as the system likes */
	case DLT_LOOP:
		skip(s, 4);
		on_ip(p, s, seg);
		return;
	default:
		on_ip(p, s, seg);
		return;
	}
	if (s->cap < n) {
		*(s->len < n ? &p->st.malformed : &p->st.headers_cut) += 1;
		return;
	}
	at = be16(s->p + at);
	skip(s, n);
	on_type(p, s, seg, (uint16_t)at);
}

int rp_pcap_packet(struct rp_pcap *p, uint64_t wall, uint32_t caplen, uint32_t len,
		   const uint8_t *data)
{
	struct span s = { data, len, caplen < len ? caplen : len };
	struct rp_tcp_seg seg;

	if (!p->started)
		start(p, wall);
	p->now = instant(p, wall);
	p->st.packets++;
	p->st.bytes += caplen;
	time_passes(p, p->now);
	memset(&seg, 0, sizeof(seg));
	seg.ts = p->now;
	on_link(p, &s, &seg);
	return p->err;
}

static void on_packet(u_char *ctx, const struct pcap_pkthdr *h, const u_char *data)
{
	struct rp_pcap *p = (struct rp_pcap *)(void *)ctx;
	/* nanoseconds stand where the name says micro; a file may say anything */
	uint64_t wall = (uint64_t)h->ts.tv_sec * 1000000000ULL + (uint64_t)h->ts.tv_usec;

	if (rp_pcap_packet(p, wall, h->caplen, h->len, data) < 0)
		pcap_breakloop(p->h);
}

/* ---- opening ---- */

static struct rp_pcap *pcap_new(const struct rp_pcap_opts *o)
{
	struct rp_tcp_opts to = {
		.max_flows = o->max_flows,
		.memory = o->memory,
		.ports = o->ports,
		.n_ports = o->n_ports,
		.fn = o->fn,
		.ctx = o->ctx,
	};
	struct rp_pcap *p = calloc(1, sizeof(*p));
	struct timespec ts;

	if (!p)
		return NULL;
	/* whoever makes a capture can't know where in the table it goes */
	clock_gettime(CLOCK_MONOTONIC, &ts);
	to.seed = ((uint64_t)ts.tv_nsec << 32 ^ (uintptr_t)p) * 0x9e3779b97f4a7c15ULL;
	p->o = *o;
	p->tcp = rp_tcp_new(&to);
	p->ports = calloc(o->n_ports + 1, sizeof(*p->ports));
	if (!p->tcp || !p->ports) {
		rp_pcap_close(p);
		return NULL;
	}
	if (o->n_ports)
		memcpy(p->ports, o->ports, o->n_ports * sizeof(*p->ports));
	snprintf(p->engine, sizeof(p->engine), "%s", o->engine ? o->engine : "generic");
	return p;
}

int rp_pcap_open_none(const struct rp_pcap_opts *o, int dlt, struct rp_pcap **out)
{
	struct rp_pcap *p = pcap_new(o);

	if (!p)
		return -ENOMEM;
	p->dlt = dlt;
	*out = p;
	return 0;
}

/* libpcap's words are for the one who knows it; they follow ours. */
static int take(struct rp_pcap *p, const char *name, char *err, size_t errlen)
{
	const char *link;

	p->dlt = pcap_datalink(p->h);
	snprintf(p->name, sizeof(p->name), "%s", name);
	if (link_known(p->dlt))
		return 0;
	link = pcap_datalink_val_to_name(p->dlt);
	snprintf(err, errlen,
		 "%s has link type %s (%d): read are Ethernet, Linux cooked, raw IP and loopback",
		 name, link ? link : "unknown", p->dlt);
	return -EINVAL;
}

int rp_pcap_open_stream(const struct rp_pcap_opts *o, FILE *f, const char *name,
			struct rp_pcap **out, char *err, size_t errlen)
{
	char why[PCAP_ERRBUF_SIZE] = "";
	struct rp_pcap *p = pcap_new(o);
	int e = -ENOMEM;

	if (!p) {
		snprintf(err, errlen, "no memory");
		goto cleanup;
	}
	p->h = pcap_fopen_offline_with_tstamp_precision(f, PCAP_TSTAMP_PRECISION_NANO, why);
	if (!p->h) {
		snprintf(err, errlen, "%s is no capture file: %s", name, why);
		e = -EINVAL;
		goto cleanup;
	}
	f = NULL; /* libpcap closes it now */
	e = take(p, name, err, errlen);
	if (e)
		goto cleanup;
	*out = p;
	return 0;
cleanup:
	if (f && f != stdin)
		fclose(f);
	rp_pcap_close(p);
	return e;
}

int rp_pcap_open_file(const struct rp_pcap_opts *o, const char *path, struct rp_pcap **out,
		      char *err, size_t errlen)
{
	bool is_stdin = !strcmp(path, "-");
	FILE *f = is_stdin ? stdin : fopen(path, "re");

	if (!f) {
		int e = -errno;

		snprintf(err, errlen, "can't open the capture %s: %s", path, strerror(-e));
		return e;
	}
	return rp_pcap_open_stream(o, f, is_stdin ? "standard input" : path, out, err, errlen);
}

static int set_filter(struct rp_pcap *p, char *err, size_t errlen)
{
	struct bpf_program prog;
	char text[LINE_MAX_PORTS];
	size_t n;
	int e = 0;

	/* VLAN tags: the kernel takes them out before the filter sees the packet */
	n = (size_t)snprintf(text, sizeof(text), "tcp and (");
	for (unsigned i = 0; i < p->o.n_ports && n < sizeof(text); i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%sport %u", i ? " or " : "",
				      p->ports[i]);
	if (n < sizeof(text))
		n += (size_t)snprintf(text + n, sizeof(text) - n, ")");
	if (n >= sizeof(text)) {
		snprintf(err, errlen, "too many ports for a filter");
		return -E2BIG;
	}
	if (pcap_compile(p->h, &prog, text, 1, PCAP_NETMASK_UNKNOWN)) {
		snprintf(err, errlen, "can't make a filter of '%s': %s", text, pcap_geterr(p->h));
		return -EINVAL;
	}
	if (pcap_setfilter(p->h, &prog)) {
		snprintf(err, errlen, "can't filter on %s: %s", p->name, pcap_geterr(p->h));
		e = -EINVAL;
	}
	pcap_freecode(&prog);
	return e;
}

static int why_not(struct rp_pcap *p, int r, const char *iface, char *err, size_t errlen)
{
	const char *more = pcap_geterr(p->h);

	switch (r) {
	case PCAP_ERROR_PERM_DENIED:
	case PCAP_ERROR_PROMISC_PERM_DENIED:
		snprintf(err, errlen,
			 "not permitted to capture on %s: root or CAP_NET_RAW is needed", iface);
		return -EPERM;
	case PCAP_ERROR_NO_SUCH_DEVICE:
		snprintf(err, errlen, "no interface %s; 'any' is all of them", iface);
		return -ENODEV;
	case PCAP_ERROR_IFACE_NOT_UP:
		snprintf(err, errlen, "interface %s is not up", iface);
		return -ENETDOWN;
	default:
		snprintf(err, errlen, "can't capture on %s: %s", iface,
			 *more ? more : pcap_statustostr(r));
		return -EIO;
	}
}

int rp_pcap_open_live(const struct rp_pcap_opts *o, const char *iface, struct rp_pcap **out,
		      char *err, size_t errlen)
{
	char why[PCAP_ERRBUF_SIZE] = "";
	struct rp_pcap *p = pcap_new(o);
	int e = -ENOMEM, r;

	if (!p) {
		snprintf(err, errlen, "no memory");
		return e;
	}
	p->live = true;
	p->h = pcap_create(iface, why);
	if (!p->h) {
		snprintf(err, errlen, "can't capture on %s: %s", iface, why);
		e = -EIO;
		goto cleanup;
	}
	/* Not promiscuous: a server's own traffic. A block of packets is handed over
	 * when it is full or BLOCK_MS old; their instants are the kernel's. */
	pcap_set_snaplen(p->h, SNAPLEN);
	pcap_set_promisc(p->h, 0);
	pcap_set_timeout(p->h, BLOCK_MS);
	pcap_set_buffer_size(p->h, (int)o->buffer);
	pcap_set_tstamp_precision(p->h, PCAP_TSTAMP_PRECISION_NANO);
	r = pcap_activate(p->h);
	if (r < 0) {
		e = why_not(p, r, iface, err, errlen);
		goto cleanup;
	}
	e = take(p, iface, err, errlen);
	if (!e)
		e = set_filter(p, err, errlen);
	if (e)
		goto cleanup;
	if (pcap_setnonblock(p->h, 1, why)) {
		snprintf(err, errlen, "can't capture on %s: %s", iface, why);
		e = -EIO;
		goto cleanup;
	}
	*out = p;
	return 0;
cleanup:
	rp_pcap_close(p);
	return e;
}

/* ---- reading ---- */

static int read_error(struct rp_pcap *p, char *err, size_t errlen)
{
	if (p->live)
		snprintf(err, errlen, "capturing on %s failed: %s", p->name, pcap_geterr(p->h));
	else
		snprintf(err, errlen, "%s is damaged or cut short (%s); what came before was used",
			 p->name, pcap_geterr(p->h));
	return -EIO;
}

/* Time passes though no packet comes, but not faster than packets may be late. */
static void idle(struct rp_pcap *p)
{
	uint64_t now = instant(p, (uint64_t)rp_clock_ns(CLOCK_REALTIME) - LATE_NS);

	if (now <= p->now)
		return;
	p->now = now;
	time_passes(p, now);
}

int rp_pcap_read(struct rp_pcap *p, int wait_ms, char *err, size_t errlen)
{
	struct rp_pcap_stats st;
	int n;

	if (p->live && !p->started)
		start(p, (uint64_t)rp_clock_ns(CLOCK_REALTIME));
	n = pcap_dispatch(p->h, BATCH, on_packet, (u_char *)p);
	if (p->err)
		return p->err;
	if (n == PCAP_ERROR)
		return read_error(p, err, errlen);
	if (!p->live)
		return n > 0 ? n : 0;
	if (p->now > p->loss + LOSS_NS) {
		p->loss = p->now;
		rp_pcap_stats(p, &st);
		if (st.dropped != p->told_dropped)
			tell_loss(p, p->now);
	}
	if (n > 0)
		return n;
	if (wait_ms) {
		struct pollfd fd = { .fd = pcap_get_selectable_fd(p->h), .events = POLLIN };

		if (poll(&fd, 1, wait_ms) > 0)
			return 1;
	}
	idle(p);
	return 0;
}

int rp_pcap_finish(struct rp_pcap *p)
{
	struct rp_event_hdr h;

	if (p->finished)
		return p->err;
	p->finished = true;
	if (!p->started)
		start(p, p->live ? (uint64_t)rp_clock_ns(CLOCK_REALTIME) : 0);
	rp_tcp_finish(p->tcp);
	tell_loss(p, p->now);
	h = header(RP_EV_STOP, sizeof(h), p->now);
	return tell(p, &h);
}

void rp_pcap_stats(struct rp_pcap *p, struct rp_pcap_stats *st)
{
	struct pcap_stat ps = { 0 };

	if (p->live && !pcap_stats(p->h, &ps))
		p->st.dropped = ps.ps_drop;
	*st = p->st;
}

const struct rp_tcp_stats *rp_pcap_tcp(const struct rp_pcap *p)
{
	return rp_tcp_stats(p->tcp);
}

void rp_pcap_close(struct rp_pcap *p)
{
	if (!p)
		return;
	if (p->h)
		pcap_close(p->h);
	rp_tcp_free(p->tcp);
	free(p->ports);
	free(p);
}
