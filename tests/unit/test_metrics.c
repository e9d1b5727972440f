/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Unit tests of user/metrics. tests/unit/aiperf/facts/ holds what AIPerf 0.13.0's own
 * classes make of synthetic requests, and the tags of its registry: see make.py there.
 */
#include "util.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>

#include "metrics/metrics.h"
#include "metrics/sweep.h"
#include "metrics/table.h"
#include "reqprobe/event.h"

#define DIR_ "tests/unit/aiperf/facts/"

/* ---- the table against AIPerf's registry ---- */

static char *next(char **line)
{
	return strsep(line, " \n");
}

static bool has_flag(const char *list, const char *flag)
{
	size_t n = strlen(flag);

	for (const char *p = list; (p = strstr(p, flag)); p += n)
		if ((p == list || p[-1] == '+') && (!p[n] || p[n] == '+'))
			return true;
	return false;
}

static void registry(void **st)
{
	bool seen[RP_METRIC_COUNT] = { false };
	FILE *f = fopen(DIR_ "registry.txt", "r");
	char line[512];
	unsigned n = 0;

	(void)st;
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		char *p = line, *tag = next(&p), *type = next(&p), *unit = next(&p),
		     *display = next(&p), *flags = next(&p);
		enum rp_metric m = rp_metric_find(tag);
		const struct rp_metric_def *d = &rp_metric_defs[m];

		if (m == RP_METRIC_COUNT)
			fail_msg("%s is not in the table", tag);
		n++;
		seen[m] = true;
		assert_string_equal(rp_metric_kind_names[d->kind], type);
		assert_string_equal(d->unit, unit);
		assert_string_equal(d->display, strcmp(display, "-") == 0 ? unit : display);
		for (int b = 0; b < RP_METRIC_FLAG_COUNT; b++)
			if (has_flag(flags, rp_metric_flag_names[b]) != !!(d->flags & 1u << b))
				fail_msg("%s: flag %s", tag, rp_metric_flag_names[b]);
	}
	fclose(f);
	assert_int_equal(n, 139);
	for (int m = 0; m < RP_METRIC_COUNT; m++)
		if (!seen[m] && !(rp_metric_defs[m].flags & RP_METRIC_FLAG(OWN)) &&
		    rp_metric_defs[m].kind != RP_METRIC_SERIES)
			fail_msg("%s is in no registry", rp_metric_defs[m].tag);
}

/* Each row is whole: a reason, or a formula with where it comes from. */
static void rows(void **st)
{
	(void)st;
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		const struct rp_metric_def *d = &rp_metric_defs[m];
		bool no = d->verdict == RP_VERDICT_NO;

		assert_int_equal(rp_metric_find(d->tag), m); /* unique */
		if (no ? !d->note[0] || d->formula[0] : !d->formula[0] || !d->scope[0])
			fail_msg("%s", d->tag);
		assert_true(fabs(d->to_display * d->to_base - 1) < 1e-12);
		assert_true((strcmp(d->unit, d->display) == 0) == (d->to_base == 1));
	}
}

static void says(const json_t *o, const char *key, const char *want)
{
	const char *s = json_string_value(json_object_get(o, key));

	if (!s || strcmp(s, want) != 0)
		fail_msg("%s is %s, not %s", key, s ? s : "no string", want);
}

