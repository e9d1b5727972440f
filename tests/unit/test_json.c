/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Unit tests of protocol/json.c. */
#include "util.h"

#include <math.h>

#include "protocol/json.h"

struct ctx {
	enum rp_json_role role;
	struct rp_json p;
	struct log facts;
};

static void num(struct log *l, const char *name, int64_t v)
{
	if (v != RP_ABSENT)
		log_add(l, " %s=%lld", name, (long long)v);
}

static void str(struct log *l, const char *name, const char *v)
{
	if (v[0])
		log_add(l, " %s=%s", name, v);
}

static void bits(struct log *l, const char *name, uint64_t v)
{
	if (v)
		log_add(l, " %s=%llx", name, (unsigned long long)v);
}

/* Everything that is not its default. */
static void dump(struct log *l, const struct rp_json_facts *f)
{
	str(l, "model", f->model);
	str(l, "id", f->id);
	str(l, "object", f->object);
	bits(l, "model_cut", f->model_cut);
	bits(l, "id_cut", f->id_cut);
	if (f->stream != -1)
		log_add(l, " stream=%d", f->stream);
	num(l, "n", f->n);
	num(l, "max", f->max_tokens);
	if (f->include_usage != -1)
		log_add(l, " include_usage=%d", f->include_usage);
	num(l, "prompts", f->prompts);
	bits(l, "tools", f->tools);
	bits(l, "guided", f->guided);
	str(l, "tier", f->service_tier);
	bits(l, "choices", f->choices);
	bits(l, "content", f->content);
	bits(l, "reasoning", f->reasoning);
	bits(l, "tool", f->tool);
	bits(l, "finished", f->finished);
	bits(l, "over", f->choices_over);
	str(l, "finish", f->finish_reason);
	if (f->stop != -1)
		log_add(l, " stop=%d", f->stop);
	num(l, "pt", f->prompt_tokens);
	num(l, "ct", f->completion_tokens);
	num(l, "tt", f->total_tokens);
	num(l, "cached", f->cached_tokens);
	num(l, "rt", f->reasoning_tokens);
	bits(l, "usage", f->has_usage);
	num(l, "in", f->input_tokens);
	num(l, "read", f->cache_read_tokens);
	num(l, "write", f->cache_write_tokens);
	num(l, "miss", f->cache_miss_tokens);
	num(l, "pa", f->prompt_audio_tokens);
	num(l, "ca", f->completion_audio_tokens);
	num(l, "acc", f->accepted_tokens);
	num(l, "rej", f->rejected_tokens);
	num(l, "tool_use", f->tool_use_tokens);
	if (!isnan(f->prompt_audio_seconds))
		log_add(l, " audio_s=%.17g", f->prompt_audio_seconds);
	num(l, "spec_steps", f->spec_steps);
	num(l, "spec_draft", f->spec_draft_tokens);
	num(l, "spec_acc", f->spec_accepted_tokens);
	if (!isnan(f->video_inference_s))
		log_add(l, " video_s=%.17g", f->video_inference_s);
	if (!isnan(f->video_peak_memory_mb))
		log_add(l, " video_mb=%.17g", f->video_peak_memory_mb);
	bits(l, "images", f->media[RP_JSON_IMAGE]);
	bits(l, "audios", f->media[RP_JSON_AUDIO]);
	bits(l, "videos", f->media[RP_JSON_VIDEO]);
	bits(l, "timings", f->has_timings);
	num(l, "prompt_n", f->t_prompt_n);
	num(l, "predicted_n", f->t_predicted_n);
	num(l, "cache_n", f->t_cache_n);
	if (!isnan(f->t_prompt_ms))
		log_add(l, " prompt_ms=%.17g", f->t_prompt_ms);
	if (!isnan(f->t_predicted_ms))
		log_add(l, " predicted_ms=%.17g", f->t_predicted_ms);
	bits(l, "progress", f->prompt_progress);
	num(l, "tokens", f->native_tokens);
	bits(l, "error", f->error);
	str(l, "type", f->error_type);
	str(l, "code", f->error_code);
	bits(l, "too_long", f->too_long);
	bits(l, "done", f->done_marker);
	bits(l, "gapped", f->gapped);
	bits(l, "any", f->any);
}

static void t_open(void *v)
{
	struct ctx *c = v;

	c->facts.n = 0;
	log_bytes(&c->facts, "", 0);
	memset(&c->p, 0xa5, sizeof(c->p));
	rp_json_init(&c->p, c->role);
}

static void t_feed(void *v, const uint8_t *in, uint8_t *keep, size_t n)
{
	rp_json_feed(&((struct ctx *)v)->p, in, keep, n);
}

static void t_ctl(void *v, const struct ctl *c)
{
	assert_int_equal(c->op, 'G');
	rp_json_gap(&((struct ctx *)v)->p);
}

static void t_close(void *v)
{
	struct ctx *c = v;
	struct rp_json_facts f;

	rp_json_end(&c->p);
	f = c->p.f;
	rp_json_end(&c->p);
	assert_memory_equal(&f, &c->p.f, sizeof(f));
	dump(&c->facts, &c->p.f);
}

static struct log *t_facts(void *v)
{
	return &((struct ctx *)v)->facts;
}

static const struct subject subject = { t_open, t_feed, t_ctl, t_close, t_facts, t_facts };

static void check(enum rp_json_role role, const char *name, const char *text, size_t n,
		  const char *want)
{
	static struct ctx c;

	c.role = role;
	check_script(&subject, &c, name, text, n, want);
}

struct item {
	const char *name, *in, *want;
};

static void table(enum rp_json_role role, const struct item *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		check(role, t[i].name, t[i].in, strlen(t[i].in), t[i].want);
}

#define CHUNK                                                                                                   \
	"{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1764428250,\"model\":\"m/x\"," \
	"\"choices\":[{\"index\":0,\"delta\":"
#define CHUNK_END ",\"logprobs\":null,\"finish_reason\":null,\"token_ids\":null}]}"
#define CHUNK_FACTS " model=m/x id=chatcmpl-1 object=chat.completion.chunk choices=1"

