// SPDX-License-Identifier: GPL-2.0-only
/*
 * http.bpf.c - bytes that watched processes move on stream sockets, taken at
 * the system calls. Bytes are looked at only until it is clear whether a
 * connection carries HTTP/1; on all others nothing but counters moves.
 */
#include "maps.h"
#include "ring.h"
#include "task.h"
#include "sock.h"
#include "syscall_nr.h"

enum {
	RP_S_IFMT = 0170000,
	RP_S_IFSOCK = 0140000,
	RP_PF_IO_WORKER = 0x10,
	RP_PF_KTHREAD = 0x200000,
	RP_MSG_OOB = 0x1,
	RP_MSG_PEEK = 0x2,
	RP_MSG_TRUNC = 0x20,
	RP_MSG_ERRQUEUE = 0x2000,
	RP_SHUT_RD = 0,
	RP_IOV_STEP = 32,
	RP_IOV_MAX = RP_IOV_STEP * RP_IOV_STEP,
	RP_MMSG_MAX = 64,
};

/* A connection first met in mid-stream that shows no request within this many
 * bytes is taken for something else. */
#define RP_MIDSTREAM_LIMIT (16ULL << 20)

/*
 * Where the kernel has it (6.2), a number can be declared to be a pointer to a
 * given type and then be followed by plain loads; elsewhere each load is a
 * helper call. The branch not taken is dead code and is not even verified. (In
 * this file only: the linker of bpftool 7.1 cannot merge such declarations.)
 */
extern void *bpf_rdonly_cast(const void *obj, __u32 type) __ksym __weak;

#define rp_can_cast() rp_ksym_exists(bpf_rdonly_cast)
#define rp_cast(p, type) ((type *)bpf_rdonly_cast(p, bpf_core_type_id_kernel(type)))

/* layouts of user memory: ABI, so not from vmlinux.h and never relocated */
struct rp_iovec {
	u64 base;
	u64 len;
};

struct rp_msghdr {
	u64 name;
	u64 namelen;
	u64 iov;
	u64 iovlen;
	u64 control;
	u64 controllen;
	u64 flags;
};

struct rp_mmsghdr {
	struct rp_msghdr hdr;
	u32 len;
	u32 pad;
};

/* One call's bytes on their way to the ring. */
struct rp_xfer {
	u64 conn, off, ts, ret_ts;
	u32 pid, tid;
	u64 src; /* the buffer, or the iovec array when segs > 0 */
	u32 segs;
	u32 seg; /* segment to go on with, and where in it */
	u64 seg_off;
	u32 call_len;
	u32 limit; /* bytes of the call to deliver at most */
	u32 done;  /* bytes of the call dealt with so far */
	u32 fill;  /* bytes in the present record */
	u32 fault; /* bytes after those that could not be read */
	u32 skip;  /* bytes left out between the head and the tail of a long call */
	u32 tail;  /* bytes of the tail that is still to come */
	u32 retrans;
	struct rp_tcp_state tcp;
	u16 nr;
	u8 dir;
	u8 flags;
};

static __always_inline void rp_data_hdr(struct rp_ev_data *d, const struct rp_xfer *x)
{
	d->h.type = RP_EV_DATA;
	d->h.dir = x->dir;
	d->h.ts = x->ts;
	d->h.pid = x->pid;
	d->h.tid = x->tid;
	d->conn = x->conn;
	d->off = x->off + x->done;
	d->ret_ts = x->ret_ts;
	d->call_len = x->call_len;
	d->call_off = x->done;
	d->retrans = x->retrans;
	d->syscall = x->nr;
	d->pad = 0;
	d->unacked = x->tcp.unacked;
	d->notsent = x->tcp.notsent;
	d->srtt_us = x->tcp.srtt_us;
	d->min_rtt_us = x->tcp.min_rtt_us;
}

static __always_inline void rp_data_end(struct rp_ev_data *d, const struct rp_xfer *x, u32 len,
					u32 missing, bool more)
{
	d->len = len;
	d->missing = missing;
	d->h.size = (sizeof(*d) + len + 7) & ~7U;
	d->h.flags = x->flags | (more ? RP_F_MORE : 0) | (missing ? RP_F_CUT : 0);
}

/* Payload goes from user memory straight into the ring; n <= room, a constant. */
static __always_inline int rp_frag(struct rp_xfer *x, u32 n, const u32 room)
{
	struct rp_ev_data *d = rp_reserve(RP_CLASS_DATA, sizeof(*d) + room);
	u32 missing = 0, len = n;
	bool last = x->done + n >= x->limit; /* of the head, or of the tail */

	if (d) {
		rp_data_hdr(d, x);
		/* what pads the record must not be old text */
		if (n & 7)
			*(u64 *)&d->payload[n & (room - 1) & ~7U] = 0;
		if (n && bpf_probe_read_user(d->payload, n, (void *)(x->src + x->done))) {
			missing = n;
			len = 0;
		}
		if (last)
			missing += x->skip;
		rp_data_end(d, x, len, missing, !last || x->tail);
		if (room < 4096)
			rp_submit(d);
		else
			rp_submit_large(d);
	}
	x->done += n;
	return 0;
}

