/* SPDX-License-Identifier: GPL-2.0-only */
/* sock.h - sockets and what is known of each connection. */
#ifndef RP_SOCK_H
#define RP_SOCK_H

#include "maps.h"
#include "ring.h"

enum {
	RP_AF_UNIX = 1,
	RP_AF_INET = 2,
	RP_AF_INET6 = 10,
	RP_SOCK_STREAM = 1,
	RP_IPPROTO_TCP = 6,
	RP_IPPROTO_MPTCP = 262,
	RP_EPIPE = 32,
	RP_ECONNRESET = 104,
};

static __always_inline u32 rp_sk_netns(const struct sock *sk)
{
	return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
}

static __always_inline u32 rp_sk_retrans(const struct sock *sk)
{
	return BPF_CORE_READ((const struct tcp_sock *)sk, total_retrans);
}

/* What a connection's sender knows of its peer. */
struct rp_tcp_state {
	u32 unacked, notsent, srtt_us, min_rtt_us;
};

static __always_inline void rp_sk_tcp(const struct sock *sk, struct rp_tcp_state *t)
{
	const struct tcp_sock *tp = (const struct tcp_sock *)sk;
	u32 end = BPF_CORE_READ(tp, write_seq);

	t->unacked = end - BPF_CORE_READ(tp, snd_una);
	t->notsent = end - BPF_CORE_READ(tp, snd_nxt);
	t->srtt_us = BPF_CORE_READ(tp, srtt_us) >> 3;
	t->min_rtt_us = BPF_CORE_READ(tp, rtt_min.s[0].v);
}

static __always_inline bool rp_is_listener(u32 netns, u16 port)
{
	struct rp_listener_key key = { .netns = netns, .port = port };

	return bpf_map_lookup_elem(&listeners, &key);
}

static __always_inline bool rp_is_mapped(const u8 *a)
{
	const u64 *q = (const u64 *)a;
	const u32 *d = (const u32 *)a;

	return q[0] == 0 && d[2] == __builtin_bswap32(0xffff);
}

/* Addresses and ports of an inet socket; IPv4 inside IPv6 is IPv4. */
static __always_inline void rp_sk_names(const struct sock *sk, struct rp_ev_conn_open *e)
{
	u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);

	__builtin_memset(e->laddr, 0, sizeof(e->laddr));
	__builtin_memset(e->raddr, 0, sizeof(e->raddr));
	e->lport = e->rport = 0;
	e->netns = rp_sk_netns(sk);
	if (family == RP_AF_INET6 && bpf_core_field_exists(sk->__sk_common.skc_v6_daddr)) {
		BPF_CORE_READ_INTO(&e->laddr, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&e->raddr, sk, __sk_common.skc_v6_daddr);
		if (rp_is_mapped(e->raddr)) {
			family = RP_AF_INET;
			__builtin_memset(e->laddr, 0, sizeof(e->laddr));
			__builtin_memset(e->raddr, 0, sizeof(e->raddr));
		}
	}
	if (family == RP_AF_INET) {
		*(u32 *)e->laddr = BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr);
		*(u32 *)e->raddr = BPF_CORE_READ(sk, __sk_common.skc_daddr);
	}
	if (family != RP_AF_UNIX) {
		e->lport = BPF_CORE_READ(sk, __sk_common.skc_num);
		e->rport = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
	}
	e->family = family;
}

static __always_inline void rp_emit_state(const struct rp_conn *c, u32 tid, u32 what, s32 err)
{
	struct rp_ev_conn_state *e = rp_reserve(RP_CLASS_CONN, sizeof(*e));

	if (!e)
		return;
	rp_hdr(&e->h, sizeof(*e), RP_EV_CONN_STATE, bpf_ktime_get_ns(), c->pid, tid);
	e->conn = c->id;
	e->what = what;
	e->err = err;
	rp_submit(e);
}

/* Forget a connection and say so. Only the one who removes it speaks. */
static __always_inline void rp_conn_drop(u64 key, u32 retrans)
{
	struct rp_conn *c = bpf_map_lookup_elem(&conns, &key);
	struct rp_ev_conn_close *e;
	u64 id, rx, tx;
	u32 flags, pid;

	if (!c)
		return;
	id = c->id;
	rx = c->rx;
	tx = c->tx;
	pid = c->pid;
	flags = c->flags;
	if (bpf_map_delete_elem(&conns, &key))
		return;
	if (flags & RP_CONN_UNIX)
		__sync_fetch_and_add(&unix_conns, -1);
	if (flags & RP_CONN_KEYED)
		bpf_map_delete_elem(&conn_keys, &id);
	e = rp_reserve(RP_CLASS_CONN, sizeof(*e));
	if (!e)
		return;
	rp_hdr(&e->h, sizeof(*e), RP_EV_CONN_CLOSE, bpf_ktime_get_ns(), pid, 0);
	e->conn = id;
	e->rx = rx;
	e->tx = tx;
	e->retrans = retrans;
	e->pad = 0;
	rp_submit(e);
}

/* A connection becomes known. `c` has pid, ino and flags; gets its id here. */
static __always_inline int rp_conn_add(u64 key, const struct sock *sk, struct rp_conn *c, u32 tid,
				       u8 rtt_status, u32 rtt_us)
{
	struct rp_ev_conn_open *e;
	long err;

	c->id = __sync_fetch_and_add(&last_conn, 1) + 1;
	err = bpf_map_update_elem(&conns, &key, c, BPF_NOEXIST);
	if (err) {
		if (err != -17 /* EEXIST: another thread was first */)
			rp_map_full(RP_MAP_CONNS);
		return err;
	}
	if (c->flags & RP_CONN_UNIX)
		__sync_fetch_and_add(&unix_conns, 1);
	e = rp_reserve(RP_CLASS_CONN, sizeof(*e));
	if (!e)
		return 0;
	rp_hdr(&e->h, sizeof(*e), RP_EV_CONN_OPEN, bpf_ktime_get_ns(), c->pid, tid);
	e->h.flags = (c->flags & RP_CONN_PRE_ATTACH ? RP_F_PRE_ATTACH : 0) |
		     (c->flags & RP_CONN_UNIX ? RP_F_UNIX : 0);
	e->conn = c->id;
	e->rtt_status = rtt_status;
	e->rtt_us = rtt_us;
	e->pad = 0;
	rp_sk_names(sk, e);
	rp_submit(e);
	return 0;
}

#endif
