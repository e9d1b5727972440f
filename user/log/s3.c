// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * s3.c - S3's PUT, GET, HEAD and ListObjectsV2 over libcurl.
 *
 * What libcurl's signing wants from us, in all versions from 7.88 on: the header
 * x-amz-content-sha256 (older ones would sign the hash of nothing for an upload), and
 * paths and queries that are encoded and sorted already. CURLOPT_PATH_AS_IS excludes it in
 * newer ones, so a path must have nothing that libcurl would take out: no "." and "..".
 */
#include "log/s3.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/clock.h"
#include "options.h"

#define SECRET_MAX 4096 /* session tokens have some 1000 bytes */
#define CRED_FILE_MAX 65536
#define ERROR_BODY_MAX 4096 /* of what a store says when it refuses */
#define URL_MAX (4 * RP_S3_KEY_MAX + 512)

const char *const rp_s3_class_names[RP_S3_CLASS_COUNT] = {
	[RP_S3_OK] = "none",	     [RP_S3_NETWORK] = "network",
	[RP_S3_PROXY] = "proxy",     [RP_S3_TLS] = "tls",
	[RP_S3_AUTH] = "auth",	     [RP_S3_NOT_FOUND] = "not_found",
	[RP_S3_REGION] = "region",   [RP_S3_THROTTLED] = "throttled",
	[RP_S3_SERVER] = "server",   [RP_S3_VERIFY] = "verify",
	[RP_S3_FILE] = "file",	     [RP_S3_STOPPED] = "stopped",
	[RP_S3_REFUSED] = "refused",
};

struct credentials {
	char id[SECRET_MAX], secret[SECRET_MAX], token[SECRET_MAX]; /* token "" = none */
};

struct rp_s3 {
	CURL *curl;
	char *url, *bucket, *prefix, *region, *endpoint, *base, *proxy, *ca;
	char *cred_file, *profile; /* NULL: the environment's, which don't change */
	struct timespec cred_mtime;
	struct credentials cred;
	_Atomic uint64_t deadline;
	const volatile sig_atomic_t *stop;
	char curl_error[CURL_ERROR_SIZE];
};

/* ---- options ---- */

enum { OPT_REGION = 512, OPT_ENDPOINT, OPT_PROXY, OPT_CREDENTIALS, OPT_PROFILE, OPT_CA, OPT_PATH };

static const struct argp_option options[] = {
	{ "s3-region", OPT_REGION, "NAME", 0,
	  "The bucket's region (default AWS_REGION, then us-east-1)", 0 },
	{ "s3-endpoint", OPT_ENDPOINT, "URL", 0, "Another store than Amazon's (AWS_ENDPOINT_URL)",
	  0 },
	{ "s3-path-style", OPT_PATH, 0, 0, "The bucket in the path, not in the host's name", 0 },
	{ "s3-proxy", OPT_PROXY, "URL", 0, "HTTP proxy (default https_proxy, http_proxy)", 0 },
	{ "s3-credentials", OPT_CREDENTIALS, "FILE", 0,
	  "As ~/.aws/credentials (default AWS_ACCESS_KEY_ID and its kin, then that file)", 0 },
	{ "s3-profile", OPT_PROFILE, "NAME", 0, "In that file (default AWS_PROFILE, then default)",
	  0 },
	{ "s3-ca", OPT_CA, "FILE", 0, "Trust these authorities (PEM) for the store", 0 },
	{ 0 },
};

static bool http_url(const char *s)
{
	size_t n = !strncasecmp(s, "http://", 7) ? 7 : !strncasecmp(s, "https://", 8) ? 8 : 0;

	return n && s[n] && s[n] != '/' && !strpbrk(s, "?# \t\r\n\"\\");
}

/* A password in a command line is everybody's. */
static bool has_userinfo(const char *s)
{
	const char *h = strstr(s, "://");
	size_t n;

	h = h ? h + 3 : s;
	n = strcspn(h, "/");
	return memchr(h, '@', n) != NULL;
}