/* Record sizes must be constants, so they come in classes. */
__noinline int rp_put(struct rp_xfer *x)
{
	u32 n;

	if (!x)
		return 0;
	n = x->limit - x->done;
	if (n <= 256) {
		if (n <= 64)
			return rp_frag(x, n, 64);
		return rp_frag(x, n, 256);
	}
	if (n <= 512)
		return rp_frag(x, n, 512);
	if (n <= 1024)
		return rp_frag(x, n, 1024);
	if (n <= 4096)
		return rp_frag(x, n, 4096);
	if (n > RP_FRAG_MAX)
		n = RP_FRAG_MAX;
	return rp_frag(x, n, RP_FRAG_MAX);
}

/*
 * One step of filling a record from an iovec: copies from the present segment.
 * Writes start in the record's first half and are no longer than half of it:
 * a bound that the verifier can follow. Returns 1 when the record is done.
 */
static __always_inline int rp_seg(u8 *payload, struct rp_xfer *x, const u32 half)
{
	struct rp_iovec iv = {};
	u32 fill, left, len;
	u64 rest;

	fill = x->fill;
	left = x->limit - x->done - fill;
	if (fill >= half || !left || x->seg >= x->segs || x->fault)
		return 1;
	if (bpf_probe_read_user(&iv, sizeof(iv), (void *)(x->src + x->seg * sizeof(iv)))) {
		x->fault = left;
		x->seg = x->segs;
		return 1;
	}
	rest = iv.len - x->seg_off;
	if (rest > left)
		rest = left;
	len = rest;
	if (len > half)
		len = half;
	if (len && bpf_probe_read_user(payload + fill, len, (void *)(iv.base + x->seg_off)))
		x->fault = len;
	else
		x->fill = fill + len;
	x->seg_off += len;
	if (x->seg_off >= iv.len) {
		x->seg++;
		x->seg_off = 0;
	}
	return x->fault;
}

/*
 * Global functions are verified once, not for each way to them, and a loop for each of its
 * rounds: so a long one is two short ones.
 */