/* As JSON: each row, with everything that it has. */
static void as_json(void **st)
{
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);
	json_error_t err;
	json_t *all;

	(void)st;
	rp_metrics_print(f, RP_METRICS_JSON);
	fclose(f);
	all = json_loads(text, 0, &err);
	if (!all)
		fail_msg("line %d: %s", err.line, err.text);
	assert_int_equal(json_array_size(all), RP_METRIC_COUNT);
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		const struct rp_metric_def *d = &rp_metric_defs[m];
		const json_t *o = json_array_get(all, (size_t)m), *flags;
		size_t want = 0;

		says(o, "tag", d->tag);
		says(o, "origin", d->flags & RP_METRIC_FLAG(OWN) ? "reqprobe" : "aiperf");
		says(o, "kind", rp_metric_kind_names[d->kind]);
		says(o, "known", rp_verdict_names[d->verdict]);
		says(o, "unit", d->unit);
		says(o, "display_unit", d->display);
		says(o, "scope", d->scope);
		says(o, "source", d->source);
		says(o, "needs", d->needs);
		says(o, "formula", d->formula);
		says(o, d->verdict == RP_VERDICT_NO ? "reason" : "note", d->note);
		assert_int_equal(json_is_true(json_object_get(o, "per_request")),
				 rp_metric_per_request((enum rp_metric)m));
		flags = json_object_get(o, "flags");
		for (int b = 0; b < RP_METRIC_FLAG_COUNT; b++)
			if (b != RP_METRIC_BIT_OWN && d->flags & 1u << b)
				assert_string_equal(
					json_string_value(json_array_get(flags, want++)),
					rp_metric_flag_names[b]);
		assert_int_equal(json_array_size(flags), want);
	}
	json_decref(all);
	free(text);
}

/* docs/metrics.md has the table as the program prints it. */
static void docs(void **st)
{
	FILE *f = fopen("docs/metrics.md", "r");
	char *want = NULL, *have, *at;
	size_t n = 0;
	FILE *w = open_memstream(&want, &n);

	(void)st;
	assert_non_null(f);
	assert_non_null(w);
	rp_metrics_print(w, RP_METRICS_MARKDOWN);
	fclose(w);
	have = calloc(1, 1 << 20);
	assert_true(fread(have, 1, (1 << 20) - 1, f) < (1 << 20) - 1);
	fclose(f);
	at = strstr(have, want);
	if (!at)
		fail_msg("docs/metrics.md lacks the table of `reqprobe metrics --markdown`");
	free(have);
	free(want);
}

/* ---- formulas against AIPerf's values ---- */

static const struct {
	const char *key;
	size_t at;
} ints[] = {
#define I(m)                                     \
	{                                        \
#m, offsetof(struct rp_facts, m) \
	}
	I(start_wall),
	I(receive),
	I(first_byte),
	I(first_body),
	I(ttft),
	I(second),
	I(first_output),
	I(last_token),
	I(last_body),
	I(duration),
	I(chunks),
	I(first_chunk_tokens),
	I(prompt),
	I(completion),
	I(reasoning),
	I(max_tokens),
	I(images),
	I(spec_steps),
	I(spec_draft_tokens),
	I(spec_accepted_tokens),
	I(rtt),
	I(request_body),
	I(response_body),
	I(request_calls),
	I(response_calls),
#undef I
};

static int64_t icl[64];

static void facts_of(const json_t *o, struct rp_facts *f)
{
	const char *key;
	json_t *v;

	rp_facts_init(f);
	f->operation = RP_OP_CHAT;
	json_object_foreach((json_t *)o, key, v)
	{
		bool known = false;

		for (size_t i = 0; i < COUNT_OF(ints); i++) {
			if (strcmp(ints[i].key, key) != 0)
				continue;
			*(int64_t *)((char *)f + ints[i].at) = json_integer_value(v);
			known = true;
		}
		if (strcmp(key, "usage") == 0) {
			const char *name;
			json_t *u;

			json_object_foreach(v, name, u)
			{
				for (int i = 0; i < RP_USAGE_COUNT; i++)
					if (strcmp(rp_usage_names[i], name) == 0)
						f->usage[i] = json_integer_value(u);
			}
		} else if (strcmp(key, "icl") == 0) {
			f->n_icl = json_array_size(v);
			for (size_t i = 0; i < f->n_icl; i++)
				icl[i] = json_integer_value(json_array_get(v, i));
			f->icl = icl;
		} else if (strcmp(key, "prompt_audio_seconds") == 0) {
			f->prompt_audio_seconds = json_number_value(v);
		} else if (strcmp(key, "status") == 0) {
			f->status = (int)json_integer_value(v);
		} else if (strcmp(key, "stream") == 0) {
			f->stream = (int)json_integer_value(v);
		} else if (strcmp(key, "reused") == 0) {
			f->reused = json_is_true(v);
		} else if (strcmp(key, "has_error") == 0) {
			f->has_error = json_is_true(v);
		} else if (strcmp(key, "context_overflow") == 0) {
			f->context_overflow = json_is_true(v);
		} else if (strcmp(key, "error_where") == 0) {
			f->error_where = "status";
		} else if (strcmp(key, "end") == 0) {
			f->end = strcmp(json_string_value(v), "error") == 0 ? RP_END_ERROR :
									      RP_END_COMPLETE;
		} else if (!known) {
			fail_msg("%s?", key);
		}
	}
}

