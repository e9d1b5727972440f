/* SPDX-License-Identifier: GPL-2.0-only */
/* ring.h - records into the ring buffer, each one counted. */
#ifndef RP_RING_H
#define RP_RING_H

#include "maps.h"

static __always_inline struct rp_stat *rp_stat(void)
{
	return &stats[bpf_get_smp_processor_id() & (RP_STAT_SLOTS - 1)];
}

/* `size` must be a constant. NULL: the ring is full, and that is counted. */
static __always_inline void *rp_reserve(u32 class, u64 size)
{
	struct rp_stat *st = rp_stat();
	void *rec = bpf_ringbuf_reserve(&ring, size, 0);

	__sync_fetch_and_add(&st->seen[class], 1);
	if (!rec)
		__sync_fetch_and_add(&st->lost[class], 1);
	return rec;
}

/* Nobody is woken: the daemon looks by itself, and a wake-up would cost the
 * watched thread more than everything else here. */
static __always_inline void rp_submit(void *rec)
{
	bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
}

/*
 * Large payloads can fill the ring within one period of the daemon's timer.
 * From half full on it is woken; beside a copy of this size that costs little.
 */
static __always_inline void rp_submit_large(void *rec)
{
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >
	    bpf_ringbuf_query(&ring, BPF_RB_RING_SIZE) / 2)
		bpf_ringbuf_submit(rec, BPF_RB_FORCE_WAKEUP);
	else
		bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
}

static __always_inline void rp_map_full(u32 map)
{
	__sync_fetch_and_add(&rp_stat()->map_full[map], 1);
}

static __always_inline void rp_hdr(struct rp_event_hdr *h, u32 size, u8 type, u64 ts, u32 pid,
				   u32 tid)
{
	h->size = size;
	h->type = type;
	h->dir = 0;
	h->flags = 0;
	h->ts = ts;
	h->pid = pid;
	h->tid = tid;
}

#endif
