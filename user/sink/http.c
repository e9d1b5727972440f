// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * http.c - /metrics and /healthz, and nothing else, by libmicrohttpd. Two threads:
 *
 *   the server's   reads heads, answers, sends; it renders nothing, so that whoever
 *                  asks for /healthz is answered at once (while fewer than 160 wait)
 *   the renderer   makes a page for all who wait for one of its kind (format, gzip)
 *                  when it begins: nobody is shown an older one, and however many
 *                  ask, making pages takes a fifth of the time at most
 *
 * A page is shared by who was waiting for it. Clients that take theirs slowly hold
 * a limited number of bytes together; beyond it the oldest page goes, and its
 * readers are cut off. So is who does not take it in time, and, of too many
 * connections, who is quiet: but none of those that came last, whose heads are still
 * to be read, and none that waits. In a crowd a page is the last of its connection,
 * whose place goes to the next in the kernel's queue: first come, first served, and
 * who loops over one connection keeps nobody out. Request heads, connections and idle
 * time are bounded; a body is never read. Written for 0.9.71 (enum MHD_Result) and later,
 * 1.0 too.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "lib/caps.h"
#include "lib/clock.h"
#include "sink/expo.h"

#define MAX_CONNECTIONS 128 /* more are a crowd: who is quiet has less time */
#define FULL_CONNECTIONS 160
#define NEW_CONNECTIONS 32 /* then never cut for others: the library accepts 10 before it reads */
#define LIMIT_CONNECTIONS (FULL_CONNECTIONS + NEW_CONNECTIONS) /* then none is accepted */
#define BACKLOG 1024		    /* the kernel may keep fewer waiting */
#define CROWD_SEND_NS 1000000000ULL /* for a page, in a crowd */
#define CROWD_IDLE_NS 200000000ULL  /* without a request */
#define IDLE_SECONDS 10
#define SEND_MS 30000
#define CONN_MEMORY (16 * 1024) /* bounds a request's head */
#define SEND_BLOCK (32 * 1024)
#define KINDS (2 * RP_EXPO_FORMATS) /* of pages: each format, and the same gzipped */
#define GZIP_LEVEL 1		    /* what repeats is far more than what could be squeezed */
#define REST 4			    /* times as long as a page took no other is made, */
#define REST_MAX_NS 1000000000ULL   /* and no longer than this */

const char *const rp_httpd_cut_names[RP_HTTPD_CUT_COUNT] = {
	[RP_HTTPD_SLOW] = "slow",
	[RP_HTTPD_MEMORY] = "memory",
	[RP_HTTPD_CONNECTIONS] = "connections",
};

struct page {
	struct page *next; /* newer */
	char *p;	   /* NULL: taken away from its readers */
	size_t len;
	bool crowd; /* its readers' connections end with it */
	unsigned refs;
};

enum conn_state { IDLE, WAITING, READY, SENDING };

struct conn {
	struct conn *prev, *next; /* all of them, the one that was quiet longest first */
	struct conn *waiting;	  /* the next that waits for the same kind of page */
	struct rp_httpd *h;
	struct MHD_Connection *c;
	int fd;
	enum conn_state state;
	unsigned kind;
	bool last;	   /* it ends with the page that it gets */
	bool cut;	   /* its socket was shut down, or is about to be closed */
	struct page *page; /* READY, SENDING; NULL: there was none to be had */
	uint64_t deadline; /* SENDING: ns of CLOCK_MONOTONIC */
	uint64_t began;	   /* IDLE, SENDING: likewise */
};

struct rp_httpd {
	struct MHD_Daemon *d;
	rp_httpd_metrics_fn fn;
	void *ctx;
	struct rp_httpd_opts o;
	char url[96];
	pthread_t renderer;
	bool rendering; /* the thread is there */
	/* m: over all below; never held while a page is made */
	pthread_mutex_t m;
	pthread_cond_t wake;
	bool stop;
	struct conn conns; /* head of the list */
	unsigned n_conns;
	struct conn *wanted[KINDS];
	struct page *oldest, **newest;
	struct rp_httpd_stats stats;
};

/* ---- pages; h->m is held ---- */

static void drop_text(struct rp_httpd *h, struct page *g)
{
	if (g->p)
		h->stats.held_bytes -= g->len;
	free(g->p);
	g->p = NULL;
}

static void put_page(struct rp_httpd *h, struct page *g)
{
	struct page **at = &h->oldest;

	if (!g || --g->refs)
		return;
	drop_text(h, g);
	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	if (!*at)
		h->newest = at;
	free(g);
}