static void requests(void **state)
{
	static const struct item t[] = {
		{ "chat",
		  "{\"model\":\"qwen\",\"messages\":[{\"role\":\"user\",\"content\":\"" MARKER
		  " \\\"model\\\":\\\"no\\\"\"},"
		  "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" MARKER "\"}]}],"
		  "\"stream\": true,\"stream_options\":{\"include_usage\":true},\"max_tokens\":16,\"n\":2,"
		  "\"tools\":[{\"function\":{\"name\":\"" MARKER
		  "\",\"parameters\":{\"model\":\"" MARKER "\"}}}],"
		  "\"stop\":[\"" MARKER "\"],\"user\":\"" MARKER "\"}",
		  " model=qwen stream=1 n=2 max=16 include_usage=1 tools=1 any=1" },
		{ "chat, no stream",
		  "{\"stream\":false,\"max_completion_tokens\":7,\"model\":\"a\\/b\\u002dc\"}",
		  " model=a/b-c stream=0 max=7 any=1" },
		{ "string prompt",
		  "{\"prompt\":\"" MARKER "\",\"n_predict\":-1,\"request_id\":\"r-1\"}",
		  " id=r-1 max=-1 prompts=1 any=1" },
		{ "prompts", "{\"prompt\":[\"" MARKER "\",\"b]\",\"c,\"]}", " prompts=3 any=1" },
		{ "token prompt", "{\"prompt\":[101, 20231,3]}", " prompts=1 any=1" },
		{ "token prompts", "{\"prompt\":[[1,2],[3],[4,5,6]]}", " prompts=3 any=1" },
		{ "mixed prompt", "{\"prompt\":[1,\"" MARKER "\",2]}", " prompts=1 any=1" },
		{ "null prompt", "{\"prompt\":null,\"stream\":null,\"n\":null}", " any=1" },
		{ "input string", "{\"input\":\"" MARKER "\",\"max_output_tokens\":9}",
		  " max=9 prompts=1 any=1" },
		{ "input messages",
		  "{\"input\":[{\"role\":\"user\",\"content\":\"" MARKER "\"},{}]}",
		  " prompts=1 any=1" },
		{ "embeddings", "{\"input\":[\"a\",\"b\"],\"model\":\"e\"}",
		  " model=e prompts=2 any=1" },
		{ "ollama",
		  "{\"model\":\"l:8b\",\"prompt\":\"" MARKER
		  "\",\"options\":{\"num_predict\":5,\"seed\":1}}",
		  " model=l:8b max=5 prompts=1 any=1" },
		{ "sglang",
		  "{\"text\":[\"" MARKER
		  "\",\"b\"],\"sampling_params\":{\"max_new_tokens\":8,\"n\":1},\"rid\":\"q\"}",
		  " id=q n=1 max=8 prompts=2 any=1" },
		{ "spaces", " {\r\n\t\"n\" : 3 ,\n \"stream\" :true\n}\n ", " stream=1 n=3 any=1" },
		{ "keys near known ones",
		  "{\"mode\":\"" MARKER "\",\"models\":\"" MARKER
		  "\",\"mox\":1,\"max_tokensx\":5,\"Model\":\"" MARKER "\",\"\":1,\"ne\":4}",
		  " any=1" },
		{ "a filler must not complete a key", "{\"ma" MARKER "\":5,\"n\":1}",
		  " n=1 any=1" },
		{ "escaped keys",
		  "{\"\\u006dodel\":\"a\",\"str\\u0065am\":true,\"\\u006eo\":1,\"\\u4e2d\":2,\"n\\u\":3,\"n\\u00\":4,"
		  "\"n\\n\":5,\"n\\\"\":6,\"\\u0070rompt\":\"" MARKER
		  "\",\"n\\u006\\\"\":7,\"\\u\\\"n\":8}",
		  " model=a stream=1 prompts=1 any=1" },
		{ "no tools, free form",
		  "{\"tools\":[],\"functions\":null,\"response_format\":{\"type\":\"text\"},\"grammar\":\"\","
		  "\"guided_json\":null,\"service_tier\":null}",
		  " any=1" },
		{ "functions, tier",
		  "{\"functions\":[{\"name\":\"" MARKER "\"},{}],\"service_tier\":\"priority\"}",
		  " tools=1 tier=priority any=1" },
		{ "schema",
		  "{\"response_format\":{\"json_schema\":{\"type\":\"" MARKER
		  "\"},\"type\":\"json_schema\"},\"tools\":[1]}",
		  " tools=1 guided=1 any=1" },
		{ "json object", "{\"response_format\":{\"type\":\"json_object\"}}",
		  " guided=1 any=1" },
		{ "structured outputs", "{\"structured_outputs\":{\"regex\":\"" MARKER "\"}}",
		  " guided=1 any=1" },
		{ "guided choice", "{\"guided_choice\":[\"" MARKER "\"]}", " guided=1 any=1" },
		{ "grammar", "{\"grammar\":\"" MARKER "\"}", " guided=1 any=1" },
		{ "json_schema", "{\"json_schema\":{}}", " guided=1 any=1" },
		{ "response keys mean nothing",
		  "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" MARKER
		  "\"}}],\"error\":1}",
		  " any=1" },
	};

	(void)state;
	table(RP_JSON_REQUEST_BODY, t, COUNT_OF(t));
}

