// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "util.h"

#include <errno.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
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
	assert_int_equal(rp_s3_get(s, "p/../k", 1, 1, NULL, &e), -EINVAL);
	rp_s3_close(s);
	o = (struct rp_s3_options){ 0 };
	setenv("AWS_ACCESS_KEY_ID", "a", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "b", 1);
	assert_int_equal(rp_s3_open("s3://abc/a/../b", &o, &s, err, sizeof(err)), -EINVAL);
	assert_int_equal(rp_s3_open("s3://abc/.", &o, &s, err, sizeof(err)), -EINVAL);
	assert_int_equal(rp_s3_open("s3://abc", &o, &s, err, sizeof(err)), 0);
	assert_string_equal(rp_s3_prefix(s), "");
	rp_s3_close(s);
	unlink(file);
	rmdir(dir);
}

/* ---- a store that answers what a test wants ---- */

static struct {
	int listener;
	pthread_t thread;
	const char *const *answers;
	char asked[8][4096]; /* heads of the requests, as they came */
	size_t n;
} store;

static void *serve(void *arg)
{
	(void)arg;
	for (size_t i = 0; store.answers[i]; i++) {
		char *head = store.asked[i], body[65536], *length;
		int c = accept(store.listener, NULL, NULL);
		size_t n = 0, left;
		ssize_t got;

		/* a head, and then as much as it says */
		while (n < sizeof(store.asked[i]) - 1 && (got = read(c, head + n, 1)) == 1) {
			head[++n] = 0;
			if (n >= 4 && !strcmp(head + n - 4, "\r\n\r\n"))
				break;
		}
		length = strcasestr(head, "\nContent-Length:");
		left = length ? strtoul(length + 16, NULL, 10) : 0;
		while (left && (got = read(c, body, left < sizeof(body) ? left : sizeof(body))) > 0)
			left -= (size_t)got;
		store.n = i + 1;
		if (write(c, store.answers[i], strlen(store.answers[i])) < 0)
			abort();
		shutdown(c, SHUT_WR);
		while (read(c, body, sizeof(body)) > 0)
			;
		close(c);
	}
	return NULL;
}

static struct rp_s3 *open_store(const char *const *answers)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rp_s3_options o = { .region = "eu-central-1" };
	char url[64], err[256];
	socklen_t len = sizeof(a);
	struct rp_s3 *s;

	memset(&store, 0, sizeof(store));
	store.answers = answers;
	store.listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(store.listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(store.listener, 8), 0);
	getsockname(store.listener, (struct sockaddr *)&a, &len);
	assert_int_equal(pthread_create(&store.thread, NULL, serve, NULL), 0);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(a.sin_port));
	o.endpoint = url;
	setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
	setenv("AWS_SECRET_ACCESS_KEY", MARKER, 1);
	setenv("AWS_SESSION_TOKEN", "TOKEN", 1);
	unsetenv("http_proxy");
	assert_int_equal(rp_s3_open("s3://bucket/p", &o, &s, err, sizeof(err)), 0);
	unsetenv("AWS_SESSION_TOKEN");
	return s;
}

static void close_store(struct rp_s3 *s)
{
	rp_s3_close(s);
	pthread_join(store.thread, NULL);
	close(store.listener);
}

static int file_of(const char *text)
{
	char name[] = "/tmp/reqprobe-test-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	unlink(name);
	return fd;
}

#define ANSWER(status, headers, body) \
	"HTTP/1.1 " status "\r\nConnection: close\r\n" headers "\r\n" body
#define XML(status, code) \
	ANSWER(status, "Content-Type: application/xml\r\n", "<Error><Code>" code "</Code></Error>")