static error_t parse(int key, char *arg, struct argp_state *st)
{
	struct rp_s3_options *o = st->input;

	switch (key) {
	case OPT_REGION:
		if (!*arg || arg[strspn(arg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					     "0123456789-_")])
			rp_refuse("--s3-region %s is no region's name", arg);
		o->region = arg;
		return 0;
	case OPT_ENDPOINT:
		if (has_userinfo(arg))
			rp_refuse("--s3-endpoint wants no user or password: see --s3-credentials");
		if (!http_url(arg))
			rp_refuse("--s3-endpoint %s is no http:// or https:// URL", arg);
		o->endpoint = arg;
		return 0;
	case OPT_PROXY:
		if (has_userinfo(arg))
			rp_refuse("--s3-proxy would show its password to everybody: put it into "
				  "https_proxy (http_proxy) in the environment");
		if (!http_url(arg))
			rp_refuse("--s3-proxy %s is no http:// or https:// URL", arg);
		o->proxy = arg;
		return 0;
	case OPT_CREDENTIALS:
		o->credentials = arg;
		return 0;
	case OPT_PROFILE:
		o->profile = arg;
		return 0;
	case OPT_CA:
		o->ca = arg;
		return 0;
	case OPT_PATH:
		o->path_style = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const struct argp rp_s3_argp = { options, parse, NULL, NULL, NULL, NULL, NULL };

/* ---- names ---- */

int rp_s3_encode(const char *s, bool slash, char *out, size_t size)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t n = 0;

	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		/* not isalnum(): that follows the locale */
		bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
			     (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' ||
			     c == '~' || (c == '/' && slash);

		if (n + (plain ? 1 : 3) >= size)
			return -ENAMETOOLONG;
		if (plain) {
			out[n++] = (char)c;
			continue;
		}
		out[n++] = '%';
		out[n++] = hex[c >> 4];
		out[n++] = hex[c & 15];
	}
	out[n] = 0;
	return (int)n;
}

/* Has it a part that a URL's path can't have: "." or ".."? */
static bool dotted(const char *path)
{
	while (*path) {
		size_t n = strcspn(path, "/");

		if ((n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
			return true;
		path += n + (path[n] == '/');
	}
	return false;
}

#define BUCKET_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

static size_t bucket_len(const char *url)
{
	size_t n;

	if (strncmp(url, "s3://", 5) != 0)
		return 0;
	n = strspn(url + 5, BUCKET_CHARS);
	return n >= 3 && n <= 63 && (url[5 + n] == '/' || !url[5 + n]) && url[5] != '.' ? n : 0;
}

bool rp_s3_is_url(const char *url)
{
	return bucket_len(url) > 0;
}

/* Does the host's name take no bucket in front of it? */
static bool no_subdomain(const char *endpoint)
{
	const char *h = strstr(endpoint, "://") + 3;
	size_t n = strcspn(h, ":/");

	return *h == '[' || (n == 9 && !strncasecmp(h, "localhost", 9)) ||
	       strspn(h, "0123456789.") == n;
}

/* ---- credentials ---- */

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t\r");
	n = strlen(s);
	while (n && strchr(" \t\r", s[n - 1]))
		s[--n] = 0;
	return s;
}

int rp_s3_profile(const char *text, const char *profile, char *id, char *secret, char *token,
		  size_t size)
{
	static const char *const keys[] = { "aws_access_key_id", "aws_secret_access_key",
					    "aws_session_token" };
	char *const values[] = { id, secret, token };
	bool in = false;
	char line[SECRET_MAX + 64];

	*id = *secret = *token = 0;
	while (*text) {
		size_t n = strcspn(text, "\n");
		char *s, *v;

		snprintf(line, sizeof(line), "%.*s", n < sizeof(line) ? (int)n : 0, text);
		text += n + (text[n] == '\n');
		s = trim(line);
		if (*s == '[') {
			char *end = strchr(s, ']');

			if (end)
				*end = 0;
			s = trim(s + 1);
			if (!strncmp(s, "profile ", 8)) /* as ~/.aws/config has it */
				s = trim(s + 8);
			in = end && !strcmp(s, profile);
			continue;
		}
		v = strchr(s, '=');
		if (!in || !v || *s == '#' || *s == ';')
			continue;
		*v++ = 0;
		s = trim(s);
		v = trim(v);
		for (int i = 0; i < 3; i++)
			if (!strcasecmp(s, keys[i]) && strlen(v) < size)
				memcpy(values[i], v, strlen(v) + 1);
	}
	explicit_bzero(line, sizeof(line));
	return *id && *secret ? 0 : -ENOENT;
}

static int read_credentials(struct rp_s3 *s, char *err, size_t errlen)
{
	struct credentials *c = NULL;
	char *text = NULL;
	struct stat st;
	ssize_t n = 0;
	int fd, r = 0;

	fd = open(s->cred_file, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st)) {
		r = -errno;
		snprintf(err, errlen, "can't read credentials: %s: %s", s->cred_file, strerror(-r));
		goto cleanup;
	}
	text = calloc(1, CRED_FILE_MAX + 1);
	c = calloc(1, sizeof(*c));
	n = text && c ? read(fd, text, CRED_FILE_MAX) : -1;
	if (n < 0) {
		r = text && c ? -errno : -ENOMEM;
		snprintf(err, errlen, "can't read credentials: %s: %s", s->cred_file, strerror(-r));
		goto cleanup;
	}
	r = rp_s3_profile(text, s->profile, c->id, c->secret, c->token, SECRET_MAX);
	if (r) {
		snprintf(err, errlen,
			 "%s has no profile [%s] with aws_access_key_id and aws_secret_access_key",
			 s->cred_file, s->profile);
		goto cleanup;
	}
	s->cred = *c;
	s->cred_mtime = st.st_mtim;
cleanup:
	if (text)
		explicit_bzero(text, CRED_FILE_MAX);
	if (c)
		explicit_bzero(c, sizeof(*c));
	free(text);
	free(c);
	if (fd >= 0)
		close(fd);
	return r;
}

/* They may be rotated while we run; what can't be read leaves the old ones. */
static void refresh_credentials(struct rp_s3 *s)
{
	struct stat st;
	char err[128];

	if (s->cred_file && !stat(s->cred_file, &st) &&
	    (st.st_mtim.tv_sec != s->cred_mtime.tv_sec ||
	     st.st_mtim.tv_nsec != s->cred_mtime.tv_nsec))
		read_credentials(s, err, sizeof(err));
}

static const char *env(const char *a, const char *b)
{
	const char *v = getenv(a);

	if (v && *v)
		return v;
	v = b ? getenv(b) : NULL;
	return v && *v ? v : NULL;
}

static int find_credentials(struct rp_s3 *s, const struct rp_s3_options *o, char *err,
			    size_t errlen)
{
	const char *id = env("AWS_ACCESS_KEY_ID", NULL);
	const char *secret = env("AWS_SECRET_ACCESS_KEY", NULL);
	const char *token = env("AWS_SESSION_TOKEN", NULL);
	const char *profile = o->profile ? o->profile : env("AWS_PROFILE", NULL);
	const char *file = o->credentials ? o->credentials : NULL;
	const char *home;

	if (!file && !o->profile && id && secret) {
		if (strlen(id) >= SECRET_MAX || strlen(secret) >= SECRET_MAX ||
		    (token && strlen(token) >= SECRET_MAX)) {
			snprintf(err, errlen,
				 "the AWS credentials in the environment are longer "
				 "than 4096 bytes");
			return -EINVAL;
		}
		strcpy(s->cred.id, id);
		strcpy(s->cred.secret, secret);
		strcpy(s->cred.token, token ? token : "");
		return 0;
	}
	if (!file)
		file = env("AWS_SHARED_CREDENTIALS_FILE", NULL);
	home = env("HOME", NULL);
	if (file) {
		s->cred_file = strdup(file);
	} else if (!home || asprintf(&s->cred_file, "%s/.aws/credentials", home) < 0) {
		s->cred_file = NULL;
		file = NULL;
	}
	s->profile = strdup(profile ? profile : "default");
	if (!s->profile || (!s->cred_file && (file || home))) {
		snprintf(err, errlen, "no memory");
		return -ENOMEM;
	}
	if (!s->cred_file || (!file && access(s->cred_file, F_OK))) {
		snprintf(
			err, errlen,
			"no credentials for %s: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
			"(sudo drops them: sudo --preserve-env=...), or give --s3-credentials FILE",
			s->url);
		return -ENOENT;
	}
	return read_credentials(s, err, errlen);
}

/* ---- opening ---- */

static char *make(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *make(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return n < 0 ? NULL : s;
}

/* Where the bucket is: "https://bucket.host" or "https://host/bucket", no slash behind. */
static char *make_base(const char *endpoint, const char *bucket, bool path_style)
{
	const char *host = strstr(endpoint, "://") + 3;
	int n = (int)strlen(endpoint);

	while (n && endpoint[n - 1] == '/')
		n--;
	if (path_style || no_subdomain(endpoint) || strchr(bucket, '.'))
		return make("%.*s/%s", n, endpoint, bucket);
	return make("%.*s%s.%.*s", (int)(host - endpoint), endpoint, bucket,
		    n - (int)(host - endpoint), host);
}

static const char *slashes(const char *s)
{
	return s + strspn(s, "/");
}

int rp_s3_open(const char *url, const struct rp_s3_options *o, struct rp_s3 **out, char *err,
	       size_t errlen)
{
	const char *region = o->region ? o->region : env("AWS_REGION", "AWS_DEFAULT_REGION");
	const char *endpoint = o->endpoint ? o->endpoint :
					     env("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
	size_t n = bucket_len(url), plen;
	const char *prefix;
	struct rp_s3 *s;
	int r = -ENOMEM;

	*out = NULL;
	if (!n) {
		snprintf(err, errlen, "%.200s is no s3://BUCKET/PREFIX", url);
		return -EINVAL;
	}
	prefix = slashes(url + 5 + n);
	plen = strlen(prefix);
	while (plen && prefix[plen - 1] == '/')
		plen--;
	for (size_t i = 0; i < plen; i++) {
		if ((unsigned char)prefix[i] < 0x20 || prefix[i] == 0x7f || plen > 512) {
			snprintf(err, errlen,
				 "the prefix of %.100s is longer than 512 bytes or has control "
				 "characters",
				 url);
			return -EINVAL;
		}
	}
	if (dotted(prefix)) {
		snprintf(err, errlen, "the prefix of %.100s has \".\" or \"..\" between slashes",
			 url);
		return -EINVAL;
	}
	if (endpoint && (!http_url(endpoint) || has_userinfo(endpoint))) {
		snprintf(err, errlen,
			 "AWS_ENDPOINT_URL is no http:// or https:// URL without user");
		return -EINVAL;
	}
	region = region ? region : "us-east-1";
	s = calloc(1, sizeof(*s));
	if (!s)
		goto oom;
	s->bucket = strndup(url + 5, n);
	s->prefix = make("%.*s%s", (int)plen, prefix, plen ? "/" : "");
	s->region = make("aws:amz:%s:s3", region);
	s->endpoint = endpoint ? strdup(endpoint) : make("https://s3.%s.amazonaws.com", region);
	s->proxy = o->proxy ? strdup(o->proxy) : NULL;
	s->ca = o->ca ? strdup(o->ca) : NULL;
	if (!s->bucket || !s->prefix || !s->region || !s->endpoint || (o->proxy && !s->proxy) ||
	    (o->ca && !s->ca))
		goto oom;
	s->url = make("s3://%s/%s", s->bucket, s->prefix);
	s->base = make_base(s->endpoint, s->bucket, o->path_style);
	if (!s->url || !s->base)
		goto oom;
	if (o->ca && access(o->ca, R_OK)) {
		r = -errno;
		snprintf(err, errlen, "can't read --s3-ca %s: %s", o->ca, strerror(errno));
		goto fail;
	}
	r = find_credentials(s, o, err, errlen);
	if (r)
		goto fail;
	r = -ENOMEM;
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		goto oom;
	s->curl = curl_easy_init();
	if (!s->curl) {
		curl_global_cleanup();
		goto oom;
	}
	*out = s;
	return 0;
oom:
	snprintf(err, errlen, "no memory for %.100s", url);
fail:
	rp_s3_close(s);
	return r;
}

void rp_s3_close(struct rp_s3 *s)
{
	if (!s)
		return;
	if (s->curl) {
		curl_easy_cleanup(s->curl);
		curl_global_cleanup();
	}
	explicit_bzero(&s->cred, sizeof(s->cred));
	free(s->url);
	free(s->bucket);
	free(s->prefix);
	free(s->region);
	free(s->endpoint);
	free(s->base);
	free(s->proxy);
	free(s->ca);
	free(s->cred_file);
	free(s->profile);
	free(s);
}

const char *rp_s3_prefix(const struct rp_s3 *s)
{
	return s->prefix;
}

const char *rp_s3_url(const struct rp_s3 *s)
{
	return s->url;
}

void rp_s3_deadline(struct rp_s3 *s, uint64_t ns)
{
	atomic_store(&s->deadline, ns);
}

void rp_s3_stop(struct rp_s3 *s, const volatile sig_atomic_t *stop)
{
	s->stop = stop;
}

/* ---- one request ---- */

struct exchange {
	struct rp_s3 *s;
	/* the body that is sent */
	int in_fd;
	uint64_t in_at, in_size;
	/* the body that comes: into out_fd when the status is 200, else into text */
	int out_fd;
	uint64_t out_size, out_max;
	char *text;
	size_t text_len, text_max;
	int file_error; /* errno of the local file */
	bool too_big;
	/* headers that came */
	char etag[80], encryption[32], bucket_region[64];
	bool has_length;
	uint64_t length;
};

static int on_progress(void *ctx, curl_off_t dt, curl_off_t dn, curl_off_t ut, curl_off_t un)
{
	const struct exchange *x = ctx;
	uint64_t d = atomic_load(&x->s->deadline);

	(void)dt;
	(void)dn;
	(void)ut;
	(void)un;
	return (d && rp_now_ns() >= d) || (x->s->stop && *x->s->stop);
}

static size_t on_read(char *p, size_t one, size_t n, void *ctx)
{
	struct exchange *x = ctx;
	uint64_t left = x->in_size - x->in_at;
	ssize_t r;

	n *= one;
	n = n < left ? n : (size_t)left;
	if (!n)
		return 0;
	do
		r = pread(x->in_fd, p, n, (off_t)x->in_at);
	while (r < 0 && errno == EINTR);
	if (r <= 0) {
		x->file_error = r < 0 ? errno : ENODATA;
		return CURL_READFUNC_ABORT;
	}
	x->in_at += (uint64_t)r;
	return (size_t)r;
}

static int on_seek(void *ctx, curl_off_t offset, int origin)
{
	struct exchange *x = ctx;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > x->in_size)
		return CURL_SEEKFUNC_CANTSEEK;
	x->in_at = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

static size_t on_write(char *p, size_t one, size_t n, void *ctx)
{
	struct exchange *x = ctx;
	size_t done = 0, keep;
	long status = 0;

	n *= one;
	curl_easy_getinfo(x->s->curl, CURLINFO_RESPONSE_CODE, &status);
	if (x->out_fd < 0 || status != 200) {
		keep = x->text_max - x->text_len;
		if (status == 200 && n > keep) {
			x->too_big = true;
			return 0;
		}
		keep = n < keep ? n : keep;
		memcpy(x->text + x->text_len, p, keep);
		x->text_len += keep;
		return n;
	}
	if (n > x->out_max - x->out_size) {
		x->too_big = true;
		return 0;
	}
	while (done < n) {
		ssize_t w = write(x->out_fd, p + done, n - done);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			x->file_error = w < 0 ? errno : EIO;
			return 0;
		}
		done += (size_t)w;
	}
	x->out_size += n;
	return n;
}

static void take_header(const char *p, size_t n, const char *name, char *out, size_t size)
{
	size_t len = strlen(name);

	if (n <= len || strncasecmp(p, name, len) != 0)
		return;
	p += len;
	n -= len;
	while (n && (*p == ' ' || *p == '\t')) {
		p++;
		n--;
	}
	while (n && isspace((unsigned char)p[n - 1]))
		n--;
	snprintf(out, size, "%.*s", (int)n, p);
}

static size_t on_header(char *p, size_t one, size_t n, void *ctx)
{
	struct exchange *x = ctx;
	char length[24] = "";

	n *= one;
	if (n > 5 && !strncmp(p, "HTTP/", 5)) { /* of a new response; that of a proxy before */
		x->etag[0] = x->encryption[0] = x->bucket_region[0] = 0;
		x->has_length = false;
	}
	take_header(p, n, "ETag:", x->etag, sizeof(x->etag));
	take_header(p, n, "x-amz-server-side-encryption:", x->encryption, sizeof(x->encryption));
	take_header(p, n, "x-amz-bucket-region:", x->bucket_region, sizeof(x->bucket_region));
	take_header(p, n, "Content-Length:", length, sizeof(length));
	if (length[0]) {
		x->has_length = true;
		x->length = strtoull(length, NULL, 10);
	}
	return n;
}

/* The text of the first <tag> of an error, if it is plain. */
static bool element(const char *xml, size_t n, const char *tag, char *out, size_t size)
{
	char open[32];
	const char *p, *end;
	size_t len;

	snprintf(open, sizeof(open), "<%s>", tag);
	p = memmem(xml, n, open, strlen(open));
	if (!p)
		return false;
	p += strlen(open);
	end = memchr(p, '<', n - (size_t)(p - xml));
	len = end ? (size_t)(end - p) : 0;
	if (!len || len >= size)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)p[i]) && !strchr("-_./:", p[i]))
			return false;
	memcpy(out, p, len);
	out[len] = 0;
	return true;
}

