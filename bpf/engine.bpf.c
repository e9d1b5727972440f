// SPDX-License-Identifier: GPL-2.0-only
/*
 * engine.bpf.c - the one program behind every uprobe. What a hook reads is data
 * (struct rp_hook_spec), so that engines are described in user space.
 */
#include "maps.h"
#include "ring.h"
#include "task.h"

/*
 * From 6.13 on programs of this type have per-CPU stacks in the belief that
 * they are never preempted; uprobes are. So they say so where they can.
 */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;

/* Arguments on the stack: above the return address, which arm64 has in a register. */
#if defined(__TARGET_ARCH_x86)
#define RP_PARM6(ctx) ((ctx)->r9)
#define RP_STACK(ctx) (PT_REGS_SP(ctx) + 8)
#else
#define RP_PARM6(ctx) (((struct user_pt_regs *)(ctx))->regs[5])
#define RP_STACK(ctx) PT_REGS_SP(ctx)
#endif

/* All at once: the context may only be read at constant offsets, and the
 * compiler would fold a choice among them into one load at a variable one. */
static __always_inline void rp_args(struct pt_regs *ctx, u64 *arg /* 8 */)
{
	arg[0] = PT_REGS_PARM1(ctx);
	arg[1] = PT_REGS_PARM2(ctx);
	arg[2] = PT_REGS_PARM3(ctx);
	arg[3] = PT_REGS_PARM4(ctx);
	arg[4] = PT_REGS_PARM5(ctx);
	arg[5] = RP_PARM6(ctx);
	arg[6] = RP_STACK(ctx);
	arg[7] = 0;
}

/* The ABI leaves the upper half of a narrow argument undefined. */
static __always_inline u64 rp_narrow(u64 v, u8 width, u8 sign)
{
	u32 shift = (64 - 8 * (width & 7)) & 63;

	if (width >= 8)
		return v;
	return sign ? (u64)((s64)(v << shift) >> shift) : v << shift >> shift;
}

/* Returns 0 and the value, or an error when the memory is not there. */
static __always_inline long rp_load(u64 addr, u8 width, u8 sign, u64 *out)
{
	u64 v = 0;
	long err;

	switch (width) {
	case 1:
		err = bpf_probe_read_user(&v, 1, (void *)addr);
		break;
	case 2:
		err = bpf_probe_read_user(&v, 2, (void *)addr);
		break;
	case 4:
		err = bpf_probe_read_user(&v, 4, (void *)addr);
		break;
	default:
		err = bpf_probe_read_user(&v, 8, (void *)addr);
		break;
	}
	*out = rp_narrow(v, width, sign);
	return err;
}

static __always_inline void rp_put_value(struct rp_ev_hook *e, u64 v, bool ok)
{
	u32 i = e->n & (RP_HOOK_VALUES - 1);

	e->val[i] = v;
	if (ok)
		e->ok |= 1 << i;
	e->n++;
}

static __always_inline void rp_read_mem(struct rp_ev_hook *e, const struct rp_hook_read *r, u64 p)
{
	long err = 0;
	u64 v = 0;
	u32 i;

#pragma unroll
	for (i = 0; i < 2; i++) {
		if (i + 1 >= r->depth || err)
			break;
		err = bpf_probe_read_user(&p, sizeof(p), (void *)(p + (s64)r->off[i]));
	}
	if (!err)
		err = rp_load(p + (s64)r->off[i < 2 ? i : 2], r->width, r->sign, &v);
	rp_put_value(e, err ? 0 : v, !err);
}

static __always_inline void rp_read_list(struct rp_ev_hook *e, const struct rp_hook_read *r, u64 p)
{
	u64 v = 0;
	u32 i;

	if (bpf_probe_read_user(&p, sizeof(p), (void *)(p + (s64)r->off[0])))
		return;
	for (i = 0; i <= RP_HOOK_VALUES; i++) {
		if (!p)
			break;
		if (e->n >= RP_HOOK_VALUES) {
			e->h.flags |= RP_F_CUT;
			break;
		}
		if (rp_load(p + (s64)r->off[1], r->width, r->sign, &v)) {
			rp_put_value(e, 0, false);
			break;
		}
		rp_put_value(e, v, true);
		if (bpf_probe_read_user(&p, sizeof(p), (void *)p))
			break;
	}
}