static json_t *truth(void)
{
	json_error_t e;
	json_t *v = json_load_file(DIR_ "records.json", 0, &e);

	if (!v)
		fail_msg("%s", e.text);
	return v;
}

/* Equal to the last bit, and no value where AIPerf has none. */
static void formulas(void **st)
{
	json_t *t = truth(), *r;
	size_t i;

	(void)st;
	json_array_foreach(json_object_get(t, "records"), i, r)
	{
		const json_t *want = json_object_get(r, "metrics");
		struct rp_facts f;

		facts_of(json_object_get(r, "facts"), &f);
		for (int m = 0; m < RP_METRIC_COUNT; m++) {
			const struct rp_metric_def *d = &rp_metric_defs[m];
			const json_t *w = json_object_get(want, d->tag);
			double v;
			bool has;

			if (d->kind != RP_METRIC_RECORD || d->verdict == RP_VERDICT_NO ||
			    d->flags & RP_METRIC_FLAG(OWN) || m == RP_METRIC_INTER_CHUNK_LATENCY)
				continue;
			has = rp_metric_of(&f, (enum rp_metric)m, &v);
			if (has != !!w || (has && v != json_number_value(w)))
				fail_msg("record %zu, %s: %.17g, AIPerf %.17g", i, d->tag,
					 has ? v : NAN, w ? json_number_value(w) : NAN);
		}
	}
	json_decref(t);
}

static void sums_are(const struct rp_metrics_sum *s, const json_t *run)
{
	for (int m = 0; m < RP_METRIC_COUNT; m++) {
		const struct rp_metric_def *d = &rp_metric_defs[m];
		const json_t *w = json_object_get(run, d->tag);
		double v, want = w ? json_number_value(w) : NAN;
		bool has;

		if ((d->kind != RP_METRIC_AGGREGATE && d->kind != RP_METRIC_DERIVED) ||
		    d->verdict == RP_VERDICT_NO || d->flags & RP_METRIC_FLAG(OWN) ||
		    m == RP_METRIC_NETWORK_RTT)
			continue;
		has = rp_metrics_value(s, (enum rp_metric)m, &v);
		/* AIPerf's is of all, ours of those that can be judged */
		if (m == RP_METRIC_GOOD_REQUEST_FRACTION && s->unjudged) {
			double all =
				json_number_value(json_object_get(run, "completed_request_count"));

			assert_true(has && v == (double)s->good / (all - (double)s->unjudged));
			v = (double)s->good / all;
		}
		if (has != !!w || (has && fabs(v - want) > 1e-12 * fabs(want)))
			fail_msg("%s: %.17g, AIPerf %.17g", d->tag, has ? v : NAN, want);
	}
}

