// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* table.c - the formulas. Sources: the rows' notes, and table.h. */
#include "metrics/table.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __FAST_MATH__
#error "compared digit by digit with AIPerf's figures: no -ffast-math here"
#endif

/* AIPerf converts with value * (to.per_second / from.per_second), one rounding each. */
#define CONV_NONE 1, 1
#define CONV_NS_MS (1e3 / 1e9), (1e9 / 1e3)
#define CONV_NS_S (1 / 1e9), 1e9
#define CONV_S_MS 1e3, (1 / 1e3)
#define CONV_B_KB (1 / 1024.0), 1024.0

const struct rp_metric_def rp_metric_defs[RP_METRIC_COUNT] = {
#define F(f) RP_METRIC_FLAG(f)
#define M(id, tag, kind, verdict, unit, display, conv, flags, scope, source, needs, formula, note) \
	[RP_METRIC_##id] = { tag,                                                                  \
			     RP_METRIC_##kind,                                                     \
			     RP_VERDICT_##verdict,                                                 \
			     unit,                                                                 \
			     display,                                                              \
			     CONV_##conv,                                                          \
			     flags,                                                                \
			     scope,                                                                \
			     source,                                                               \
			     needs,                                                                \
			     formula,                                                              \
			     note },
#include "metrics/list.def"
#undef M
#undef F
};

const char *const rp_metric_kind_names[] = {
	[RP_METRIC_RECORD] = "record",
	[RP_METRIC_AGGREGATE] = "aggregate",
	[RP_METRIC_DERIVED] = "derived",
	[RP_METRIC_SERIES] = "series",
};

const char *const rp_verdict_names[] = {
	[RP_VERDICT_NO] = "no",
	[RP_VERDICT_DERIVED] = "derived",
	[RP_VERDICT_YES] = "yes",
};

const char *const rp_metric_flag_names[RP_METRIC_FLAG_COUNT] = {
#define X(f) [RP_METRIC_BIT_##f] = #f,
	RP_METRIC_FLAGS(X)
#undef X
};

enum rp_metric rp_metric_find(const char *tag)
{
	for (int m = 0; m < RP_METRIC_COUNT; m++)
		if (strcmp(rp_metric_defs[m].tag, tag) == 0)
			return (enum rp_metric)m;
	return RP_METRIC_COUNT;
}

bool rp_metric_per_request(enum rp_metric m)
{
	switch (m) {
	case RP_METRIC_INTER_CHUNK_LATENCY: /* a list */
		return false;
	case RP_METRIC_NETWORK_RTT:
	case RP_METRIC_NETWORK_ADJUSTED_REQUEST_LATENCY:
	case RP_METRIC_NETWORK_ADJUSTED_TIME_TO_FIRST_TOKEN:
	case RP_METRIC_NETWORK_ADJUSTED_TIME_TO_FIRST_OUTPUT_TOKEN:
		return true;
	default:
		return rp_metric_defs[m].kind == RP_METRIC_RECORD &&
		       rp_metric_defs[m].verdict != RP_VERDICT_NO;
	}
}

/* ---- one request ---- */

static bool is(double *out, double v)
{
	*out = v;
	return isfinite(v);
}

static bool count(double *out, int64_t v)
{
	*out = (double)v;
	return v != RP_NONE;
}

/* a / b in double, none where there is nothing to divide by */
static bool ratio(double *out, double a, double b)
{
	return b != 0 && is(out, a / b);
}

/* Times since the request's first byte, where AIPerf's clock starts. */
static int64_t since_start(const struct rp_facts *f, int64_t since_end)
{
	int64_t sum;

	if (f->receive == RP_NONE || since_end == RP_NONE ||
	    __builtin_add_overflow(f->receive, since_end, &sum))
		return RP_NONE;
	return sum;
}

static int64_t latency(const struct rp_facts *f)
{
	if (f->stream == 1)
		return since_start(f, f->last_token);
	/* one body is read whole before it counts */
	return f->stream == 0 ? since_start(f, f->duration) : RP_NONE;
}

static int64_t ttft(const struct rp_facts *f)
{
	return since_start(f, f->ttft);
}

static int64_t decode(const struct rp_facts *f)
{
	int64_t l = latency(f), t = ttft(f);

	return l == RP_NONE || t == RP_NONE || l < t ? RP_NONE : l - t;
}