#define RP_VEC_CLASS(room)                                                            \
	struct rp_payload_##room {                                                    \
		u8 b[room];                                                           \
	};                                                                            \
                                                                                      \
	__noinline int rp_seg_##room(struct rp_payload_##room *p, struct rp_xfer *x)  \
	{                                                                             \
		if (!p || !x)                                                         \
			return 1;                                                     \
		return rp_seg(p->b, x, (room) / 2);                                   \
	}                                                                             \
                                                                                      \
	__noinline int rp_segs_##room(struct rp_payload_##room *p, struct rp_xfer *x) \
	{                                                                             \
		u32 i;                                                                \
                                                                                      \
		for (i = 0; i < RP_IOV_STEP; i++)                                     \
			if (rp_seg_##room(p, x))                                      \
				return 1;                                             \
		return 0;                                                             \
	}                                                                             \
                                                                                      \
	__noinline int rp_vec_##room(struct rp_xfer *x)                               \
	{                                                                             \
		struct rp_ev_data *d;                                                 \
		struct rp_payload_##room *p;                                          \
		u32 i, missing, n;                                                    \
		bool more;                                                            \
                                                                                      \
		if (!x)                                                               \
			return 0;                                                     \
		x->fill = 0;                                                          \
		x->fault = 0;                                                         \
		d = rp_reserve(RP_CLASS_DATA, sizeof(*d) + (room));                   \
		if (!d)                                                               \
			return 1;                                                     \
		p = (void *)d->payload;                                               \
		rp_data_hdr(d, x);                                                    \
		for (i = 0; i < RP_IOV_STEP; i++)                                     \
			if (rp_segs_##room(p, x))                                     \
				break;                                                \
		n = x->fill;                                                          \
		if (n > (room)-8)                                                     \
			n = (room)-8;                                                 \
		__builtin_memset(&p->b[n], 0, 8);                                     \
		missing = x->fault;                                                   \
		more = x->done + n + missing < x->limit && x->seg < x->segs;          \
		if (!more)                                                            \
			missing = x->call_len - x->done - n;                          \
		rp_data_end(d, x, n, missing, more);                                  \
		if ((room) < 4096)                                                    \
			rp_submit(d);                                                 \
		else                                                                  \
			rp_submit_large(d);                                           \
		x->done += n + missing;                                               \
		return !more;                                                         \
	}

RP_VEC_CLASS(512)
RP_VEC_CLASS(4096)
RP_VEC_CLASS(16384)

/* One record of an iovec; 1 when it was the last. */
__noinline int rp_vec(struct rp_xfer *x)
{
	u32 left;

	if (!x)
		return 1;
	left = x->limit - x->done;
	if (left <= 256)
		return rp_vec_512(x);
	if (left <= 2048)
		return rp_vec_4096(x);
	return rp_vec_16384(x);
}

/* Deliver a call's bytes, as far as they are wanted. */
__noinline int rp_deliver(struct rp_xfer *x)
{
	u32 i, left, tail;

	if (!x)
		return 0;
	if (!x->segs) {
		/* The tail of a long call carries its framing and its usage. Bytes
		 * that never were in a buffer (limit 0) have none: what lies there
		 * is something else. */
		left = x->call_len - x->limit;
		tail = left < RP_TAIL ? left : RP_TAIL;
		if (!x->limit)
			tail = 0;
		x->skip = left - tail;
		x->tail = tail;
		for (i = 0; i < RP_FRAGS; i++) {
			rp_put(x);
			if (x->done >= x->limit)
				break;
		}
		if (tail) {
			x->done = x->call_len - tail;
			x->limit = x->call_len;
			x->skip = 0;
			x->tail = 0;
			rp_put(x);
		}
		return 0;
	}
	/* every record but the last is at least half full, so twice the number */
	for (i = 0; i < 2 * RP_FRAGS + 2; i++)
		if (rp_vec(x))
			break;
	return 0;
}

/* Where the bytes of a message are. One segment is as good as a plain buffer. */
static __always_inline void rp_xfer_iov(struct rp_xfer *x, u64 iov, u64 n)
{
	struct rp_iovec iv;

	x->src = iov;
	x->segs = n > RP_IOV_MAX ? RP_IOV_MAX : n;
	if (n == 1 && !bpf_probe_read_user(&iv, sizeof(iv), (void *)iov)) {
		x->src = iv.base;
		x->segs = 0;
	}
}

static __always_inline void rp_xfer_msg(struct rp_xfer *x, u64 msg)
{
	struct rp_msghdr m;

	if (bpf_probe_read_user(&m, sizeof(m), (void *)msg))
		x->limit = 0;
	else
		rp_xfer_iov(x, m.iov, m.iovlen);
}

/* ---- what a connection carries ---- */

static __always_inline void rp_set_proto(struct rp_conn *c, const struct rp_xfer *x, u8 proto)
{
	struct rp_ev_conn_proto *e;

	c->proto = proto;
	e = rp_reserve(RP_CLASS_CONN, sizeof(*e));
	if (!e)
		return;
	rp_hdr(&e->h, sizeof(*e), RP_EV_CONN_PROTO, x->ret_ts, x->pid, x->tid);
	e->conn = c->id;
	e->proto = proto;
	e->pad = 0;
	rp_submit(e);
}

struct rp_peeked {
	u8 b[32];
};

/* The first bytes of what a call moved, up to 16; returns their number. */
__noinline int rp_peek(struct rp_xfer *x, struct rp_peeked *p)
{
	struct rp_iovec iv = {};
	u32 i, n = 0, len;

	if (!x || !p)
		return 0;
	if (!x->segs) {
		n = x->call_len;
		if (n > 16)
			n = 16;
		if (bpf_probe_read_user(p->b, n, (void *)x->src))
			return 0;
		return n;
	}
	for (i = 0; i < 8; i++) {
		if (i >= x->segs || n >= 16 || n >= x->call_len)
			break;
		if (bpf_probe_read_user(&iv, sizeof(iv), (void *)(x->src + i * sizeof(iv))))
			break;
		len = iv.len > 16 ? 16 : iv.len;
		if (len > x->call_len - n)
			len = x->call_len - n;
		if (len > 16)
			break;
		if (len && bpf_probe_read_user(&p->b[n & 15], len, (void *)iv.base))
			break;
		n += len;
	}
	return n > 16 ? 16 : n;
}

#define RP_CH(s, i) (sizeof(s) - 1 > (i) ? (u64)(u8)(s)[(i) < sizeof(s) ? (i) : 0] << (8 * (i)) : 0)
#define RP_WORD(s)                                                                           \
	(RP_CH(s, 0) | RP_CH(s, 1) | RP_CH(s, 2) | RP_CH(s, 3) | RP_CH(s, 4) | RP_CH(s, 5) | \
	 RP_CH(s, 6) | RP_CH(s, 7))

enum rp_match { RP_MATCH_NO, RP_MATCH_MAYBE, RP_MATCH_YES };

/* `w` holds n bytes, the first one lowest; does it start with the n2 bytes of s? */
static __always_inline enum rp_match rp_match(u64 w, u32 n, u64 s, const u32 n2)
{
	u32 have = n < n2 ? n : n2;
	u64 mask = have >= 8 ? ~0ULL : (1ULL << (8 * have)) - 1;

	if ((w ^ s) & mask)
		return RP_MATCH_NO;
	return n < n2 ? RP_MATCH_MAYBE : RP_MATCH_YES;
}

#define RP_TRY(s, verdict)                             \
	m = rp_match(w, n, RP_WORD(s), sizeof(s) - 1); \
	if (m == RP_MATCH_YES)                         \
		return verdict;                        \
	if (m == RP_MATCH_MAYBE)                       \
		maybe = true;

/* RP_PROTO_UNKNOWN: more bytes are needed. */
__noinline int rp_verdict(u64 w, u32 n)
{
	bool maybe = false;
	enum rp_match m;
	u8 type = w;

	RP_TRY("POST ", RP_PROTO_HTTP1);
	RP_TRY("GET ", RP_PROTO_HTTP1);
	RP_TRY("HEAD ", RP_PROTO_HTTP1);
	RP_TRY("OPTIONS ", RP_PROTO_HTTP1);
	RP_TRY("PUT ", RP_PROTO_HTTP1);
	RP_TRY("DELETE ", RP_PROTO_HTTP1);
	RP_TRY("PATCH ", RP_PROTO_HTTP1);
	RP_TRY("CONNECT ", RP_PROTO_HTTP1);
	RP_TRY("TRACE ", RP_PROTO_HTTP1);
	RP_TRY("PRI * HT", RP_PROTO_HTTP2);
	/* any TLS record: a connection may be older than we are */
	if (type >= 0x14 && type <= 0x17) {
		if (n >= 2)
			return ((w >> 8) & 0xff) == 3 ? RP_PROTO_TLS : RP_PROTO_OTHER;
		maybe = true;
	}
	return maybe ? RP_PROTO_UNKNOWN : RP_PROTO_OTHER;
}

/*
 * ZMTP: a greeting begins with 0xff, a frame with its flags, of which three bits
 * are defined. User space looks closer.
 */
static __always_inline bool rp_maybe_zmtp(u8 first)
{
	u32 tgid;

	if (!zmtp_count || (first != 0xff && first > 7))
		return false;
	tgid = bpf_get_current_pid_tgid() >> 32;
	return bpf_map_lookup_elem(&zmtp_procs, &tgid);
}

/* Bytes came from the peer, and it is not yet known what they are. */
__noinline int rp_judge(struct rp_conn *c, struct rp_xfer *x)
{
	struct rp_peeked p = {};
	u32 i, n, have;
	u64 first;
	u8 v;

	if (!c || !x)
		return 0;
	if (c->proto == RP_PROTO_MIDSTREAM && c->rx + c->tx > RP_MIDSTREAM_LIMIT) {
		rp_set_proto(c, x, RP_PROTO_OTHER);
		return 0;
	}
	n = rp_peek(x, &p);
	if (!n) /* could not be read: nothing learned */
		return 0;
	have = c->have;
	first = c->first;
	for (i = 0; i < 16; i++) {
		if (i >= n || have >= RP_FIRST_BYTES)
			break;
		/* HTTP allows empty lines before a request */
		if (!have && (p.b[i] == '\r' || p.b[i] == '\n'))
			continue;
		first |= (u64)p.b[i] << (8 * (have & 7));
		have++;
	}
	if (!have)
		return 0;
	v = rp_verdict(first, have);
	if (v == RP_PROTO_OTHER && rp_maybe_zmtp(first))
		v = RP_PROTO_ZMTP;
	if (v == RP_PROTO_OTHER) {
		/* the rest of a request that began before we came? */
		if (c->flags & RP_CONN_PRE_ATTACH && c->flags & RP_CONN_SERVER) {
			c->have = 0;
			c->first = 0;
			if (c->proto != RP_PROTO_MIDSTREAM)
				rp_set_proto(c, x, RP_PROTO_MIDSTREAM);
			return 0;
		}
	}
	c->first = first;
	c->have = have;
	if (v != RP_PROTO_UNKNOWN)
		rp_set_proto(c, x, v);
	return 0;
}

/* Our side wrote before anything was read. */
__noinline int rp_judge_write(struct rp_conn *c, struct rp_xfer *x)
{
	struct rp_peeked p = {};
	bool midstream;
	u32 n;

	if (!c || !x)
		return 0;
	/* only a server's connection that was open before us can be in a response */
	midstream = c->flags & RP_CONN_PRE_ATTACH && c->flags & RP_CONN_SERVER;
	if (!midstream && !zmtp_count)
		return 0;
	n = rp_peek(x, &p);
	if (n && rp_maybe_zmtp(p.b[0])) {
		rp_set_proto(c, x, RP_PROTO_ZMTP);
		return 0;
	}
	if (!midstream)
		return 0;
	if (n >= 2 && p.b[0] >= 0x14 && p.b[0] <= 0x17 && p.b[1] == 3)
		rp_set_proto(c, x, RP_PROTO_TLS);
	else
		rp_set_proto(c, x, RP_PROTO_MIDSTREAM);
	return 0;
}

/* ---- from a descriptor to a connection ---- */

static __always_inline struct file *rp_file(u32 fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *fdt = task->files->fdt;
	struct file *file = NULL;

	if (fd >= fdt->max_fds)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), fdt->fd + fd);
	return file;
}