/* MD5 and SHA-256 of "abc", RFC 1321 and FIPS 180-2 */
#define ABC_MD5 "900150983cd24fb0d6963f7d28e17f72"
#define ABC_MD5_64 "kAFQmDzST7DWlj99KOF/cg=="
#define ABC_SHA "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static void refusals(void **st)
{
	static const struct {
		const char *answer;
		int r, class;
		const char *said;
	} x[] = {
		{ ANSWER("301 Moved", "x-amz-bucket-region: ap-south-1\r\n",
			 "<Error><Code>PermanentRedirect</Code></Error>"),
		  -EREMOTE, RP_S3_REGION, "region ap-south-1: set --s3-region" },
		{ ANSWER("400 Bad", "",
			 "<Error><Code>AuthorizationHeaderMalformed</Code><Region>us-west-2</Region>"
			 "</Error>"),
		  -EREMOTE, RP_S3_REGION, "region us-west-2" },
		{ XML("403 Forbidden", "RequestTimeTooSkewed"), -EACCES, RP_S3_AUTH, "clock" },
		{ XML("403 Forbidden", "InvalidAccessKeyId"), -EACCES, RP_S3_AUTH,
		  "InvalidAccessKeyId" },
		{ XML("400 Bad", "ExpiredToken"), -EACCES, RP_S3_AUTH, "ExpiredToken" },
		{ XML("404 Not Found", "NoSuchBucket"), -ENOENT, RP_S3_NOT_FOUND,
		  "no such bucket" },
		{ XML("503 Slow Down", "SlowDown"), -EAGAIN, RP_S3_THROTTLED, "busy" },
		{ ANSWER("429 Too Many", "", ""), -EAGAIN, RP_S3_THROTTLED, "429" },
		{ XML("500 No", "InternalError"), -EIO, RP_S3_SERVER, "500 InternalError" },
		{ ANSWER("407 No", "", ""), -EPERM, RP_S3_PROXY, "password" },
		{ XML("400 Bad", "BadDigest"), -EBADMSG, RP_S3_VERIFY, "BadDigest" },
		{ XML("400 Bad", "EntityTooLarge"), -EPROTO, RP_S3_REFUSED, "EntityTooLarge" },
		{ ANSWER("400 Bad", "", "<Error><Code>a\nb</Code></Error>"), -EPROTO, RP_S3_REFUSED,
		  "without a code" },
		{ "", -EIO, RP_S3_NETWORK, "mpty" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", -EIO, RP_S3_NETWORK, "" },
	};
	const char *answers[2] = { 0 };
	int fd = file_of("abc");
	struct rp_s3_error e;
	struct rp_s3 *s;

	(void)st;
	for (size_t i = 0; i < COUNT_OF(x); i++) {
		answers[0] = x[i].answer;
		s = open_store(answers);
		assert_int_equal(rp_s3_put(s, "p/k", fd, 3, &e), x[i].r);
		assert_int_equal(e.class, x[i].class);
		if (!strstr(e.line, x[i].said) || strchr(e.line, '\n') || strstr(e.line, MARKER))
			fail_msg("%s", e.line);
		close_store(s);
	}
	close(fd);
}

/* What is sent; and when it is believed to be there. */
static void put(void **st)
{
	static const char *const same[] = { ANSWER("200 OK", "ETag: \"" ABC_MD5 "\"\r\n", ""),
					    NULL };
	static const char *const other[] = { ANSWER("200 OK", "ETag: \"x-1\"\r\n", ""),
					     ANSWER("200 OK", "Content-Length: 3\r\n", ""), NULL };
	static const char *const shorter[] = { ANSWER("200 OK", "", ""),
					       ANSWER("200 OK", "Content-Length: 2\r\n", ""),
					       NULL };
	static const char *const gone[] = { ANSWER("200 OK", "", ""),
					    ANSWER("404 Not Found", "", ""), NULL };
	int fd = file_of("abc");
	struct rp_s3_error e;
	struct rp_s3 *s;
	char *head;

	(void)st;
	s = open_store(same);
	assert_int_equal(rp_s3_put(s, "p/a b=\xc3\xa9", fd, 3, &e), 0);
	close_store(s);
	assert_int_equal(store.n, 1); /* the ETag says it all */
	head = store.asked[0];
	assert_non_null(strstr(head, "PUT /bucket/p/a%20b%3D%C3%A9 HTTP/1.1\r\n"));
	assert_non_null(strstr(head, "\r\nx-amz-content-sha256: " ABC_SHA "\r\n"));
	assert_non_null(strstr(head, "\r\nContent-MD5: " ABC_MD5_64 "\r\n"));
	assert_non_null(strstr(head, "\r\nContent-Length: 3\r\n"));
	assert_non_null(strstr(head, "\r\nx-amz-security-token: TOKEN\r\n"));
	assert_non_null(strstr(head, "/eu-central-1/s3/aws4_request, SignedHeaders="));
	/* what must not be changed on its way is signed; what is not sent is not */
	assert_non_null(strstr(head, "content-md5;content-type;host;x-amz-content-sha256;"
				     "x-amz-date;x-amz-security-token"));
	assert_null(strstr(head, MARKER));

	s = open_store(other);
	assert_int_equal(rp_s3_put(s, "p/k", fd, 3, &e), 0);
	close_store(s);
	assert_non_null(strstr(store.asked[1], "HEAD /bucket/p/k HTTP/1.1\r\n"));
	s = open_store(shorter);
	assert_int_equal(rp_s3_put(s, "p/k", fd, 3, &e), -EBADMSG);
	assert_int_equal(e.class, RP_S3_VERIFY);
	close_store(s);
	s = open_store(gone);
	assert_int_equal(rp_s3_put(s, "p/k", fd, 3, &e), -ENOENT);
	close_store(s);
	close(fd);
	/* the file is shorter than was said */
	fd = file_of("abc");
	s = open_store(&same[1]);
	assert_int_equal(rp_s3_put(s, "p/k", fd, 4, &e), -ENODATA);
	assert_int_equal(e.class, RP_S3_FILE);
	assert_int_equal(rp_s3_put(s, "p/k", fd, RP_S3_OBJECT_MAX + 1, &e), -EFBIG);
	close_store(s);
	close(fd);
}

static void get(void **st)
{
	static const char *const whole[] = { ANSWER("200 OK", "Content-Length: 3\r\n", "abc"),
					     NULL };
	static const char *const cut[] = { ANSWER("200 OK", "Content-Length: 4\r\n", "abc"), NULL };
	static const char *const none[] = { XML("404 Not Found", "NoSuchKey"), NULL };
	int fd = file_of("");
	struct rp_s3_error e;
	struct rp_s3 *s;
	uint64_t size = 0;
	char got[8] = "";

	(void)st;
	s = open_store(whole);
	assert_int_equal(rp_s3_get(s, "p/k", fd, 3, &size, &e), 0);
	close_store(s);
	assert_int_equal(size, 3);
	assert_int_equal(pread(fd, got, sizeof(got), 0), 3);
	assert_string_equal(got, "abc");
	s = open_store(whole);
	assert_int_equal(rp_s3_get(s, "p/k", fd, 2, &size, &e), -EFBIG);
	close_store(s);
	s = open_store(cut);
	assert_int_equal(rp_s3_get(s, "p/k", fd, 99, &size, &e), -EIO);
	assert_int_equal(e.class, RP_S3_NETWORK);
	close_store(s);
	assert_int_equal(ftruncate(fd, 0), 0);
	s = open_store(none);
	assert_int_equal(rp_s3_get(s, "p/k", fd, 99, &size, &e), -ENOENT);
	assert_non_null(strstr(e.line, "no such object"));
	close_store(s);
	assert_int_equal(pread(fd, got, sizeof(got), 0), 0); /* the error is not the object */
	close(fd);
}

static void pages(void **st)
{
	static const char *const two[] = {
		ANSWER("200 OK", "",
		       HEAD
		       "<IsTruncated>true</IsTruncated><NextContinuationToken>1/+=</NextContinuationToken>" OBJECT(
			       "p/a", "1") FOOT),
		ANSWER("200 OK", "", HEAD OBJECT("p/b", "2") OBJECT("p/c", "3") FOOT), NULL
	};
	static const char *const html[] = { ANSWER("200 OK", "", "<html>Please log in</html>"),
					    NULL };
	struct rp_s3_error e;
	struct rp_s3 *s;

	(void)st;
	n_seen = 0;
	s = open_store(two);
	assert_int_equal(rp_s3_list(s, "p/ q", take, NULL, &e), 0);
	close_store(s);
	assert_int_equal(n_seen, 3);
	assert_string_equal(keys[0], "p/a");
	assert_string_equal(keys[2], "p/c");
	assert_int_equal(seen[2].size, 3);
	/* sorted, as the signature wants it */
	assert_non_null(strstr(store.asked[0], "GET /bucket/?encoding-type=url&list-type=2&"
					       "max-keys=1000&prefix=p%2F%20q HTTP"));
	assert_non_null(strstr(store.asked[1],
			       "GET /bucket/?continuation-token=1%2F%2B%3D&encoding-type=url&"));
	s = open_store(html);
	assert_int_equal(rp_s3_list(s, "", take, NULL, &e), -EBADMSG);
	assert_int_equal(e.class, RP_S3_SERVER);
	close_store(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),       cmocka_unit_test(profile),
		cmocka_unit_test(listing),     cmocka_unit_test(bad_listing),
		cmocka_unit_test(credentials), cmocka_unit_test(refusals),
		cmocka_unit_test(put),	       cmocka_unit_test(get),
		cmocka_unit_test(pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