/* tokens.reasoning is part of tokens.completion, as in every usage object */
static int64_t output_tokens(const struct rp_facts *f)
{
	int64_t r = f->reasoning == RP_NONE ? 0 : f->reasoning;

	return f->completion == RP_NONE || f->completion <= r ? RP_NONE : f->completion - r;
}

static bool itl(const struct rp_facts *f, double *out)
{
	int64_t d = decode(f), first = 1;

	if (d == RP_NONE || f->completion == RP_NONE || f->completion < 2)
		return false;
	/* a count that leaves nothing to divide by is no count: as without one */
	if (f->first_chunk_tokens > 0 && f->first_chunk_tokens < f->completion)
		first = f->first_chunk_tokens;
	*out = (double)d / (double)(f->completion - first);
	return true;
}

static int64_t images(const struct rp_facts *f)
{
	return f->images > 0 ? f->images : RP_NONE;
}

static bool whole_request(const struct rp_facts *f, enum rp_metric m, double *out)
{
	const double to_s = 1 / 1e9, to_ms = 1e3 / 1e9;
	int64_t l, a;
	double v;

	switch (m) {
	case RP_METRIC_REQUEST_LATENCY:
	case RP_METRIC_NETWORK_ADJUSTED_REQUEST_LATENCY:
		return count(out, latency(f));
	case RP_METRIC_TIME_TO_FIRST_TOKEN:
	case RP_METRIC_NETWORK_ADJUSTED_TIME_TO_FIRST_TOKEN:
		return count(out, ttft(f));
	case RP_METRIC_TIME_TO_SECOND_TOKEN:
		return count(out, f->second);
	case RP_METRIC_TIME_TO_FIRST_OUTPUT_TOKEN:
	case RP_METRIC_NETWORK_ADJUSTED_TIME_TO_FIRST_OUTPUT_TOKEN:
		return count(out, since_start(f, f->first_output));
	case RP_METRIC_DECODE_DURATION:
		return count(out, decode(f));
	case RP_METRIC_INTER_TOKEN_LATENCY:
		return itl(f, out);
	case RP_METRIC_OUTPUT_TOKEN_THROUGHPUT_PER_USER:
		return itl(f, &v) && ratio(out, 1, v * to_s);
	case RP_METRIC_E2E_OUTPUT_TOKEN_THROUGHPUT:
		l = latency(f);
		return l != RP_NONE && f->completion != RP_NONE &&
		       ratio(out, (double)f->completion, (double)l * to_s);
	case RP_METRIC_PREFILL_THROUGHPUT_PER_USER:
		l = ttft(f);
		return l != RP_NONE && f->prompt != RP_NONE &&
		       ratio(out, (double)f->prompt, (double)l * to_s);
	case RP_METRIC_STREAM_SETUP_LATENCY:
		return f->stream == 1 && count(out, since_start(f, f->first_byte));
	case RP_METRIC_STREAM_PREFILL_LATENCY:
		return f->stream == 1 && f->ttft != RP_NONE && f->first_byte != RP_NONE &&
		       count(out, f->ttft - f->first_byte);

	case RP_METRIC_INPUT_SEQUENCE_LENGTH:
		return count(out, f->prompt);
	case RP_METRIC_OUTPUT_SEQUENCE_LENGTH:
		return count(out, f->completion);
	case RP_METRIC_OUTPUT_TOKEN_COUNT:
		return count(out, output_tokens(f));
	case RP_METRIC_REASONING_TOKEN_COUNT:
		return count(out, f->reasoning);
	case RP_METRIC_THINKING_EFFICIENCY:
		a = output_tokens(f);
		return a != RP_NONE && f->reasoning != RP_NONE &&
		       ratio(out, (double)f->reasoning, (double)a);
	case RP_METRIC_REQUESTED_OSL:
		return count(out, f->max_tokens);
	case RP_METRIC_OSL_MISMATCH_DIFF_PCT:
		if (f->max_tokens == RP_NONE || f->completion == RP_NONE || !f->max_tokens)
			return false;
		return is(out, ((double)f->completion - (double)f->max_tokens) /
				       (double)f->max_tokens * 100.0);

	case RP_METRIC_USAGE_PROMPT_TOKENS:
		return count(out, f->usage[RP_USAGE_PROMPT]);
	case RP_METRIC_USAGE_COMPLETION_TOKENS:
		return count(out, f->usage[RP_USAGE_COMPLETION]);
	case RP_METRIC_USAGE_TOTAL_TOKENS:
		return count(out, f->usage[RP_USAGE_TOTAL]);
	case RP_METRIC_USAGE_REASONING_TOKENS:
		return count(out, f->usage[RP_USAGE_REASONING]);
	case RP_METRIC_USAGE_PROMPT_CACHE_READ_TOKENS:
		return count(out, f->usage[RP_USAGE_CACHE_READ]);
	case RP_METRIC_USAGE_PROMPT_CACHE_WRITE_TOKENS:
		return count(out, f->usage[RP_USAGE_CACHE_WRITE]);
	case RP_METRIC_USAGE_PROMPT_CACHE_MISS_TOKENS:
		return count(out, f->usage[RP_USAGE_CACHE_MISS]);
	case RP_METRIC_USAGE_PROMPT_AUDIO_TOKENS:
		return count(out, f->usage[RP_USAGE_PROMPT_AUDIO]);
	case RP_METRIC_USAGE_COMPLETION_AUDIO_TOKENS:
		return count(out, f->usage[RP_USAGE_COMPLETION_AUDIO]);
	case RP_METRIC_USAGE_ACCEPTED_PREDICTION_TOKENS:
		return count(out, f->usage[RP_USAGE_ACCEPTED]);
	case RP_METRIC_USAGE_REJECTED_PREDICTION_TOKENS:
		return count(out, f->usage[RP_USAGE_REJECTED]);
	case RP_METRIC_USAGE_TOOL_USE_PROMPT_TOKENS:
		return count(out, f->usage[RP_USAGE_TOOL_USE]);
	case RP_METRIC_USAGE_PROMPT_AUDIO_SECONDS:
		return is(out, f->prompt_audio_seconds);

	case RP_METRIC_HTTP_REQ_CONNECTING:
		return count(out, f->reused ? 0 : f->rtt);
	case RP_METRIC_NETWORK_RTT: /* one for each connection: of its first request */
		return !f->reused && count(out, f->rtt);
	case RP_METRIC_HTTP_REQ_SENDING:
		return count(out, f->receive);
	case RP_METRIC_HTTP_REQ_WAITING:
		return count(out, f->first_body);
	case RP_METRIC_HTTP_REQ_RECEIVING:
		return f->first_body != RP_NONE && f->last_body >= f->first_body &&
		       count(out, f->last_body - f->first_body);
	case RP_METRIC_HTTP_REQ_DURATION:
		return count(out, since_start(f, f->last_body));
	case RP_METRIC_HTTP_REQ_DATA_SENT:
		return count(out, f->request_body);
	case RP_METRIC_HTTP_REQ_DATA_RECEIVED:
		return count(out, f->response_body);
	case RP_METRIC_HTTP_REQ_CHUNKS_SENT:
		return count(out, f->request_calls);
	case RP_METRIC_HTTP_REQ_CHUNKS_RECEIVED:
		return count(out, f->response_calls);
	case RP_METRIC_HTTP_REQ_CONNECTION_REUSED:
		return count(out, f->reused);

	case RP_METRIC_NUM_IMAGES:
		return count(out, images(f));
	case RP_METRIC_IMAGE_LATENCY:
		l = latency(f);
		a = images(f);
		return l != RP_NONE && a != RP_NONE && is(out, (double)l * to_ms / (double)a);
	case RP_METRIC_IMAGE_THROUGHPUT:
		l = latency(f);
		a = images(f);
		return l != RP_NONE && a != RP_NONE && ratio(out, (double)a, (double)l * to_s);
	case RP_METRIC_VIDEO_INFERENCE_TIME:
		return is(out, f->video_inference_s);
	case RP_METRIC_VIDEO_PEAK_MEMORY:
		return is(out, f->video_peak_memory_mb);

	case RP_METRIC_SPEC_DECODE_STEPS:
		return count(out, f->spec_steps);
	case RP_METRIC_SPEC_DECODE_DRAFT_TOKENS:
		return count(out, f->spec_draft_tokens);
	case RP_METRIC_SPEC_DECODE_ACCEPTED_DRAFT_TOKENS:
		return count(out, f->spec_accepted_tokens);
	case RP_METRIC_SPEC_DECODE_ACCEPTANCE_LENGTH:
		if (f->spec_steps == RP_NONE || f->spec_accepted_tokens == RP_NONE ||
		    !ratio(&v, (double)f->spec_accepted_tokens, (double)f->spec_steps))
			return false;
		return is(out, 1 + v);
	case RP_METRIC_SPEC_DECODE_DRAFT_ACCEPTANCE_RATE:
		if (f->spec_draft_tokens == RP_NONE || f->spec_accepted_tokens == RP_NONE ||
		    !ratio(&v, (double)f->spec_accepted_tokens, (double)f->spec_draft_tokens))
			return false;
		return is(out, v * 100.0);
	case RP_METRIC_SPEC_DECODE_ACCEPTED_PER_VERIFIED:
		if (f->spec_steps == RP_NONE || f->spec_draft_tokens == RP_NONE ||
		    f->spec_accepted_tokens == RP_NONE)
			return false;
		return ratio(out, (double)f->spec_accepted_tokens + (double)f->spec_steps,
			     (double)f->spec_draft_tokens + (double)f->spec_steps);
	default:
		return false;
	}
}

