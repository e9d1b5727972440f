/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Unit tests of user/calibrate. aiperf/ holds real files of AIPerf 0.13.0, less the
 * metrics and the trace events that nobody reads here:
 *   line/  llama-server behind a line of 40 ms each way, --network-latency-automatic,
 *          and reqprobe's records of the same requests
 *   mean/  --network-latency-mean 20 --profile-export-prefix foo, a third of the
 *          requests cancelled, some TTFTs below 20 ms
 */
#include "util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "calibrate/calibrate.h"

#define LINE "tests/unit/aiperf/line/"
#define MEAN "tests/unit/aiperf/mean/"

/* ---- helpers --------------------------------------------------------------- */

static char dir[] = "/tmp/reqprobe-calibrate-XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[32][128];
	static unsigned turn;
	char *p = path[turn++ % COUNT_OF(path)];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static const char *file(const char *name, const char *text)
{
	const char *p = in_dir(name);
	FILE *f = fopen(p, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return p;
}

static char *slurp(const char *path)
{
	FILE *f = fopen(path, "r");
	struct log l = { 0 };
	char b[4096];
	size_t n;

	if (!f)
		return NULL;
	log_bytes(&l, "", 0);
	while ((n = fread(b, 1, sizeof(b), f)))
		log_bytes(&l, b, n);
	fclose(f);
	return l.s;
}

/* The verb in a process of its own; what it wrote stays until the next one. */
static char *out_text, *err_text;
static int run(const char *first, ...)
{
	char *argv[16] = { "calibrate", (char *)first };
	int argc = first ? 2 : 1, st;
	va_list ap;
	pid_t pid;

	va_start(ap, first);
	while (first && (argv[argc] = va_arg(ap, char *)))
		argc++;
	va_end(ap);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (!freopen(in_dir("out"), "w", stdout) || !freopen(in_dir("err"), "w", stderr))
			_exit(99);
		st = rp_calibrate(argc, argv);
		fflush(NULL);
		_exit(st);
	}
	assert_int_equal(waitpid(pid, &st, 0), pid);
	free(out_text);
	free(err_text);
	out_text = slurp(in_dir("out"));
	err_text = slurp(in_dir("err"));
	assert_true(WIFEXITED(st));
	return WEXITSTATUS(st);
}

static unsigned lines_in(const char *s)
{
	unsigned n = 0;

	for (; *s; s++)
		n += *s == '\n';
	return n;
}

/* One line, with this in it, and nothing on stdout. */
static void refused(int got, int want, const char *says)
{
	assert_int_equal(got, want);
	assert_string_equal(out_text, "");
	if (lines_in(err_text) != 1 || strncmp(err_text, "reqprobe: ", 10) != 0 ||
	    !strstr(err_text, says))
		fail_msg("said: %s\nwanted: %s", err_text, says);
}

static json_t *load(const char *path)
{
	json_error_t e;
	json_t *v = json_load_file(path, 0, &e);

	if (!v)
		fail_msg("%s: %s", path, e.text);
	return v;
}

static double num(const json_t *o, const char *a, const char *b)
{
	const json_t *v = json_object_get(o, a);

	v = b ? json_object_get(v, b) : v;
	if (!json_is_number(v))
		fail_msg("no number %s %s", a, b ? b : "");
	return json_number_value(v);
}

static const char *str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "null";
}

/* ---- numpy's arithmetic ---------------------------------------------------- */

/* From numpy 2.4.6: sum, std, percentile 1, 50, 95, 99 of the first n numbers. */
static const struct {
	size_t n;
	double sum, std, p1, p50, p95, p99;
} numpy[] = {
	{ 1, 0x1.a7358c38e9944p+8, 0x0.0p+0, 0x1.a7358c38e9944p+8, 0x1.a7358c38e9944p+8,
	  0x1.a7358c38e9944p+8, 0x1.a7358c38e9944p+8 },
	{ 2, 0x1.d24eed331712ep+9, 0x1.58cb07d16bf4cp+5, 0x1.a812371f322b4p+8, 0x1.d24eed331712ep+8,
	  0x1.f918f7add99e6p+8, 0x1.fc8ba346fbfa7p+8 },
	{ 5, 0x1.58e9304fea5b0p+11, 0x1.300d8d24bfff0p+7, 0x1.807a2b33ec87fp+8,
	  0x1.fd684e2d44917p+8, 0x1.7f03d99a3105dp+9, 0x1.8ac83832d07efp+9 },
	{ 8, 0x1.e4e4e63971d5dp+11, 0x1.8f57eb7e2b11ep+7, 0x1.5e8fc45ad42dep+6,
	  0x1.f8f598cd940f5p+8, 0x1.73fbc0eb1b844p+9, 0x1.8893667632984p+9 },
	{ 100, 0x1.7c1df001f9c80p+15, 0x1.19e041b680a8cp+8, 0x1.a431a911094bfp+3,
	  0x1.01630dd62eca5p+9, 0x1.e146580d27103p+9, 0x1.ea3ae1cbe0da2p+9 },
	{ 129, 0x1.f335cdd0efeaap+15, 0x1.1648e2a0df221p+8, 0x1.ccba11eb59c81p+3,
	  0x1.0411f495bb4bfp+9, 0x1.dc34a3aef7c96p+9, 0x1.ec81cd0129be4p+9 },
	{ 1000, 0x1.f00a7b1697579p+18, 0x1.21673039262a8p+8, 0x1.0f9e2152244cbp+3,
	  0x1.f900cbc5bf1e6p+8, 0x1.d9b09a267fda1p+9, 0x1.edd70087fc87ap+9 },
	{ 20001, 0x1.315ec83a35826p+23, 0x1.1fc3698dbed0cp+8, 0x1.2ba6cd2c01246p+3,
	  0x1.f4f07757f73ecp+8, 0x1.d9b79c761ad7ap+9, 0x1.ee9b8041d9598p+9 },
};