/* Aggregates, derived metrics and goodput of all of them; in any two parts. */
static void run(void **st)
{
	json_t *t = truth(), *r;
	struct rp_metrics_sum whole, part[2];
	struct rp_slos slos;
	char err[256];
	double v, rtt = 0;
	size_t i, n = 0;

	(void)st;
	assert_int_equal(rp_slo_parse(json_string_value(json_object_get(t, "slos")), &slos, err,
				      sizeof(err)),
			 0);
	rp_metrics_init(&whole);
	rp_metrics_init(&part[0]);
	rp_metrics_init(&part[1]);
	json_array_foreach(json_object_get(t, "records"), i, r)
	{
		struct rp_facts f;

		facts_of(json_object_get(r, "facts"), &f);
		assert_int_equal(rp_slos_judge(&slos, &f) == RP_SLO_MET,
				 json_is_true(json_object_get(r, "good")));
		rp_metrics_add(&whole, &f, &slos);
		rp_metrics_add(&part[i % 3 == 1], &f, &slos);
		if (!f.reused && !f.has_error) {
			rtt += (double)f.rtt;
			n++;
		}
	}
	sums_are(&whole, json_object_get(t, "run"));
	rp_metrics_merge(&part[0], &part[1]);
	sums_are(&part[0], json_object_get(t, "run"));
	assert_true(rp_metrics_value(&whole, RP_METRIC_NETWORK_RTT, &v));
	assert_true(v == rtt / (double)n);
	/* nothing is known of nothing */
	rp_metrics_init(&whole);
	assert_false(rp_metrics_value(&whole, RP_METRIC_REQUEST_ERROR_RATE, &v));
	assert_false(rp_metrics_value(&whole, RP_METRIC_GOOD_REQUEST_COUNT, &v));
	assert_false(rp_metrics_value(&whole, RP_METRIC_TOTAL_ISL, &v));
	assert_true(rp_metrics_value(&whole, RP_METRIC_REQUEST_COUNT, &v) && v == 0);
	json_decref(t);
}

/* ---- classes of errors ---- */

static void classes(void **st)
{
	static const struct {
		int status;
		bool error;
		const char *where;
		enum rp_end end;
		int64_t chunks;
		enum rp_error_class want;
	} t[] = {
		{ 200, false, "", RP_END_COMPLETE, 3, RP_ERROR_NONE },
		{ 200, false, "", RP_END_COMPLETE, 0, RP_ERROR_NO_CONTENT },
		{ 200, false, "", RP_END_COMPLETE, RP_NONE, RP_ERROR_NONE },
		{ 404, true, "status", RP_END_ERROR, RP_NONE, RP_ERROR_4XX },
		{ 503, true, "status", RP_END_CLIENT_DISCONNECT, RP_NONE, RP_ERROR_5XX },
		{ 200, true, "stream", RP_END_ERROR, 3, RP_ERROR_STREAM },
		{ 200, true, "engine", RP_END_ERROR, 3, RP_ERROR_ENGINE },
		{ 200, false, "", RP_END_CLIENT_DISCONNECT, 3, RP_ERROR_CANCELLED },
		{ 0, false, "", RP_END_SERVER_CLOSE, RP_NONE, RP_ERROR_CLOSED },
		{ 200, false, "", RP_END_UNKNOWN, 3, RP_ERROR_UNSEEN },
	};
	struct rp_metrics_sum s;
	double v;

	(void)st;
	rp_metrics_init(&s);
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct rp_facts f;

		rp_facts_init(&f);
		f.operation = RP_OP_CHAT;
		f.stream = 1;
		f.status = t[i].status;
		f.has_error = t[i].error;
		f.error_where = t[i].where;
		f.end = t[i].end;
		f.chunks = t[i].chunks;
		f.prompt = 10;
		f.queue = 5;
		assert_int_equal(rp_error_class(&f), t[i].want);
		if (t[i].want == RP_ERROR_NO_CONTENT) { /* one body tells by its usage */
			f.stream = 0;
			f.chunks = RP_NONE;
			assert_int_equal(rp_error_class(&f), RP_ERROR_NONE);
			f.completion = 0;
			assert_int_equal(rp_error_class(&f), RP_ERROR_NO_CONTENT);
		}
		/* ours are of any request, AIPerf's of the valid ones */
		assert_true(rp_metric_of(&f, RP_METRIC_QUEUE_TIME, &v) && v == 5);
		assert_int_equal(rp_metric_of(&f, RP_METRIC_INPUT_SEQUENCE_LENGTH, &v),
				 t[i].want == RP_ERROR_NONE);
		assert_int_equal(rp_metric_of(&f, RP_METRIC_ERROR_ISL, &v),
				 t[i].want != RP_ERROR_NONE && t[i].want != RP_ERROR_UNSEEN);
		rp_metrics_add(&s, &f, NULL);
	}
	assert_true(rp_metrics_value(&s, RP_METRIC_REQUEST_COUNT, &v) && v == 2);
	assert_true(rp_metrics_value(&s, RP_METRIC_ERROR_REQUEST_COUNT, &v) && v == 7);
	assert_true(rp_metrics_value(&s, RP_METRIC_UNKNOWN_REQUEST_COUNT, &v) && v == 1);
	for (int m = RP_METRIC_ERRORS_HTTP_4XX; m <= RP_METRIC_ERRORS_NO_CONTENT; m++) {
		enum rp_error_class c = RP_ERROR_4XX + (m - RP_METRIC_ERRORS_HTTP_4XX);

		assert_true(rp_metrics_value(&s, (enum rp_metric)m, &v) && v == 1);
		assert_string_equal(rp_metric_defs[m].tag + strlen("errors_"),
				    rp_error_class_names[c]);
	}
	assert_true(rp_metrics_value(&s, RP_METRIC_TOTAL_ERROR_ISL, &v) && v == 70);
	assert_false(rp_metrics_value(&s, RP_METRIC_GOOD_REQUEST_COUNT, &v)); /* no SLOs */
}