/* struct llama_batch: its first member has been n_tokens since 2023 */
#define BATCH_POS 24
#define BATCH_SEQ_ID 40
/* struct llama_batch_ext as of 2026: n_tokens_max, n_seq_max, std::vector tokens; of each
 * token a std::unordered_set of sequences (first node at 16, its value at 8) and pos[4] */
#define EXT_TOKENS 64
#define EXT_TOKEN_SIZE 96
#define EXT_SEQS (24 + 16)
#define EXT_POS 80
#define EXT_DECODE 1
/* Above this a batch has prompts, of which each is in one piece, one after the other. */
#define BATCH_LONG 64
#define BATCH_VALUES (RP_HOOK_VALUES - 3)
#define BATCH_SEARCH 20 /* log2 of the most tokens that are searched */

struct rp_batch {
	u64 pos, seq; /* llama_batch: arrays; llama_batch_ext: the tokens, 0 */
	u32 n;
	bool ok, ext;
};

static __always_inline void rp_find_batch(struct rp_batch *b, u64 p, bool ext)
{
	u64 begin = 0, end = 0, max = 0;

	b->ext = ext;
	b->ok = false;
	b->n = 0;
	b->pos = b->seq = 0;
	if (!ext) {
		b->ok = !bpf_probe_read_user(&b->n, 4, (void *)p) && (s32)b->n >= 0;
		if (bpf_probe_read_user(&b->pos, 8, (void *)(p + BATCH_POS)) ||
		    bpf_probe_read_user(&b->seq, 8, (void *)(p + BATCH_SEQ_ID)) || !b->seq)
			b->pos = 0;
		return;
	}
	if (bpf_probe_read_user(&max, 8, (void *)p) ||
	    bpf_probe_read_user(&begin, 8, (void *)(p + EXT_TOKENS)) ||
	    bpf_probe_read_user(&end, 8, (void *)(p + EXT_TOKENS + 8)))
		return;
	/* another layout would hardly fit so well */
	if (end < begin || (end - begin) % EXT_TOKEN_SIZE || (end - begin) / EXT_TOKEN_SIZE > max ||
	    max > 0x7fffffff)
		return;
	b->n = (u32)((end - begin) / EXT_TOKEN_SIZE);
	b->pos = begin;
	b->ok = true;
}

/* Sequence and position of one token. */
static __always_inline bool rp_batch_token(const struct rp_batch *b, u32 i, u64 *v)
{
	u32 pos = 0, seq = 0;
	u64 p = 0;

	if (b->ext) {
		if (bpf_probe_read_user(&pos, 4,
					(void *)(b->pos + (u64)i * EXT_TOKEN_SIZE + EXT_POS)) ||
		    bpf_probe_read_user(&p, 8,
					(void *)(b->pos + (u64)i * EXT_TOKEN_SIZE + EXT_SEQS)) ||
		    bpf_probe_read_user(&seq, 4, (void *)(p + 8)))
			return false;
	} else if (bpf_probe_read_user(&pos, 4, (void *)(b->pos + 4 * (u64)i)) ||
		   bpf_probe_read_user(&p, 8, (void *)(b->seq + 8 * (u64)i)) ||
		   bpf_probe_read_user(&seq, 4, (void *)p)) {
		return false;
	}
	*v = (u64)seq << 32 | pos;
	return true;
}

/* Where the sequence of token `last` begins, which is in one piece up to there. */
__noinline int rp_batch_start(struct rp_batch *b, u32 last, u32 seq)
{
	u32 lo = 0, hi = last, mid, i;
	u64 v = 0;

	if (!b)
		return 0;
	for (i = 0; i < BATCH_SEARCH; i++) {
		if (lo >= hi)
			break;
		mid = lo + (hi - lo) / 2;
		if (!rp_batch_token(b, mid, &v))
			return 0;
		if ((u32)(v >> 32) == seq)
			hi = mid;
		else
			lo = mid + 1;
	}
	return (int)hi;
}