static void fill(double *v, size_t n)
{
	uint64_t s = 1;

	for (size_t i = 0; i < n; i++) {
		s = s * 6364136223846793005ULL + 1442695040888963407ULL;
		v[i] = (double)(s >> 11) * 0x1p-53 * 1000;
	}
}

static void to_the_last_bit(void **state)
{
	double *v = malloc(20001 * sizeof(*v));
	struct rp_cal_stats s;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(numpy); i++) {
		fill(v, numpy[i].n);
		rp_cal_stats(v, numpy[i].n, &s);
		if (s.sum != numpy[i].sum || s.std != numpy[i].std || s.p[0] != numpy[i].p1 ||
		    s.p[4] != numpy[i].p50 || s.p[7] != numpy[i].p95 || s.p[8] != numpy[i].p99)
			fail_msg("n = %zu: %a %a %a %a %a %a", numpy[i].n, s.sum, s.std, s.p[0],
				 s.p[4], s.p[7], s.p[8]);
	}
	rp_cal_stats(v, 0, &s);
	assert_true(s.n == 0 && s.sum == 0 && s.max == 0);
	free(v);
}

/* What AIPerf writes is an integer of ns times 1e-6: it comes back as that integer. */
static void milliseconds_back(void **state)
{
	uint32_t seed = 7;
	bool exact;

	(void)state;
	for (int i = 0; i < 200000; i++) {
		uint64_t ns = ((uint64_t)rnd(&seed) << 32 | rnd(&seed)) >> (14 + i % 48);

		if ((uint64_t)rp_cal_ns((double)ns * 1e-6, &exact) != ns || !exact)
			fail_msg("%llu", (unsigned long long)ns);
	}
	assert_true(rp_cal_ns(0.1234567, &exact) == 0.1234567 * 1e6);
	assert_false(exact);
	assert_true(rp_cal_ns(12.5, &exact) == 12500000 && exact);
}

/* ---- against AIPerf's own summary ------------------------------------------ */

/* Every statistic that AIPerf printed is there, and is the same double. */
static unsigned same_as_aiperf(const json_t *mine, const char *path)
{
	json_t *theirs = load(path);
	unsigned n = 0;

	for (int i = 0; i < 2 * RP_CAL_TAGS + 1; i++) {
		char tag[64] = "network_rtt";
		const char *k;
		json_t *v, *t;

		if (i < 2 * RP_CAL_TAGS)
			snprintf(tag, sizeof(tag), "%s%s",
				 i < RP_CAL_TAGS ? "" : "network_adjusted_",
				 rp_cal_tags[i % RP_CAL_TAGS]);
		t = json_object_get(theirs, tag);
		assert_non_null(t);
		json_object_foreach(t, k, v)
		{
			json_t *m = json_object_get(json_object_get(mine, tag), k);

			if (json_is_string(v) ? !json_equal(m, v) :
						json_number_value(m) != json_number_value(v))
				fail_msg("%s %s: %.17g, AIPerf has %.17g", tag, k,
					 json_number_value(m), json_number_value(v));
			n++;
		}
	}
	json_decref(theirs);
	return n;
}

