/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bpf_shared.h - map keys, map values and global variables that bpf/ and
 * user/source/live.c both touch. Not events: nothing here is recorded.
 */
#ifndef REQPROBE_BPF_SHARED_H
#define REQPROBE_BPF_SHARED_H

#include "reqprobe/event.h"

enum rp_conn_flags {
	RP_CONN_PRE_ATTACH = 1 << 0, /* its handshake was not seen */
	RP_CONN_UNIX = 1 << 1,
	RP_CONN_SERVER = 1 << 2, /* its local port is a known listener's */
	/* Unix: each end is reported once */
	RP_CONN_PEER_FIN = 1 << 3,
	RP_CONN_PEER_RST = 1 << 4,
	RP_CONN_LOCAL_FIN = 1 << 5,
	RP_CONN_KEYED = 1 << 6, /* it has an entry in conn_keys */
	RP_CONN_EARLY = 1 << 7, /* fast open: used before its handshake was over */
};

#define RP_FIRST_BYTES 8

/*
 * conns: one per stream socket, keyed by the address of its struct sock. Between two
 * calls of an engine's thread its own work has emptied the caches, so what counts
 * is how many lines of memory are touched: the kernel puts 56 bytes before a value,
 * and the sizes make an element two lines here, one in threads.
 */
struct rp_conn {
	__u64 id;
	__u64 rx, tx;
	__u64 ino;   /* Unix: tells a reused address from the old socket */
	__u64 first; /* first bytes read, little endian, `have` of them */
	__u32 pid;   /* who used it first; 0 = nobody yet */
	__u32 flags; /* enum rp_conn_flags */
	__u32 retrans;
	__u8 proto; /* enum rp_proto */
	__u8 have;
	__u16 sweep; /* Unix: last sweep that found it open */
	/* followed by the tracepoints of sockets: */
	__u64 entry; /* when the writing call on it began; 0 = none, or unknown */
	__u32 tgid;  /* the last process that was looked up for it, and is watched */
	__u32 pad;
};

/* threads, where system calls are followed: keyed by global tgid << 32 | tid; one per thread of a watched process */
struct rp_thread {
	__u64 entry; /* when its present writing call began; 0 = unknown */
};

struct rp_listener_key {
	__u32 netns;
	__u16 port;
	__u16 pad;
};

struct rp_listener_val {
	__u32 opened; /* sockets we saw begin to listen, not yet closed */
	__u32 keep;   /* named by user space: never forgotten */
};

/*
 * Counters are spread over CPUs and still added to atomically: a program may be
 * preempted in the middle by another one on the same CPU.
 */
#define RP_STAT_SLOTS 64
struct rp_stat {
	__u64 seen[RP_CLASS_COUNT];
	__u64 lost[RP_CLASS_COUNT];
	__u64 map_full[RP_MAP_COUNT];
	__u64 pad[4];
};

/* A process whose bit is not set is not watched; others are looked up. */
#define RP_WATCH_WORDS 1024
#define RP_WATCH_WORD(tgid) (((tgid) >> 6) & (RP_WATCH_WORDS - 1))
#define RP_WATCH_BIT(tgid) (1ULL << ((tgid)&63))

#define RP_ZMTP_PROCS 256

/* rp_tcp_look(): the context of the program, in and out */
struct rp_look {
	__u64 conn;   /* in */
	__u64 mstamp; /* us of CLOCK_MONOTONIC: the last acknowledgement */
	__u32 found;
	__u32 unacked, notsent, srtt_us, min_rtt_us, retrans;
};

enum rp_selftest { RP_SELFTEST_ENTER = 1, RP_SELFTEST_EXIT = 2 };

/* data fragments: payload is at most this; options are clamped to RP_PAYLOAD_LIMIT */
#define RP_FRAG_MAX 16384
#define RP_FRAGS 64
#define RP_TAIL 4096 /* the end of a call longer than the limit, captured beside its head */
#define RP_PAYLOAD_LIMIT (RP_FRAGS * RP_FRAG_MAX)

_Static_assert(sizeof(struct rp_conn) == 72, "conn layout");
_Static_assert(sizeof(struct rp_thread) == 8, "thread layout");
_Static_assert(sizeof(struct rp_stat) == 128, "stat layout");

#endif