static void hold_page(struct rp_httpd *h, struct page *g)
{
	*h->newest = g;
	h->newest = &g->next;
	h->stats.held_bytes += g->len;
	/* the one just made goes out whatever its size */
	for (struct page *old = h->oldest; old != g && h->stats.held_bytes > h->o.held_max;
	     old = old->next) {
		h->stats.cut[RP_HTTPD_MEMORY] += old->p ? old->refs : 0;
		drop_text(h, old);
	}
}

/* ---- connections; h->m is held ---- */

static void unlink_conn(struct conn *k)
{
	k->prev->next = k->next;
	k->next->prev = k->prev;
}

static void link_last(struct rp_httpd *h, struct conn *k)
{
	k->prev = h->conns.prev;
	k->next = &h->conns;
	k->prev->next = k;
	h->conns.prev = k;
}

static void touch(struct conn *k)
{
	unlink_conn(k);
	link_last(k->h, k);
}

/* The server's thread sees that it is over, and closes it. */
static void cut(struct conn *k, enum rp_httpd_cut why)
{
	k->cut = true;
	shutdown(k->fd, SHUT_RDWR);
	k->h->stats.cut[why]++;
}

static unsigned count_conns(const struct rp_httpd *h)
{
	unsigned n = h->n_conns;

	for (struct conn *k = h->conns.next; k != &h->conns; k = k->next)
		n -= k->cut;
	return n;
}

/* When it must give up its place, in a crowd; 0: never, it waits. */
static uint64_t crowd_due(const struct conn *k)
{
	if (k->state == IDLE)
		return k->began + CROWD_IDLE_NS;
	return k->state == SENDING ? k->began + CROWD_SEND_NS : 0;
}

/* Those whose time is over, the longest quiet first. If that is not enough, those that
 * have not asked, but for the newest. */
static void make_room(struct rp_httpd *h, uint64_t now)
{
	unsigned n = count_conns(h), idle = 0;
	uint64_t due;

	for (struct conn *k = h->conns.next; k != &h->conns; k = k->next) {
		due = crowd_due(k);
		if (n > MAX_CONNECTIONS && !k->cut && due && due <= now) {
			cut(k, RP_HTTPD_CONNECTIONS);
			n--;
		}
		idle += !k->cut && k->state == IDLE;
	}
	for (struct conn *k = h->conns.next;
	     k != &h->conns && n > FULL_CONNECTIONS && idle > NEW_CONNECTIONS; k = k->next) {
		if (k->cut || k->state != IDLE)
			continue;
		cut(k, RP_HTTPD_CONNECTIONS);
		n--;
		idle--;
	}
}

/* Who did not take his page in time is cut off. When the next one will be due, 0: none. */
static uint64_t late(struct rp_httpd *h, uint64_t now)
{
	uint64_t next = 0, due;
	bool crowd;

	for (struct conn *k = h->conns.next; k != &h->conns; k = k->next)
		if (!k->cut && k->state == SENDING && k->deadline <= now)
			cut(k, RP_HTTPD_SLOW);
	make_room(h, now);
	crowd = count_conns(h) > MAX_CONNECTIONS;
	for (struct conn *k = h->conns.next; k != &h->conns; k = k->next) {
		if (k->cut)
			continue;
		due = k->state == SENDING ? k->deadline : 0;
		if (crowd && crowd_due(k) && (!due || crowd_due(k) < due))
			due = crowd_due(k);
		if (due && (!next || due < next))
			next = due;
	}
	return next;
}

/* ---- the renderer ---- */