static void probed(void **state)
{
	json_t *j;

	(void)state;
	assert_int_equal(run(LINE, "--json", NULL), 0);
	assert_string_equal(err_text, "");
	assert_int_equal(lines_in(out_text), 1);
	j = json_loads(out_text, 0, NULL);
	assert_int_equal(same_as_aiperf(j, LINE "profile_export_aiperf.json"), 108);
	assert_true(num(json_object_get(j, "calibration"), "records", NULL) == 30);
	assert_true(num(json_object_get(j, "calibration"), "warmup", NULL) == 2);
	assert_true(num(json_object_get(j, "calibration"), "not_whole_ns", NULL) == 0);
	assert_true(num(json_object_get(j, "calibration"), "rtt", "samples") == 27);
	json_decref(j);
}

static void given_and_clamped(void **state)
{
	json_t *j, *c;

	(void)state;
	assert_int_equal(run(MEAN, "--network-latency-mean", "20", "--json", NULL), 0);
	assert_string_equal(
		err_text,
		"reqprobe: the RTT of 20.000 ms exceeds 0 of 25 request latencies, 6 of 25 TTFTs and 6 of 25 times to first output token: these count as 0\n");
	j = json_loads(out_text, 0, NULL);
	assert_int_equal(same_as_aiperf(j, MEAN "foo.json"), 108);
	c = json_object_get(j, "calibration");
	assert_true(num(c, "records", NULL) == 37 && num(c, "failed", NULL) == 12);
	assert_true(num(c, "clamped", "time_to_first_token") == 6);
	assert_true(num(c, "clamped", "request_latency") == 0);
	assert_string_equal(str(json_object_get(c, "rtt"), "source"), "given");
	json_decref(j);
}

/* The lines of network_adjusted.jsonl add up to the summary beside them. */
static void lines_and_summary(void **state)
{
	const char *path = in_dir("whole/network_adjusted.json");
	struct rp_lines l;
	double v[64], raw;
	unsigned clamped = 0;
	struct rp_cal_stats s;
	size_t n = 0;
	json_t *r, *sum;

	(void)state;
	assert_int_equal(run(MEAN, "--network-latency-mean", "20", "-o", in_dir("whole"), NULL), 0);
	assert_non_null(strstr(out_text, "less the network"));
	sum = load(path);
	assert_int_equal(same_as_aiperf(sum, MEAN "foo.json"), 108);
	assert_int_equal(rp_lines_open(&l, in_dir("whole/network_adjusted.jsonl")), 0);
	while ((r = rp_lines_next(&l))) {
		const json_t *m = json_object_get(r, "metrics");

		raw = num(m, "time_to_first_token", "value");
		v[n] = num(m, "network_adjusted_time_to_first_token", "value");
		assert_true(fabs(v[n] - fmax(raw - 20, 0)) < 1e-9);
		assert_true(num(m, "inter_token_latency", "value") > 0);
		assert_string_equal(str(json_object_get(r, "metadata"), "benchmark_phase"),
				    "profiling");
		assert_int_equal(raw<20, json_array_size(json_object_get(r, "clamped"))> 0);
		clamped += raw < 20;
		n++;
		json_decref(r);
	}
	assert_int_equal(rp_lines_close(&l), 0);
	assert_int_equal(n, 25);
	assert_int_equal(clamped, 6);
	rp_cal_stats(v, n, &s);
	assert_true(s.avg == num(sum, "network_adjusted_time_to_first_token", "avg"));
	assert_true(s.std == num(sum, "network_adjusted_time_to_first_token", "std"));
	json_decref(sum);
}

/* ---- odd input ------------------------------------------------------------- */

static void odd_lines(void **state)
{
	const char *p = file(
		"odd.jsonl",
		"{\"metadata\":{\"benchmark_phase\":\"profiling\",\"new\":[1,{}]},\"metrics\":{\"request_latency\":{\"value\":10.5,\"unit\":\"ms\"},\"hash\":18446744073709551615},\"more\":null}\r\n"
		"\n"
		"not json\n"
		"[1,2]\n"
		"{\"metadata\":{},\"metrics\":{\"request_latency\":{\"value\":\"7\",\"unit\":\"ms\"},\"time_to_first_token\":{\"value\":[1,2],\"unit\":\"ms\"}}}\n"
		"{\"metadata\":{},\"metrics\":{\"request_latency\":{\"value\":2,\"unit\":\"sec\"}}}\n"
		"{\"metadata\":{},\"metrics\":{\"request_latency\":{\"value\":1.23456789}}}\n"
		"{\"metadata\":{},\"metrics\":{},\"error\":{\"code\":499}}\n"
		"{\"metadata\":{\"was_cancelled\":true},\"metrics\":{}}\n"
		"{\"metadata\":{\"benchmark_phase\":\"warmup\"},\"metrics\":{\"request_latency\":{\"value\":99,\"unit\":\"ms\"}}}\n"
		"{\"something\":\"else\"}\n"
		"{\"metadata\":{},\"metrics\":{\"request_latency\":{\"value\":3,\"un");
	json_t *j, *c;

	(void)state;
	assert_int_equal(run("--records", p, "--network-latency-mean", "1", "--json", NULL), 0);
	assert_int_equal(lines_in(err_text), 3);
	assert_non_null(strstr(err_text, "3 of 12 lines are no JSON objects"));
	assert_non_null(strstr(err_text, "the first is line 3"));
	assert_non_null(strstr(err_text, "1 values are no whole nanoseconds"));
	assert_non_null(strstr(err_text, "1 values are not in ms"));
	j = json_loads(out_text, 0, NULL);
	c = json_object_get(j, "calibration");
	assert_true(num(c, "records", NULL) == 6 && num(c, "warmup", NULL) == 1);
	assert_true(num(c, "failed", NULL) == 2 && num(c, "without_latency", NULL) == 2);
	assert_true(num(c, "broken_lines", NULL) == 4);
	assert_true(num(j, "network_adjusted_request_latency", "count") == 2);
	assert_true(num(j, "network_adjusted_request_latency", "max") == 9.5);
	assert_null(json_object_get(j, "time_to_first_token"));
	json_decref(j);
}

