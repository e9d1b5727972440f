// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * record.c - the names a record is printed with. They are part of the schema
 * reqprobe.request/1: a change here is a new schema version.
 */
#include "record/record.h"

const char *const rp_end_names[RP_END_COUNT] = {
	[RP_END_COMPLETE] = "complete",		[RP_END_CLIENT_DISCONNECT] = "client_disconnect",
	[RP_END_SERVER_CLOSE] = "server_close", [RP_END_ERROR] = "error",
	[RP_END_UNKNOWN] = "unknown",
};

const char *const rp_operation_names[RP_OP_COUNT] = {
	[RP_OP_CHAT] = "chat",	       [RP_OP_COMPLETION] = "text_completion",
	[RP_OP_INFILL] = "infill",     [RP_OP_EMBEDDINGS] = "embeddings",
	[RP_OP_RERANK] = "rerank",     [RP_OP_RESPONSES] = "responses",
	[RP_OP_MESSAGES] = "messages", [RP_OP_GENERATE] = "generate",
	[RP_OP_OTHER] = "other",
};

const char *const rp_usage_names[RP_USAGE_COUNT] = {
#define X(id, name) [RP_USAGE_##id] = name,
	RP_USAGES(X)
#undef X
};

const char *const rp_reason_names[RP_WHY_COUNT] = {
#define X(n, s) [RP_WHY_##n] = s,
	RP_REASONS(X)
#undef X
};

const struct rp_field_def rp_field_defs[RP_FIELD_COUNT] = {
#define X(id, g, n, t) [RP_FIELD_##id] = { g, n, RP_T_##t },
	RP_FIELDS(X)
#undef X
};

const char *const rp_flag_names[RP_FLAG_COUNT] = {
	/* by bit of enum rp_flag */
	"partial",   "lost_events", "truncated", "estimated",	"pre_attach",  "clock_step",
	"pipelined", "limit",	    "encoded",	 "parse_error", "slow_client",
};

const char *const rp_estimate_names[RP_EST_COUNT] = {
	[RP_EST_NONE] = "",
	[RP_EST_STEPS] = "steps",
};

_Static_assert(RP_FLAG_SLOW_CLIENT == 1 << (RP_FLAG_COUNT - 1), "a flag without a name");