/* *text is freed. NULL: no memory. */
static char *gzip(char *text, size_t *len)
{
	z_stream z = { 0 };
	struct rp_buf b = { 0 };
	int r = Z_OK;

	/* 16: the gzip format */
	if (deflateInit2(&z, GZIP_LEVEL, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
		free(text);
		return NULL;
	}
	z.next_in = (Bytef *)text;
	z.avail_in = (uInt)*len;
	while (r == Z_OK && rp_buf_grow(&b, 64 * 1024)) {
		z.next_out = (Bytef *)b.p + b.n;
		z.avail_out = (uInt)(b.cap - b.n);
		r = deflate(&z, Z_FINISH);
		b.n = b.cap - z.avail_out;
	}
	deflateEnd(&z);
	free(text);
	if (r != Z_STREAM_END) {
		free(b.p);
		return NULL;
	}
	*len = b.n;
	return b.p;
}

static struct page *make_page(struct rp_httpd *h, unsigned kind)
{
	struct page *g;
	size_t len = 0;
	char *text = h->fn(h->ctx, (enum rp_expo_format)(kind / 2), &len), *fit;

	if (text && kind % 2)
		text = gzip(text, &len);
	g = text ? calloc(1, sizeof(*g)) : NULL;
	if (!g) {
		free(text);
		return NULL;
	}
	fit = realloc(text, len ? len : 1);
	g->p = fit ? fit : text;
	g->len = len;
	return g;
}

/* All who waited for it are told; g may be NULL. h->m is not held. */
static void hand_out(struct rp_httpd *h, struct conn *first, struct page *g)
{
	pthread_mutex_lock(&h->m);
	if (g)
		g->crowd = count_conns(h) > MAX_CONNECTIONS;
	for (struct conn *k = first; k; k = k->waiting) {
		k->page = g;
		k->state = READY;
		if (g)
			g->refs++;
	}
	if (g)
		hold_page(h, g);
	pthread_mutex_unlock(&h->m);
	while (first) {
		struct conn *k = first;

		first = k->waiting; /* once resumed it may be gone */
		MHD_resume_connection(k->c);
	}
}

static void *renderer(void *arg)
{
	struct rp_httpd *h = arg;
	uint64_t not_before = 0, now, due, took;
	unsigned turn = 0, i;

	prctl(PR_SET_NAME, "metrics", 0, 0, 0);
	/* kernels before 5.19 ask for it to tell how long programs ran */
	rp_thread_begin(&(const int){ RP_CAP_BPF }, 1);
	pthread_mutex_lock(&h->m);
	while (!h->stop) {
		struct conn *first;
		struct page *g;

		now = rp_now_ns();
		due = late(h, now);
		for (i = 0; i < KINDS && !h->wanted[(turn + i) % KINDS]; i++)
			;
		if (i == KINDS || now < not_before) {
			struct timespec t;

			if (i < KINDS && (!due || not_before < due))
				due = not_before;
			t = (struct timespec){ .tv_sec = (time_t)(due / 1000000000),
					       .tv_nsec = (long)(due % 1000000000) };
			if (due)
				pthread_cond_timedwait(&h->wake, &h->m, &t);
			else
				pthread_cond_wait(&h->wake, &h->m);
			continue;
		}
		turn = (turn + i) % KINDS;
		first = h->wanted[turn];
		h->wanted[turn] = NULL;
		pthread_mutex_unlock(&h->m);
		g = make_page(h, turn);
		hand_out(h, first, g);
		took = rp_now_ns() - now;
		not_before = now + took + (REST * took < REST_MAX_NS ? REST * took : REST_MAX_NS);
		turn++;
		pthread_mutex_lock(&h->m);
	}
	for (i = 0; i < KINDS; i++) {
		struct conn *first = h->wanted[i];

		h->wanted[i] = NULL;
		pthread_mutex_unlock(&h->m);
		hand_out(h, first, NULL);
		pthread_mutex_lock(&h->m);
	}
	pthread_mutex_unlock(&h->m);
	return NULL;
}

/* ---- answers, in the server's thread ---- */

static enum MHD_Result say(struct MHD_Connection *c, unsigned status, const char *text)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(strlen(text), (char *)text, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result ret;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	ret = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return ret;
}

static ssize_t read_page(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct conn *k = cls;
	ssize_t n = MHD_CONTENT_READER_END_WITH_ERROR;

	pthread_mutex_lock(&k->h->m);
	if (k->page && k->page->p && pos <= k->page->len) {
		n = (ssize_t)(k->page->len - pos < max ? k->page->len - pos : max);
		memcpy(buf, k->page->p + pos, (size_t)n);
	}
	pthread_mutex_unlock(&k->h->m);
	return n;
}

static enum MHD_Result send_page(struct conn *k)
{
	struct rp_httpd *h = k->h;
	struct MHD_Response *r;
	enum MHD_Result ret;
	size_t len;

	pthread_mutex_lock(&h->m);
	len = k->page->len;
	k->last = k->page->crowd;
	k->state = SENDING;
	k->began = rp_now_ns();
	k->deadline = k->began + h->o.send_ms * 1000000ULL;
	touch(k);
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->m);
	r = MHD_create_response_from_callback(len, SEND_BLOCK, read_page, k, NULL);
	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, rp_expo_content_type[k->kind / 2]);
	MHD_add_response_header(r, MHD_HTTP_HEADER_VARY, "Accept, Accept-Encoding");
	if (k->kind % 2)
		MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
	if (k->last)
		MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
	ret = MHD_queue_response(k->c, MHD_HTTP_OK, r);
	MHD_destroy_response(r);
	return ret;
}