static __always_inline struct sock *rp_file_sock(struct file *file)
{
	struct socket *socket;

	if (rp_can_cast()) {
		file = rp_cast(file, struct file);
		if ((file->f_inode->i_mode & RP_S_IFMT) != RP_S_IFSOCK)
			return NULL;
		return rp_cast(file->private_data, struct socket)->sk;
	}
	if ((BPF_CORE_READ(file, f_inode, i_mode) & RP_S_IFMT) != RP_S_IFSOCK)
		return NULL;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk);
}

/* First use of a socket that was not seen to be established. Static: a global
 * function would refuse the key, which to the verifier is a typed pointer. */
static __noinline int rp_conn_meet(u64 key, u64 ino, u32 pid, u32 tid)
{
	struct sock *sk = (struct sock *)key;
	struct rp_conn c = { .pid = pid };
	u16 family, proto;
	u8 state, status;

	if (BPF_CORE_READ(sk, sk_type) != RP_SOCK_STREAM)
		return -1;
	family = BPF_CORE_READ(sk, __sk_common.skc_family);
	state = BPF_CORE_READ(sk, __sk_common.skc_state);
	if (state == TCP_CLOSE || state == TCP_LISTEN || state == TCP_SYN_SENT)
		return -1;
	if (family == RP_AF_UNIX) {
		c.flags = RP_CONN_UNIX;
		c.ino = ino;
		return rp_conn_add(key, sk, &c, tid, RP_RTT_UNIX, 0);
	}
	if (family != RP_AF_INET && family != RP_AF_INET6)
		return -1;
	proto = BPF_CORE_READ(sk, sk_protocol);
	if (proto != RP_IPPROTO_TCP && proto != RP_IPPROTO_MPTCP)
		return -1;
	c.flags = RP_CONN_PRE_ATTACH;
	if (rp_is_listener(rp_sk_netns(sk), BPF_CORE_READ(sk, __sk_common.skc_num)))
		c.flags |= RP_CONN_SERVER;
	status = RP_RTT_NONE;
	if (state == TCP_SYN_RECV && c.flags & RP_CONN_SERVER) {
		c.flags = RP_CONN_SERVER | RP_CONN_EARLY;
		status = RP_RTT_NO_SAMPLE;
	}
	if (rp_conn_add(key, sk, &c, tid, status, 0))
		return -1;
	/* Another thread may have closed it meanwhile, before the entry was there
	 * for tcp_destroy_sock to remove. */
	if (BPF_CORE_READ(sk, __sk_common.skc_state) == TCP_CLOSE)
		rp_conn_drop(key, 0);
	return 0;
}