static void chat(void **state)
{
	static const struct item t[] = {
		{ "role", CHUNK "{\"role\":\"assistant\",\"content\":\"\"}" CHUNK_END,
		  CHUNK_FACTS " any=1" },
		{ "null", CHUNK "{\"role\":\"assistant\",\"content\":null}" CHUNK_END,
		  CHUNK_FACTS " any=1" },
		{ "content", CHUNK "{\"content\":\" " MARKER "\"}" CHUNK_END,
		  CHUNK_FACTS " content=1 any=1" },
		{ "escapes", CHUNK "{\"content\":\"\\\"\\\\\"}" CHUNK_END,
		  CHUNK_FACTS " content=1 any=1" },
		{ "one backslash pair", CHUNK "{\"content\":\"\\\\\"}" CHUNK_END,
		  CHUNK_FACTS " content=1 any=1" },
		{ "unicode", CHUNK "{\"content\":\"\\ud83d\\ude00 \xf0\x9f\x98\x80\"}" CHUNK_END,
		  CHUNK_FACTS " content=1 any=1" },
		{ "parts",
		  CHUNK "{\"content\":[{\"type\":\"text\",\"text\":\"" MARKER "\"}]}" CHUNK_END,
		  CHUNK_FACTS " content=1 any=1" },
		{ "empty parts",
		  CHUNK "{\"content\":[{\"type\":\"text\",\"text\":\"\"}]}" CHUNK_END,
		  CHUNK_FACTS " any=1" },
		{ "thinking parts",
		  CHUNK
		  "{\"content\":[{\"type\":\"thinking\",\"thinking\":[{\"type\":\"text\",\"text\":\"a\"}]}]}" CHUNK_END,
		  CHUNK_FACTS " reasoning=1 any=1" },
		{ "reasoning", CHUNK "{\"reasoning\":\"" MARKER "\"}" CHUNK_END,
		  CHUNK_FACTS " reasoning=1 any=1" },
		{ "reasoning_content",
		  CHUNK "{\"reasoning_content\":\"" MARKER "\",\"content\":null}" CHUNK_END,
		  CHUNK_FACTS " reasoning=1 any=1" },
		{ "empty reasoning",
		  CHUNK "{\"reasoning_content\":\"\",\"content\":\"a\"}" CHUNK_END,
		  CHUNK_FACTS " content=1 any=1" },
		{ "tool name",
		  CHUNK "{\"tool_calls\":[{\"index\":0,\"id\":\"call_" MARKER
			"\",\"type\":\"function\",\"function\":"
			"{\"name\":\"" MARKER "\",\"arguments\":\"\"}}]}" CHUNK_END,
		  CHUNK_FACTS " tool=1 any=1" },
		{ "tool arguments",
		  CHUNK
		  "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"q\\\":\\\"" MARKER
		  "\\\"}\"}}]}" CHUNK_END,
		  CHUNK_FACTS " tool=1 any=1" },
		{ "empty tool",
		  CHUNK
		  "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\"}}]}" CHUNK_END,
		  CHUNK_FACTS " any=1" },
		{ "function_call", CHUNK "{\"function_call\":{\"name\":\"f\"}}" CHUNK_END,
		  CHUNK_FACTS " tool=1 any=1" },
		{ "finish",
		  "{\"choices\":[{\"finish_reason\":\"length\",\"index\":0,\"delta\":{}}]}",
		  " choices=1 finished=1 finish=length any=1" },
		{ "empty finish reason",
		  "{\"choices\":[{\"finish_reason\":\"\",\"index\":0,\"delta\":{}}]}",
		  " choices=1 any=1" },
		{ "index last",
		  "{\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\",\"index\":3}]}",
		  " choices=8 content=8 finished=8 finish=stop any=1" },
		{ "two choices",
		  "{\"choices\":[{\"index\":1,\"text\":\"a\",\"finish_reason\":\"stop\"},"
		  "{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}",
		  " choices=3 content=2 finished=3 finish=length any=1" },
		{ "two choices, in order",
		  "{\"choices\":[{\"index\":0,\"finish_reason\":\"length\"},{\"index\":1,\"finish_reason\":\"stop\"}]}",
		  " choices=3 finished=3 finish=length any=1" },
		{ "by position", "{\"choices\":[{\"text\":\"\"},{\"text\":\"a\"}]}",
		  " choices=3 content=2 any=1" },
		{ "too many choices",
		  "{\"choices\":[{\"index\":63,\"text\":\"a\"},{\"index\":64,\"text\":\"a\"},{\"index\":99}]}",
		  " choices=8000000000000000 content=8000000000000000 over=2 any=1" },
		{ "indey is not index",
		  "{\"choices\":[{\"indey\":5,\"inde\":6,\"indexx\":7,\"text\":\"a\"}]}",
		  " choices=1 content=1 any=1" },
		{ "usage",
		  "{\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"total_tokens\":17,\"completion_tokens\":6,"
		  "\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{\"reasoning_tokens\":2}}}",
		  " pt=11 ct=6 tt=17 cached=4 rt=2 usage=1 any=1" },
		{ "usage delta",
		  CHUNK
		  "{\"content\":\"a\"}"
		  ",\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":1,"
		  "\"prompt_tokens_details\":null}}",
		  CHUNK_FACTS " content=1 pt=11 ct=1 usage=1 any=1" },
		{ "usage null", "{\"choices\":[],\"usage\":null}", " any=1" },
		{ "whole answer",
		  "{\"id\":\"c\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"" MARKER
		  "\","
		  "\"reasoning\":\"" MARKER
		  "\",\"tool_calls\":[]},\"finish_reason\":\"stop\",\"logprobs\":{\"content\":[{\"token\":\"" MARKER
		  "\","
		  "\"logprob\":-0.1,\"bytes\":[1,2]}]}}],\"usage\":{\"completion_tokens\":2}}",
		  " id=c choices=1 content=1 reasoning=1 finished=1 finish=stop ct=2 usage=1 any=1" },
		{ "text completion",
		  "{\"object\":\"text_completion\",\"choices\":[{\"index\":0,\"text\":\"" MARKER
		  "\",\"logprobs\":"
		  "{\"tokens\":[\"" MARKER
		  "\"],\"text_offset\":[0]},\"prompt_token_ids\":[7777,8888]}]}",
		  " object=text_completion choices=1 content=1 any=1" },
		{ "done", "[DONE]", " done=1 any=1" },
		{ "done, blanks", " [DONE]\n", " done=1 any=1" },
		{ "not done", "[DONE]]", " any=1" },
		{ "not done 2", "[DONE", " any=1" },
		{ "not done 3", "[DONExyz]", " any=1" },
		{ "not done 4", "[\"DONE\"]", " any=1" },
		{ "not done 5", "[DONE,DONE]", " any=1" },
		{ "not done 6", "[DON]", " any=1" },
		{ "not done 7", "[[DONE]]", " any=1" },
		{ "not done 8", "x[DONE]", " any=1" },
		{ "not done 9", "[DONE}", " any=1" },
		{ "not done 10", "[DONE]" MARKER, " any=1" },
		{ "empty", "", "" },
		{ "blank", " \r\n", "" },
		{ "ping", "{\"type\":\"ping\"}", " any=1" },
	};

	(void)state;
	table(RP_JSON_RESPONSE_BODY, t, COUNT_OF(t));
}

