// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * http.c - /metrics and /healthz, and nothing else, by libmicrohttpd in one
 * thread of its own. Request heads, connections and idle time are bounded; a
 * body is never read. Written for 0.9.71 (enum MHD_Result) and later, 1.0 too.
 */
#include "sink/expo.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CONNECTIONS 32
#define IDLE_SECONDS 10
#define CONN_MEMORY (16 * 1024) /* bounds a request's head */

struct rp_httpd {
	struct MHD_Daemon *d;
	rp_httpd_metrics_fn fn;
	void *ctx;
	char url[96];
};

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type,
			      char *text, size_t len, enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(len, text, mode);
	enum MHD_Result ret;

	if (!r) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	ret = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return ret;
}

static enum MHD_Result say(struct MHD_Connection *c, unsigned status, const char *text)
{
	return answer(c, status, "text/plain; charset=utf-8", (char *)text, strlen(text),
		      MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_len, void **state)
{
	static int head_seen;
	struct rp_httpd *h = cls;
	enum rp_expo_format format;
	char *text;
	size_t len;

	(void)version;
	(void)upload;
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed\n");
	if (!*state) { /* first call: the head; an answer now would cost the keep-alive */
		*state = &head_seen;
		return MHD_YES;
	}
	if (*upload_len) /* a GET with a body: not ours to read */
		return MHD_NO;
	if (!strcmp(url, "/healthz"))
		return say(c, MHD_HTTP_OK, "ok\n");
	if (strcmp(url, "/metrics"))
		return say(c, MHD_HTTP_NOT_FOUND, "not found; see /metrics and /healthz\n");
	format = rp_expo_negotiate(
		MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT));
	text = h->fn(h->ctx, format, &len);
	if (!text)
		return say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "no metrics now\n");
	return answer(c, MHD_HTTP_OK, rp_expo_content_type[format], text, len,
		      MHD_RESPMEM_MUST_FREE);
}

/* libmicrohttpd would write to stderr, which is ours to word. */
static void quiet(void *cls, const char *fmt, va_list ap)
{
	(void)cls;
	(void)fmt;
	(void)ap;
}

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* "127.0.0.1:9479", "[::1]:0", ":9479", "localhost:9479". No name is looked up. */
static int parse(const char *addr, union address *a, socklen_t *len)
{
	const char *colon = strrchr(addr, ':');
	char host[INET6_ADDRSTRLEN + 2], *end;
	unsigned long port;
	size_t n;

	memset(a, 0, sizeof(*a));
	if (!colon || colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	port = strtoul(colon + 1, &end, 10);
	if (*end || port > 65535)
		return -EINVAL;
	n = (size_t)(colon - addr);
	if (n >= sizeof(host))
		return -EINVAL;
	memcpy(host, addr, n);
	host[n] = '\0';
	if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = '\0';
		a->in6.sin6_family = AF_INET6;
		a->in6.sin6_port = htons((uint16_t)port);
		*len = sizeof(a->in6);
		return inet_pton(AF_INET6, host + 1, &a->in6.sin6_addr) == 1 ? 0 : -EINVAL;
	}
	if (!n || !strcmp(host, "localhost"))
		strcpy(host, "127.0.0.1");
	a->in.sin_family = AF_INET;
	a->in.sin_port = htons((uint16_t)port);
	*len = sizeof(a->in);
	return inet_pton(AF_INET, host, &a->in.sin_addr) == 1 ? 0 : -EINVAL;
}

bool rp_httpd_address(const char *addr)
{
	union address a;
	socklen_t len;

	return !parse(addr, &a, &len);
}

/* Our own socket: then a refusal has an errno worth printing. */
static int listen_on(union address *a, socklen_t *len)
{
	int one = 1, fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), e;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (a->sa.sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, &a->sa, *len) < 0 || listen(fd, MAX_CONNECTIONS) < 0 ||
	    getsockname(fd, &a->sa, len) < 0) {
		e = errno;
		close(fd);
		return -e;
	}
	return fd;
}

int rp_httpd_start(const char *addr, rp_httpd_metrics_fn fn, void *ctx, struct rp_httpd **out,
		   char *err, size_t errlen)
{
	char host[INET6_ADDRSTRLEN];
	union address a;
	socklen_t len;
	sigset_t all, old;
	struct rp_httpd *h;
	int fd;

	*out = NULL;
	if (parse(addr, &a, &len)) {
		snprintf(err, errlen,
			 "%s is no ADDRESS:PORT (as 127.0.0.1:9479, [::1]:9479 or :9479)", addr);
		return -EINVAL;
	}
	fd = listen_on(&a, &len);
	if (fd < 0) {
		snprintf(
			err, errlen,
			"can't listen on %s: %s; choose another with --metrics ADDR:PORT, or --metrics off",
			addr, strerror(-fd));
		return fd;
	}
	h = calloc(1, sizeof(*h));
	if (!h) {
		close(fd);
		snprintf(err, errlen, "no memory for %s", addr);
		return -ENOMEM;
	}
	h->fn = fn;
	h->ctx = ctx;
	if (a.sa.sa_family == AF_INET6)
		snprintf(h->url, sizeof(h->url), "http://[%s]:%u/metrics",
			 inet_ntop(AF_INET6, &a.in6.sin6_addr, host, sizeof(host)),
			 ntohs(a.in6.sin6_port));
	else
		snprintf(h->url, sizeof(h->url), "http://%s:%u/metrics",
			 inet_ntop(AF_INET, &a.in.sin_addr, host, sizeof(host)),
			 ntohs(a.in.sin_port));

	/* SIGINT and friends are for the main thread */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	h->d = MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD |
					(a.sa.sa_family == AF_INET6 ? MHD_USE_IPv6 : 0),
				ntohs(a.in.sin_port), NULL, NULL, handle, h,
				MHD_OPTION_EXTERNAL_LOGGER, quiet, NULL, MHD_OPTION_LISTEN_SOCKET,
				fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
				MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONN_MEMORY,
				MHD_OPTION_END);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!h->d) {
		/* versions differ in whether a failed start closes it */
		if (fcntl(fd, F_GETFD) >= 0)
			close(fd);
		free(h);
		snprintf(err, errlen, "can't serve on %s: libmicrohttpd refused to start", addr);
		return -EIO;
	}
	*out = h;
	return 0;
}

const char *rp_httpd_url(const struct rp_httpd *h)
{
	return h->url;
}

void rp_httpd_stop(struct rp_httpd *h)
{
	if (!h)
		return;
	MHD_stop_daemon(h->d); /* closes the listening socket, joins the thread */
	free(h);
}