static __always_inline void rp_read_batch(struct rp_ev_hook *e, u64 p, bool ext, u32 turn)
{
	struct rp_batch b;
	u32 i, at = 0;
	u64 v = 0;

	rp_find_batch(&b, p, ext);
	rp_put_value(e, b.n, b.ok);
	if (!b.ok || !b.pos || !b.n)
		return;
	for (i = 0; i < BATCH_VALUES; i++) {
		if (i >= b.n)
			break;
		if (b.n <= BATCH_VALUES)
			at = i;
		else if (!i)
			at = b.n - 1;
		else if (b.n <= BATCH_LONG)
			at = (turn * (BATCH_VALUES - 1) + i - 1) % b.n;
		else if (!(at = (u32)rp_batch_start(&b, at, (u32)(v >> 32))))
			break;
		else
			at--;
		if (!rp_batch_token(&b, at, &v))
			break;
		rp_put_value(e, v, true);
	}
}

/* ---- messages ---- */

/* libzmq 4.2 to 4.3: zmq::msg_t in the public struct zmq_msg_t (src/msg.hpp) */
#define ZMQ_TYPE 42
#define ZMQ_VSM 101
#define ZMQ_LMSG 102
#define ZMQ_CMSG 104
#define ZMQ_ZCLMSG 105
#define ZMQ_VSM_SIZE 41 /* its body lies at 8 */
#define ZMQ_BODY 8	/* VSM: the body; CMSG: its address; else the content_t's */

struct rp_msg {
	u64 ts, src, sock;
	u32 pid, tid;
	u32 seq, total;
	u32 limit, done;
	u16 hook, send_flags;
};

static __always_inline int rp_msg_frag(struct rp_msg *x, u32 n, const u32 room)
{
	struct rp_ev_msg *m = rp_reserve(RP_CLASS_HOOK, sizeof(*m) + room);
	bool last = x->done + n >= x->limit;
	u32 len = n;

	if (m) {
		rp_hdr(&m->h, 0, RP_EV_MSG, x->ts, x->pid, 0);
		m->h.tid = x->tid;
		m->hook = x->hook;
		m->send_flags = x->send_flags;
		m->seq = x->seq;
		m->sock = x->sock;
		m->total = x->total;
		m->off = x->done;
		m->missing = last ? x->total - x->limit : 0;
		if (n & 7) /* what pads the record must not be old text */
			*(u64 *)&m->payload[n & (room - 1) & ~7U] = 0;
		if (n && bpf_probe_read_user(m->payload, n, (void *)(x->src + x->done))) {
			m->missing += n;
			len = 0;
		}
		m->len = len;
		m->h.size = (sizeof(*m) + len + 7) & ~7U;
		m->h.flags = (last ? 0 : RP_F_MORE) | (m->missing ? RP_F_CUT : 0);
		if (room < 4096)
			rp_submit(m);
		else
			rp_submit_large(m);
	}
	x->done += n;
	return 0;
}

__noinline int rp_msg_put(struct rp_msg *x)
{
	u32 n;

	if (!x)
		return 0;
	n = x->limit - x->done;
	if (n <= 64)
		return rp_msg_frag(x, n, 64);
	if (n <= 256)
		return rp_msg_frag(x, n, 256);
	if (n <= 1024)
		return rp_msg_frag(x, n, 1024);
	if (n <= 4096)
		return rp_msg_frag(x, n, 4096);
	if (n > RP_FRAG_MAX)
		n = RP_FRAG_MAX;
	return rp_msg_frag(x, n, RP_FRAG_MAX);
}

/* Where the body of a zmq_msg_t is. False: it is none of those we know. */
static __always_inline bool rp_zmq_body(u64 msg, u64 *src, u32 *len)
{
	u64 p = 0, n = 0;
	u8 type = 0, small = 0;

	if (bpf_probe_read_user(&type, 1, (void *)(msg + ZMQ_TYPE)))
		return false;
	if (type == ZMQ_VSM) {
		if (bpf_probe_read_user(&small, 1, (void *)(msg + ZMQ_VSM_SIZE)) || small > 33)
			return false;
		*src = msg + ZMQ_BODY;
		*len = small;
		return true;
	}
	if (bpf_probe_read_user(&p, 8, (void *)(msg + ZMQ_BODY)))
		return false;
	if (type == ZMQ_CMSG) {
		if (bpf_probe_read_user(&n, 8, (void *)(msg + ZMQ_BODY + 8)))
			return false;
	} else if (type == ZMQ_LMSG || type == ZMQ_ZCLMSG) {
		if (bpf_probe_read_user(&n, 8, (void *)(p + 8)) ||
		    bpf_probe_read_user(&p, 8, (void *)p))
			return false;
	} else {
		return false;
	}
	*src = p;
	*len = n > 0xffffffff ? 0xffffffff : n;
	return true;
}