static void long_line(void **state)
{
	const char *p = in_dir("long.jsonl");
	FILE *f = fopen(p, "w");
	struct rp_lines l;
	json_t *v;

	(void)state;
	fputs("{\"a\":\"", f);
	for (size_t i = 0; i < RP_CAL_MAX_LINE; i++)
		putc('x', f);
	fputs("\"}\n{\"b\":1}\n", f);
	fclose(f);
	assert_int_equal(rp_lines_open(&l, p), 0);
	v = rp_lines_next(&l);
	assert_true(num(v, "b", NULL) == 1);
	json_decref(v);
	assert_null(rp_lines_next(&l));
	assert_int_equal(l.broken, 1);
	assert_int_equal(l.cap, RP_CAL_MAX_LINE);
	l.broken = 0;
	assert_int_equal(rp_lines_close(&l), 0);
}

#define ONE_RECORD                                                        \
	"{\"metadata\":{},\"metrics\":{\"request_latency\":{\"value\":5," \
	"\"unit\":\"ms\"}}}\n"

static void probes(void **state)
{
	const char *rec = file("one.jsonl", ONE_RECORD);
	const char *p = file("net.jsonl",
			     "{\"timestamp_ns\":1,\"rtt_ns\":1000000,\"success\":true}\n"
			     "{\"timestamp_ns\":2,\"success\":false,\"error\":{}}\n"
			     "{\"timestamp_ns\":3,\"rtt_ns\":2000001,\"success\":true}\n"
			     "{\"timestamp_ns\":3,\"rtt_ns\":9000001,\"success\":false}\n"
			     "{\"timestamp_ns\":3,\"rtt_ns\":null,\"success\":true}\n"
			     "{\"hello\":1}\n");
	json_t *j;

	(void)state;
	assert_int_equal(run(rec, "--latency", p, "--json", NULL), 0);
	assert_non_null(strstr(err_text, "1 lines are no latency samples"));
	j = json_loads(out_text, 0, NULL);
	assert_true(num(json_object_get(j, "calibration"), "rtt", "mean_ns") == 1500000.5);
	assert_true(num(json_object_get(j, "calibration"), "rtt", "failed") == 3);
	assert_true(num(j, "network_rtt", "p99") == 1.5000005);
	assert_true(num(j, "network_adjusted_request_latency", "avg") == 3.4999995);
	json_decref(j);
	p = file("fail.jsonl", "{\"success\":false}\n");
	refused(run(rec, "--latency", p, NULL), 1, "has no successful probe (1 failed)");
}