/*
 * NULL: not a stream socket, or one whose life is not worth following. Or it is not
 * `only`, when that is given: what is at hand needs no way by the inode, and no look if
 * it is `known`.
 */
static __always_inline struct rp_conn *rp_conn_of(u32 fd, const struct rp_who *w, struct sock *only,
						  struct rp_conn *known, struct sock **skp,
						  const bool meet)
{
	struct file *file = rp_file(fd);
	struct sock *sk = only;
	struct rp_conn *c;
	u64 key, ino;

	if (!file)
		return NULL;
	if (only) {
		struct socket *socket = only->sk_socket;

		if (!socket || socket->file != file || socket->sk != only)
			return NULL;
	} else {
		sk = rp_file_sock(file);
		if (!sk)
			return NULL;
	}
	*skp = sk;
	key = (u64)sk;
	c = known ? known : bpf_map_lookup_elem(&conns, &key);
	if (c && !(c->flags & RP_CONN_UNIX))
		return c;
	ino = BPF_CORE_READ(file, f_inode, i_ino);
	if (c) {
		if (c->ino == ino)
			return c;
		rp_conn_drop(key, 0);
	}
	if (!meet || rp_conn_meet(key, ino, w->pid, w->tid))
		return NULL;
	return bpf_map_lookup_elem(&conns, &key);
}

/* Who is it, on a connection that may be known: mostly the one who was it before. */
static __always_inline bool rp_who_has(struct rp_who *w, struct rp_conn *c)
{
	u32 *pid;

	rp_who_ids(w);
	if (c && c->tgid == w->tgid && !pid_level)
		return true;
	pid = rp_watched(w->tgid);
	if (!pid)
		return false;
	w->pid = *pid;
	if (c)
		c->tgid = w->tgid;
	return true;
}

/* ---- the calls ---- */

/* Unix sockets have no state tracepoint: their ends show in system calls. */
static __always_inline void rp_unix_end(struct rp_conn *c, const struct rp_who *w, u32 flag,
					u32 what, s32 err)
{
	if (!(c->flags & RP_CONN_UNIX) || c->flags & flag)
		return;
	__sync_fetch_and_or(&c->flags, flag);
	rp_emit_state(c, w->tid, what, err);
}

static __always_inline bool rp_last_ref(struct file *file)
{
	if (bpf_core_field_exists(((struct file___f_ref *)0)->f_ref))
		return BPF_CORE_READ((struct file___f_ref *)file, f_ref.refcnt.counter) == 0;
	return BPF_CORE_READ((struct file___f_count *)file, f_count.counter) == 1;
}

static __always_inline void rp_close_unix(u32 fd)
{
	struct rp_conn *c;
	struct file *file;
	u64 key;

	if (!unix_conns)
		return;
	file = rp_file(fd);
	if (!file)
		return;
	key = (u64)rp_file_sock(file);
	if (!key)
		return;
	c = bpf_map_lookup_elem(&conns, &key);
	if (c && c->flags & RP_CONN_UNIX && rp_last_ref(file))
		rp_conn_drop(key, 0);
}

static __always_inline void rp_selftest(u32 bit)
{
	if (selftest_tgid && selftest_tgid == bpf_get_current_pid_tgid() >> 32)
		__sync_fetch_and_or(&selftest_seen, bit);
}

