/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* internal.h - shared by lrm.c and render.c. */
#ifndef REQPROBE_LRM_INTERNAL_H
#define REQPROBE_LRM_INTERNAL_H

#include "lrm/lrm.h"
#include "lrm/window.h"

enum series {
	/* distributions */
	S_TTFT,
	S_ITL,
	S_FIFTH,
	S_FIRST_TO_FIFTH,
	S_PER_INPUT,
	S_PER_NEW_INPUT,
	S_INPUT_LEN,
	S_OUTPUT_LEN,
	S_CACHE, /* a ratio */
	RP_LRM_DISTS,
	/* rates */
	S_INPUT = RP_LRM_DISTS,
	S_OUTPUT,
	S_NEW_INPUT,
	S_REQUEST,
	S_SUCCESS,
	S_CANCEL_0,
	S_CANCEL_20,
	S_CANCEL_MID,
	RP_LRM_SERIES
};

enum counter {
	C_REQUESTS,
	C_SUCCESS,
	C_CANCEL_0,
	C_CANCEL_20,
	C_CANCEL_MID,
	C_INPUT,
	C_OUTPUT,
	C_NEW_INPUT,
	C_HITS,
	C_LOOKUPS,
	C_ITL,
	C_COUNT
};

enum gauge { G_REQUESTS, G_INPUT, G_OUTPUT, G_FIFTH_REQUESTS, G_FIFTH_INPUT, G_COUNT };

/* A number that changes at instants, and its integral over time up to `since`. */
struct gauge_state {
	int64_t value, since;
	__int128 area;
};

struct rp_lrm_request {
	struct rp_lrm_request *next, *prev;
	int64_t begun, first, last; /* tokens at unknown times: RP_NONE */
	int64_t input, cached;	    /* RP_NONE: not known */
	uint64_t tokens, seed;
	uint16_t rank; /* 1 + the rank; 0: none */
	uint8_t features, tier;
	bool no_itl, later;
	bool left; /* not in flight any more */
	bool produced, first_to_fifth;
	bool input_done, cache_done; /* what prompt_read() has told */
};

/* In a sample's features: it counts for its rank alone. */
#define RP_LRM_RANK_ONLY 0x80

struct rp_lrm_family;
struct rp_lrm_texts;
struct rp_lrm {
	struct rp_lrm_opts o;
	int64_t born, now, window, part; /* ns */
	struct rp_window s[RP_LRM_SERIES];
	uint64_t c[C_COUNT];
	uint64_t owed[C_COUNT]; /* counted, and undone since */
	struct gauge_state g[G_COUNT];
	struct rp_lrm_request *all;
	bool any_request;
	uint32_t ranks_seen, tiers_seen; /* by bit */
	/* render.c */
	struct rp_lrm_family *families; /* by name */
	unsigned n_families;
	struct rp_lrm_texts *texts;
};

void rp_lrm_clock(struct rp_lrm *l, int64_t now);
bool rp_lrm_render_init(struct rp_lrm *l);
void rp_lrm_render_free(struct rp_lrm *l);

#endif