static void refusals(void **state)
{
	char rec[128];

	(void)state;
	snprintf(rec, sizeof(rec), "%s", file("one.jsonl", ONE_RECORD));
	refused(run(NULL), 2, "which records?");
	refused(run(rec, NULL), 2, "which RTT? --latency FILE or --network-latency-mean MS");
	refused(run("--network-latency-mean", "1", NULL), 2, "which records?");
	refused(run(rec, "--network-latency-mean", "0", NULL), 2, "milliseconds above 0");
	refused(run(rec, "--network-latency-mean", "2x", NULL), 2, "milliseconds above 0");
	refused(run(rec, "--network-latency-mean", "nan", NULL), 2, "milliseconds above 0");
	refused(run(rec, "--network-latency-mean", "1", "--latency", rec, NULL), 2, "one of");
	refused(run("--records", rec, rec, NULL), 2, "not both");
	refused(run(rec, rec, NULL), 2, "not both");
	refused(run(rec, "--wrong", NULL), 2, "'--wrong' is not understood");
	refused(run(rec, "--records", NULL), 2, "'--records' is not understood, or lacks");
	refused(run(rec, "-o", "-", NULL), 2, "standard output is for the summary");
	refused(run("/nonexistent", NULL), 1, "can't read /nonexistent: No such file");
	refused(run("--records", "/nonexistent", "--network-latency-mean", "1", NULL), 1,
		"can't read /nonexistent: No such file");
	refused(run("--records", dir, "--network-latency-mean", "1", NULL), 1, "Is a directory");
	refused(run("tests/unit", NULL), 2, "no records of AIPerf in tests/unit");
	refused(run(MEAN, NULL), 2, "which RTT?");
	refused(run(rec, "--network-latency-mean", "1", "-o", "/nonexistent/x.json", NULL), 1,
		"can't write /nonexistent/x.json");
	refused(run(rec, "--network-latency-mean", "1", "-o", rec, NULL), 1, "would write over");
	refused(run(rec, "--join", rec, NULL), 1, "has no record of reqprobe in 1 lines");
	refused(run("--records", file("junk.jsonl", "x\n{}\n"), "--network-latency-mean", "1",
		    NULL),
		1, "has no record of AIPerf (metadata and metrics) in 2 lines");
	assert_int_equal(run("--help", NULL), 0);
	assert_string_equal(err_text, "");
}

/* In a directory: any prefix, our own files of the last time left alone. */
static void directories(void **state)
{
	char *before, *after;

	(void)state;
	mkdir(in_dir("d"), 0777);
	file("d/bar.jsonl", ONE_RECORD);
	file("d/bar_raw.jsonl", ONE_RECORD);
	file("d/bar_network_latency.jsonl", "{\"rtt_ns\":1000000,\"success\":true}\n");
	file("d/reqprobe.jsonl", "{\"schema\":\"reqprobe.request/1\"}\n");
	assert_int_equal(run(in_dir("d"), "-o", in_dir("d"), NULL), 0);
	before = slurp(in_dir("d/network_adjusted.json"));
	assert_non_null(before);
	assert_int_equal(run(in_dir("d"), "-o", in_dir("d"), NULL), 0);
	after = slurp(in_dir("d/network_adjusted.json"));
	assert_string_equal(before, after);
	free(before);
	free(after);
	file("d/zed.jsonl", ONE_RECORD);
	refused(run(in_dir("d"), NULL), 2, "which one, ");
	assert_int_equal(run(in_dir("d"), "--records", in_dir("d/zed.jsonl"), NULL), 0);
	/* what failed leaves nothing behind */
	assert_int_equal(run("--records", in_dir("d/none"), "--network-latency-mean", "1", "-o",
			     in_dir("e"), NULL),
			 1);
	assert_int_not_equal(access(in_dir("e/network_adjusted.json"), F_OK), 0);
	assert_int_equal(rmdir(in_dir("e")), 0);
}

/* ---- the join -------------------------------------------------------------- */

static json_t *joined_lines(const char *path)
{
	json_t *all = json_array(), *v;
	struct rp_lines l;

	assert_int_equal(rp_lines_open(&l, path), 0);
	while ((v = rp_lines_next(&l)))
		json_array_append_new(all, v);
	assert_int_equal(rp_lines_close(&l), 0);
	return all;
}

static int64_t ns_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? llrint(json_number_value(v) * 1e6) : 0;
}

/* client TTFT is the sum of all the rest, to the nanosecond. */
static void adds_up(const json_t *line)
{
	int64_t sum = 0;
	char key[64];

	for (int i = 0; i < RP_PARTS; i++) {
		snprintf(key, sizeof(key), "%s_ms", rp_part_names[i]);
		assert_non_null(json_object_get(line, key));
		sum += ns_of(line, key);
	}
	assert_int_equal(sum, ns_of(line, "client_ttft_ms"));
}