static __always_inline int rp_enter(struct pt_regs *regs, u64 nr, const bool raw)
{
	struct rp_who w;
	u8 op;

	if (nr >= RP_NR_LIMIT)
		return 0;
	op = rp_ops[nr];
	if (!(op & RP_OP_ENTER))
		return 0;
	if (op & RP_OP_TX) {
		if (rp_who(&w) && w.thread)
			w.thread->entry = bpf_ktime_get_ns();
		return 0;
	}
	if ((op & RP_OP_KIND) == RP_OP_SHUTDOWN) {
		rp_selftest(RP_SELFTEST_ENTER);
		return 0;
	}
	if (unix_conns && rp_who(&w))
		rp_close_unix(RP_SYS_ARG0(raw, regs));
	return 0;
}

static __always_inline int rp_uring(void)
{
	struct rp_ev_uring *e;
	struct rp_who w;

	if (!rp_who(&w))
		return 0;
	e = rp_reserve(RP_CLASS_PROC, sizeof(*e));
	if (!e)
		return 0;
	rp_hdr(&e->h, sizeof(*e), RP_EV_URING, bpf_ktime_get_ns(), w.pid, w.tid);
	rp_submit(e);
	return 0;
}

/* The rare ones. */
static __always_inline int rp_exit_other(struct pt_regs *regs, long ret, u8 op, const bool raw)
{
	struct rp_conn *c;
	struct sock *sk;
	struct rp_who w;

	if ((op & RP_OP_KIND) == RP_OP_URING)
		return ret < 0 ? 0 : rp_uring();
	if ((op & RP_OP_KIND) == RP_OP_ACCEPT) {
		struct rp_ev_conn_accept *e;

		if (ret < 0 || !rp_who(&w))
			return 0;
		/* those of known listeners were seen to be established */
		c = rp_conn_of(ret, &w, NULL, NULL, &sk, false);
		if (!c || c->flags & (RP_CONN_UNIX | RP_CONN_PRE_ATTACH))
			return 0;
		e = rp_reserve(RP_CLASS_CONN, sizeof(*e));
		if (!e)
			return 0;
		rp_hdr(&e->h, sizeof(*e), RP_EV_CONN_ACCEPT, bpf_ktime_get_ns(), w.pid, w.tid);
		e->conn = c->id;
		rp_submit(e);
		return 0;
	}
	rp_selftest(RP_SELFTEST_EXIT);
	if (ret || !unix_conns || (int)RP_SYS_ARG1(raw, regs) == RP_SHUT_RD || !rp_who(&w))
		return 0;
	c = rp_conn_of(RP_SYS_ARG0(raw, regs), &w, NULL, NULL, &sk, false);
	if (c)
		rp_unix_end(c, &w, RP_CONN_LOCAL_FIN, RP_LOCAL_FIN, 0);
	return 0;
}

/*
 * One of several messages; 1: it could not be read. Its frame is a small one: in older kernels
 * all of them on the way to rp_seg_*(), each rounded up to 32 bytes, may have 512.
 */
__noinline int rp_deliver_one(struct rp_conn *c, struct rp_xfer *x, u64 msg)
{
	struct rp_mmsghdr *m = (void *)msg;
	u64 n;

	if (!c || !x || bpf_probe_read_user(&x->src, sizeof(x->src), &m->hdr.iov) ||
	    bpf_probe_read_user(&n, sizeof(n), &m->hdr.iovlen) ||
	    bpf_probe_read_user(&x->call_len, sizeof(x->call_len), &m->len))
		return 1;
	if (!x->call_len)
		return 0;
	x->off = __sync_fetch_and_add(x->dir == RP_RX ? &c->rx : &c->tx, x->call_len);
	x->limit = x->call_len < payload_max ? x->call_len : payload_max;
	x->done = 0;
	x->seg = 0;
	x->seg_off = 0;
	rp_xfer_iov(x, x->src, n);
	if (x->dir == RP_RX && c->proto != RP_PROTO_HTTP1 &&
	    (c->proto == RP_PROTO_UNKNOWN || c->proto == RP_PROTO_MIDSTREAM))
		rp_judge(c, x);
	if (c->proto == RP_PROTO_HTTP1 || c->proto == RP_PROTO_MIDSTREAM ||
	    (x->dir == RP_RX && c->proto == RP_PROTO_UNKNOWN))
		rp_deliver(x);
	return 0;
}

/* Several messages in one call: each is a call of its own to the reader. */
static __always_inline void rp_deliver_many(struct rp_conn *c, struct rp_xfer *x, u64 vec, u32 n)
{
	u32 i;

	for (i = 0; i < RP_MMSG_MAX && i < n; i++)
		if (rp_deliver_one(c, x, vec + i * sizeof(struct rp_mmsghdr)))
			break;
}

static __always_inline void rp_tcp(struct sock *sk, struct rp_xfer *x)
{
	if (rp_can_cast()) {
		struct tcp_sock *tp = rp_cast(sk, struct tcp_sock);

		x->retrans = tp->total_retrans;
		x->tcp.unacked = tp->write_seq - tp->snd_una;
		if (x->dir == RP_RX) {
			x->tcp.srtt_us = x->ts / 1000 - tp->delivered_mstamp;
		} else {
			x->tcp.notsent = tp->write_seq - tp->snd_nxt;
			x->tcp.srtt_us = tp->srtt_us >> 3;
			x->tcp.min_rtt_us = tp->rtt_min.s[0].v;
		}
	} else {
		x->retrans = rp_sk_retrans(sk);
		rp_sk_tcp(sk, &x->tcp);
		if (x->dir == RP_RX)
			x->tcp.srtt_us = x->ts / 1000 -
					 BPF_CORE_READ((struct tcp_sock *)sk, delivered_mstamp);
	}
	x->flags |= RP_F_TCP;
}

