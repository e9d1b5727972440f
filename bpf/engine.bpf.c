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

#if defined(__TARGET_ARCH_x86)
#define RP_PARM6(ctx) ((ctx)->r9)
#else
#define RP_PARM6(ctx) (((struct user_pt_regs *)(ctx))->regs[5])
#endif

/* All six at once: the context may only be read at constant offsets, and the
 * compiler would fold a choice among them into one load at a variable one. */
static __always_inline void rp_args(struct pt_regs *ctx, u64 *arg /* 8 */)
{
	arg[0] = PT_REGS_PARM1(ctx);
	arg[1] = PT_REGS_PARM2(ctx);
	arg[2] = PT_REGS_PARM3(ctx);
	arg[3] = PT_REGS_PARM4(ctx);
	arg[4] = PT_REGS_PARM5(ctx);
	arg[5] = RP_PARM6(ctx);
	arg[6] = arg[7] = 0;
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
	rp_args(ctx, arg);
	for (i = 0; i < RP_HOOK_READS; i++) {
		const struct rp_hook_read *r = &spec->read[i];

		if (r->kind == RP_READ_REG)
			rp_put_value(e, rp_narrow(arg[r->arg & 7], r->width, r->sign), true);
		else if (r->kind == RP_READ_MEM)
			rp_read_mem(e, r, arg[r->arg & 7]);
		else if (r->kind == RP_READ_LIST)
			rp_read_list(e, r, arg[r->arg & 7]);
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
