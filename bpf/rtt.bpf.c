// SPDX-License-Identifier: GPL-2.0-only
/*
 * rtt.bpf.c - life of TCP sockets: the handshake and its round-trip time, who
 * ended the connection, and the end of the socket itself.
 */
#include "maps.h"
#include "ring.h"
#include "task.h"
#include "sock.h"

static __always_inline void rp_established(struct sock *sk, u64 key)
{
	u16 port = BPF_CORE_READ(sk, __sk_common.skc_num);
	struct rp_conn c = { .flags = RP_CONN_SERVER }, *old;
	u32 netns, rtt;
	u8 status;

	netns = rp_sk_netns(sk);
	if (!rp_is_listener(netns, port))
		return;
	/* The subflow of an MPTCP connection is not the socket that is read. */
	if (bpf_core_field_exists(((struct tcp_sock___mptcp *)0)->is_mptcp) &&
	    BPF_CORE_READ((struct tcp_sock___mptcp *)sk, is_mptcp))
		return;
	old = bpf_map_lookup_elem(&conns, &key);
	if (old && old->flags & RP_CONN_EARLY) {
		old->flags &= ~RP_CONN_EARLY;
		return;
	}
	/* The address was another socket's, whose end we missed. */
	rp_conn_drop(key, 0);
	/* Both transitions happen when the last ACK arrives, so their distance means
	 * nothing; the kernel's own sample runs from SYN-ACK to ACK. Where it kept no
	 * instant of the SYN-ACK (cookies), it asks the peer's echo of its time stamp,
	 * whose low bits a cookie uses for itself: whole milliseconds, and wrong. */
	rtt = BPF_CORE_READ((struct tcp_sock *)sk, srtt_us) >> 3;
	if (rp_sk_retrans(sk))
		status = RP_RTT_RETRANS; /* includes the SYN-ACK's */
	else if (rtt % 1000 == 0)
		status = RP_RTT_NO_SAMPLE;
	else
		status = RP_RTT_HANDSHAKE;
	/* The running task is whoever was interrupted: the listener owns this. */
	rp_conn_add(key, sk, &c, 0, status, rtt);
}

static __always_inline void rp_listening(struct sock *sk)
{
	struct rp_listener_key key = {};
	struct rp_listener_val val = { .opened = 1 }, *v;
	struct rp_ev_listener *e;
	u64 id = bpf_get_current_pid_tgid();
	struct rp_ev_conn_open names;
	u32 *pid;

	/* listen(2) runs in its caller */
	pid = rp_watched(id >> 32);
	if (!pid)
		return;
	rp_sk_names(sk, &names);
	if (!names.lport)
		return;
	key.netns = names.netns;
	key.port = names.lport;
	v = bpf_map_lookup_elem(&listeners, &key);
	if (v)
		__sync_fetch_and_add(&v->opened, 1);
	else if (bpf_map_update_elem(&listeners, &key, &val, BPF_ANY))
		rp_map_full(RP_MAP_LISTENERS);
	e = rp_reserve(RP_CLASS_CONN, sizeof(*e));
	if (!e)
		return;
	rp_hdr(&e->h, sizeof(*e), RP_EV_LISTENER, bpf_ktime_get_ns(), *pid, id);
	e->family = names.family;
	e->port = names.lport;
	e->netns = names.netns;
	__builtin_memcpy(e->addr, names.laddr, sizeof(e->addr));
	__builtin_memset(e->path, 0, sizeof(e->path));
	rp_submit(e);
}

static __always_inline void rp_unlistening(struct sock *sk)
{
	struct rp_listener_key key = {};
	struct rp_listener_val *v;

	key.netns = rp_sk_netns(sk);
	key.port = BPF_CORE_READ(sk, __sk_common.skc_num);
	v = bpf_map_lookup_elem(&listeners, &key);
	if (!v || !v->opened)
		return;
	if (__sync_fetch_and_add(&v->opened, -1) == 1 && !v->keep)
		bpf_map_delete_elem(&listeners, &key);
}

static __always_inline void rp_closed(struct sock *sk, const struct rp_conn *c, int old)
{
	s32 err = BPF_CORE_READ(sk, sk_err);

	if (err == RP_ECONNRESET || err == RP_EPIPE)
		rp_emit_state(c, 0, RP_PEER_RST, err);
	else if (err)
		rp_emit_state(c, 0, RP_PEER_LOST, err);
	else if (old == TCP_ESTABLISHED || old == TCP_CLOSE_WAIT)
		rp_emit_state(c, 0, RP_LOCAL_RST, 0);
	else if (old == TCP_LAST_ACK)
		rp_emit_state(c, 0, RP_LOCAL_FIN_ACKED, 0);
	/* else both sides had closed in order */
}

/* The FIN itself is sent after this. If there is nothing else to acknowledge, that
 * was before. */