/*
 * sock: the call is still under way, and has just moved `ret` bytes of `only`; of
 * several messages it may be any.
 */
static __always_inline int rp_exit(struct pt_regs *regs, long ret, const bool raw, const bool sock,
				   struct sock *only, enum rp_dir dir)
{
	struct rp_xfer x;
	struct rp_conn *c, *known = NULL;
	struct rp_who w;
	struct sock *sk = NULL;
	u64 nr, entry = 0, a1, a2;
	u8 op, kind;
	u32 fd, msg_flags;

	nr = RP_SYS_NR(raw, regs);
	if (nr >= RP_NR_LIMIT)
		return 0;
	op = rp_ops[nr];
	if (!(op & RP_OP_EXIT))
		return 0;
	kind = op & RP_OP_KIND;
	if (sock && kind != RP_OP_SPLICE && dir != (op & RP_OP_TX ? RP_TX : RP_RX))
		return 0;
	if (kind == RP_OP_SHUTDOWN || kind == RP_OP_URING || kind == RP_OP_ACCEPT)
		return rp_exit_other(regs, ret, op, raw);
	if (sock) {
		u64 key = (u64)only;

		known = bpf_map_lookup_elem(&conns, &key);
		if (op & RP_OP_TX && known) {
			entry = known->entry;
			known->entry = 0;
		}
		if (!rp_who_has(&w, known))
			return 0;
	} else {
		if (!rp_who(&w))
			return 0;
		if (op & RP_OP_TX && w.thread) {
			entry = w.thread->entry;
			w.thread->entry = 0;
		}
	}
	if (RP_TASK_COMPAT(bpf_get_current_task_btf()))
		return 0;
	a2 = RP_SYS_ARG2(raw, regs);
	if (ret <= 0) {
		/* no data; on a Unix socket it may be the end */
		if (!unix_conns)
			return 0;
		if (ret == 0 && (op & RP_OP_TX || (kind != RP_OP_MSG && !a2)))
			return 0;
		if (ret != 0 && ret != -RP_EPIPE && ret != -RP_ECONNRESET)
			return 0;
		c = rp_conn_of(RP_SYS_ARG0(raw, regs), &w, only, known, &sk, false);
		if (c)
			rp_unix_end(c, &w, ret ? RP_CONN_PEER_RST : RP_CONN_PEER_FIN,
				    ret ? RP_PEER_RST : RP_PEER_FIN, -ret);
		return 0;
	}
	fd = RP_SYS_ARG0(raw, regs);
	a1 = RP_SYS_ARG1(raw, regs);
	x.dir = op & RP_OP_TX ? RP_TX : RP_RX;
	if (kind == RP_OP_SPLICE) {
		/* (in, off, out, ...): a socket may be at either end */
		c = rp_conn_of(a2, &w, only, known, &sk, true);
		if (!c) {
			x.dir = RP_RX;
			c = rp_conn_of(fd, &w, only, known, &sk, true);
		}
		kind = RP_OP_UNSEEN;
	} else {
		c = rp_conn_of(fd, &w, only, known, &sk, true);
	}
	if (!c)
		return 0;
	msg_flags = 0;
	if (x.dir == RP_RX) {
		if (kind == RP_OP_MSG)
			msg_flags = a2;
		else if (kind == RP_OP_RECVFROM || kind == RP_OP_MMSG)
			msg_flags = RP_SYS_ARG3(raw, regs);
		/* not taken from the stream */
		if (msg_flags & (RP_MSG_PEEK | RP_MSG_OOB | RP_MSG_ERRQUEUE))
			return 0;
	}
	if (!c->pid)
		c->pid = w.pid;

	x.conn = c->id;
	x.ret_ts = bpf_ktime_get_ns();
	x.ts = x.ret_ts;
	x.flags = 0;
	if (x.dir == RP_TX) {
		if (entry)
			x.ts = entry;
		else
			x.flags = RP_F_NO_ENTRY;
	}
	x.pid = w.pid;
	x.tid = w.tid;
	x.nr = nr;
	x.segs = 0;
	x.seg = 0;
	x.seg_off = 0;
	x.done = 0;
	x.fill = 0;
	x.fault = 0;
	x.skip = 0;
	x.tail = 0;
	x.retrans = 0;
	__builtin_memset(&x.tcp, 0, sizeof(x.tcp));
	x.src = a1;
	x.off = 0;
	x.call_len = ret;
	x.limit = 0;
	if (sock && kind == RP_OP_MMSG) {
		kind = RP_OP_UNSEEN;
	} else if (kind == RP_OP_MMSG) {
		rp_deliver_many(c, &x, a1, ret);
		return 0;
	}
	x.off = __sync_fetch_and_add(x.dir == RP_RX ? &c->rx : &c->tx, (u32)ret);
	/* most connections that are not HTTP end here */
	if (c->proto != RP_PROTO_HTTP1 && c->proto != RP_PROTO_UNKNOWN &&
	    c->proto != RP_PROTO_MIDSTREAM && (c->proto != RP_PROTO_ZMTP || x.dir == RP_RX))
		return 0;