static void others(void **state)
{
	static const struct item t[] = {
		{ "llama.cpp",
		  "{\"index\":0,\"content\":\" " MARKER
		  "\",\"tokens\":[1234],\"stop\":false,\"id_slot\":-1,"
		  "\"tokens_predicted\":2,\"tokens_evaluated\":5}",
		  " choices=1 content=1 stop=0 pt=5 ct=2 tokens=1 any=1" },
		{ "llama.cpp, second prompt",
		  "{\"index\":1,\"content\":\"a\",\"tokens\":[],\"stop\":false}",
		  " choices=2 content=2 stop=0 tokens=0 any=1" },
		{ "llama.cpp, end",
		  "{\"index\":0,\"content\":\"\",\"tokens\":[],\"id_slot\":0,\"stop\":true,\"model\":\"m.gguf\","
		  "\"tokens_predicted\":16,\"tokens_evaluated\":5,\"generation_settings\":{\"seed\":1,\"stop\":[\"" MARKER
		  "\"]},"
		  "\"prompt\":\"<s>" MARKER
		  "\",\"has_new_line\":false,\"truncated\":false,\"stop_type\":\"limit\",\"stopping_word\":\"\","
		  "\"tokens_cached\":20,\"timings\":{\"cache_n\":1,\"prompt_n\":4,\"prompt_ms\":12.345,\"prompt_per_second\":324.1,"
		  "\"predicted_n\":16,\"predicted_ms\":251.00099999999998}}",
		  " model=m.gguf choices=1 finished=1 finish=length stop=1 pt=5 ct=16 timings=1 prompt_n=4 predicted_n=16"
		  " cache_n=1 prompt_ms=12.345000000000001 predicted_ms=251.00099999999998 tokens=0 any=1" },
		{ "stop types", "{\"stop\":true,\"stop_type\":\"eos\"}",
		  " choices=1 finished=1 finish=stop stop=1 any=1" },
		{ "stop type word", "{\"stop\":true,\"stop_type\":\"word\"}",
		  " choices=1 finished=1 finish=stop stop=1 any=1" },
		{ "stop type none", "{\"stop\":false,\"stop_type\":\"none\"}", " stop=0 any=1" },
		{ "old stop flags",
		  "{\"content\":\"\",\"stop\":true,\"stopped_eos\":false,\"stopped_limit\":true,\"stopped_word\":false}",
		  " choices=1 finished=1 finish=length stop=1 any=1" },
		{ "array of documents",
		  "[{\"index\":0,\"content\":\"a\",\"stop\":true},{\"index\":1,\"content\":\"b\",\"stop\":true}]",
		  " choices=3 content=3 stop=1 any=1" },
		{ "progress",
		  "{\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":null}],\"prompt_progress\":"
		  "{\"total\":9,\"cache\":0,\"processed\":4,\"time_ms\":1}}",
		  " choices=1 progress=1 any=1" },
		{ "timings in a chunk", CHUNK "{}" CHUNK_END "x", CHUNK_FACTS " any=1" },
		{ "ollama chat",
		  "{\"model\":\"l\",\"created_at\":\"2026\",\"message\":{\"role\":\"assistant\",\"content\":\"" MARKER
		  "\"},\"done\":false}",
		  " model=l choices=1 content=1 stop=0 any=1" },
		{ "ollama thinking",
		  "{\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"" MARKER
		  "\"},\"done\":false}",
		  " choices=1 reasoning=1 stop=0 any=1" },
		{ "ollama tool",
		  "{\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":\"" MARKER
		  "\"}}}]},\"done\":false}",
		  " choices=1 tool=1 stop=0 any=1" },
		{ "ollama end",
		  "{\"message\":{\"content\":\"\"},\"done_reason\":\"stop\",\"done\":true,\"prompt_eval_count\":26,"
		  "\"eval_count\":259,\"eval_duration\":4232710000}",
		  " choices=1 finished=1 finish=stop stop=1 pt=26 ct=259 any=1" },
		{ "ollama generate",
		  "{\"response\":\"" MARKER "\",\"done\":false,\"context\":[1,2,3]}",
		  " choices=1 content=1 stop=0 any=1" },
		{ "ollama generate, empty", "{\"response\":\"\",\"done\":true}",
		  " choices=1 stop=1 any=1" },
		{ "responses: delta",
		  "{\"content_index\":0,\"delta\":\"" MARKER
		  "\",\"item_id\":\"i\",\"logprobs\":[],\"output_index\":0,"
		  "\"sequence_number\":4,\"type\":\"response.output_text.delta\"}",
		  " choices=1 content=1 any=1" },
		{ "responses: empty delta",
		  "{\"type\":\"response.output_text.delta\",\"delta\":\"\"}", " any=1" },
		{ "responses: done is no delta",
		  "{\"type\":\"response.output_text.done\",\"text\":\"\"}", " choices=1 any=1" },
		{ "responses: reasoning",
		  "{\"type\":\"response.reasoning_text.delta\",\"delta\":\"" MARKER "\"}",
		  " choices=1 reasoning=1 any=1" },
		{ "responses: arguments",
		  "{\"type\":\"response.function_call_arguments.delta\",\"delta\":\"" MARKER "\"}",
		  " choices=1 tool=1 any=1" },
		{ "responses: tool name",
		  "{\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"name\":\"" MARKER
		  "\",\"arguments\":\"\"}}",
		  " choices=1 tool=1 any=1" },
		{ "responses: item done",
		  "{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"function_call\",\"name\":\"" MARKER
		  "\",\"arguments\":\"{}\"}}",
		  " any=1" },
		{ "responses: message added",
		  "{\"type\":\"response.output_item.added\",\"item\":{\"type\":\"message\",\"content\":[]}}",
		  " any=1" },
		{ "responses: created",
		  "{\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"status\":\"in_progress\",\"usage\":null,\"error\":null}}",
		  " model=m id=resp_1 any=1" },
		{ "responses: completed",
		  "{\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"status\":\"completed\",\"output\":[{\"content\":[{\"text\":\"" MARKER
		  "\"}]}],"
		  "\"usage\":{\"input_tokens\":3,\"input_tokens_details\":{\"cached_tokens\":1},\"output_tokens\":4,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":7}}}",
		  " id=resp_1 choices=1 finished=1 finish=stop pt=3 ct=4 tt=7 cached=1 rt=0 usage=1 in=3 any=1" },
		{ "responses: incomplete",
		  "{\"response\":{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"}},\"type\":\"response.incomplete\"}",
		  " choices=1 finished=1 finish=length any=1" },
		{ "responses: failed",
		  "{\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"" MARKER
		  "\"}}}",
		  " error=1 code=server_error any=1" },
		{ "responses: body",
		  "{\"id\":\"resp_2\",\"object\":\"response\",\"status\":\"completed\",\"output\":[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"" MARKER
		  "\"}]},"
		  "{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"" MARKER
		  "\"}]},{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}]}",
		  " id=resp_2 object=response choices=1 content=1 reasoning=1 tool=1 finished=1 finish=stop any=1" },
		{ "anthropic: start",
		  "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"output_tokens\":0}}}",
		  " model=m id=msg_1 choices=1 pt=5 ct=0 usage=1 in=5 any=1" },
		{ "anthropic: text",
		  "{\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"text_delta\",\"text\":\"" MARKER
		  "\"}}",
		  " choices=1 content=1 any=1" },
		{ "anthropic: tool",
		  "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"" MARKER
		  "\",\"input\":{}}}",
		  " choices=1 tool=1 any=1" },
		{ "anthropic: end",
		  "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}",
		  " choices=1 finished=1 finish=stop ct=9 usage=1 any=1" },
		{ "anthropic: error",
		  "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"" MARKER
		  "\"}}",
		  " error=1 type=overloaded_error any=1" },
		{ "sglang",
		  "{\"text\":\"" MARKER
		  "\",\"meta_info\":{\"id\":\"ab\",\"finish_reason\":{\"type\":\"length\",\"length\":4},\"prompt_tokens\":3,\"completion_tokens\":4,\"cached_tokens\":1}}",
		  " id=ab choices=1 content=1 finished=1 finish=length pt=3 ct=4 cached=1 any=1" },
		{ "sglang, going on",
		  "{\"text\":\"a\",\"output_ids\":[5,6],\"meta_info\":{\"id\":\"ab\",\"finish_reason\":null}}",
		  " id=ab choices=1 content=1 any=1" },
		{ "tgi",
		  "{\"index\":7,\"token\":{\"id\":330,\"text\":\"" MARKER
		  "\",\"logprob\":-1.5,\"special\":false},\"generated_text\":null,\"details\":{\"finish_reason\":\"eos_token\",\"generated_tokens\":7}}",
		  " choices=1 content=1 finished=1 finish=stop ct=7 any=1" },
	};

	(void)state;
	table(RP_JSON_RESPONSE_BODY, t, COUNT_OF(t));
}