static bool own(const struct rp_facts *f, enum rp_metric m, double *out)
{
	switch (m) {
	case RP_METRIC_RECEIVE_TIME:
		return count(out, f->receive);
	case RP_METRIC_FIRST_BYTE_TIME:
		return count(out, f->first_byte);
	case RP_METRIC_SERVER_DURATION:
		return count(out, f->duration);
	case RP_METRIC_FRONTEND_TIME:
		return count(out, f->frontend);
	case RP_METRIC_QUEUE_TIME:
		return count(out, f->queue);
	case RP_METRIC_PREFILL_TIME:
		return count(out, f->prefill);
	case RP_METRIC_ENGINE_DECODE_TIME:
		return count(out, f->decode);
	case RP_METRIC_FLUSH_TIME:
		return count(out, f->flush);
	case RP_METRIC_AFTER_FIRST_TOKEN_TIME:
		return count(out, f->after_first);
	case RP_METRIC_AFTER_LAST_TOKEN_TIME:
		return count(out, f->after_last);
	case RP_METRIC_PREEMPTED_TIME:
		return count(out, f->preempted);
	case RP_METRIC_REQUEUE_TIME:
		return count(out, f->requeue);
	case RP_METRIC_PREEMPTIONS:
		return count(out, f->preemptions);
	case RP_METRIC_ENGINE_STEPS:
		return count(out, f->steps);
	case RP_METRIC_CACHED_TOKENS:
		return count(out, f->cached);
	case RP_METRIC_CHUNKS:
		return count(out, f->chunks);
	case RP_METRIC_KEEPALIVES:
		return count(out, f->keepalives);
	case RP_METRIC_HANDSHAKE_RTT:
		return count(out, f->rtt);
	case RP_METRIC_ACCEPT_WAIT:
		return count(out, f->accept_wait);
	case RP_METRIC_LAST_ACK_TIME:
		return count(out, f->last_ack);
	case RP_METRIC_RETRANSMITS:
		return count(out, f->retransmits);
	default:
		return false;
	}
}