static int fail(struct rp_s3_error *e, enum rp_s3_class class, int status, int err, const char *fmt,
		...) __attribute__((format(printf, 5, 6)));
static int fail(struct rp_s3_error *e, enum rp_s3_class class, int status, int err, const char *fmt,
		...)
{
	va_list ap;

	e->class = class;
	e->status = status;
	va_start(ap, fmt);
	/* clang-tidy 14 loses track of va_start here */
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	vsnprintf(e->line, sizeof(e->line), fmt, ap);
	va_end(ap);
	for (char *p = e->line; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
	return err;
}

static int transfer_error(const struct exchange *x, CURLcode c, struct rp_s3_error *e)
{
	const struct rp_s3 *s = x->s;
	const char *why = s->curl_error[0] ? s->curl_error : curl_easy_strerror(c);
	long connect_code = 0;

	curl_easy_getinfo(s->curl, CURLINFO_HTTP_CONNECTCODE, &connect_code);
	if (x->file_error)
		return fail(e, RP_S3_FILE, 0, -x->file_error, "the local file: %s",
			    strerror(x->file_error));
	if (x->too_big)
		return fail(e, RP_S3_REFUSED, 0, -EFBIG, "the object is larger than its limit");
	if (c == CURLE_ABORTED_BY_CALLBACK)
		return fail(e, RP_S3_STOPPED, 0, -ECANCELED, "stopped");
	if (connect_code >= 300)
		return fail(e, RP_S3_PROXY, (int)connect_code, -EPERM,
			    "the proxy refuses: it answers %ld to CONNECT%s", connect_code,
			    connect_code == 407 ? ": it wants a user and a password" : "");
	switch (c) {
	case CURLE_COULDNT_RESOLVE_PROXY:
#if LIBCURL_VERSION_NUM >= 0x074900
	case CURLE_PROXY:
#endif
		return fail(e, RP_S3_PROXY, 0, -EHOSTUNREACH, "the proxy: %s", why);
	case CURLE_PEER_FAILED_VERIFICATION:
		return fail(e, RP_S3_TLS, 0, -EPROTO,
			    "the store's certificate is not trusted (%s); --s3-ca FILE names whom "
			    "to trust",
			    why);
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_SSL_ISSUER_ERROR:
		return fail(e, RP_S3_TLS, 0, -EPROTO, "TLS: %s", why);
	case CURLE_OUT_OF_MEMORY:
		return fail(e, RP_S3_FILE, 0, -ENOMEM, "no memory");
	default:
		return fail(e, s->proxy && c == CURLE_COULDNT_CONNECT ? RP_S3_PROXY : RP_S3_NETWORK,
			    0, -EIO, "%s", why);
	}
}

static int status_error(const struct exchange *x, int status, struct rp_s3_error *e)
{
	char code[64] = "", region[64] = "";
	const char *b = x->s->bucket;
	bool told = element(x->text, x->text_len, "Code", code, sizeof(code));

	if (x->bucket_region[0])
		snprintf(region, sizeof(region), "%s", x->bucket_region);
	else
		element(x->text, x->text_len, "Region", region, sizeof(region));
	if (status == 407)
		return fail(e, RP_S3_PROXY, status, -EPERM,
			    "the proxy refuses: it wants a user and a password (407)");
	if (status == 301 || status == 307 || status == 308 ||
	    !strcmp(code, "AuthorizationHeaderMalformed") ||
	    !strcmp(code, "IllegalLocationConstraintException"))
		return fail(e, RP_S3_REGION, status, -EREMOTE,
			    "%d%s%s: bucket %s is in %s%s: set --s3-region%s", status,
			    told ? " " : "", code, b, region[0] ? "region " : "another region",
			    region, region[0] ? "" : " or --s3-endpoint");
	if (!strcmp(code, "RequestTimeTooSkewed"))
		return fail(e, RP_S3_AUTH, status, -EACCES,
			    "%d %s: this machine's clock is more than 15 minutes off", status,
			    code);
	if (status == 401 || status == 403 || !strcmp(code, "ExpiredToken") ||
	    !strcmp(code, "InvalidToken") || !strcmp(code, "TokenRefreshRequired")) {
		if (!told && x->s->proxy)
			return fail(e, RP_S3_PROXY, status, -EACCES,
				    "%d without a code of S3: refused by the proxy, it seems",
				    status);
		return fail(e, RP_S3_AUTH, status, -EACCES,
			    "%d %s: the credentials are not right, or lack the right", status,
			    told ? code : "Forbidden");
	}
	if (status == 404)
		return fail(e, RP_S3_NOT_FOUND, status, -ENOENT, "404 %s: %s",
			    told ? code : "Not Found",
			    !strcmp(code, "NoSuchKey") ? "no such object" :
							 "no such bucket at this endpoint");
	if (status == 429 || status == 503)
		return fail(e, RP_S3_THROTTLED, status, -EAGAIN, "%d %s: the store is busy", status,
			    told ? code : "");
	if (status >= 500)
		return fail(e, RP_S3_SERVER, status, -EIO, "%d %s from the store", status,
			    told ? code : "");
	if (!strcmp(code, "BadDigest") || !strcmp(code, "XAmzContentSHA256Mismatch"))
		return fail(e, RP_S3_VERIFY, status, -EBADMSG, "%d %s: the file changed on its way",
			    status, code);
	return fail(e, RP_S3_REFUSED, status, -EPROTO, "the store answers %d %s", status,
		    told ? code : "without a code of S3");
}

static int add(struct curl_slist **l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int add(struct curl_slist **l, const char *fmt, ...)
{
	struct curl_slist *n;
	va_list ap;
	char *line;
	int r;

	va_start(ap, fmt);
	/* clang-tidy 14 loses track of va_start here */
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	r = vasprintf(&line, fmt, ap);
	va_end(ap);
	if (r < 0)
		return -ENOMEM;
	n = curl_slist_append(*l, line);
	explicit_bzero(line, (size_t)r); /* the token is one */
	free(line);
	if (!n)
		return -ENOMEM;
	*l = n;
	return 0;
}

/* sha: hex of the body's; md5: base64 of it or NULL. */
static int request(struct exchange *x, const char *method, const char *path_query, const char *sha,
		   const char *md5, struct rp_s3_error *e)
{
	struct rp_s3 *s = x->s;
	struct curl_slist *h = NULL;
	bool put = !strcmp(method, "PUT");
	char url[URL_MAX + 512];
	long status = 0;
	CURLcode c;
	int r;

	refresh_credentials(s);
	if (snprintf(url, sizeof(url), "%s%s", s->base, path_query) >= (int)sizeof(url))
		return fail(e, RP_S3_REFUSED, 0, -ENAMETOOLONG, "the key is too long");
	curl_easy_reset(s->curl);
	s->curl_error[0] = 0;
	/* only headers with a value: 7.88 signs the others, too, and does not send them */
	r = add(&h, "x-amz-content-sha256: %s", sha);
	if (put) {
		r = r ? r : add(&h, "Content-Type: application/octet-stream");
		r = r || !md5 ? r : add(&h, "Content-MD5: %s", md5);
	}
	if (s->cred.token[0])
		r = r ? r : add(&h, "x-amz-security-token: %s", s->cred.token);
	if (r) {
		curl_slist_free_all(h);
		return fail(e, RP_S3_FILE, 0, -ENOMEM, "no memory");
	}
#define SET(o, v) curl_easy_setopt(s->curl, CURLOPT_##o, v)
	SET(URL, url);
	SET(PROTOCOLS_STR, "http,https");
	SET(NOSIGNAL, 1L);
	SET(ERRORBUFFER, s->curl_error);
	SET(USERAGENT, "reqprobe");
	SET(AWS_SIGV4, s->region);
	SET(USERNAME, s->cred.id);
	SET(PASSWORD, s->cred.secret);
	SET(HTTPHEADER, h);
	SET(CONNECTTIMEOUT, 10L);
	SET(LOW_SPEED_LIMIT, 1024L); /* bytes a second, for 30 s: given up */
	SET(LOW_SPEED_TIME, 30L);
	SET(NOPROGRESS, 0L);
	SET(XFERINFOFUNCTION, on_progress);
	SET(XFERINFODATA, x);
	SET(WRITEFUNCTION, on_write);
	SET(WRITEDATA, x);
	SET(HEADERFUNCTION, on_header);
	SET(HEADERDATA, x);
	if (s->proxy)
		SET(PROXY, s->proxy);
	if (s->ca)
		SET(CAINFO, s->ca);
	if (put) {
		SET(UPLOAD, 1L);
		/* a store that refuses may say so before the body; one that says nothing is not
		 * waited for long */
		SET(EXPECT_100_TIMEOUT_MS, 300L);
		SET(INFILESIZE_LARGE, (curl_off_t)x->in_size);
		SET(READFUNCTION, on_read);
		SET(READDATA, x);
		SET(SEEKFUNCTION, on_seek);
		SET(SEEKDATA, x);
	} else if (!strcmp(method, "HEAD")) {
		SET(NOBODY, 1L);
	}
#undef SET
	c = curl_easy_perform(s->curl);
	curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &status);
	curl_slist_free_all(h);
	/* a store that refuses may not take the whole body first */
	if (c && !(c == CURLE_SEND_ERROR && status >= 300))
		return transfer_error(x, c, e);
	if (status != 200)
		return status_error(x, (int)status, e);
	return 0;
}

static struct exchange exchange(struct rp_s3 *s, char *text, size_t size)
{
	return (struct exchange){
		.s = s, .in_fd = -1, .out_fd = -1, .text = text, .text_max = size
	};
}

static const char no_body[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/* ---- put ---- */

static void hex(const unsigned char *p, unsigned n, char *out)
{
	for (unsigned i = 0; i < n; i++)
		snprintf(out + 2 * (size_t)i, 3, "%02x", p[i]);
}

/* SHA-256 and MD5 of the file; md5[0] = 0 where the library has none (FIPS). */
static int digests(int fd, uint64_t size, char sha_hex[65], char md5_hex[33], char md5_64[32])
{
	EVP_MD_CTX *a = EVP_MD_CTX_new(), *b = EVP_MD_CTX_new();
	unsigned char buf[65536], out[EVP_MAX_MD_SIZE];
	bool md5 = b && EVP_DigestInit_ex(b, EVP_md5(), NULL);
	uint64_t at = 0;
	unsigned n;
	int r = -ENOMEM;

	md5_hex[0] = md5_64[0] = 0;
	if (!a || !EVP_DigestInit_ex(a, EVP_sha256(), NULL))
		goto cleanup;
	while (at < size) {
		size_t want = size - at < sizeof(buf) ? (size_t)(size - at) : sizeof(buf);
		ssize_t got = pread(fd, buf, want, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			r = got < 0 ? -errno : -ENODATA;
			goto cleanup;
		}
		EVP_DigestUpdate(a, buf, (size_t)got);
		if (md5)
			EVP_DigestUpdate(b, buf, (size_t)got);
		at += (uint64_t)got;
	}
	EVP_DigestFinal_ex(a, out, &n);
	hex(out, n, sha_hex);
	if (md5) {
		EVP_DigestFinal_ex(b, out, &n);
		hex(out, n, md5_hex);
		EVP_EncodeBlock((unsigned char *)md5_64, out, (int)n);
	}
	r = 0;
cleanup:
	EVP_MD_CTX_free(a);
	EVP_MD_CTX_free(b);
	return r;
}

static int key_path(const char *key, char *out, size_t size, struct rp_s3_error *e)
{
	out[0] = '/';
	if (dotted(key))
		return fail(e, RP_S3_REFUSED, 0, -EINVAL,
			    "a key with \".\" or \"..\" between slashes can't be asked for");
	if (strlen(key) > RP_S3_KEY_MAX || rp_s3_encode(key, true, out + 1, size - 1) < 0)
		return fail(e, RP_S3_REFUSED, 0, -ENAMETOOLONG, "the key is longer than %d bytes",
			    RP_S3_KEY_MAX);
	return 0;
}

int rp_s3_put(struct rp_s3 *s, const char *key, int fd, uint64_t size, struct rp_s3_error *e)
{
	char sha[65], md5[33], md5_64[32], path[URL_MAX], text[ERROR_BODY_MAX];
	struct exchange x = exchange(s, text, sizeof(text));
	size_t n;
	int r;

	memset(e, 0, sizeof(*e));
	r = key_path(key, path, sizeof(path), e);
	if (r)
		return r;
	if (size > RP_S3_OBJECT_MAX)
		return fail(e, RP_S3_REFUSED, 0, -EFBIG, "the file is larger than 5 GiB");
	r = digests(fd, size, sha, md5, md5_64);
	if (r)
		return fail(e, RP_S3_FILE, 0, r, "the local file: %s", strerror(-r));
	x.in_fd = fd;
	x.in_size = size;
	r = request(&x, "PUT", path, sha, md5[0] ? md5_64 : NULL, e);
	if (r)
		return r;
	/* ETag: "MD5", but not for objects encrypted with a key of the customer's */
	n = strlen(x.etag);
	if (md5[0] && n == 34 && x.etag[0] == '"' && !strncasecmp(x.etag + 1, md5, 32))
		return 0;
	x = exchange(s, text, sizeof(text));
	r = request(&x, "HEAD", path, no_body, NULL, e);
	if (r)
		return r;
	if (!x.has_length || x.length != size)
		return fail(e, RP_S3_VERIFY, 200, -EBADMSG,
			    "the store says yes, but has %llu bytes, not %llu",
			    (unsigned long long)(x.has_length ? x.length : 0),
			    (unsigned long long)size);
	return 0;
}

/* ---- get ---- */

int rp_s3_get(struct rp_s3 *s, const char *key, int fd, uint64_t max, uint64_t *size,
	      struct rp_s3_error *e)
{
	char path[URL_MAX], text[ERROR_BODY_MAX];
	struct exchange x = exchange(s, text, sizeof(text));
	int r;

	memset(e, 0, sizeof(*e));
	r = key_path(key, path, sizeof(path), e);
	if (r)
		return r;
	x.out_fd = fd;
	x.out_max = max;
	r = request(&x, "GET", path, no_body, NULL, e);
	if (r)
		return r;
	if (size)
		*size = x.out_size;
	return 0;
}

/* ---- list ---- */

static int nibble(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
	       c >= 'a' && c <= 'f' ? c - 'a' + 10 :
	       c >= 'A' && c <= 'F' ? c - 'A' + 10 :
				      -1;
}

/* XML's five names and the numbers below 128: what keys with encoding-type=url hold. */
static int entity(const char *p, size_t n, char *c)
{
	static const struct {
		const char *name;
		char c;
	} names[] = { { "&amp;", '&' },
		      { "&lt;", '<' },
		      { "&gt;", '>' },
		      { "&quot;", '"' },
		      { "&apos;", '\'' } };
	unsigned v = 0;
	size_t i = 2;
	int d, base = 10;

	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		size_t len = strlen(names[k].name);

		if (n >= len && !memcmp(p, names[k].name, len)) {
			*c = names[k].c;
			return (int)len;
		}
	}
	if (n < 4 || p[1] != '#')
		return -EBADMSG;
	if (p[i] == 'x') {
		base = 16;
		i++;
	}
	for (; i < n && p[i] != ';'; i++) {
		d = nibble(p[i]);
		if (d < 0 || d >= base || v > 127)
			return -EBADMSG;
		v = v * (unsigned)base + (unsigned)d;
	}
	if (i == n || !v || v > 127)
		return -EBADMSG;
	*c = (char)v;
	return (int)i + 1;
}

/* Text of an element, decoded. -EBADMSG: too long, or not to be decoded. */
static int decode(const char *p, size_t n, bool url, char *out, size_t size)
{
	size_t k = 0;
	char c;
	int r;

	for (size_t i = 0; i < n;) {
		if (p[i] == '&') {
			r = entity(p + i, n - i, &c);
			if (r < 0)
				return r;
			i += (size_t)r;
		} else {
			c = p[i++];
		}
		if (url && c == '%') {
			if (n - i < 2 || nibble(p[i]) < 0 || nibble(p[i + 1]) < 0)
				return -EBADMSG;
			c = (char)(nibble(p[i]) << 4 | nibble(p[i + 1]));
			i += 2;
		} else if (url && c == '+') {
			c = ' ';
		}
		if (!c || k + 1 >= size)
			return -EBADMSG;
		out[k++] = c;
	}
	out[k] = 0;
	return 0;
}

/* The span between <tag> and </tag> from *at on, which moves behind it. */
static bool span(const char *xml, size_t n, size_t *at, const char *tag, const char **p,
		 size_t *len)
{
	char open[40], close[40];
	const char *a, *b;

	snprintf(open, sizeof(open), "<%s>", tag);
	snprintf(close, sizeof(close), "</%s>", tag);
	a = memmem(xml + *at, n - *at, open, strlen(open));
	if (!a)
		return false;
	a += strlen(open);
	b = memmem(a, n - (size_t)(a - xml), close, strlen(close));
	if (!b)
		return false;
	*p = a;
	*len = (size_t)(b - a);
	*at = (size_t)(b - xml) + strlen(close);
	return true;
}

int rp_s3_parse_list(const char *xml, size_t n, rp_s3_list_fn fn, void *ctx,
		     char token[RP_S3_KEY_MAX])
{
	char key[RP_S3_KEY_MAX + 1], number[24];
	const char *c, *p;
	size_t at = 0, in, len, clen;
	bool url, more;
	int r;

	token[0] = 0;
	if (!memmem(xml, n, "<ListBucketResult", 17) || !memmem(xml, n, "</ListBucketResult>", 19))
		return -EBADMSG;
	url = span(xml, n, &at, "EncodingType", &p, &len) && len == 3 && !memcmp(p, "url", 3);
	at = 0;
	more = span(xml, n, &at, "IsTruncated", &p, &len) && len == 4 && !memcmp(p, "true", 4);
	at = 0;
	if (more && (!span(xml, n, &at, "NextContinuationToken", &p, &len) || !len ||
		     decode(p, len, false, token, RP_S3_KEY_MAX)))
		return -EBADMSG;
	for (at = 0; span(xml, n, &at, "Contents", &c, &clen);) {
		struct rp_s3_object o = { .key = key };

		in = 0;
		if (!span(c, clen, &in, "Key", &p, &len) || decode(p, len, url, key, sizeof(key)))
			return -EBADMSG;
		in = 0;
		if (!span(c, clen, &in, "Size", &p, &len) ||
		    decode(p, len, false, number, sizeof(number)) || !number[0] ||
		    number[strspn(number, "0123456789")])
			return -EBADMSG;
		o.size = strtoull(number, NULL, 10);
		r = fn(ctx, &o);
		if (r)
			return r;
	}
	return 0;
}

int rp_s3_list(struct rp_s3 *s, const char *prefix, rp_s3_list_fn fn, void *ctx,
	       struct rp_s3_error *e)
{
	char token[RP_S3_KEY_MAX] = "", coded[3 * RP_S3_KEY_MAX + 1],
	     coded_prefix[3 * RP_S3_KEY_MAX + 1], *path = NULL, *text = NULL;
	struct exchange x;
	int r;

	memset(e, 0, sizeof(*e));
	text = malloc(RP_S3_LIST_MAX);
	if (!text)
		return fail(e, RP_S3_FILE, 0, -ENOMEM, "no memory");
	do {
		if (s->stop && *s->stop) {
			r = fail(e, RP_S3_STOPPED, 0, -ECANCELED, "stopped");
			break;
		}
		/* sorted and encoded: the signature is over these very bytes */
		free(path);
		path = NULL;
		if (rp_s3_encode(token, false, coded, sizeof(coded)) < 0 ||
		    rp_s3_encode(prefix, false, coded_prefix, sizeof(coded_prefix)) < 0) {
			r = fail(e, RP_S3_REFUSED, 0, -ENAMETOOLONG,
				 "the prefix is longer than %d bytes", RP_S3_KEY_MAX);
			break;
		}
		path = make("/?%s%s%sencoding-type=url&list-type=2&max-keys=1000&prefix=%s",
			    token[0] ? "continuation-token=" : "", token[0] ? coded : "",
			    token[0] ? "&" : "", coded_prefix);
		if (!path) {
			r = fail(e, RP_S3_FILE, 0, -ENOMEM, "no memory");
			break;
		}
		x = exchange(s, text, RP_S3_LIST_MAX);
		r = request(&x, "GET", path, no_body, NULL, e);
		if (r)
			break;
		r = rp_s3_parse_list(text, x.text_len, fn, ctx, token);
		if (r == -EBADMSG)
			fail(e, RP_S3_SERVER, 200, r, "the listing is none that S3 would give");
	} while (!r && token[0]);
	free(path);
	free(text);
	return r;
}
