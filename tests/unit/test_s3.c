// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "log/s3.h"

static void names(void **st)
{
	char out[64];

	(void)st;
	assert_true(rp_s3_is_url("s3://abc"));
	assert_true(rp_s3_is_url("s3://a.b-c9/"));
	assert_true(rp_s3_is_url("s3://abc/p/q r"));
	assert_false(rp_s3_is_url("s3://ab"));
	assert_false(rp_s3_is_url("s3:///p"));
	assert_false(rp_s3_is_url("s3://a c/p"));
	assert_false(rp_s3_is_url("s3://.bc/p"));
	assert_false(rp_s3_is_url("https://abc/p"));
	assert_false(rp_s3_is_url("s3://" MARKER MARKER MARKER MARKER MARKER MARKER));

	assert_int_equal(rp_s3_encode("a/B9-_.~", true, out, sizeof(out)), 8);
	assert_string_equal(out, "a/B9-_.~");
	assert_int_equal(rp_s3_encode("a/b =+\xc3\xa9%", false, out, sizeof(out)), 23);
	assert_string_equal(out, "a%2Fb%20%3D%2B%C3%A9%25");
	/* to the last byte, and one too many */
	assert_int_equal(rp_s3_encode("ab ", true, out, 6), 5);
	assert_int_equal(rp_s3_encode("ab ", true, out, 5), -ENAMETOOLONG);
}

static void profile(void **st)
{
	static const char text[] = "# a comment\n"
				   "[default]\r\n"
				   "aws_access_key_id = ID1\r\n"
				   "aws_secret_access_key=SEC/RET+1=\r\n"
				   "region = x\n"
				   "[profile two]\n"
				   "AWS_ACCESS_KEY_ID=ID2\n"
				   "aws_secret_access_key =  S2  \n"
				   "aws_session_token = TOKEN==\n"
				   "[three]\n"
				   "aws_access_key_id = ID3\n"
				   "; aws_secret_access_key = no\n"
				   "[four]\n"
				   "aws_access_key_id = 0123456789abcdef0123456789abcdef\n"
				   "aws_secret_access_key = S4";
	char id[32], secret[32], token[32];

	(void)st;
	assert_int_equal(rp_s3_profile(text, "default", id, secret, token, 32), 0);
	assert_string_equal(id, "ID1");
	assert_string_equal(secret, "SEC/RET+1=");
	assert_string_equal(token, "");
	assert_int_equal(rp_s3_profile(text, "two", id, secret, token, 32), 0);
	assert_string_equal(id, "ID2");
	assert_string_equal(secret, "S2");
	assert_string_equal(token, "TOKEN==");
	assert_int_equal(rp_s3_profile(text, "three", id, secret, token, 32), -ENOENT);
	assert_int_equal(rp_s3_profile(text, "four", id, secret, token, 32), -ENOENT);
	assert_int_equal(rp_s3_profile(text, "five", id, secret, token, 32), -ENOENT);
	assert_int_equal(rp_s3_profile("", "default", id, secret, token, 32), -ENOENT);
}

static struct rp_s3_object seen[4];
static char keys[4][RP_S3_KEY_MAX + 1];
static size_t n_seen;

static int take(void *ctx, const struct rp_s3_object *o)
{
	if (ctx && n_seen == 1)
		return -ECANCELED;
	assert_true(n_seen < COUNT_OF(seen));
	seen[n_seen] = *o;
	strcpy(keys[n_seen++], o->key);
	return 0;
}

static int list(const char *xml, void *ctx, char *token)
{
	size_t n = strlen(xml);
	uint8_t *p = guard_buf(0, n);

	memcpy(p, xml, n);
	n_seen = 0;
	return rp_s3_parse_list((const char *)p, n, take, ctx, token);
}

#define HEAD "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/\">"
#define FOOT "</ListBucketResult>"
#define OBJECT(key, size) \
	"<Contents><Key>" key "</Key><ETag>&quot;x&quot;</ETag><Size>" size "</Size></Contents>"

static void listing(void **st)
{
	char token[RP_S3_KEY_MAX];

	(void)st;
	assert_int_equal(
		list(HEAD "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
			  "<NextContinuationToken>a/b+c=&amp;&#x41;</NextContinuationToken>" OBJECT(
				  "a%2Fb+c%C3%A9", "0") OBJECT("d&amp;e", "18446744073709551615")
				  FOOT,
		     NULL, token),
		0);
	assert_int_equal(n_seen, 2);
	assert_string_equal(keys[0], "a/b c\xc3\xa9");
	assert_int_equal(seen[0].size, 0);
	assert_string_equal(keys[1], "d&e");
	assert_true(seen[1].size == UINT64_MAX);
	assert_string_equal(token, "a/b+c=&A");

	/* without the encoding, % and + are what they are */
	assert_int_equal(list(HEAD "<IsTruncated>false</IsTruncated>" OBJECT("a%2F+b", "7") FOOT,
			      NULL, token),
			 0);
	assert_string_equal(keys[0], "a%2F+b");
	assert_string_equal(token, "");
	assert_int_equal(list(HEAD FOOT, NULL, token), 0);
	assert_int_equal(n_seen, 0);
	assert_int_equal(list(HEAD OBJECT("a", "1") OBJECT("b", "1") FOOT, &n_seen, token),
			 -ECANCELED);
	assert_int_equal(n_seen, 1);
}