static enum MHD_Result want_page(struct conn *k)
{
	struct rp_httpd *h = k->h;
	const char *accept =
		MHD_lookup_connection_value(k->c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
	const char *coding =
		MHD_lookup_connection_value(k->c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT_ENCODING);
	bool over;

	k->kind = 2 * rp_expo_negotiate(accept) + rp_expo_takes_gzip(coding);
	pthread_mutex_lock(&h->m);
	over = h->stop;
	if (!over) {
		MHD_suspend_connection(k->c);
		k->state = WAITING;
		k->waiting = h->wanted[k->kind];
		h->wanted[k->kind] = k;
		pthread_cond_signal(&h->wake);
	}
	pthread_mutex_unlock(&h->m);
	return over ? say(k->c, MHD_HTTP_SERVICE_UNAVAILABLE, "no metrics now\n") : MHD_YES;
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_len, void **state)
{
	static int head_seen;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct conn *k = info ? info->socket_context : NULL;

	(void)cls;
	(void)version;
	(void)upload;
	if (!k)
		return MHD_NO;
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed\n");
	if (!*state) { /* first call: the head; an answer now would cost the keep-alive */
		*state = &head_seen;
		pthread_mutex_lock(&k->h->m);
		touch(k);
		pthread_mutex_unlock(&k->h->m);
		return MHD_YES;
	}
	if (*upload_len) /* a GET with a body: not ours to read */
		return MHD_NO;
	if (!strcmp(url, "/healthz"))
		return say(c, MHD_HTTP_OK, "ok\n");
	if (strcmp(url, "/metrics"))
		return say(c, MHD_HTTP_NOT_FOUND, "not found; see /metrics and /healthz\n");
	if (k->state != READY)
		return want_page(k);
	if (!k->page)
		return say(c, MHD_HTTP_SERVICE_UNAVAILABLE, "no metrics now\n");
	return send_page(k);
}

/* An answer is out, or never will be. */
static void completed(void *cls, struct MHD_Connection *c, void **state,
		      enum MHD_RequestTerminationCode how)
{
	struct rp_httpd *h = cls;
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct conn *k = info ? info->socket_context : NULL;

	(void)state;
	if (!k)
		return;
	pthread_mutex_lock(&h->m);
	if (how == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED && k->page && k->page->p && !k->cut)
		h->stats.cut[RP_HTTPD_SLOW]++;
	put_page(h, k->page);
	k->page = NULL;
	k->state = IDLE;
	k->began = rp_now_ns();
	k->cut |= k->last;
	pthread_mutex_unlock(&h->m);
}

/* The library has its own name for it, and no moment before this one. */
static void name_thread(void)
{
	static __thread bool done;

	if (!done)
		prctl(PR_SET_NAME, "http", 0, 0, 0);
	done = true;
}

static void connection(void *cls, struct MHD_Connection *c, void **context,
		       enum MHD_ConnectionNotificationCode what)
{
	struct rp_httpd *h = cls;
	struct conn *k = *context;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		const union MHD_ConnectionInfo *info =
			MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);

		name_thread();
		k = info ? calloc(1, sizeof(*k)) : NULL;
		*context = k;
		if (!k)
			return; /* closed with its first request */
		k->h = h;
		k->c = c;
		k->fd = info->connect_fd;
		pthread_mutex_lock(&h->m);
		link_last(h, k);
		h->n_conns++;
		k->began = rp_now_ns();
		make_room(h, k->began);
		if (h->n_conns > MAX_CONNECTIONS) /* all are due sooner now */
			pthread_cond_signal(&h->wake);
		pthread_mutex_unlock(&h->m);
		return;
	}
	if (!k)
		return;
	/* the socket is still open: from here on nobody shuts another's down */
	pthread_mutex_lock(&h->m);
	unlink_conn(k);
	h->n_conns--;
	put_page(h, k->page);
	pthread_mutex_unlock(&h->m);
	free(k);
	*context = NULL;
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
	if (bind(fd, &a->sa, *len) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, &a->sa, len) < 0) {
		e = errno;
		close(fd);
		return -e;
	}
	return fd;
}