/* ---- objectives ---- */

static void objectives(void **st)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "TAG:VALUE" },
		{ "  ", "TAG:VALUE" },
		{ "latency:500", "'latency'" },
		{ "time_to_first_token:500 tpoy:3", "'tpoy'" },
		{ "time_to_first_token", "in ms" },
		{ "time_to_first_token:", "has no number" },
		{ "time_to_first_token:x", "has no number" },
		{ "time_to_first_token:5ms", "has no number" },
		{ "time_to_first_token:nan", "has no number" },
		{ "time_to_first_token:1 time_to_first_token:2", "twice" },
		{ "http_req_blocked:1", "can't be seen" },
		{ "inter_chunk_latency:1", "a list" },
		{ "request_throughput:1", "of a run" },
		{ ":1", "''" },
		{ "time_to_first_token:-1", "never negative" },
		{ "request_latency:1 output_token_throughput_per_user:-0.0", "never negative" },
	};
	char err[256], many[2048] = "";
	struct rp_metrics_sum sum;
	struct rp_slos s;
	struct rp_facts f;
	double v;

	(void)st;
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		assert_int_equal(rp_slo_parse(bad[i].text, &s, err, sizeof(err)), -EINVAL);
		if (!strstr(err, bad[i].says) || strchr(err, '\n'))
			fail_msg("%s: %s", bad[i].text, err);
	}
	for (int m = 0, n = 0; n <= RP_SLOS_MAX; m++)
		if (rp_metric_per_request((enum rp_metric)m)) {
			strcat(strcat(many, rp_metric_defs[m].tag), ":1 ");
			n++;
		}
	assert_int_equal(rp_slo_parse(many, &s, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "more than 16"));

	assert_int_equal(rp_slo_parse(" time_to_first_token:500\toutput_sequence_length:2.5 "
				      "http_req_data_received:2 ",
				      &s, err, sizeof(err)),
			 0);
	assert_int_equal(s.n, 3);
	assert_true(s.slo[0].limit == 5e8 && s.slo[1].limit == 2.5 && s.slo[2].limit == 2048);
	rp_facts_init(&f);
	f.operation = RP_OP_CHAT;
	f.end = RP_END_COMPLETE;
	f.status = 200;
	f.stream = 1;
	f.receive = 100000000;
	f.ttft = 400000000;
	f.completion = 3;
	f.response_body = 2048;
	assert_int_equal(rp_slos_judge(&s, &f), RP_SLO_MET); /* at the limit is met */
	f.ttft++;
	assert_int_equal(rp_slos_judge(&s, &f), RP_SLO_MISSED);
	assert_int_equal(rp_slo_judge(&s, 0, &f), RP_SLO_MISSED);
	f.ttft = RP_NONE; /* unknown is neither */
	assert_int_equal(rp_slo_judge(&s, 0, &f), RP_SLO_UNKNOWN);
	assert_int_equal(rp_slos_judge(&s, &f), RP_SLO_UNKNOWN);
	f.completion = 2; /* but one that is missed is enough */
	assert_int_equal(rp_slos_judge(&s, &f), RP_SLO_MISSED);
	f.ttft = 0; /* larger is better */
	assert_int_equal(rp_slo_judge(&s, 1, &f), RP_SLO_MISSED);
	assert_int_equal(rp_slo_judge(&s, 0, &f), RP_SLO_MET);
	assert_int_equal(rp_slo_judge(&s, 2, &f), RP_SLO_MET);
	f.completion = 3;
	f.end = RP_END_CLIENT_DISCONNECT; /* that is known to be no good */
	assert_int_equal(rp_slos_judge(&s, &f), RP_SLO_MISSED);
	f.ttft = RP_NONE;
	assert_int_equal(rp_slo_judge(&s, 0, &f), RP_SLO_MISSED);
	/* the fraction is of those that are known */
	rp_metrics_init(&sum);
	rp_metrics_add(&sum, &f, &s); /* missed */
	f.end = RP_END_COMPLETE;
	rp_metrics_add(&sum, &f, &s); /* unknown */
	f.ttft = 0;
	rp_metrics_add(&sum, &f, &s); /* good */
	f.prompt = 7;
	rp_metrics_add(&sum, &f, &s);
	assert_true(rp_metrics_value(&sum, RP_METRIC_GOOD_REQUEST_FRACTION, &v) && v == 2.0 / 3);
	assert_true(rp_metrics_value(&sum, RP_METRIC_UNKNOWN_GOODNESS_COUNT, &v) && v == 1);
	assert_int_equal(sum.slo_unknown[0], 1);
	/* whose tokens are in no total */
	assert_true(rp_metrics_value(&sum, RP_METRIC_UNKNOWN_INPUT_COUNT, &v) && v == 2);
	assert_true(rp_metrics_value(&sum, RP_METRIC_UNKNOWN_OUTPUT_COUNT, &v) && v == 0);
	f.completion = RP_NONE;
	rp_metrics_add(&sum, &f, NULL);
	f.operation = RP_OP_EMBEDDINGS; /* has none */
	rp_metrics_add(&sum, &f, NULL);
	assert_true(rp_metrics_value(&sum, RP_METRIC_UNKNOWN_OUTPUT_COUNT, &v) && v == 1);
}