bool rp_metric_of(const struct rp_facts *f, enum rp_metric m, double *out)
{
	enum rp_error_class c;

	*out = NAN;
	if (m < 0 || m >= RP_METRIC_COUNT || !rp_metric_per_request(m))
		return false;
	if (rp_metric_defs[m].flags & RP_METRIC_FLAG(OWN))
		return own(f, m, out);
	c = rp_error_class(f);
	if (m == RP_METRIC_ERROR_ISL)
		return c != RP_ERROR_NONE && c != RP_ERROR_UNSEEN && count(out, f->prompt);
	return c == RP_ERROR_NONE && whole_request(f, m, out);
}

/* ---- service level objectives ---- */

/* Also by the names of vLLM's own benchmark (vllm bench serve --goodput), which mean the same. */
static enum rp_metric objective(const char *tag)
{
	static const struct {
		const char *name;
		enum rp_metric metric;
	} also[] = {
		{ "ttft", RP_METRIC_TIME_TO_FIRST_TOKEN },
		{ "tpot", RP_METRIC_INTER_TOKEN_LATENCY },
		{ "itl", RP_METRIC_INTER_TOKEN_LATENCY },
		{ "e2el", RP_METRIC_REQUEST_LATENCY },
	};

	for (size_t i = 0; i < sizeof(also) / sizeof(also[0]); i++)
		if (!strcmp(also[i].name, tag))
			return also[i].metric;
	return rp_metric_find(tag);
}