static __always_inline void rp_zmq(const u64 *arg, const struct rp_hook_spec *spec, u32 hook,
				   u64 ts, u32 pid, u64 id)
{
	struct rp_msg x = {
		.ts = ts,
		.pid = pid,
		.tid = (u32)id,
		.hook = (u16)hook,
	};
	u32 i;

	if (!rp_zmq_body(arg[spec->read[0].arg & 3], &x.src, &x.total))
		return;
	x.sock = arg[(spec->read[0].arg & 3) + 1];
	x.send_flags = (u16)arg[(spec->read[0].arg & 3) + 2];
	/* a whole message of a few bytes wakes somebody up; a frame among others counts */
	if (x.total < (u32)spec->read[0].off[0] && !(x.send_flags & RP_MSG_MORE))
		return;
	x.seq = __sync_fetch_and_add(&hook_seq[hook & (RP_MAX_HOOKS - 1)], 1);
	x.limit = x.total < payload_max ? x.total : payload_max;
	for (i = 0; i < RP_FRAGS; i++) {
		rp_msg_put(&x);
		if (x.done >= x.limit)
			break;
	}
}

static __always_inline void rp_hook(struct pt_regs *ctx)
{
	u64 ts = bpf_ktime_get_ns(), id = bpf_get_current_pid_tgid();
	const struct rp_hook_spec *spec;
	struct rp_ev_hook *e;
	u32 hook, seq, *pid, i;
	u64 arg[8];

	pid = rp_watched(id >> 32);
	if (!pid)
		return;
	hook = bpf_get_attach_cookie(ctx);
	spec = bpf_map_lookup_elem(&hooks, &hook);
	if (!spec || hook >= RP_MAX_HOOKS)
		return;
	rp_args(ctx, arg);
	if (spec->read[0].kind == RP_READ_ZMQ) {
		rp_zmq(arg, spec, hook, ts, *pid, id);
		return;
	}
	if (spec->read[2].kind == RP_READ_BATCH && spec->read[2].sign && (u32)arg[1] != EXT_DECODE)
		return;
	seq = __sync_fetch_and_add(&hook_seq[hook], 1);
	e = rp_reserve(RP_CLASS_HOOK, sizeof(*e));
	if (!e)
		return;
	rp_hdr(&e->h, sizeof(*e), RP_EV_HOOK, ts, *pid, id);
	e->hook = hook;
	e->n = 0;
	e->ok = 0;
	e->seq = seq;
	__builtin_memset(e->val, 0, sizeof(e->val));
	for (i = 0; i < RP_HOOK_READS; i++) {
		const struct rp_hook_read *r = &spec->read[i];

		if (r->kind == RP_READ_REG)
			rp_put_value(e, rp_narrow(arg[r->arg & 7], r->width, r->sign), true);
		else if (r->kind == RP_READ_MEM)
			rp_read_mem(e, r, arg[r->arg & 7]);
		else if (r->kind == RP_READ_LIST)
			rp_read_list(e, r, arg[r->arg & 7]);
		else if (r->kind == RP_READ_BATCH)
			rp_read_batch(e, arg[r->arg & 7], r->sign, seq);
	}
	rp_submit(e);
}

SEC("uprobe")
int rp_uprobe(struct pt_regs *ctx)
{
	if (rp_ksym_exists(bpf_preempt_disable))
		bpf_preempt_disable();
	rp_hook(ctx);
	if (rp_ksym_exists(bpf_preempt_enable))
		bpf_preempt_enable();
	return 0;
}

char LICENSE[] SEC("license")
= "GPL";