static void bad_listing(void **st)
{
	static const char *const bad[] = {
		"",
		"<html>no</html>",
		HEAD OBJECT("a", "1"), /* cut off */
		HEAD OBJECT("a", "-1") FOOT,
		HEAD OBJECT("a", "1x") FOOT,
		HEAD OBJECT("a", "") FOOT,
		HEAD "<Contents><Key>a</Key></Contents>" FOOT,
		HEAD "<Contents><Size>1</Size></Contents>" FOOT,
		HEAD OBJECT("a&b;", "1") FOOT,
		HEAD OBJECT("a&#0;", "1") FOOT,
		HEAD OBJECT("a&#300;", "1") FOOT,
		HEAD OBJECT("a&#x", "1") FOOT,
		HEAD "<EncodingType>url</EncodingType>" OBJECT("a%2", "1") FOOT,
		HEAD "<EncodingType>url</EncodingType>" OBJECT("a%00", "1") FOOT,
		HEAD "<IsTruncated>true</IsTruncated>" FOOT, /* and no token: never an end */
		HEAD
		"<IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken>" FOOT,
	};
	char token[RP_S3_KEY_MAX], *xml;
	int n;

	(void)st;
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		if (list(bad[i], NULL, token) != -EBADMSG)
			fail_msg("%s", bad[i]);
	/* a key of exactly 1024 bytes, and one of 1025 */
	for (int len = RP_S3_KEY_MAX; len <= RP_S3_KEY_MAX + 1; len++) {
		n = asprintf(&xml, HEAD "<Contents><Key>%0*d</Key><Size>1</Size></Contents>" FOOT,
			     len, 0);
		assert_true(n > 0);
		assert_int_equal(list(xml, NULL, token), len > RP_S3_KEY_MAX ? -EBADMSG : 0);
		free(xml);
	}
}

/* Where they come from, and that no line says what they are. */
static void credentials(void **st)
{
	struct rp_s3_options o = { 0 };
	char dir[] = "/tmp/reqprobe-test-XXXXXX", file[64], err[512];
	struct rp_s3_error e;
	struct rp_s3 *s;
	FILE *f;

	(void)st;
	assert_non_null(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/cred", dir);
	unsetenv("AWS_ACCESS_KEY_ID");
	unsetenv("AWS_SECRET_ACCESS_KEY");
	unsetenv("AWS_SHARED_CREDENTIALS_FILE");
	unsetenv("AWS_PROFILE");
	setenv("HOME", dir, 1);
	assert_int_equal(rp_s3_open("s3://abc/p", &o, &s, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "AWS_ACCESS_KEY_ID"));
	o.credentials = file;
	assert_int_equal(rp_s3_open("s3://abc/p", &o, &s, err, sizeof(err)), -ENOENT);
	f = fopen(file, "w");
	assert_non_null(f);
	fprintf(f, "[default]\naws_access_key_id = %s\n", MARKER);
	fclose(f);
	assert_int_equal(rp_s3_open("s3://abc/p", &o, &s, err, sizeof(err)), -ENOENT);
	assert_null(strstr(err, MARKER));
	f = fopen(file, "a");
	assert_non_null(f);
	fprintf(f, "aws_secret_access_key = %s\n", MARKER);
	fclose(f);
	o.endpoint = "http://127.0.0.1:1"; /* nobody listens there */
	assert_int_equal(rp_s3_open("s3://abc//p/q//", &o, &s, err, sizeof(err)), 0);
	assert_string_equal(rp_s3_prefix(s), "p/q/");
	assert_string_equal(rp_s3_url(s), "s3://abc/p/q/");
	assert_int_equal(rp_s3_list(s, "", take, NULL, &e), -EIO);
	assert_int_equal(e.class, RP_S3_NETWORK);
	assert_null(strstr(e.line, MARKER));
	rp_s3_deadline(s, 1);
	assert_int_equal(rp_s3_list(s, "", take, NULL, &e), -ECANCELED);
	assert_int_equal(e.class, RP_S3_STOPPED);
	rp_s3_close(s);
	o = (struct rp_s3_options){ 0 };
	setenv("AWS_ACCESS_KEY_ID", "a", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "b", 1);
	assert_int_equal(rp_s3_open("s3://abc", &o, &s, err, sizeof(err)), 0);
	assert_string_equal(rp_s3_prefix(s), "");
	rp_s3_close(s);
	unlink(file);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),       cmocka_unit_test(profile),
		cmocka_unit_test(listing),     cmocka_unit_test(bad_listing),
		cmocka_unit_test(credentials),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
