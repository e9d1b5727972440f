/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tcp.h - segments of TCP connections, as somebody saw them pass -> the events
 * that the kernel's side would have told. A pure function of the segments: no
 * clock, no I/O, no libpcap. Everything has a limit, and what hits one is counted.
 *
 *  - The instant of a byte is when it, and all before it that ever came, had passed.
 *  - Of bytes that come twice the first copy counts.
 *  - Bytes that are missing are waited for until the receiver has acknowledged them
 *    (then the capture lost them), or a limit is reached: DATA goes on with a jump of
 *    `off`, the exact number of bytes lost.
 *  - The server is the side that the SYN went to; on a connection met in mid-stream,
 *    the side with one of the ports given, or the one that gets an HTTP request.
 */
#ifndef REQPROBE_TCP_H
#define REQPROBE_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reqprobe/event.h"
#include "source/live.h"

enum rp_tcp_flag {
	RP_TCP_FIN = 1,
	RP_TCP_SYN = 2,
	RP_TCP_RST = 4,
	RP_TCP_PSH = 8,
	RP_TCP_ACK = 16,
};

/* Payload of one segment: more is no segment. (A GSO packet may have 512 KiB.) */
#define RP_TCP_SEG_MAX (1u << 20)

struct rp_tcp_seg {
	uint64_t ts;
	uint16_t family; /* AF_INET uses the first 4 bytes of an address, the rest is 0 */
	uint16_t sport, dport;
	uint16_t ip_id;
	bool has_ip_id;
	uint8_t flags;
	uint8_t src[16], dst[16];
	uint32_t seq, ack;
	uint32_t len; /* payload bytes that passed */
	uint32_t cap; /* of them, those at `payload`: the first ones */
	const uint8_t *payload;
};

struct rp_tcp_opts {
	rp_event_fn fn;
	void *ctx;
	uint32_t max_flows;    /* connections followed at once; 0 = as many as memory holds */
	size_t memory;	       /* half for connections, half for bytes that came out of order */
	uint64_t seed;	       /* of the hash */
	const uint16_t *ports; /* of servers; none: every connection with an HTTP request */
	unsigned n_ports;
};

struct rp_tcp_stats {
	uint64_t segments;
	uint64_t flows;	     /* connections seen, half-open ones included */
	uint64_t announced;  /* of them, those that were told of */
	uint64_t midstream;  /* joined without their handshake */
	uint64_t again;	     /* segments of which bytes came twice */
	uint64_t early;	     /* segments that came before their turn */
	uint64_t probes;     /* keep-alive */
	uint64_t lost;	     /* bytes that never came */
	uint64_t cut;	     /* bytes that passed and were not captured */
	uint64_t lost_place; /* times that it was unclear whose the next answer is */
	uint64_t gave_up;    /* holes given up for lack of room or by age */
	uint64_t reused;     /* a new SYN on the addresses of an old connection */
	uint64_t evicted;    /* connections dropped for a newer one */
	uint64_t half_open;  /* the same of half-open ones: no connection yet */
	uint64_t strange;    /* segments that can't be of their connection */
	uint64_t no_memory;
	size_t memory, memory_max; /* now, ever */
};

struct rp_tcp;

struct rp_tcp *rp_tcp_new(const struct rp_tcp_opts *o);
/* 0, or the first negative value that fn returned: nothing is told after it. */
int rp_tcp_segment(struct rp_tcp *t, const struct rp_tcp_seg *s);
/* Time has passed: what was waited for is given up. */
int rp_tcp_tick(struct rp_tcp *t, uint64_t ts);
/* No more segments: tell what is still held. Connections that are open stay so. */
int rp_tcp_finish(struct rp_tcp *t);
const struct rp_tcp_stats *rp_tcp_stats(const struct rp_tcp *t);
void rp_tcp_free(struct rp_tcp *t);

#endif