static void errors(void **state)
{
	static const struct item t[] = {
		{ "object",
		  "{\"error\":{\"message\":\"" MARKER
		  "\",\"type\":\"BadRequestError\",\"param\":null,\"code\":400}}",
		  " error=1 type=BadRequestError code=400 any=1" },
		{ "code string",
		  "{\"error\":{\"type\":\"invalid_request_error\",\"code\":\"context_length_exceeded\"}}",
		  " error=1 type=invalid_request_error code=context_length_exceeded any=1" },
		{ "code null", "{\"error\":{\"type\":\"t\",\"code\":null}}",
		  " error=1 type=t any=1" },
		{ "string", "{\"error\":\"" MARKER "\"}", " error=1 any=1" },
		{ "empty string", "{\"error\":\"\"}", " any=1" },
		{ "null", "{\"error\":null,\"detail\":null}", " any=1" },
		{ "false", "{\"error\":false}", " any=1" },
		{ "true", "{\"error\":true}", " error=1 any=1" },
		{ "number", "{\"error\":7}", " error=1 any=1" },
		{ "flat (vLLM before 0.10)",
		  "{\"object\":\"error\",\"message\":\"" MARKER
		  "\",\"type\":\"NotFoundError\",\"param\":null,\"code\":404}",
		  " object=error error=1 type=NotFoundError code=404 any=1" },
		{ "detail string", "{\"detail\":\"" MARKER "\"}", " error=1 any=1" },
		{ "detail list",
		  "{\"detail\":[{\"type\":\"missing\",\"loc\":[\"body\"],\"msg\":\"" MARKER "\"}]}",
		  " error=1 any=1" },
		{ "event",
		  "{\"type\":\"error\",\"code\":\"server_error\",\"message\":\"" MARKER "\"}",
		  " error=1 code=server_error any=1" },
		{ "tgi", "{\"error\":\"" MARKER "\",\"error_type\":\"overloaded\"}",
		  " error=1 any=1" },
		{ "llama.cpp",
		  "{\"error\":{\"code\":503,\"message\":\"Loading " MARKER
		  "\",\"type\":\"unavailable_error\"}}",
		  " error=1 type=unavailable_error code=503 any=1" },
	};

	(void)state;
	table(RP_JSON_RESPONSE_BODY, t, COUNT_OF(t));
}

static void malformed(void **state)
{
	static const struct item t[] = {
		{ "html", "<html><body class=\"" MARKER "\">" MARKER " {\"a\"</body>", " any=1" },
		{ "text", "Internal Server Error " MARKER, " any=1" },
		{ "cut in a string", "{\"id\":\"abc", " any=1" },
		{ "cut in a content", "{\"choices\":[{\"index\":2,\"delta\":{\"content\":\"" MARKER,
		  " choices=4 content=4 any=1" },
		{ "cut in a number", "{\"usage\":{\"prompt_tokens\":12", " pt=12 usage=1 any=1" },
		{ "missing comma", "{\"id\":\"a\" \"model\":\"b\",\"object\":\"c\"}",
		  " id=a any=1" },
		{ "missing colon", "{\"id\" \"a\",\"model\":\"b\"}", " any=1" },
		{ "two values", "{\"id\":\"a\"\"" MARKER "\",\"model\":\"b\"}", " id=a any=1" },
		{ "wrong brackets", "{\"choices\":[{\"text\":\"a\"]},\"id\":\"b\"}",
		  " choices=1 content=1 any=1" },
		{ "trailing commas", "{\"choices\":[{\"text\":\"a\",},],\"id\":\"b\",}",
		  " id=b choices=1 content=1 any=1" },
		{ "too many closers", "}}]]{\"id\":\"a\"}}}", " any=1" },
		{ "junk key", "{id:\"a\",\"model\":\"b\"}", " any=1" },
		{ "no value", "{\"error\":,\"model\":\"b\"}", " any=1" },
		{ "no value 2", "{\"error\":}", " any=1" },
		{ "no value 3", "{\"error\"::1}", " any=1" },
		{ "an array that ends as an object", "[{\"id\":\"a\"},}", " id=a any=1" },
		{ "junk numbers",
		  "{\"usage\":{\"prompt_tokens\":12" MARKER
		  ",\"completion_tokens\":--5,\"total_tokens\":1.5}}",
		  " usage=1 any=1" },
		{ "numbers",
		  "{\"usage\":{\"prompt_tokens\":12.0,\"completion_tokens\":1e3,\"total_tokens\":9223372036854775807}}",
		  " pt=12 ct=1000 tt=9223372036854775807 usage=1 any=1" },
		{ "too large",
		  "{\"usage\":{\"prompt_tokens\":9223372036854775808,\"completion_tokens\":123456789012345678901234567890123456789,\"total_tokens\":-1}}",
		  " tt=-1 usage=1 any=1" },
		{ "nullish", "{\"error\":nullx,\"usage\":nul}", " error=1 any=1" },
		{ "duplicate keys",
		  "{\"id\":\"a\",\"id\":\"b\",\"usage\":{\"prompt_tokens\":1},\"usage\":{\"prompt_tokens\":2}}",
		  " id=b pt=2 usage=1 any=1" },
		{ "byte-order mark", "\xef\xbb\xbf \n{\"id\":\"a\"}", " id=a any=1" },
		{ "half a mark", "\xef\xbb{\"id\":\"" MARKER "\"}", " any=1" },
		{ "half a mark, a blank", "\xef {\"id\":\"" MARKER "\"}", " any=1" },
		{ "bad escapes", "{\"id\":\"a\\qb\\u12\\n\\u00zz\\u\"}", " id=a?b?\n?zz? any=1" },
		{ "escape at the end", "{\"id\":\"a\\", " any=1" },
		{ "wrong types",
		  "{\"id\":5,\"model\":{\"id\":\"x\"},\"choices\":{\"index\":1},\"usage\":[1],\"stop\":\"no\",\"tokens\":3}",
		  " any=1" },
		{ "gap in a string", "{\"id\":\"abc\1G9;def\",\"model\":\"m\"}",
		  " gapped=1 any=1" },
		{ "gap in a choice",
		  "{\"id\":\"a\",\"choices\":[{\"index\":1,\"delta\":{\"content\":\"b\1G5;c\"}}]}",
		  " id=a choices=2 content=2 gapped=1 any=1" },
		{ "gap in a number", "{\"usage\":{\"prompt_tokens\":12\1G1;3}}",
		  " usage=1 gapped=1 any=1" },
		{ "gap in the marker", "[DO\1G1;E]", " gapped=1 any=1" },
		{ "gap first", "\1G1;{\"id\":\"a\"}", " gapped=1" },
		{ "gap last", "[DONE]\1G1;", " gapped=1 any=1" },
	};
	static const char nul[] = "{\"id\":\"a\0b\",\"model\":\"c\"}";

	(void)state;
	table(RP_JSON_RESPONSE_BODY, t, COUNT_OF(t));
	check(RP_JSON_RESPONSE_BODY, "NUL", nul, sizeof(nul) - 1,
	      " model=c id=a\xef\xbf\xbd"
	      "b any=1");
}

