/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pcap.h - packets as a source of events: a pcap or pcapng file, or an interface,
 * read by libpcap. Link types: Ethernet, Linux cooked v1 and v2, raw IP, BSD
 * loopback. 802.1Q and QinQ are looked through, IPv6 extension headers too.
 * Fragments are counted, not joined; tunnels are not looked into. Checksums are not
 * looked at: a capture on the sending host has them unfinished.
 *
 * hdr.ts counts from an hour before the first packet, so that CLOCK's offset makes it
 * the packet's wall time again; all durations are of the capture's clock.
 * Errors are negative errno; `err` gets one line, NUL-terminated.
 */
#ifndef REQPROBE_PCAP_H
#define REQPROBE_PCAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "source/tcp.h"

struct rp_pcap;

struct rp_pcap_opts {
	rp_event_fn fn;
	void *ctx;
	const char *engine;    /* name for SESSION; NULL: generic */
	const uint16_t *ports; /* see tcp.h; an interface needs one */
	unsigned n_ports;
	uint32_t max_flows;
	size_t memory;	 /* for reassembly */
	uint32_t buffer; /* of an interface: packets that wait in the kernel, bytes */
};

struct rp_pcap_stats {
	uint64_t packets, bytes; /* captured, as far as they are in the capture */
	uint64_t not_tcp;	 /* another protocol, or nothing known */
	uint64_t fragments;	 /* of IP: not joined */
	uint64_t cut;		 /* TCP payload was not captured in full (snaplen) */
	uint64_t headers_cut;	 /* not even the headers were */
	uint64_t malformed;
	uint64_t dropped; /* by the kernel: packets that had no room */
};

/* `path` may be "-". -EINVAL: no capture file, or a link type that is not read. */
int rp_pcap_open_file(const struct rp_pcap_opts *o, const char *path, struct rp_pcap **out,
		      char *err, size_t errlen);
/* The same of a stream, which is closed in the end, whatever comes of it. */
int rp_pcap_open_stream(const struct rp_pcap_opts *o, FILE *f, const char *name,
			struct rp_pcap **out, char *err, size_t errlen);
/* -EPERM: not permitted; -ENODEV: no such interface. */
int rp_pcap_open_live(const struct rp_pcap_opts *o, const char *iface, struct rp_pcap **out,
		      char *err, size_t errlen);
/*
 * Read some packets. > 0: there may be more; 0: a file is at its end, or none came
 * within wait_ms from an interface; -errno with a line in err, after everything that
 * could be read.
 */
int rp_pcap_read(struct rp_pcap *p, int wait_ms, char *err, size_t errlen);
/* Tell what is held, the losses, and STOP. Once, whatever came before. */
int rp_pcap_finish(struct rp_pcap *p);
void rp_pcap_stats(struct rp_pcap *p, struct rp_pcap_stats *st);
const struct rp_tcp_stats *rp_pcap_tcp(const struct rp_pcap *p);
void rp_pcap_close(struct rp_pcap *p);

/* Without libpcap, for tests: the packets of one link type (DLT_*). */
int rp_pcap_open_none(const struct rp_pcap_opts *o, int dlt, struct rp_pcap **out);
/* wall: ns; len: bytes of the packet, of which caplen are at data. */
int rp_pcap_packet(struct rp_pcap *p, uint64_t wall, uint32_t caplen, uint32_t len,
		   const uint8_t *data);

#endif