static void real_join(void **state)
{
	json_t *all, *v, *sum;
	size_t i;

	(void)state;
	assert_int_equal(run(LINE, "--join", LINE "reqprobe.jsonl", "-o", in_dir("join"), NULL), 0);
	assert_string_equal(err_text, "");
	assert_non_null(strstr(out_text, "30 requests joined"));
	all = joined_lines(in_dir("join/joined.jsonl"));
	assert_int_equal(json_array_size(all), 30);
	json_array_foreach(all, i, v)
	{
		adds_up(v);
		assert_true(num(v, "explained_share", NULL) >= 0.95);
		assert_string_equal(str(v, "network_source"), "handshake");
		assert_string_equal(str(v, "client_overhead_source"), "trace");
		assert_true(json_is_null(json_object_get(v, "server_ms")));
	}
	json_decref(all);
	sum = load(in_dir("join/join.json"));
	assert_true(num(sum, "explained_95_percent", NULL) == 30);
	assert_true(num(sum, "explained_share_of_sum", NULL) > 0.99);
	assert_true(num(json_object_get(sum, "unjoined"), "server", "warmup") == 2);
	assert_string_equal(
		str(json_object_get(json_object_get(sum, "biggest_part"), "p99"), "part"), "queue");
	json_decref(sum);
	sum = load(in_dir("join/network_adjusted.json"));
	assert_int_equal(same_as_aiperf(sum, LINE "profile_export_aiperf.json"), 108);
	json_decref(sum);
}

#define CLIENT(id, start, ttft, more)                                               \
	"{\"metadata\":{\"x_request_id\":" id ",\"request_start_ns\":" start        \
	",\"session_num\":1},\"metrics\":{\"time_to_first_token\":{\"value\":" ttft \
	",\"unit\":\"ms\"}" more "}}\n"
#define SERVER(id, start, rest)                                                              \
	"{\"schema\":\"reqprobe.request/1\",\"x_request_id\":" id ",\"start\":\"2020-" start \
	"Z\",\"end\":\"complete\",\"flags\":[]," rest "}\n"
#define PHASES(rtt, fe, queue, prefill, after, ttft)                                               \
	"\"network\":{\"rtt_ms\":" rtt ",\"source\":\"handshake\"},\"phases\":{\"receive_ms\":"    \
	"0.5,\"frontend_ms\":" fe ",\"queue_ms\":" queue ",\"prefill_ms\":" prefill                \
	"},\"frontend\":{\"after_first_token_ms\":" after "},\"server_timing\":{\"ttft_ms\":" ttft \
	"}"
#define ENGINE PHASES("2", "1", "10", "20", "0.25", "31.25")
#define BLIND PHASES("null", "null", "null", "null", "null", "31.25")

static json_t *join(const char *client, const char *server, const char *mean, json_t **sum)
{
	const char *c = file("c.jsonl", client), *s = file("s.jsonl", server);
	json_t *all;

	assert_int_equal(run(c, "--join", s, "-o", in_dir("j.jsonl"),
			     mean ? "--network-latency-mean" : NULL, mean, NULL),
			 0);
	all = joined_lines(in_dir("j.jsonl"));
	assert_int_equal(run(c, "--join", s, "--json", mean ? "--network-latency-mean" : NULL, mean,
			     NULL),
			 0);
	*sum = json_loads(out_text, 0, NULL);
	assert_non_null(*sum);
	return all;
}

static void parts(void **state)
{
	json_t *sum, *all, *v;

	(void)state;
	/* half a year between the two clocks; the RTT of the record; no http_req metrics */
	all = join(CLIENT("\"a\"", "1700000000000000001", "35.75", ""),
		   SERVER("\"a\"", "06-01T00:00:00.000000005", ENGINE), NULL, &sum);
	assert_int_equal(json_array_size(all), 1);
	v = json_array_get(all, 0);
	adds_up(v);
	assert_int_equal(ns_of(v, "frontend_ms"), 1250000);
	assert_int_equal(ns_of(v, "queue_ms"), 10000000);
	assert_int_equal(ns_of(v, "receive_ms"), 500000);
	assert_int_equal(ns_of(v, "network_ms"), 2000000);
	assert_int_equal(ns_of(v, "unexplained_ms"), 2000000);
	assert_string_equal(str(v, "client_start"), "2023-11-14T22:13:20.000000001Z");
	assert_string_equal(str(v, "server_start"), "2020-06-01T00:00:00.000000005Z");
	assert_true(json_is_null(json_object_get(v, "client_overhead_ms")));
	json_decref(all);
	json_decref(sum);

	/* more parts than there is time: below zero, and it stays so */
	all = join(
		CLIENT("\"a\"", "5", "30.75",
		       ",\"http_req_sending\":{\"value\":0.5,\"unit\":\"ms\"},\"http_req_chunks_sent\":{\"value\":1}"),
		SERVER("\"a\"", "06-01T00:00:00", ENGINE), "7", &sum);
	v = json_array_get(all, 0);
	adds_up(v);
	assert_int_equal(ns_of(v, "client_overhead_ms"), 500000);
	assert_int_equal(ns_of(v, "unexplained_ms"), -3500000);
	assert_true(num(v, "explained_share", NULL) == 1 - 3.5 / 30.75);
	assert_string_equal(str(v, "client_overhead_source"), "http_req");
	assert_string_equal(str(v, "network_source"), "handshake");
	json_decref(all);
	json_decref(sum);

	/* the engine not seen: one lump; no RTT of its own: the calibrated one */
	all = join(
		CLIENT("\"a\"", "5", "40",
		       ",\"http_req_blocked\":{\"value\":0.25,\"unit\":\"ms\"},\"http_req_connecting\":{\"value\":1,\"unit\":\"ms\"},\"http_req_sending\":{\"value\":9,\"unit\":\"ms\"},\"http_req_chunks_sent\":{\"value\":3}"),
		SERVER("\"a\"", "06-01T00:00:00", BLIND), "7", &sum);
	v = json_array_get(all, 0);
	adds_up(v);
	assert_int_equal(ns_of(v, "server_ms"), 31250000);
	assert_true(json_is_null(json_object_get(v, "queue_ms")));
	assert_int_equal(ns_of(v, "network_ms"), 7000000);
	assert_int_equal(ns_of(v, "client_overhead_ms"), 1250000);
	assert_string_equal(str(v, "network_source"), "calibration");
	json_decref(all);
	json_decref(sum);

	/* neither: null, and the network stays in the rest */
	all = join(CLIENT("\"a\"", "5", "40", ""), SERVER("\"a\"", "06-01T00:00:00", BLIND), NULL,
		   &sum);
	v = json_array_get(all, 0);
	adds_up(v);
	assert_true(json_is_null(json_object_get(v, "network_ms")));
	assert_string_equal(str(v, "network_source"), "null");
	assert_true(num(sum, "join", "without_rtt") == 1);
	assert_null(json_object_get(sum, "network_rtt"));
	json_decref(all);
	json_decref(sum);
}