/* ---- a record, and its line ---- */

static void from_record(void **st)
{
	struct rp_facts_room room = { 0 };
	struct rp_mark marks[] = { { 2000, 1, 0 }, { 2500, 1, 0 }, { 2500, 1, 0 } };
	struct rp_record r;
	struct rp_facts f;
	double v;

	(void)st;
	memset(&r, 0, sizeof(r));
	r.engine_name = "vllm";
	r.operation = RP_OP_CHAT;
	r.end = RP_END_COMPLETE;
	r.status = 200;
	r.stream = r.choices = 1;
	r.t_start = 1000;
	r.t_request_end = 1200;
	r.t_first_byte = 1500;
	r.t_first_body = 1600;
	r.t_first_event = r.t_first_token = r.t_first_output = 2000;
	r.t_second_token = r.t_last_token = 2500;
	r.t_last_body = 2600;
	r.t_end = 2700;
	r.t_queued = r.t_scheduled = r.t_eng_first = r.t_eng_last = RP_NONE;
	r.t_established = r.t_accepted = r.t_acked = RP_NONE;
	r.e_queued = r.e_scheduled = r.e_first = r.e_last = NAN;
	r.engine_why = RP_WHY_HOOKS_OFF;
	r.wall_offset = 1000000;
	r.chunks = 3;
	r.rtt_status = RP_RTT_HANDSHAKE;
	r.rtt_us = 7;
	r.tok_prompt = 4;
	r.tok_completion_usage = 3;
	r.tok_cached = r.tok_reasoning = r.tok_prompt_engine = r.tok_engine = RP_NONE;
	r.chunk_tokens = r.first_chunk_tokens = RP_NONE;
	r.preemptions = r.requeues = r.steps = r.preempted_ns = r.requeue_ns = RP_NONE;
	r.unacked_first = r.unacked_last = r.notsent_last = r.srtt_us = r.min_rtt_us = RP_NONE;
	r.queued_chunks = RP_NONE;
	for (int i = 0; i < RP_USAGE_COUNT; i++)
		r.usage[i] = RP_NONE;
	r.prompt_audio_seconds = r.video_inference_s = r.video_peak_memory_mb = NAN;
	r.spec_steps = r.spec_draft_tokens = r.spec_accepted_tokens = RP_NONE;
	r.max_tokens = r.images = r.audios = r.videos = RP_NONE;
	r.chunk_marks = marks;
	r.n_chunk_marks = 3;
	rp_derive(&r);
	rp_facts_of(&r, &f, &room);
	assert_null(f.icl); /* no --itl */
	r.itl_wanted = true;
	rp_facts_of(&r, &f, &room);
	assert_int_equal(f.n_icl, 2);
	assert_int_equal(f.icl[0], 500);
	assert_int_equal(f.icl[1], 0);
	assert_int_equal(f.start_wall, 1001000);
	assert_int_equal(f.rtt, 7000);
	assert_string_equal(f.error_where, "");
	assert_true(rp_metric_of(&f, RP_METRIC_TIME_TO_FIRST_TOKEN, &v) && v == 1000);
	assert_true(rp_metric_of(&f, RP_METRIC_REQUEST_LATENCY, &v) && v == 1500);
	assert_true(rp_metric_of(&f, RP_METRIC_INTER_TOKEN_LATENCY, &v) && v == 250);
	assert_true(rp_metric_of(&f, RP_METRIC_HTTP_REQ_RECEIVING, &v) && v == 1000);
	assert_true(rp_metric_of(&f, RP_METRIC_HTTP_REQ_WAITING, &v) && v == 400);
	assert_true(rp_metric_of(&f, RP_METRIC_HTTP_REQ_DURATION, &v) && v == 1600);
	assert_false(rp_metric_of(&f, RP_METRIC_QUEUE_TIME, &v));
	assert_false(rp_metric_of(&f, RP_METRIC_COUNT, &v));
	free(room.icl);
}