/*
 * What servers write that do not keep to JSON: an answer in plain words, with quotes that
 * nobody escaped, a second document behind the first. Text may look like one.
 */
static void no_json(void **state)
{
#define DOC "{\"id\":\"" MARKER "\",\"model\":\"" MARKER "\",\"error\":{\"type\":\"" MARKER "\"}}"
	static const struct item t[] = {
		{ "words first", "The answer is " DOC, " any=1" },
		{ "blanks, words", "\r\n\t words " DOC, " any=1" },
		{ "a string first", "\"words\" " DOC, " any=1" },
		{ "a number first", "1 " DOC, " any=1" },
		{ "a literal first", "null" DOC, " any=1" },
		{ "punctuation first", ":" DOC, " any=1" },
		{ "a closer first", "]" DOC, " any=1" },
		{ "a tag first", "<think>" DOC "</think>" DOC, " any=1" },
		{ "two documents", "{\"id\":\"a\"}" DOC, " id=a any=1" },
		{ "two lines", "{\"id\":\"a\"}\r\n" DOC "\n" DOC, " id=a any=1" },
		{ "words behind", "{\"id\":\"a\"} is \"" MARKER "\": " DOC, " id=a any=1" },
		{ "a comma behind", "{\"id\":\"a\"}," DOC, " id=a any=1" },
		{ "a closer behind", "{\"id\":\"a\"}}" DOC, " id=a any=1" },
		{ "behind the marker", "[DONE] " DOC, " any=1" },
		{ "behind an array", "[{\"id\":\"a\"}]" DOC, " id=a any=1" },
		{ "brackets that are no array", "[INST] " DOC " [/INST]", " any=1" },
		{ "brackets with words", "[Note, " DOC "]", " any=1" },
		{ "brackets with words 2", "[Done: " DOC "]", " any=1" },
		{ "brackets with numbers", "[1, 2, " DOC "]", " any=1" },
		{ "braces with words", "{" MARKER ", \"id\":\"" MARKER "\"}", " any=1" },
		{ "braces of a template", "{" DOC "}", " any=1" },
		{ "quotes that end early",
		  "{\"id\":\"a\",\"answer\":\"He said \"yes\", \"id\": \"" MARKER
		  "\", \"model\":\"" MARKER "\"\"}",
		  " id=a any=1" },
		{ "a document in the middle", "{\"id\":\"a\" " DOC ",\"model\":\"" MARKER "\"}",
		  " id=a any=1" },
		{ "a bracket that does not match", "{\"id\":\"a\"],\"model\":\"" MARKER "\"}",
		  " id=a any=1" },
	};
#undef DOC

	(void)state;
	table(RP_JSON_RESPONSE_BODY, t, COUNT_OF(t));
	/* the same of requests */
	for (size_t i = 0; i < COUNT_OF(t); i++)
		check(RP_JSON_REQUEST_BODY, t[i].name, t[i].in, strlen(t[i].in), NULL);
}

#define EMOJI "\xf0\x9f\x98\x80"
#define NO_CHAR "\xef\xbf\xbd"

/* Escaped or not, a name is the same. */
static void unicode(void **state)
{
	static const struct item t[] = {
		{ "two, three, four bytes", "{\"model\":\"\\u00e9\\u4E2d\\uD83D\\ude00\"}",
		  " model=\xc3\xa9\xe4\xb8\xad" EMOJI " any=1" },
		{ "the ends",
		  "{\"model\":\"\\u007f\\u0080\\u07ff\\u0800\\ud7ff\\ue000\\uffff\\ud800\\udc00\\udbff\\udfff\"}",
		  " model=\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"
		  "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf any=1" },
		{ "NUL", "{\"model\":\"a\\u0000b\"}", " model=a" NO_CHAR "b any=1" },
		{ "a first half alone", "{\"model\":\"a\\ud83d\"}", " model=a" NO_CHAR " any=1" },
		{ "a first half and a letter", "{\"model\":\"\\ud83db\"}",
		  " model=" NO_CHAR "b any=1" },
		{ "a first half and an escape", "{\"model\":\"\\ud83d\\n\\ud83d\\\"\"}",
		  " model=" NO_CHAR "\n" NO_CHAR "\" any=1" },
		{ "two first halves", "{\"model\":\"\\ud83d\\ud83d\\ude00\"}",
		  " model=" NO_CHAR EMOJI " any=1" },
		{ "a first half and a character", "{\"model\":\"\\ud83d\\u00e9\"}",
		  " model=" NO_CHAR "\xc3\xa9 any=1" },
		{ "a second half", "{\"model\":\"\\ude00b\"}", " model=" NO_CHAR "b any=1" },
		{ "halves the wrong way round", "{\"model\":\"\\ude00\\ud83d\"}",
		  " model=" NO_CHAR NO_CHAR " any=1" },
		{ "a broken second half", "{\"model\":\"\\ud83d\\ude0!\"}",
		  " model=" NO_CHAR "?! any=1" },
		{ "each string by itself", "{\"id\":\"a\\ud83d\",\"model\":\"\\ude00\"}",
		  " model=" NO_CHAR " id=a" NO_CHAR " any=1" },
	};
	static const struct {
		const char *in, *out;
		unsigned len;
	} last[] = {
		{ "\\u00e9", "\xc3\xa9", 2 },
		{ "\\u4e2d", "\xe4\xb8\xad", 3 },
		{ "\\ud83d\\ude00", EMOJI, 4 },
		{ "\\ud83d", NO_CHAR, 3 },
		{ "\xc3\xa9", "\xc3\xa9", 2 },
		{ "\xe4\xb8\xad", "\xe4\xb8\xad", 3 },
		{ EMOJI, EMOJI, 4 },
	};
	struct log l = { 0 }, w = { 0 };

	(void)state;
	table(RP_JSON_RESPONSE_BODY, t, COUNT_OF(t));
	/* at the limit: the whole character or nothing of it, and nothing behind it */
	for (size_t i = 0; i < COUNT_OF(last); i++) {
		for (unsigned pad = 122; pad < 128; pad++) {
			bool fits = pad + last[i].len <= 127;

			l.n = w.n = 0;
			log_add(&l, "{\"model\":\"%0*d%sz\"}", (int)pad, 0, last[i].in);
			log_add(&w, " model=%0*d%s%s%s any=1", (int)pad, 0, fits ? last[i].out : "",
				pad + last[i].len < 127 ? "z" : "",
				pad + last[i].len < 127 ? "" : " model_cut=1");
			check(RP_JSON_REQUEST_BODY, "last character", l.s, l.n, w.s);
		}
	}
	free(l.s);
	free(w.s);
}