int rp_slo_parse(const char *s, struct rp_slos *out, char *err, size_t errlen)
{
	out->n = 0;
	for (;;) {
		char tag[64], *end;
		enum rp_metric m;
		size_t n;
		double v;

		while (isspace((unsigned char)*s))
			s++;
		if (!*s)
			break;
		n = strcspn(s, ": \t\n");
		snprintf(tag, sizeof(tag), "%.*s", (int)(n < sizeof(tag) ? n : sizeof(tag)), s);
		m = objective(tag);
		if (m == RP_METRIC_COUNT) {
			snprintf(err, errlen, "no metric is called '%s': see reqprobe metrics",
				 tag);
			return -EINVAL;
		}
		if (!rp_metric_per_request(m)) {
			snprintf(err, errlen, "'%s' is nothing that one request has: %s", tag,
				 rp_metric_defs[m].verdict == RP_VERDICT_NO ?
					 "it can't be seen from here" :
				 m == RP_METRIC_INTER_CHUNK_LATENCY ? "it is a list" :
								      "it is one of a run");
			return -EINVAL;
		}
		s += n;
		v = *s == ':' ? strtod(s + 1, &end) : NAN;
		if (*s != ':' || end == s + 1 || !isfinite(v) ||
		    (*end && !isspace((unsigned char)*end))) {
			snprintf(err, errlen, "'%s' has no number: %s:VALUE, in %s", tag, tag,
				 rp_metric_defs[m].display);
			return -EINVAL;
		}
		if (v < 0 || (v == 0 && signbit(v))) {
			snprintf(err, errlen, "'%s' is never negative: %s:VALUE, in %s", tag, tag,
				 rp_metric_defs[m].display);
			return -EINVAL;
		}
		s = end;
		for (unsigned i = 0; i < out->n; i++) {
			if (out->slo[i].metric != m)
				continue;
			snprintf(err, errlen, "'%s' is given twice", tag);
			return -EINVAL;
		}
		if (out->n == RP_SLOS_MAX) {
			snprintf(err, errlen, "more than %d objectives", RP_SLOS_MAX);
			return -EINVAL;
		}
		out->slo[out->n].metric = m;
		out->slo[out->n].shown = v;
		out->slo[out->n++].limit = v * rp_metric_defs[m].to_base;
	}
	if (out->n)
		return 0;
	snprintf(err, errlen, "no objective: TAG:VALUE, as in time_to_first_token:500");
	return -EINVAL;
}

enum rp_slo_verdict rp_slo_judge(const struct rp_slos *s, unsigned i, const struct rp_facts *f)
{
	enum rp_metric m = s->slo[i].metric;
	double v;
	bool met;

	if (!rp_metric_of(f, m, &v))
		return rp_error_class(f) == RP_ERROR_NONE ? RP_SLO_UNKNOWN : RP_SLO_MISSED;
	met = rp_metric_defs[m].flags & RP_METRIC_FLAG(LARGER_IS_BETTER) ? v >= s->slo[i].limit :
									   v <= s->slo[i].limit;
	return met ? RP_SLO_MET : RP_SLO_MISSED;
}

enum rp_slo_verdict rp_slos_judge(const struct rp_slos *s, const struct rp_facts *f)
{
	enum rp_slo_verdict all = RP_SLO_MET;

	if (rp_error_class(f) != RP_ERROR_NONE)
		return RP_SLO_MISSED;
	for (unsigned i = 0; i < s->n && all != RP_SLO_MISSED; i++) {
		enum rp_slo_verdict one = rp_slo_judge(s, i, f);

		all = one == RP_SLO_MET ? all : one;
	}
	return all;
}

/* ---- many requests ---- */

void rp_metrics_init(struct rp_metrics_sum *s)
{
	memset(s, 0, sizeof(*s));
	s->first = s->last = RP_NONE;
}

/* AIPerf's OSL_MISMATCH_PCT_THRESHOLD and _MAX_TOKEN_THRESHOLD */
static bool osl_mismatch(const struct rp_facts *f)
{
	double limit = (double)f->max_tokens * (5.0 / 100);
	double diff = fabs((double)f->completion - (double)f->max_tokens);

	return diff > (limit < 50 ? limit : 50);
}

