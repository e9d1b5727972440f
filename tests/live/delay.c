/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * delay.c - a line between two network namespaces of its own: two TUN devices
 * and one thread that holds each IP packet for a while. Everything, namespaces
 * included, is gone when this process is.
 *
 *	delay [--ms N] [--rate BYTES_PER_S] [--queue PACKETS] [--seed N]
 *
 * End a is 10.77.0.1 and fd77::1, end b 10.77.0.2 and fd77::2. stdout: one line
 * "ready A_FD B_FD" (descriptors of the namespaces, for /proc/PID/fd), then one
 * JSON object at the end. stdin takes commands, each answered with "ok" or "bad";
 * its end, or SIGTERM, ends the line:
 *
 *	delay a|b MS		packets sent by a (by b) are held that long
 *	rate a|b BYTES_PER_S	0: no limit
 *	drop a|b KIND N[,N]	drop the Nth packets of a kind, counted from now;
 *				KIND: syn, synack, ack (neither, no data), data, any
 *	loss a|b KIND P		drop with probability P
 *	clear			no drop and no loss
 *	stats			the JSON object now, in place of "ok"
 *	handshakes		{"PORT": US, ...}: what the line gave the last ones, by the
 *				client's port: from its taking a SYN-ACK of a to its
 *				handing over b's first ACK
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MTU 1500
#define DROPS 64
#define SPIN_NS 500000 /* a timer's wake-up in a VM is late by less */

enum kind { K_SYN, K_SYNACK, K_ACK, K_DATA, K_OTHER, K_ANY, KINDS };
static const char *const kind_names[] = { "syn", "synack", "ack", "data", "other", "any" };

struct packet {
	int64_t due;
	size_t len;
	uint8_t p[MTU];
};

/* What one end sends. */
struct way {
	int from, to;
	int64_t delay_ns, rate, free_at;
	struct packet *q;
	size_t head, n;
	double loss[KINDS];
	uint64_t seen[KINDS], drops[KINDS][DROPS];
	unsigned n_drops[KINDS];
	/* counted */
	uint64_t packets, bytes, dropped, overflow, failed, kinds[KINDS], late_n, late_over_1ms;
	int64_t late_max, late_sum;
};

static struct way ways[2];
/* By the client's port: the SYN-ACK taken, the first ACK handed over. */
static int64_t synack_ns[65536], ack_ns[65536];
static size_t queue_max = 20000;
static uint64_t rng = 1;
static volatile sig_atomic_t stop;

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