/* ---- series over time ---- */

static void same_series(const struct rp_sweep_stats *got, const json_t *want)
{
	static const char *const keys[] = { "avg", "min", "max", "p50", "p90", "p95", "p99", "std" };

	for (int k = 0; k < RP_SWEEP_COUNT; k++) {
		const char *tag = rp_metric_defs[RP_SWEEP_FIRST + k].tag;
		const json_t *w = json_object_get(want, tag);
		const double *v = &got[k].avg;

		assert_non_null(w);
		assert_true(got[k].known);
		for (size_t i = 0; i < COUNT_OF(keys); i++) {
			double x = json_number_value(json_object_get(w, keys[i]));

			if (fabs(v[i] - x) > 1e-9 * fabs(x) + 1e-9)
				fail_msg("%s.%s: %.17g, AIPerf %.17g", tag, keys[i], v[i], x);
		}
	}
}

/* AIPerf's own curves: with tokens spread evenly, and chunk by chunk. */
static void sweeps(void **st)
{
	json_t *t = truth(), *r;
	size_t i;

	(void)st;
	for (int chunked = 0; chunked < 2; chunked++) {
		struct rp_sweep *w = rp_sweep_new(1 << 20);
		struct rp_sweep_stats got[RP_SWEEP_COUNT];

		json_array_foreach(json_object_get(t, "records"), i, r)
		{
			struct rp_facts f;

			facts_of(json_object_get(r, "facts"), &f);
			if (chunked && (f.has_error || !f.n_icl))
				continue;
			if (!chunked)
				f.icl = NULL;
			assert_int_equal(rp_sweep_add(w, &f), 0);
		}
		assert_int_equal(rp_sweep_stats(w, got), 0);
		same_series(got, json_object_get(t, chunked ? "series_chunked" : "series"));
		/* again, after sorting */
		assert_int_equal(rp_sweep_stats(w, got), 0);
		same_series(got, json_object_get(t, chunked ? "series_chunked" : "series"));
		assert_int_equal(rp_sweep_coarse(w), 0);
		rp_sweep_free(w);
	}
	json_decref(t);
}