void rp_metrics_add(struct rp_metrics_sum *s, const struct rp_facts *f, const struct rp_slos *slos)
{
	enum rp_error_class c = rp_error_class(f);
	double v;

	s->errors[c]++;
	s->context_overflow += f->context_overflow && c != RP_ERROR_NONE;
	if (slos) {
		enum rp_slo_verdict v = rp_slos_judge(slos, f);

		s->judged = true;
		s->good += v == RP_SLO_MET;
		s->unjudged += v == RP_SLO_UNKNOWN;
		for (unsigned i = 0; i < slos->n; i++) {
			v = rp_slo_judge(slos, i, f);
			s->slo_met[i] += v == RP_SLO_MET;
			s->slo_unknown[i] += v == RP_SLO_UNKNOWN;
		}
	}
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		if (!rp_metric_of(f, (enum rp_metric)m, &v))
			continue;
		s->of[m].n++;
		s->of[m].sum += v;
	}
	if (c != RP_ERROR_NONE)
		return;
	s->no_prompt += f->prompt == RP_NONE;
	/* of images and embeddings there are none */
	s->no_completion += f->completion == RP_NONE && rp_generative(f->operation) &&
			    f->operation != RP_OP_GENERATE;
	s->osl_mismatch += rp_metric_of(f, RP_METRIC_OSL_MISMATCH_DIFF_PCT, &v) && osl_mismatch(f);
	if (f->start_wall != RP_NONE) {
		int64_t l = latency(f), end;

		if (s->first == RP_NONE || f->start_wall < s->first)
			s->first = f->start_wall;
		if (l != RP_NONE && !__builtin_add_overflow(f->start_wall, l, &end) &&
		    (s->last == RP_NONE || end > s->last))
			s->last = end;
	}
	if (f->spec_accepted_tokens == RP_NONE)
		return;
	if (f->spec_steps != RP_NONE) {
		s->spec_steps += (double)f->spec_steps;
		s->spec_steps_accepted += (double)f->spec_accepted_tokens;
	}
	if (f->spec_draft_tokens != RP_NONE) {
		s->spec_draft += (double)f->spec_draft_tokens;
		s->spec_draft_accepted += (double)f->spec_accepted_tokens;
	}
}

void rp_metrics_merge(struct rp_metrics_sum *to, const struct rp_metrics_sum *from)
{
	for (int i = 0; i < RP_ERROR_CLASS_COUNT; i++)
		to->errors[i] += from->errors[i];
	to->context_overflow += from->context_overflow;
	to->osl_mismatch += from->osl_mismatch;
	to->good += from->good;
	to->unjudged += from->unjudged;
	to->no_prompt += from->no_prompt;
	to->no_completion += from->no_completion;
	for (int i = 0; i < RP_SLOS_MAX; i++) {
		to->slo_met[i] += from->slo_met[i];
		to->slo_unknown[i] += from->slo_unknown[i];
	}
	to->judged |= from->judged;
	if (to->first == RP_NONE || (from->first != RP_NONE && from->first < to->first))
		to->first = from->first;
	if (to->last == RP_NONE || (from->last != RP_NONE && from->last > to->last))
		to->last = from->last;
	to->spec_steps += from->spec_steps;
	to->spec_steps_accepted += from->spec_steps_accepted;
	to->spec_draft += from->spec_draft;
	to->spec_draft_accepted += from->spec_draft_accepted;
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		to->of[m].n += from->of[m].n;
		to->of[m].sum += from->of[m].sum;
	}
}

static uint64_t failed(const struct rp_metrics_sum *s)
{
	uint64_t n = 0;

	for (int i = 0; i < RP_ERROR_CLASS_COUNT; i++)
		if (i != RP_ERROR_NONE && i != RP_ERROR_UNSEEN)
			n += s->errors[i];
	return n;
}

/* benchmark_duration: AIPerf refuses one that is not above zero */
static bool duration_ns(const struct rp_metrics_sum *s, double *out)
{
	if (s->first == RP_NONE || s->last == RP_NONE || s->last <= s->first)
		return false;
	*out = (double)(s->last - s->first);
	return true;
}

static bool per_second(const struct rp_metrics_sum *s, double *out, double n)
{
	double d;

	return duration_ns(s, &d) && ratio(out, n, d * (1 / 1e9));
}