/* For people: the same figures, and what is not said of them elsewhere. */
static void tables(void **state)
{
	const char *c = file("c.jsonl", CLIENT("\"a\"", "5", "40",
					       "") "{broken\n" CLIENT("\"b\"", "6", "50", ""));
	const char *s = file("s.jsonl", SERVER("\"a\"", "06-01T00:00:00", BLIND) "{broken\n");
	json_t *sum;

	(void)state;
	assert_int_equal(run(c, "--join", s, NULL), 0);
	assert_string_equal(
		strchr(out_text, '\n'),
		"\n  1 requests joined: 2 client records, 1 server records\n"
		"  1 not joined: client, not_in_other_file\n\n"
		"  ms                                 avg       p50       p90       p99       max\n"
		"  client TTFT                     40.000    40.000    40.000    40.000    40.000\n"
		"    receive              1.2 %     0.500     0.500     0.500     0.500     0.500\n"
		"    server              78.1 %    31.250    31.250    31.250    31.250    31.250\n"
		"    unexplained         20.6 %     8.250     8.250     8.250     8.250     8.250\n"
		"  explained: 79.4 % of all, at least 95 % in 0 of 1 requests\n"
		"  biggest part: at p50 (40.0 ms) server, 78 %; at p99 (40.0 ms) server, 78 %\n"
		"  1 without an RTT: the network is in their unexplained rest\n");
	assert_int_equal(run(c, "--join", s, "--json", NULL), 0);
	sum = json_loads(out_text, 0, NULL);
	assert_non_null(sum);
	assert_true(num(sum, "join", "broken_lines") == 2);
	json_decref(sum);
}

