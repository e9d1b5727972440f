/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * s3.h - one bucket of an S3-compatible store: put, get and list whole objects.
 * Requests are made by libcurl and signed by it (AWS Signature Version 4, service
 * s3). Only http and https; redirects are not followed: a wrong region is an error
 * that names the right one.
 */
#ifndef REQPROBE_LOG_S3_H
#define REQPROBE_LOG_S3_H

#include <argp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What the user typed; NULL where nothing. The strings live as long as argv.
 * Credentials are never among them: they come from the file named here, else from
 * AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else from
 * AWS_SHARED_CREDENTIALS_FILE, else from ~/.aws/credentials. A file is read again
 * when it has changed.
 */
struct rp_s3_options {
	const char *region;	 /* else AWS_REGION, AWS_DEFAULT_REGION, us-east-1 */
	const char *endpoint;	 /* else AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, Amazon's */
	const char *proxy;	 /* else https_proxy, http_proxy, no_proxy */
	const char *credentials; /* file in the format of ~/.aws/credentials */
	const char *profile;	 /* in it; else AWS_PROFILE, "default" */
	const char *ca;		 /* PEM file of authorities, beside no others */
	bool path_style;	 /* else by itself for addresses, localhost, buckets with dots */
};
/* Their options, --s3-region and so on, as a child parser whose input is the struct. */
extern const struct argp rp_s3_argp;

#define RP_S3_KEY_MAX 1024	      /* bytes of a key, as the API has it */
#define RP_S3_OBJECT_MAX (5ULL << 30) /* bytes in one PUT, as the API has it */
#define RP_S3_LIST_MAX (16u << 20)    /* bytes of one page of a listing */

/* Why a request failed: what a metric counts by, and what may be said once. */
enum rp_s3_class {
	RP_S3_OK,
	RP_S3_NETWORK, /* not reached, cut off, too slow */
	RP_S3_PROXY,
	RP_S3_TLS,
	RP_S3_AUTH,	 /* credentials, rights, a clock that is off */
	RP_S3_NOT_FOUND, /* bucket or object */
	RP_S3_REGION,
	RP_S3_THROTTLED, /* 429, 503 */
	RP_S3_SERVER,	 /* other 5xx, or no answer of the API */
	RP_S3_VERIFY,	 /* stored or fetched, and not what was sent */
	RP_S3_FILE,	 /* the local one */
	RP_S3_STOPPED,	 /* rp_s3_deadline() */
	RP_S3_REFUSED,	 /* other 4xx */
	RP_S3_CLASS_COUNT
};
extern const char *const rp_s3_class_names[RP_S3_CLASS_COUNT]; /* "network", ... */

struct rp_s3_error {
	enum rp_s3_class class;
	int status;	/* HTTP's, 0 = none */
	char line[320]; /* what failed and what to do; no secrets, no newline */
};

/* One thread at a time may use it. */
struct rp_s3;

/* Is it "s3://BUCKET" or "s3://BUCKET/PREFIX"? */
bool rp_s3_is_url(const char *url);
/*
 * Asks nothing of the network. -EINVAL: url or an option is wrong (a prefix or key with
 * "." or ".." between slashes can't be asked for); -ENOENT: no
 * credentials; others as they come. One line in err.
 */
int rp_s3_open(const char *url, const struct rp_s3_options *o, struct rp_s3 **out, char *err,
	       size_t errlen);
void rp_s3_close(struct rp_s3 *s);
/* "" or "a/b/": the url's prefix with a slash behind it. Keys below are whole ones. */
const char *rp_s3_prefix(const struct rp_s3 *s);
/* "s3://BUCKET/PREFIX", as it is said to people. */
const char *rp_s3_url(const struct rp_s3 *s);

/*
 * The size bytes of fd, a regular file that does not change, as the object of that
 * key; replaces one of the same name. 0 when the store has acknowledged it and it is
 * verified: it was sent with its SHA-256 and MD5, and the ETag is that MD5, or
 * else the size that the store tells is the same.
 */
int rp_s3_put(struct rp_s3 *s, const char *key, int fd, uint64_t size, struct rp_s3_error *e);
/* The object into fd, from its present position on; at most max bytes (-EFBIG).
 * *size may be NULL. Cut-off bodies are an error. */
int rp_s3_get(struct rp_s3 *s, const char *key, int fd, uint64_t max, uint64_t *size,
	      struct rp_s3_error *e);

struct rp_s3_object {
	const char *key; /* valid during the call */
	uint64_t size;
};
/* Every object whose key starts with prefix ("": all of the bucket), in the store's
 * order (by key). fn returns nonzero to end the listing, which is then returned. */
typedef int (*rp_s3_list_fn)(void *ctx, const struct rp_s3_object *o);
int rp_s3_list(struct rp_s3 *s, const char *prefix, rp_s3_list_fn fn, void *ctx,
	       struct rp_s3_error *e);

/* Requests end with RP_S3_STOPPED at this instant, ns of CLOCK_MONOTONIC (0: never, the
 * default), also one under way. From any thread. */
void rp_s3_deadline(struct rp_s3 *s, uint64_t ns);
/* Likewise, within a second, as soon as *stop is true. NULL, the default: never. */
void rp_s3_stop(struct rp_s3 *s, const volatile sig_atomic_t *stop);

/* ---- for tests ---- */
/*
 * One page of a listing (ListObjectsV2). token gets the continuation token, "" on the
 * last page. -EBADMSG: not such a page, or a key or token too long; what fn returned
 * if nonzero.
 */
int rp_s3_parse_list(const char *xml, size_t n, rp_s3_list_fn fn, void *ctx,
		     char token[RP_S3_KEY_MAX]);
/* Everything but A-Z a-z 0-9 - _ . ~ as %XX, and / too unless it may stay. Returns the
 * length, or -ENAMETOOLONG. */
int rp_s3_encode(const char *s, bool slash, char *out, size_t size);
/* A profile of a credentials file's text into id, secret and token. -ENOENT: none such,
 * or it lacks the first two. */
int rp_s3_profile(const char *text, const char *profile, char *id, char *secret, char *token,
		  size_t size);

#endif