static struct rp_httpd *new_httpd(rp_httpd_metrics_fn fn, void *ctx, const struct rp_httpd_opts *o)
{
	struct rp_httpd *h = calloc(1, sizeof(*h));
	pthread_condattr_t ca;

	if (!h)
		return NULL;
	h->fn = fn;
	h->ctx = ctx;
	h->o = *o;
	if (!h->o.held_max)
		h->o.held_max = RP_HTTPD_HELD_MAX;
	if (!h->o.send_ms)
		h->o.send_ms = SEND_MS;
	h->newest = &h->oldest;
	h->conns.prev = h->conns.next = &h->conns;
	pthread_mutex_init(&h->m, NULL);
	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&h->wake, &ca);
	pthread_condattr_destroy(&ca);
	return h;
}

static void set_url(struct rp_httpd *h, const union address *a)
{
	char host[INET6_ADDRSTRLEN];

	if (a->sa.sa_family == AF_INET6)
		snprintf(h->url, sizeof(h->url), "http://[%s]:%u/metrics",
			 inet_ntop(AF_INET6, &a->in6.sin6_addr, host, sizeof(host)),
			 ntohs(a->in6.sin6_port));
	else
		snprintf(h->url, sizeof(h->url), "http://%s:%u/metrics",
			 inet_ntop(AF_INET, &a->in.sin_addr, host, sizeof(host)),
			 ntohs(a->in.sin_port));
}

struct starting {
	struct rp_httpd *h;
	const union address *a;
	int fd;
};

/* What strangers send is read by a thread that may do nothing else: it is started by one
 * that already may not, so that there is no moment when it could. */
static void *starter(void *arg)
{
	const struct starting *s = arg;
	struct rp_httpd *h = s->h;

	rp_thread_begin(NULL, 0);
	h->d = MHD_start_daemon(
		MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME |
			(s->a->sa.sa_family == AF_INET6 ? MHD_USE_IPv6 : 0),
		ntohs(s->a->in.sin_port), NULL, NULL, handle, h, MHD_OPTION_EXTERNAL_LOGGER, quiet,
		NULL, MHD_OPTION_LISTEN_SOCKET, s->fd, MHD_OPTION_NOTIFY_CONNECTION, connection, h,
		MHD_OPTION_NOTIFY_COMPLETED, completed, h, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)LIMIT_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONN_MEMORY, MHD_OPTION_END);
	return NULL;
}

int rp_httpd_start(const char *addr, const struct rp_httpd_opts *o, rp_httpd_metrics_fn fn,
		   void *ctx, struct rp_httpd **out, char *err, size_t errlen)
{
	union address a;
	socklen_t len;
	sigset_t all, old;
	struct rp_httpd *h;
	struct starting s;
	pthread_t t;
	int fd, e;

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
	h = new_httpd(fn, ctx, o);
	if (!h) {
		close(fd);
		snprintf(err, errlen, "no memory for %s", addr);
		return -ENOMEM;
	}
	set_url(h, &a);

	s = (struct starting){ .h = h, .a = &a, .fd = fd };
	/* SIGINT and friends are for the main thread */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	e = pthread_create(&h->renderer, NULL, renderer, h);
	h->rendering = !e;
	if (!e)
		e = pthread_create(&t, NULL, starter, &s);
	if (!e)
		pthread_join(t, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!h->d) {
		/* versions differ in whether a failed start closes it */
		if (fcntl(fd, F_GETFD) >= 0)
			close(fd);
		rp_httpd_stop(h);
		snprintf(err, errlen, "can't serve on %s: %s", addr,
			 e ? strerror(e) : "libmicrohttpd refused to start");
		return e ? -e : -EIO;
	}
	*out = h;
	return 0;
}

const char *rp_httpd_url(const struct rp_httpd *h)
{
	return h->url;
}

void rp_httpd_stats(struct rp_httpd *h, struct rp_httpd_stats *out)
{
	pthread_mutex_lock(&h->m);
	*out = h->stats;
	pthread_mutex_unlock(&h->m);
}

void rp_httpd_stop(struct rp_httpd *h)
{
	if (!h)
		return;
	/* first who waits for a page: a server with suspended connections can't end */
	pthread_mutex_lock(&h->m);
	h->stop = true;
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->m);
	if (h->rendering)
		pthread_join(h->renderer, NULL);
	if (h->d)
		MHD_stop_daemon(h->d); /* closes the listening socket, joins the thread */
	pthread_mutex_destroy(&h->m);
	pthread_cond_destroy(&h->wake);
	free(h);
}