static bool total(const struct rp_metrics_sum *s, enum rp_metric m, double *out)
{
	*out = s->of[m].sum;
	return s->of[m].n > 0;
}

bool rp_metrics_value(const struct rp_metrics_sum *s, enum rp_metric m, double *out)
{
	double ok = (double)s->errors[RP_ERROR_NONE], bad = (double)failed(s), a, b;
	const double all = ok + bad;

	*out = NAN;
	switch (m) {
	case RP_METRIC_REQUEST_COUNT:
		return is(out, ok);
	case RP_METRIC_ERROR_REQUEST_COUNT:
		return is(out, bad);
	case RP_METRIC_COMPLETED_REQUEST_COUNT:
		return is(out, all);
	case RP_METRIC_UNKNOWN_REQUEST_COUNT:
		return is(out, (double)s->errors[RP_ERROR_UNSEEN]);
	case RP_METRIC_UNKNOWN_GOODNESS_COUNT:
		return s->judged && is(out, (double)s->unjudged);
	case RP_METRIC_UNKNOWN_INPUT_COUNT:
		return is(out, (double)s->no_prompt);
	case RP_METRIC_UNKNOWN_OUTPUT_COUNT:
		return is(out, (double)s->no_completion);
	case RP_METRIC_ERRORS_HTTP_4XX:
		return is(out, (double)s->errors[RP_ERROR_4XX]);
	case RP_METRIC_ERRORS_HTTP_5XX:
		return is(out, (double)s->errors[RP_ERROR_5XX]);
	case RP_METRIC_ERRORS_STREAM:
		return is(out, (double)s->errors[RP_ERROR_STREAM]);
	case RP_METRIC_ERRORS_ENGINE:
		return is(out, (double)s->errors[RP_ERROR_ENGINE]);
	case RP_METRIC_ERRORS_CANCELLED:
		return is(out, (double)s->errors[RP_ERROR_CANCELLED]);
	case RP_METRIC_ERRORS_SERVER_CLOSE:
		return is(out, (double)s->errors[RP_ERROR_CLOSED]);
	case RP_METRIC_ERRORS_NO_CONTENT:
		return is(out, (double)s->errors[RP_ERROR_NO_CONTENT]);
	case RP_METRIC_REQUEST_ERROR_RATE:
		return ratio(out, 100.0 * bad, all);
	case RP_METRIC_CONTEXT_OVERFLOW_COUNT:
		return is(out, (double)s->context_overflow);
	case RP_METRIC_OSL_MISMATCH_COUNT:
		return s->of[RP_METRIC_OSL_MISMATCH_DIFF_PCT].n && is(out, (double)s->osl_mismatch);
	case RP_METRIC_GOOD_REQUEST_COUNT:
		return s->judged && is(out, (double)s->good);
	case RP_METRIC_GOOD_REQUEST_FRACTION:
		return s->judged && ratio(out, (double)s->good, all - (double)s->unjudged);
	case RP_METRIC_GOODPUT:
		return s->judged && per_second(s, out, (double)s->good);
	case RP_METRIC_MIN_REQUEST_TIMESTAMP:
		return count(out, s->first);
	case RP_METRIC_MAX_RESPONSE_TIMESTAMP:
		return count(out, s->last);
	case RP_METRIC_BENCHMARK_DURATION:
		return duration_ns(s, out);
	case RP_METRIC_REQUEST_THROUGHPUT:
		return per_second(s, out, ok);
	case RP_METRIC_INPUT_TOKEN_THROUGHPUT:
		return total(s, RP_METRIC_INPUT_SEQUENCE_LENGTH, &a) && per_second(s, out, a);
	case RP_METRIC_OUTPUT_TOKEN_THROUGHPUT:
		return total(s, RP_METRIC_OUTPUT_SEQUENCE_LENGTH, &a) && per_second(s, out, a);
	case RP_METRIC_TOTAL_TOKEN_THROUGHPUT:
		return total(s, RP_METRIC_INPUT_SEQUENCE_LENGTH, &a) &&
		       total(s, RP_METRIC_OUTPUT_SEQUENCE_LENGTH, &b) && per_second(s, out, a + b);
	case RP_METRIC_TOTAL_ISL:
		return total(s, RP_METRIC_INPUT_SEQUENCE_LENGTH, out);
	case RP_METRIC_TOTAL_OSL:
		return total(s, RP_METRIC_OUTPUT_SEQUENCE_LENGTH, out);
	case RP_METRIC_TOTAL_OUTPUT_TOKENS:
		return total(s, RP_METRIC_OUTPUT_TOKEN_COUNT, out);
	case RP_METRIC_TOTAL_REASONING_TOKENS:
		return total(s, RP_METRIC_REASONING_TOKEN_COUNT, out);
	case RP_METRIC_TOTAL_ERROR_ISL:
		return total(s, RP_METRIC_ERROR_ISL, out);
	case RP_METRIC_OVERALL_THINKING_EFFICIENCY:
		return total(s, RP_METRIC_REASONING_TOKEN_COUNT, &a) &&
		       total(s, RP_METRIC_OUTPUT_TOKEN_COUNT, &b) && ratio(out, a, b);
	case RP_METRIC_TOTAL_USAGE_PROMPT_TOKENS:
		return total(s, RP_METRIC_USAGE_PROMPT_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_COMPLETION_TOKENS:
		return total(s, RP_METRIC_USAGE_COMPLETION_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_TOTAL_TOKENS:
		return total(s, RP_METRIC_USAGE_TOTAL_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_REASONING_TOKENS:
		return total(s, RP_METRIC_USAGE_REASONING_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_PROMPT_CACHE_READ_TOKENS:
		return total(s, RP_METRIC_USAGE_PROMPT_CACHE_READ_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_PROMPT_CACHE_WRITE_TOKENS:
		return total(s, RP_METRIC_USAGE_PROMPT_CACHE_WRITE_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_PROMPT_CACHE_MISS_TOKENS:
		return total(s, RP_METRIC_USAGE_PROMPT_CACHE_MISS_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_PROMPT_AUDIO_TOKENS:
		return total(s, RP_METRIC_USAGE_PROMPT_AUDIO_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_COMPLETION_AUDIO_TOKENS:
		return total(s, RP_METRIC_USAGE_COMPLETION_AUDIO_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_ACCEPTED_PREDICTION_TOKENS:
		return total(s, RP_METRIC_USAGE_ACCEPTED_PREDICTION_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_REJECTED_PREDICTION_TOKENS:
		return total(s, RP_METRIC_USAGE_REJECTED_PREDICTION_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_TOOL_USE_PROMPT_TOKENS:
		return total(s, RP_METRIC_USAGE_TOOL_USE_PROMPT_TOKENS, out);
	case RP_METRIC_TOTAL_USAGE_PROMPT_AUDIO_SECONDS:
		return total(s, RP_METRIC_USAGE_PROMPT_AUDIO_SECONDS, out);
	case RP_METRIC_OVERALL_USAGE_PROMPT_CACHE_READ_PCT:
		if (!total(s, RP_METRIC_USAGE_PROMPT_CACHE_READ_TOKENS, &a) ||
		    !total(s, RP_METRIC_USAGE_PROMPT_TOKENS, &b) || !ratio(&a, a, b))
			return false;
		return is(out, a * 100.0);
	case RP_METRIC_TOTAL_SPEC_DECODE_STEPS:
		return total(s, RP_METRIC_SPEC_DECODE_STEPS, out);
	case RP_METRIC_TOTAL_DRAFT_TOKENS:
		return total(s, RP_METRIC_SPEC_DECODE_DRAFT_TOKENS, out);
	case RP_METRIC_TOTAL_ACCEPTED_DRAFT_TOKENS:
		return total(s, RP_METRIC_SPEC_DECODE_ACCEPTED_DRAFT_TOKENS, out);
	case RP_METRIC_SPEC_DECODE_TOKEN_WEIGHTED_ACCEPTANCE_LENGTH:
		if (!ratio(&a, s->spec_steps_accepted, s->spec_steps))
			return false;
		return is(out, 1.0 + a);
	case RP_METRIC_SPEC_DECODE_OVERALL_DRAFT_ACCEPTANCE_RATE:
		if (!ratio(&a, s->spec_draft_accepted, s->spec_draft))
			return false;
		return is(out, a * 100.0);
	case RP_METRIC_NETWORK_RTT:
		return s->of[m].n && is(out, s->of[m].sum / (double)s->of[m].n);
	default:
		return false;
	}
}