	x.limit = ret < payload_max ? ret : payload_max;
	if (kind == RP_OP_UNSEEN || msg_flags & RP_MSG_TRUNC)
		x.limit = 0;
	else if (kind == RP_OP_IOV)
		rp_xfer_iov(&x, a1, a2);
	else if (kind == RP_OP_MSG)
		rp_xfer_msg(&x, a1);

	if (c->proto != RP_PROTO_HTTP1 && c->proto != RP_PROTO_ZMTP) {
		if (x.dir == RP_RX) {
			if (x.limit)
				rp_judge(c, &x);
			if (c->proto != RP_PROTO_HTTP1 && c->proto != RP_PROTO_UNKNOWN &&
			    c->proto != RP_PROTO_MIDSTREAM)
				return 0;
		} else if (c->proto == RP_PROTO_UNKNOWN) {
			if (!c->rx)
				rp_judge_write(c, &x);
			if (c->proto != RP_PROTO_MIDSTREAM && c->proto != RP_PROTO_ZMTP)
				return 0;
		}
	}
	if (!(c->flags & RP_CONN_UNIX)) {
		rp_tcp(sk, &x);
		/* once in its life; may be late, not twice at a time */
		if (c->proto == RP_PROTO_HTTP1 && !(c->flags & RP_CONN_KEYED)) {
			u64 key = (u64)sk;

			c->flags |= RP_CONN_KEYED;
			bpf_map_update_elem(&conn_keys, &c->id, &key, BPF_ANY);
		}
	}
	if (!x.segs && x.limit == x.call_len && x.limit <= RP_FRAG_MAX)
		rp_put(&x);
	else
		rp_deliver(&x);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(rp_sys_enter, struct pt_regs *regs, long id)
{
	return rp_enter(regs, id, false);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(rp_sys_exit, struct pt_regs *regs, long ret)
{
	return rp_exit(regs, ret, false, false, NULL, RP_RX);
}

/*
 * The same without a system call tracepoint, which all calls of the machine pay
 * for (0.27 us, in a process that spins in sched_yield(2) a tenth of its time):
 * the tracepoints of sockets fire in the call, whose registers are still there.
 * What is not seen this way: accept(2), close(2) of Unix sockets (a sweep finds
 * them), splice(2) out of a socket, and the single messages of recvmmsg(2) and
 * sendmmsg(2), which are told cut.
 */
static __always_inline struct pt_regs *rp_sock_regs(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	/* of all processes of the machine most leave here */
	if (!rp_maybe_watched(bpf_get_current_pid_tgid() >> 32))
		return NULL;
	/* their registers are no system call's */
	if (task->flags & (RP_PF_IO_WORKER | RP_PF_KTHREAD))
		return NULL;
	return (struct pt_regs *)bpf_task_pt_regs(task);
}

static __always_inline int rp_sock_moved(struct sock *sk, int ret, enum rp_dir dir)
{
	struct pt_regs *regs = rp_sock_regs();

	if (!regs)
		return 0;
	rp_selftest(dir == RP_TX ? RP_SELFTEST_ENTER : RP_SELFTEST_EXIT);
	return rp_exit(regs, ret, false, true, sk, dir);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(rp_sock_recv, struct sock *sk, int ret, int flags)
{
	/* of the one who asked, not of what was taken from the stream */
	if (flags & RP_MSG_PEEK)
		return 0;
	return rp_sock_moved(sk, ret, RP_RX);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(rp_sock_send, struct sock *sk, int ret, int flags)
{
	return rp_sock_moved(sk, ret, RP_TX);
}

/* Each buffer that a send fills; the first is as near to the call as there is. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(rp_sock_entry, struct sock *sk)
{
	struct pt_regs *regs = rp_sock_regs();
	u64 nr, key = (u64)sk;
	struct rp_conn *c;

	if (!regs)
		return 0;
	c = bpf_map_lookup_elem(&conns, &key);
	if (!c || c->entry)
		return 0;
	nr = RP_SYS_NR(false, regs);
	/* else nobody would take it away again */
	if (nr < RP_NR_LIMIT && rp_ops[nr] & RP_OP_TX)
		c->entry = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/io_uring_create")
int BPF_PROG(rp_uring_create)
{
	return rp_uring();
}

SEC("raw_tp/sys_enter")
int rp_sys_enter_raw(struct bpf_raw_tracepoint_args *ctx)
{
	return rp_enter((struct pt_regs *)ctx->args[0], ctx->args[1], true);
}

SEC("raw_tp/sys_exit")
int rp_sys_exit_raw(struct bpf_raw_tracepoint_args *ctx)
{
	return rp_exit((struct pt_regs *)ctx->args[0], ctx->args[1], true, false, NULL, RP_RX);
}

char LICENSE[] SEC("license")
= "GPL";