static __always_inline void rp_local_fin(struct sock *sk, const struct rp_conn *c)
{
	struct rp_tcp_state t = {};
	struct rp_ev_tcp *e;

	rp_sk_tcp(sk, &t);
	if (c->flags & RP_CONN_KEYED && !t.unacked) {
		e = rp_reserve(RP_CLASS_CONN, sizeof(*e));
		if (e) {
			rp_hdr(&e->h, sizeof(*e), RP_EV_TCP, bpf_ktime_get_ns(), c->pid, 0);
			e->conn = c->id;
			e->acked_ts = BPF_CORE_READ((struct tcp_sock *)sk, delivered_mstamp) * 1000;
			e->unacked = e->notsent = 0;
			e->srtt_us = t.srtt_us;
			e->min_rtt_us = t.min_rtt_us;
			e->retrans = rp_sk_retrans(sk);
			e->pad = 0;
			rp_submit(e);
		}
	}
	rp_emit_state(c, 0, RP_LOCAL_FIN, 0);
}

static __always_inline int rp_set_state(struct sock *sk, int old, int new)
{
	u64 key = (u64)sk;
	struct rp_conn *c;
	u16 proto;

	/* once or twice in a connection's life each; the rest is cheap */
	if (new == TCP_SYN_SENT || new == TCP_SYN_RECV || new == TCP_TIME_WAIT ||
	    new == TCP_NEW_SYN_RECV)
		return 0;
	proto = BPF_CORE_READ(sk, sk_protocol);
	if (proto != RP_IPPROTO_TCP && proto != RP_IPPROTO_MPTCP)
		return 0;
	if (new == TCP_LISTEN) {
		if (proto == RP_IPPROTO_TCP)
			rp_listening(sk);
		return 0;
	}
	if (old == TCP_LISTEN) {
		if (proto == RP_IPPROTO_TCP)
			rp_unlistening(sk);
		return 0;
	}
	if (old == TCP_SYN_RECV && new == TCP_ESTABLISHED) {
		if (proto == RP_IPPROTO_TCP)
			rp_established(sk, key);
		return 0;
	}
	c = bpf_map_lookup_elem(&conns, &key);
	if (!c)
		return 0;
	if (new == TCP_CLOSE_WAIT)
		rp_emit_state(c, 0, RP_PEER_FIN, 0);
	else if (new == TCP_FIN_WAIT1 || new == TCP_LAST_ACK)
		rp_local_fin(sk, c);
	else if (new == TCP_FIN_WAIT2)
		rp_emit_state(c, 0, RP_LOCAL_FIN_ACKED, 0);
	else if (new == TCP_CLOSE)
		rp_closed(sk, c, old);
	/* MPTCP sockets don't reach tcp_destroy_sock */
	if (new == TCP_CLOSE && proto == RP_IPPROTO_MPTCP)
		rp_conn_drop(key, 0);
	return 0;
}

/* Only here is a connection forgotten: a system call that was under way when
 * the peer reset it returns after the reset. */
static __always_inline int rp_destroy(struct sock *sk)
{
	u64 key = (u64)sk;

	if (bpf_map_lookup_elem(&conns, &key))
		rp_conn_drop(key, rp_sk_retrans(sk));
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(rp_sock_state, struct sock *sk, int old, int new)
{
	return rp_set_state(sk, old, new);
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(rp_sock_destroy, struct sock *sk)
{
	return rp_destroy(sk);
}

SEC("raw_tp/inet_sock_set_state")
int rp_sock_state_raw(struct bpf_raw_tracepoint_args *ctx)
{
	return rp_set_state((struct sock *)ctx->args[0], ctx->args[1], ctx->args[2]);
}

SEC("raw_tp/tcp_destroy_sock")
int rp_sock_destroy_raw(struct bpf_raw_tracepoint_args *ctx)
{
	return rp_destroy((struct sock *)ctx->args[0]);
}

/*
 * Run by the daemon for one connection at a time: has the peer acknowledged
 * everything by now? The entry in conns must be of the same connection; memory of
 * a socket that is freed meanwhile is read without harm, and its entry is gone
 * when that is looked at again.
 */
SEC("syscall")
int rp_tcp_look(struct rp_look *l)
{
	struct rp_tcp_state t = {};
	struct rp_conn *c;
	struct sock *sk;
	u64 id = l->conn, *keyp, key;
	u8 state;

	l->found = 0;
	keyp = bpf_map_lookup_elem(&conn_keys, &id);
	if (!keyp)
		return 0;
	key = *keyp;
	sk = (struct sock *)key;
	rp_sk_tcp(sk, &t);
	/* a FIN has a number in the sequence, too */
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (t.unacked &&
	    (state == TCP_FIN_WAIT1 || state == TCP_CLOSING || state == TCP_LAST_ACK)) {
		t.unacked--;
		t.notsent -= t.notsent > 0;
	}
	l->mstamp = BPF_CORE_READ((struct tcp_sock *)sk, delivered_mstamp);
	l->retrans = rp_sk_retrans(sk);
	c = bpf_map_lookup_elem(&conns, &key);
	if (!c || c->id != id)
		return 0;
	l->unacked = t.unacked;
	l->notsent = t.notsent;
	l->srtt_us = t.srtt_us;
	l->min_rtt_us = t.min_rtt_us;
	l->found = 1;
	return 0;
}

char LICENSE[] SEC("license")
= "GPL";