static void repeat(struct log *l, const char *s, size_t n)
{
	while (n--)
		log_bytes(l, s, strlen(s));
}

static void large(void **state)
{
	struct log l = { 0 }, w = { 0 };

	(void)state;
	/* deep: in a part that is skipped, and in the schema */
	log_add(&l, "{\"x\":");
	repeat(&l, "[{\"model\":", 300);
	repeat(&l, "}]", 300);
	log_add(&l, ",\"id\":\"a\"}");
	check(RP_JSON_RESPONSE_BODY, "deep", l.s, l.n, " id=a any=1");
	l.n = 0;
	repeat(&l, "[", 100);
	log_add(&l, "{\"id\":\"no\"}");
	repeat(&l, "]", 100);
	check(RP_JSON_RESPONSE_BODY, "deep arrays", l.s, l.n, " any=1");

	/* a huge string with quotes that do not end it */
	l.n = 0;
	log_add(&l, "{\"messages\":\"");
	repeat(&l, "\\\\\\\" " MARKER " }], ", 3000);
	log_add(&l, "\",\"model\":\"m\"}");
	check(RP_JSON_REQUEST_BODY, "huge string", l.s, l.n, " model=m any=1");
	l.n = 0;
	log_add(&l, "{\"messages\":\"");
	repeat(&l, "\\", 40000);
	log_add(&l, "\",\"model\":\"m\"}");
	check(RP_JSON_REQUEST_BODY, "backslashes", l.s, l.n, " model=m any=1");

	/* token ids are text: counted, not kept */
	l.n = 0;
	log_add(&l, "{\"prompt\":[");
	repeat(&l, "424242, ", 5000);
	log_add(&l, "1],\"n\":1}");
	check(RP_JSON_REQUEST_BODY, "token ids", l.s, l.n, " n=1 prompts=1 any=1");

	/* long values are cut, with an escape at the limit */
	for (int pad = 120; pad < 132; pad++) {
		l.n = w.n = 0;
		log_add(&l, "{\"id\":\"");
		repeat(&l, "i", pad);
		log_add(&l, "\\u0041\\\"\\n%s\",\"model\":\"m\"}", pad & 1 ? "" : MARKER);
		check(RP_JSON_RESPONSE_BODY, "cut", l.s, l.n, NULL);
	}
	l.n = w.n = 0;
	log_add(&l, "{\"model\":\"");
	repeat(&l, "m", 200);
	log_add(&l, MARKER "\"}");
	log_add(&w, " model=");
	repeat(&w, "m", 127);
	log_add(&w, " model_cut=1 any=1");
	check(RP_JSON_REQUEST_BODY, "cut model", l.s, l.n, w.s);
	free(l.s);
	free(w.s);
}

/* What requests ask for, and what responses count, beside tokens. */
static void bodies(void **state)
{
	static const struct item req[] = {
		{ "parts",
		  "{\"messages\":[{\"role\":\"system\",\"content\":\"" MARKER "\"},"
		  "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" MARKER
		  "\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:" MARKER
		  "\",\"type\":\"image_url\"}},{\"image_url\":1,\"type\":\"image_url\"},"
		  "{\"type\":\"input_audio\"},{\"type\":\"audio_url\"},{\"type\":\"video_url\"}]}],"
		  "\"max_completion_tokens\":7}",
		  " max=7 images=2 audios=2 videos=1 any=1" },
		{ "Responses",
		  "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"},"
		  "{\"type\":\"input_text\",\"text\":\"" MARKER "\"}]}]}",
		  " prompts=1 images=1 any=1" },
		{ "Messages",
		  "{\"messages\":[{\"content\":[{\"type\":\"image\",\"source\":{\"type\":\"image\"}}]}]}",
		  " images=1 any=1" },
		{ "no parts",
		  "{\"messages\":[{\"type\":\"image_url\",\"content\":\"image_url\"},[\"image_url\"],"
		  "{\"content\":[\"image_url\",{\"type\":[\"image_url\"]},{\"type\":\"image_urls\"},"
		  "{\"type\":\"imag\"},{\"type\":\"\"},{\"type\":null},{\"type\":\"image\\u005furl\"}]}]}",
		  " any=1" },
	};
	static const struct item rsp[] = {
		{ "details",
		  "{\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5,\"total_tokens\":14,"
		  "\"prompt_tokens_details\":{\"cached_tokens\":4,\"audio_tokens\":2},"
		  "\"completion_tokens_details\":{\"reasoning_tokens\":1,\"audio_tokens\":3,"
		  "\"accepted_prediction_tokens\":6,\"rejected_prediction_tokens\":7}}}",
		  " pt=9 ct=5 tt=14 cached=4 rt=1 usage=1 pa=2 ca=3 acc=6 rej=7 any=1" },
		{ "Anthropic",
		  "{\"usage\":{\"cache_read_input_tokens\":100,\"input_tokens\":10,\"output_tokens\":3,"
		  "\"cache_creation_input_tokens\":20}}",
		  " pt=130 ct=3 cached=100 usage=1 in=10 read=100 write=20 any=1" },
		{ "Responses",
		  "{\"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":8}}}",
		  " pt=10 cached=8 usage=1 in=10 any=1" },
		{ "DeepSeek",
		  "{\"usage\":{\"prompt_tokens\":10,\"prompt_cache_hit_tokens\":6,"
		  "\"prompt_cache_miss_tokens\":4}}",
		  " pt=10 cached=6 usage=1 miss=4 any=1" },
		{ "Gemini",
		  "{\"usage\":{\"promptTokenCount\":1,\"candidatesTokenCount\":2,\"totalTokenCount\":3,"
		  "\"cachedContentTokenCount\":4,\"thoughtsTokenCount\":5,\"toolUsePromptTokenCount\":6}}",
		  " pt=1 ct=2 tt=3 cached=4 rt=5 usage=1 tool_use=6 any=1" },
		{ "Bedrock",
		  "{\"usage\":{\"inputTokens\":1,\"outputTokens\":2,\"totalTokens\":3,"
		  "\"cacheReadInputTokens\":4,\"cacheWriteInputTokens\":5}}",
		  " pt=10 ct=2 tt=3 cached=4 usage=1 in=1 read=4 write=5 any=1" },
		{ "Mistral", "{\"usage\":{\"prompt_audio_seconds\":12.5}}",
		  " usage=1 audio_s=12.5 any=1" },
		{ "huge",
		  "{\"usage\":{\"input_tokens\":9223372036854775807,\"cache_read_input_tokens\":1}}",
		  " pt=9223372036854775807 cached=1 usage=1 in=9223372036854775807 read=1 any=1" },
		{ "not of the usage", "{\"cache_read_input_tokens\":1,\"prompt_audio_seconds\":2}",
		  " any=1" },
		{ "speculation",
		  "{\"metrics\":{\"queue_time_ms\":1,\"speculative_decoding\":{\"num_spec_steps\":10,"
		  "\"num_draft_tokens\":30,\"num_accepted_draft_tokens\":24,\"acceptance_histogram\":[1]}}}",
		  " spec_steps=10 spec_draft=30 spec_acc=24 any=1" },
		{ "llama.cpp's drafts", "{\"timings\":{\"draft_n\":30,\"draft_n_accepted\":24}}",
		  " spec_draft=30 spec_acc=24 timings=1 any=1" },
		{ "video", "{\"inference_time_s\":3.5,\"peak_memory_mb\":2048}",
		  " video_s=3.5 video_mb=2048 any=1" },
		{ "too long, vLLM",
		  "{\"error\":{\"message\":\"" MARKER " maximum context length is 4096 " MARKER
		  "\",\"type\":\"BadRequestError\",\"code\":400}}",
		  " error=1 type=BadRequestError code=400 too_long=1 any=1" },
		{ "too long, older vLLM",
		  "{\"object\":\"error\",\"message\":\"\\\"q\\\" CONTEXT LENGTH\"}",
		  " object=error error=1 too_long=1 any=1" },
		{ "too long, llama.cpp",
		  "{\"error\":{\"code\":400,\"message\":\"request (9 tokens) exceeds the available "
		  "context size (4 tokens)\",\"type\":\"exceed_context_size_error\"}}",
		  " error=1 type=exceed_context_size_error code=400 too_long=1 any=1" },
		{ "too long, a string", "{\"error\":\"prompt is too long: " MARKER "\"}",
		  " error=1 too_long=1 any=1" },
		{ "too long, detail", "{\"detail\":\"the context length\"}",
		  " error=1 too_long=1 any=1" },
		{ "not too long",
		  "{\"error\":{\"message\":\"context  length, maximum contex\",\"param\":\"context length\"}}",
		  " error=1 any=1" },
		{ "an answer about it",
		  "{\"choices\":[{\"message\":{\"content\":\"the context length is maximum context\"}}]}",
		  " choices=1 content=1 any=1" },
	};

	(void)state;
	table(RP_JSON_REQUEST_BODY, req, COUNT_OF(req));
	table(RP_JSON_RESPONSE_BODY, rsp, COUNT_OF(rsp));
}