static void duplicates(void **state)
{
	static const char failed[] =
		"{\"metadata\":{\"x_request_id\":\"x\"},\"metrics\":{},\"error\":{\"code\":499}}\n";
	static const char warmup[] =
		"{\"metadata\":{\"x_request_id\":\"w\",\"benchmark_phase\":\"warmup\"},\"metrics\":{\"time_to_first_token\":{\"value\":1,\"unit\":\"ms\"}}}\n";
	json_t *sum, *all, *un;
	struct log c = { 0 }, s = { 0 };

	(void)state;
	/* twice on both sides, out of order: first with first */
	log_add(&c, "%s", CLIENT("\"d\"", "200", "50", ""));
	log_add(&c, "%s", CLIENT("\"d\"", "100", "40", ""));
	log_add(&s, "%s", SERVER("\"d\"", "02-02T00:00:00", PHASES("2", "1", "2", "3", "0", "6")));
	log_add(&s, "%s", SERVER("\"d\"", "02-01T00:00:00", PHASES("2", "1", "1", "3", "0", "5")));
	/* sent again by a gateway: the attempt without a token is not the one */
	log_add(&c, "%s", CLIENT("\"g\"", "300", "60", ""));
	log_add(&s, "%s",
		SERVER("\"g\"", "03-01T00:00:00", PHASES("2", "1", "9", "null", "null", "null")));
	log_add(&s, "%s", SERVER("\"g\"", "03-02T00:00:00", PHASES("2", "1", "4", "3", "0", "8")));
	/* one too many with a token */
	log_add(&c, "%s", CLIENT("\"h\"", "300", "60", ""));
	log_add(&s, "%s", SERVER("\"h\"", "03-02T00:00:00", ENGINE));
	log_add(&s, "%s", SERVER("\"h\"", "03-03T00:00:00", ENGINE));
	/* all that can't be joined */
	log_add(&c, "%s", CLIENT("null", "1", "60", ""));
	log_add(&c, "%s", CLIENT("\"only client\"", "1", "60", ""));
	log_add(&c, "%s%s", failed, warmup);
	log_add(&c, "%s", "{\"metadata\":{\"x_request_id\":\"n\"},\"metrics\":{}}\n");
	log_add(&c, "%s", CLIENT("\"t\"", "1", "60", ""));
	log_add(&s, "%s", SERVER("null", "03-02T00:00:00", ENGINE));
	log_add(&s, "%s", SERVER("\"only server\"", "03-02T00:00:00", ENGINE));
	log_add(&s, "%s", SERVER("\"x\"", "03-02T00:00:00", ENGINE));
	log_add(&s, "%s", SERVER("\"w\"", "03-02T00:00:00", ENGINE));
	log_add(&s, "%s",
		SERVER("\"t\"", "03-02T00:00:00", PHASES("2", "1", "9", "null", "null", "null")));
	log_add(&s, "%s", "{\"schema\":\"reqprobe.summary/1\"}\n{\"schema\":\"other/1\"}\n");

	all = join(log_str(&c), log_str(&s), NULL, &sum);
	assert_non_null(strstr(err_text, "1 lines are no reqprobe.request/1"));
	assert_int_equal(json_array_size(all), 4);
	assert_int_equal(ns_of(json_array_get(all, 0), "client_ttft_ms"), 50000000);
	assert_int_equal(ns_of(json_array_get(all, 0), "queue_ms"), 2000000);
	assert_int_equal(ns_of(json_array_get(all, 1), "queue_ms"), 1000000);
	assert_int_equal(ns_of(json_array_get(all, 2), "queue_ms"), 4000000);
	assert_string_equal(str(json_array_get(all, 3), "server_start"),
			    "2020-03-02T00:00:00.000000000Z");
	for (int i = 0; i < 4; i++) {
		json_t *flags = json_object_get(json_array_get(all, i), "flags");

		adds_up(json_array_get(all, i));
		assert_string_equal(json_string_value(json_array_get(flags, 0)), "duplicate_id");
	}
	un = json_object_get(json_object_get(sum, "join"), "unjoined");
	assert_int_equal(json_object_size(json_object_get(un, "client")), 6);
	for (const char *const *k = (const char *const[]){ "no_x_request_id", "not_in_other_file",
							   "failed", "warmup", "no_first_token",
							   "no_first_token_in_other_file", NULL };
	     *k; k++)
		assert_true(num(un, "client", *k) == 1);
	assert_int_equal(json_object_size(json_object_get(un, "server")), 6);
	assert_true(num(un, "server", "duplicate_id") == 1);
	assert_true(num(un, "server", "no_first_token") == 2);
	for (const char *const *k =
		     (const char *const[]){ "no_x_request_id", "not_in_other_file", "warmup",
					    "no_first_token_in_other_file", NULL };
	     *k; k++)
		assert_true(num(un, "server", *k) == 1);
	assert_true(num(sum, "join", "duplicates") == 4);
	free(c.s);
	free(s.s);
	json_decref(all);
	json_decref(sum);
}

/* ---------------------------------------------------------------------------- */

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static void remove_all(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *e;

	if (!d) {
		unlink(path);
		return;
	}
	while ((e = readdir(d))) {
		char p[512];

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(p, sizeof(p), "%s/%s", path, e->d_name);
		remove_all(p);
	}
	closedir(d);
	rmdir(path);
}

static int remove_dir(void **state)
{
	(void)state;
	free(out_text);
	free(err_text);
	remove_all(dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(to_the_last_bit),
		cmocka_unit_test(milliseconds_back),
		cmocka_unit_test(probed),
		cmocka_unit_test(given_and_clamped),
		cmocka_unit_test(lines_and_summary),
		cmocka_unit_test(odd_lines),
		cmocka_unit_test(long_line),
		cmocka_unit_test(probes),
		cmocka_unit_test(refusals),
		cmocka_unit_test(directories),
		cmocka_unit_test(real_join),
		cmocka_unit_test(parts),
		cmocka_unit_test(tables),
		cmocka_unit_test(duplicates),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