static uint64_t seed = 88172645463325252ULL;
static uint64_t rnd64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static void request_at(struct rp_facts *f, int64_t start, int64_t ttft, int64_t duration)
{
	rp_facts_init(f);
	f->start_wall = start;
	f->receive = 0;
	f->ttft = ttft;
	f->duration = duration;
	f->prompt = 10;
	f->completion = 5;
}

/* Many at once: what can be said without a sweep is the same; nothing is left over. */
static void many(void **st)
{
	struct rp_sweep *w = rp_sweep_new(64 << 20);
	struct rp_sweep_stats got[RP_SWEEP_COUNT];
	double time = 0, prefill = 0, first = INFINITY, last = 0;
	const int n = 30000;

	(void)st;
	for (int i = 0; i < n; i++) {
		/* many of the same instant */
		int64_t s = (int64_t)(rnd64() % 1000) * 1000000, t = (int64_t)(rnd64() % 50) * 1000,
			d = t + (int64_t)(rnd64() % 90) * 1000;
		struct rp_facts f;

		request_at(&f, s, t, d);
		assert_int_equal(rp_sweep_add(w, &f), 0);
		time += (double)d;
		prefill += (double)t;
		first = fmin(first, (double)s);
		last = fmax(last, (double)(s + d));
	}
	assert_int_equal(rp_sweep_stats(w, got), 0);
	assert_true(fabs(got[0].avg * (last - first) / time - 1) < 1e-9);
	assert_true(got[0].min == 0);
	assert_true(got[0].p50 <= got[0].p90 && got[0].p90 <= got[0].p95 &&
		    got[0].p95 <= got[0].p99 && got[0].p99 <= got[0].max);
	prefill /= last - first;
	assert_true(
		fabs(got[RP_METRIC_EFFECTIVE_PREFILL_CONCURRENCY - RP_SWEEP_FIRST].avg / prefill -
		     1) < 1e-9);
	rp_sweep_free(w);
}

static void sweep_limits(void **st)
{
	struct rp_sweep *w = rp_sweep_new(4096);
	struct rp_sweep_stats got[RP_SWEEP_COUNT];
	int64_t gaps[] = { 100, 0, 200 };
	struct rp_facts f;
	int err = 0;

	(void)st;
	assert_int_equal(rp_sweep_stats(w, got), 0);
	assert_false(got[0].known);
	/* without a start or an end it is nowhere; years away it is no request */
	request_at(&f, RP_NONE, 1, 2);
	assert_int_equal(rp_sweep_add(w, &f), 0);
	request_at(&f, 0, RP_NONE, 1000);
	f.prompt = f.completion = RP_NONE;
	assert_int_equal(rp_sweep_add(w, &f), 0);
	request_at(&f, INT64_MAX - 5, 1, 2);
	assert_int_equal(rp_sweep_add(w, &f), 0);
	request_at(&f, 5, 1, INT64_MAX - 6);
	assert_int_equal(rp_sweep_add(w, &f), 0);
	assert_int_equal(rp_sweep_stats(w, got), 0);
	assert_true(got[0].known && got[0].avg == 1 && got[0].max == 1 && got[0].std == 0);
	/* no event with text: unknown, not 0 */
	for (int k = 1; k < RP_SWEEP_COUNT; k++)
		assert_false(got[k].known);
	/* gaps that don't fit: evenly; then nothing fits, and nothing is known */
	for (int i = 0; i < 100 && !err; i++) {
		request_at(&f, i * 1000, 100, 900);
		f.icl = gaps;
		f.n_icl = 3;
		err = rp_sweep_add(w, &f);
	}
	assert_int_equal(err, -ENOSPC);
	assert_true(rp_sweep_coarse(w) > 0);
	assert_int_equal(rp_sweep_stats(w, got), -ENOSPC);
	assert_false(got[0].known);
	rp_sweep_free(w);
	rp_sweep_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(registry),    cmocka_unit_test(rows),
		cmocka_unit_test(docs),	       cmocka_unit_test(as_json),
		cmocka_unit_test(formulas),    cmocka_unit_test(run),
		cmocka_unit_test(classes),     cmocka_unit_test(objectives),
		cmocka_unit_test(from_record), cmocka_unit_test(sweeps),
		cmocka_unit_test(many),	       cmocka_unit_test(sweep_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
