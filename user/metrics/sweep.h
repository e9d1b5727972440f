/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sweep.h - figures over time: how many requests were there at once, at what rate
 * tokens came. Each request is an interval (or several); a line swept over all starts
 * and ends gives step functions, and these are weighted by the time that they hold.
 *
 * Series and formulas are AIPerf's 0.13.0 (analysis/sweepline*.py,
 * metrics/accumulator_sweeps.py), on the server's instants. What differs:
 * - instants are integers; AIPerf's are doubles of the wall clock, 256 ns apart;
 * - requests without gaps between chunks take part in decode throughput and tokens in
 *   flight as if their tokens came evenly; in AIPerf they drop out as soon as any
 *   request has gaps;
 * - a series without any request in it is unknown, not 0.
 */
#ifndef REQPROBE_METRICS_SWEEP_H
#define REQPROBE_METRICS_SWEEP_H

#include "metrics/table.h"

/* Those of kind SERIES, in the order of list.def. */
#define RP_SWEEP_FIRST RP_METRIC_EFFECTIVE_CONCURRENCY
#define RP_SWEEP_COUNT (RP_METRIC_ACTIVE_TOTAL_THROUGHPUT - RP_SWEEP_FIRST + 1)

/* Time-weighted, in the series' unit: requests, tokens, per second. Percentiles are the
 * smallest value that holds, or is above others, for that share of the time. */
struct rp_sweep_stats {
	bool known;
	double avg, min, max, p50, p90, p95, p99, std;
};

struct rp_sweep;
/* max_bytes: memory it may take, and give back with rp_sweep_free(): 130 bytes a
 * request, 140 for each gap. NULL: no memory. */
struct rp_sweep *rp_sweep_new(size_t max_bytes);
/*
 * A request of any outcome whose start and end are known; others change nothing. With
 * gaps (f->icl) it takes part chunk by chunk, unless they don't fit any more: then
 * evenly, which rp_sweep_coarse() counts. -ENOSPC: it is left out, and no series is
 * known any more, since all would be too low. -ENOMEM: likewise.
 */
int rp_sweep_add(struct rp_sweep *w, const struct rp_facts *f);
/* All series, from the first start or end to the last. Sorts in place; requests may be
 * added afterwards. -ENOSPC or -ENOMEM as above: nothing is known. */
int rp_sweep_stats(struct rp_sweep *w, struct rp_sweep_stats out[RP_SWEEP_COUNT]);
uint64_t rp_sweep_coarse(const struct rp_sweep *w); /* requests whose gaps did not fit */
void rp_sweep_free(struct rp_sweep *w);

#endif