/* Was the request's object read to its end? */
static void whole(void **state)
{
	static const struct {
		const char *text;
		bool whole;
	} t[] = { { "{\"n\":1}", true },
		  { "{\"n\":1} ", true },
		  { "{\"n\":{}", false },
		  { "{\"n\":1", false },
		  { "", false },
		  { "--boundary\r\n", false },
		  { "--boundary\r\n{\"n\":1}", false },
		  { "\xef\xbb\xbf{\"n\":1}", true },
		  { "{\"n\":1,x}", false } };

	(void)state;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		struct rp_json p;

		rp_json_init(&p, RP_JSON_REQUEST_BODY);
		rp_json_feed(&p, (const uint8_t *)t[i].text, NULL, strlen(t[i].text));
		rp_json_end(&p);
		assert_int_equal(p.f.whole, t[i].whole);
	}
}

/* What a scrubbed copy looks like, byte for byte. */
static void scrubbed(void **state)
{
	static const struct {
		enum rp_json_role role;
		const char *in, *out;
	} t[] = {
		{ RP_JSON_RESPONSE_BODY,
		  "{\"id\":\"c-1\",\"created\":17,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\\\"b\"},\"logprobs\":null}]}",
		  "{\"id\":\"c-1\",\"cxxxxxx\":xx,\"choices\":[{\"index\":0,\"delta\":{\"content\":\"xxxx\"},\"xxxxxxxx\":xxxx}]}" },
		{ RP_JSON_REQUEST_BODY,
		  "{\"messages\": [{\"role\":\"user\"}], \"prompt\":[1,22], \"stream\":true}",
		  "{\"messages\": [{\"xxxx\":\"xxxx\"}], \"prompt\":[x,xx], \"stream\":true}" },
		{ RP_JSON_REQUEST_BODY,
		  "{\"messages\":[{\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:\"}},"
		  "{\"type\":\"text\",\"text\":\"image\"},{\"type\":\"imagine\"}]}]}",
		  "{\"messages\":[{\"content\":[{\"type\":\"image_url\",\"xxxxxxxxx\":{\"xxx\":\"xxxxx\"}},"
		  "{\"type\":\"xxxx\",\"txxx\":\"xxxxx\"},{\"type\":\"imagxxx\"}]}]}" },
		{ RP_JSON_RESPONSE_BODY,
		  "{\"error\":{\"message\":\"This Model's Maximum Context Length is 64\",\"code\":400}}",
		  "{\"error\":{\"message\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxzxxxxxxxxxxxxx\",\"code\":400}}" },
		{ RP_JSON_RESPONSE_BODY, "{\"choices\":[{\"indey\":1}]}",
		  "{\"choices\":[{\"indez\":x}]}" },
		{ RP_JSON_RESPONSE_BODY, "[DONE]", "[DONE]" },
		{ RP_JSON_RESPONSE_BODY, "[1,2]", "[xxxx" },
		{ RP_JSON_RESPONSE_BODY, "\xef\xbb\xbf {\"n\":1}\r\n",
		  "\xef\xbb\xbf {\"x\":x}\r\n" },
		{ RP_JSON_RESPONSE_BODY, " no {\"id\":\"a\"}", " xxxxxxxxxxxxx" },
		{ RP_JSON_RESPONSE_BODY, "{\"id\":\"a\"}\n{\"id\":\"b\"}",
		  "{\"id\":\"a\"}\nxxxxxxxxxx" },
		{ RP_JSON_RESPONSE_BODY, "{\"id\":\"a\",\"error\":,\"model\":\"b\"}",
		  "{\"id\":\"a\",\"error\":,xxxxxxxxxxxx" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(t); i++) {
		size_t n = strlen(t[i].in);
		char *keep = calloc(1, n + 1);
		struct rp_json p;

		memset(keep, 'x', n);
		rp_json_init(&p, t[i].role);
		rp_json_feed(&p, (const uint8_t *)t[i].in, (uint8_t *)keep, n);
		assert_string_equal(keep, t[i].out);
		free(keep);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests), cmocka_unit_test(chat),	 cmocka_unit_test(others),
		cmocka_unit_test(errors),   cmocka_unit_test(malformed), cmocka_unit_test(large),
		cmocka_unit_test(bodies),   cmocka_unit_test(whole),	 cmocka_unit_test(scrubbed),
		cmocka_unit_test(no_json),  cmocka_unit_test(unicode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