static void die(const char *what)
{
	fprintf(stderr, "delay: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double draw(void)
{
	uint64_t z = (rng += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

/* ---- the two namespaces ---- */

static void up(int s, const char *name)
{
	struct ifreq r = { 0 };

	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	if (ioctl(s, SIOCGIFFLAGS, &r))
		die("SIOCGIFFLAGS");
	r.ifr_flags |= IFF_UP;
	if (ioctl(s, SIOCSIFFLAGS, &r))
		die("SIOCSIFFLAGS");
}

/* A namespace with a TUN device "line"; this thread stays in it. */
static int make_end(int last, int *ns)
{
	struct ifreq r = { 0 };
	struct sockaddr_in *a = (struct sockaddr_in *)&r.ifr_addr;
	struct in6_ifreq {
		struct in6_addr addr;
		uint32_t prefix;
		int index;
	} r6 = { .prefix = 64 };
	int tun, s, s6;

	if (unshare(CLONE_NEWNET))
		die("unshare");
	*ns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (*ns < 0 || tun < 0)
		die("/dev/net/tun");
	snprintf(r.ifr_name, sizeof(r.ifr_name), "line");
	r.ifr_flags = IFF_TUN | IFF_NO_PI;
	if (ioctl(tun, TUNSETIFF, &r))
		die("TUNSETIFF");
	s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0)
		die("socket");
	up(s, "lo");
	memset(&r, 0, sizeof(r));
	snprintf(r.ifr_name, sizeof(r.ifr_name), "line");
	r.ifr_qlen = 10000;
	if (ioctl(s, SIOCSIFTXQLEN, &r))
		die("SIOCSIFTXQLEN");
	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(0x0a4d0000u + (uint32_t)last);
	if (ioctl(s, SIOCSIFADDR, &r))
		die("SIOCSIFADDR");
	a->sin_addr.s_addr = htonl(0xffffff00u);
	if (ioctl(s, SIOCSIFNETMASK, &r))
		die("SIOCSIFNETMASK");
	up(s, "line");
	s6 = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s6 >= 0) { /* a kernel without IPv6 has a line without it */
		if (ioctl(s, SIOCGIFINDEX, &r))
			die("SIOCGIFINDEX");
		r6.index = r.ifr_ifindex;
		r6.addr.s6_addr[0] = 0xfd;
		r6.addr.s6_addr[1] = 0x77;
		r6.addr.s6_addr[15] = (uint8_t)last;
		if (ioctl(s6, SIOCSIFADDR, &r6))
			die("IPv6 address");
		close(s6);
	}
	close(s);
	return tun;
}

/* ---- packets ---- */

static enum kind kind_of(const uint8_t *p, size_t n)
{
	size_t h = 0, data;
	uint8_t f;

	if (n >= 20 && p[0] >> 4 == 4 && p[9] == 6)
		h = (size_t)(p[0] & 15) * 4;
	else if (n >= 40 && p[0] >> 4 == 6 && p[6] == 6)
		h = 40;
	if (!h || n < h + 20)
		return K_OTHER;
	f = p[h + 13];
	data = h + (size_t)(p[h + 12] >> 4) * 4;
	if (f & 2)
		return f & 16 ? K_SYNACK : K_SYN;
	return n > data ? K_DATA : K_ACK;
}

static unsigned port_at(const uint8_t *p, size_t off)
{
	size_t h = p[0] >> 4 == 4 ? (size_t)(p[0] & 15) * 4 : 40;

	return (unsigned)p[h + off] << 8 | p[h + off + 1];
}

static bool named(struct way *w, enum kind k)
{
	bool hit = false;

	w->seen[k]++;
	for (unsigned i = 0; i < w->n_drops[k]; i++)
		hit |= w->drops[k][i] == w->seen[k];
	return hit;
}

static bool dropped(struct way *w, enum kind k)
{
	bool hit = named(w, k);

	hit |= named(w, K_ANY);
	if (w->loss[k] > 0)
		hit |= draw() < w->loss[k];
	if (w->loss[K_ANY] > 0)
		hit |= draw() < w->loss[K_ANY];
	return hit;
}

static void take(struct way *w)
{
	for (int i = 0; i < 64; i++) {
		struct packet *k = &w->q[(w->head + w->n) % queue_max];
		uint8_t over[MTU];
		bool full = w->n == queue_max;
		ssize_t n = read(w->from, full ? over : k->p, MTU);
		int64_t t = now_ns();
		enum kind kind;

		if (n <= 0)
			return;
		kind = kind_of(full ? over : k->p, (size_t)n);
		w->packets++;
		w->bytes += (uint64_t)n;
		w->kinds[kind]++;
		if (dropped(w, kind)) {
			w->dropped++;
			continue;
		}
		if (full) {
			w->overflow++;
			continue;
		}
		if (w->rate) {
			if (w->free_at < t)
				w->free_at = t;
			w->free_at += n * 1000000000LL / w->rate;
			t = w->free_at;
		}
		if (w == &ways[0] && kind == K_SYNACK) {
			synack_ns[port_at(k->p, 2)] = t;
			ack_ns[port_at(k->p, 2)] = 0;
		}
		k->len = (size_t)n;
		k->due = t + w->delay_ns;
		/* in order, whatever a command has just changed */
		if (w->n && k->due < w->q[(w->head + w->n - 1) % queue_max].due)
			k->due = w->q[(w->head + w->n - 1) % queue_max].due;
		w->n++;
	}
}

/* Hands over what is due. The instant of the next one, 0 = none. */
static int64_t give(struct way *w)
{
	while (w->n) {
		struct packet *k = &w->q[w->head];
		int64_t late = now_ns() - k->due;

		if (late < 0)
			return k->due;
		if (w == &ways[1] && kind_of(k->p, k->len) == K_ACK && !ack_ns[port_at(k->p, 0)])
			ack_ns[port_at(k->p, 0)] = now_ns();
		if (write(w->to, k->p, k->len) != (ssize_t)k->len)
			w->failed++;
		w->late_n++;
		w->late_sum += late;
		w->late_over_1ms += late > 1000000;
		if (late > w->late_max)
			w->late_max = late;
		w->head = (w->head + 1) % queue_max;
		w->n--;
	}
	return 0;
}

static void stats(void)
{
	printf("{");
	for (int i = 0; i < 2; i++) {
		struct way *w = &ways[i];

		printf("%s\"%c\":{\"packets\":%" PRIu64 ",\"bytes\":%" PRIu64
		       ",\"dropped\":%" PRIu64 ",\"overflow\":%" PRIu64 ",\"failed\":%" PRIu64,
		       i ? "," : "", "ab"[i], w -> packets, w -> bytes, w -> dropped, w -> overflow,
		       w -> failed);
		for (int k = 0; k < K_ANY; k++)
			printf(",\"%s\":%" PRIu64, kind_names[k], w->kinds[k]);
		printf(",\"late_mean_us\":%.1f,\"late_max_us\":%.1f,\"late_over_1ms\":%" PRIu64 "}",
		       w->late_n ? (double)w->late_sum / (double)w->late_n / 1e3 : 0,
		       (double)w->late_max / 1e3, w->late_over_1ms);
	}
	printf("}\n");
}

static void handshakes(void)
{
	const char *sep = "";

	printf("{");
	for (unsigned i = 0; i < 65536; i++)
		if (synack_ns[i] && ack_ns[i]) {
			printf("%s\"%u\":%.1f", sep, i, (double)(ack_ns[i] - synack_ns[i]) / 1e3);
			sep = ",";
		}
	printf("}\n");
}

/* ---- commands ---- */

static bool command(char *line)
{
	char *save, *what = strtok_r(line, " \n", &save), *end = strtok_r(NULL, " \n", &save), *v,
		    *comma;
	struct way *w;
	int k = -1;

	if (!what)
		return false;
	if (!strcmp(what, "clear")) {
		for (int i = 0; i < 2; i++) {
			memset(ways[i].loss, 0, sizeof(ways[i].loss));
			memset(ways[i].n_drops, 0, sizeof(ways[i].n_drops));
		}
		return true;
	}
	if (!end || (*end != 'a' && *end != 'b'))
		return false;
	w = &ways[*end == 'b'];
	v = strtok_r(NULL, " \n", &save);
	if (!v)
		return false;
	if (!strcmp(what, "delay")) {
		w->delay_ns = (int64_t)(atof(v) * 1e6);
		return true;
	}
	if (!strcmp(what, "rate")) {
		w->rate = atoll(v);
		return true;
	}
	for (int i = 0; i < KINDS; i++)
		if (!strcmp(v, kind_names[i]))
			k = i;
	v = strtok_r(NULL, " \n", &save);
	if (k < 0 || !v)
		return false;
	if (!strcmp(what, "loss")) {
		w->loss[k] = atof(v);
		return true;
	}
	if (strcmp(what, "drop") != 0)
		return false;
	w->seen[k] = 0;
	w->n_drops[k] = 0;
	for (v = strtok_r(v, ",", &comma); v && w->n_drops[k] < DROPS;
	     v = strtok_r(NULL, ",", &comma))
		w->drops[k][w->n_drops[k]++] = strtoull(v, NULL, 10);
	return true;
}

static bool commands(void)
{
	static char in[4096];
	static size_t n;
	ssize_t got = read(0, in + n, sizeof(in) - 1 - n);
	char *nl;

	if (got <= 0)
		return false;
	n += (size_t)got;
	in[n] = 0;
	while ((nl = strchr(in, '\n'))) {
		*nl = 0;
		if (!strcmp(in, "stats"))
			stats();
		else if (!strcmp(in, "handshakes"))
			handshakes();
		else
			puts(command(in) ? "ok" : "bad");
		n -= (size_t)(nl + 1 - in);
		memmove(in, nl + 1, n + 1);
	}
	fflush(stdout);
	return n < sizeof(in) - 1;
}

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

int main(int argc, char **argv)
{
	static const struct option opts[] = {
		{ "ms", 1, NULL, 'm' },
		{ "rate", 1, NULL, 'r' },
		{ "queue", 1, NULL, 'q' },
		{ "seed", 1, NULL, 's' },
		{ 0 },
	};
	struct sigaction sa = { .sa_handler = on_signal };
	struct sched_param sp = { .sched_priority = 10 };
	double ms = 0;
	int64_t rate = 0;
	int o, ns[2], tun[2];

	while ((o = getopt_long(argc, argv, "", opts, NULL)) != -1)
		switch (o) {
		case 'm':
			ms = atof(optarg);
			break;
		case 'r':
			rate = atoll(optarg);
			break;
		case 'q':
			queue_max = strtoul(optarg, NULL, 10);
			break;
		case 's':
			rng = strtoull(optarg, NULL, 10);
			break;
		default:
			fprintf(stderr,
				"usage: delay [--ms N] [--rate BYTES_PER_S] [--queue N] [--seed N]\n");
			return 2;
		}
	if (!queue_max || queue_max > 1000000 || ms < 0 || rate < 0) {
		fprintf(stderr, "delay: bad number\n");
		return 2;
	}
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	for (int i = 0; i < 2; i++)
		tun[i] = make_end(i + 1, &ns[i]);
	for (int i = 0; i < 2; i++) {
		ways[i].from = tun[i];
		ways[i].to = tun[!i];
		ways[i].delay_ns = (int64_t)(ms * 1e6);
		ways[i].rate = rate;
		ways[i].q = calloc(queue_max, sizeof(*ways[i].q));
		if (!ways[i].q)
			die("calloc");
	}
	prctl(PR_SET_TIMERSLACK, 1UL);
	/* a line isn't late because someone computes; where refused, the figures tell */
	if (sched_setscheduler(0, SCHED_FIFO, &sp) && errno != EPERM)
		die("sched_setscheduler");
	printf("ready %d %d\n", ns[0], ns[1]);
	fflush(stdout);
	while (!stop) {
		struct pollfd p[] = { { .fd = tun[0], .events = POLLIN },
				      { .fd = tun[1], .events = POLLIN },
				      { .fd = 0, .events = POLLIN } };
		int64_t next = 0, t;
		struct timespec ts;

		for (int i = 0; i < 2; i++) {
			t = give(&ways[i]);
			if (t && (!next || t < next))
				next = t;
		}
		t = next - now_ns() - SPIN_NS; /* the rest is waited for awake */
		if (t < 0)
			t = 0;
		ts = (struct timespec){ .tv_sec = t / 1000000000, .tv_nsec = t % 1000000000 };
		if (ppoll(p, 3, next ? &ts : NULL, NULL) < 0) {
			if (errno != EINTR)
				die("ppoll");
			continue;
		}
		for (int i = 0; i < 2; i++)
			if (p[i].revents)
				take(&ways[i]);
		if (p[2].revents && !commands())
			break;
	}
	stats();
	return 0;
}
