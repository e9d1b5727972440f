// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "util.h"

#include <arpa/inet.h>
#include <errno.h>

#include "record/anon.h"
#include "sink/sink.h"

/* What llm-runtime-metrics 0.0.22 says: hash_b10_request_id(id). */
static const struct {
	const char *id, *hash;
} known[] = {
	{ "req-1", "2453ed2aa889a1716533bfc23771346331483670719e985aa598e038a829d7a0" },
	{ "chatcmpl-8c64c5e74d88f57a",
	  "67b148f97d359a4e676a0e2c69caa33f9f0e863c6c3017de1020e855d93c737f" },
	{ "\xc3\xa9", "0212a01649676a397bdfdd7fe677aa11776a038261a90a74836c8ae2f8deffba" },
};

static char *key_file(const void *p, size_t n)
{
	static char name[32];
	int fd;

	strcpy(name, "/tmp/reqprobe-test-XXXXXX");
	fd = mkstemp(name);
	assert_true(fd >= 0 && write(fd, p, n) == (ssize_t)n);
	close(fd);
	return name;
}

static void ids(void **st)
{
	struct rp_anon a;
	char out[65], err[256];

	(void)st;
	assert_int_equal(rp_anon_init(&a, NULL, err, sizeof(err)), 0);
	for (size_t i = 0; i < COUNT_OF(known); i++) {
		rp_anon_id(&a, known[i].id, out);
		assert_string_equal(out, known[i].hash);
	}
}

static void keyed(void **st)
{
	/* BLAKE3 keyed with BLAKE3("pepper\1"), by the package "blake3" */
	static const char want[] =
		"293a19e777d62507f6a366588c6b89767f40607e3d8be05249883ecf04b356f4";
	struct rp_anon a;
	char out[65], err[256], *f;
	uint8_t big[RP_ANON_KEY_MAX + 1];

	(void)st;
	f = key_file("pepper\1\n", 8); /* the newline is the editor's */
	assert_int_equal(rp_anon_init(&a, f, err, sizeof(err)), 0);
	unlink(f);
	rp_anon_id(&a, "req-1", out);
	assert_string_equal(out, want);
	f = key_file("pepper\1", 7);
	assert_int_equal(rp_anon_init(&a, f, err, sizeof(err)), 0);
	unlink(f);
	rp_anon_id(&a, "req-1", out);
	assert_string_equal(out, want);

	f = key_file("\n", 1);
	assert_int_equal(rp_anon_init(&a, f, err, sizeof(err)), -EINVAL);
	unlink(f);
	assert_int_equal(rp_anon_init(&a, f, err, sizeof(err)), -ENOENT);
	memset(big, 'x', sizeof(big));
	f = key_file(big, sizeof(big));
	assert_int_equal(rp_anon_init(&a, f, err, sizeof(err)), -EINVAL);
	unlink(f);
	f = key_file(big, sizeof(big) - 1);
	assert_int_equal(rp_anon_init(&a, f, err, sizeof(err)), 0);
	unlink(f);
}

static void address(const char *in, const char *want)
{
	static struct rp_record r;
	struct rp_anon a = { 0 };
	char out[INET6_ADDRSTRLEN];

	memset(&r, 0, sizeof(r));
	r.family = strchr(in, ':') ? AF_INET6 : AF_INET;
	assert_int_equal(inet_pton(r.family, in, r.raddr), 1);
	memcpy(r.laddr, r.raddr, 16);
	r.rport = 5;
	r.lport = 6;
	rp_anon_record(&a, &r);
	assert_string_equal(inet_ntop(r.family, r.raddr, out, sizeof(out)), want);
	assert_string_equal(inet_ntop(r.family, r.laddr, out, sizeof(out)), in);
	assert_int_equal(r.rport, 0);
	assert_int_equal(r.lport, 6);
}

static void addresses(void **st)
{
	(void)st;
	address("192.168.77.254", "192.168.77.0");
	address("10.0.0.0", "10.0.0.0");
	address("2001:db8:1:2:3:4:5:6", "2001:db8:1::");
	address("fe80::1", "fe80::");
	address("::ffff:192.168.77.254", "::ffff:192.168.77.0");
}

/* The line: nothing of an id, every key where it was. */
static void line(void **st)
{
	static struct rp_record r;
	struct rp_anon a = { 0 };
	char *before, *after;
	size_t n;

	(void)st;
	r.engine_name = "generic";
	r.engine_version = "";
	r.family = AF_INET;
	inet_pton(AF_INET, "203.0.113.77", r.raddr);
	r.rport = 34567;
	r.t_start = RP_NONE;
	memset(r.id, 'i', sizeof(r.id) - 1); /* as long as can be */
	snprintf(r.x_request_id, sizeof(r.x_request_id), "%s", MARKER);
	for (int i = 0; i < 2; i++)
		snprintf(r.request_ids[i], sizeof(r.request_ids[i]), "cmpl-%s-%d", MARKER, i);
	r.n_request_ids = 2;
	rp_derive(&r);
	before = rp_record_json(&r, &n);
	rp_anon_record(&a, &r);
	after = rp_record_json(&r, &n);
	assert_non_null(strstr(before, MARKER));
	assert_non_null(strstr(before, "iiiiiiii"));
	assert_null(strstr(after, MARKER));
	assert_null(strstr(after, "iiiiiiii"));
	assert_null(strstr(after, ".77\""));
	assert_null(strstr(after, "34567"));
	assert_non_null(strstr(after, "\"client\":{\"address\":\"203.0.113.0\",\"port\":null}"));
	assert_int_equal(strlen(r.id), 64);
	assert_string_not_equal(r.request_ids[0], r.request_ids[1]);
	free(before);
	free(after);

	/* an id that is not there stays so */
	memset(&r, 0, sizeof(r));
	r.n_request_ids = 0;
	rp_anon_record(&a, &r);
	assert_string_equal(r.id, "");
	assert_string_equal(r.x_request_id, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids),
		cmocka_unit_test(keyed),
		cmocka_unit_test(addresses),
		cmocka_unit_test(line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
