/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * json.c - a streaming scanner led by a schema. The schema is a tree of nodes
 * (objects by key, arrays by element); whatever it does not name is skipped by
 * counting brackets, and nothing of it is kept.
 *
 * Every decision depends on structural characters, quotes, known keys and kept
 * values alone. These survive scrubbing, so the scrubbed copy says the same.
 */
#include "protocol/json.h"

#include <math.h>
#include <string.h>

enum mode {
	M_START, /* before the document */
	M_PLAIN, /* structure, inside the schema */
	M_SKIP,	 /* structure, outside: only brackets and quotes matter */
	M_KEY,
	M_FIRST, /* first byte of a string whose emptiness matters */
	M_TEXT,	 /* string whose content does not matter */
	M_COPY,	 /* string copied to tok */
	M_WORD,	 /* string that is one of a few words, or none of interest */
	M_BARE,	 /* number or literal */
	M_END,	 /* after the document */
	M_DEAD,	 /* after a gap, or after what is no JSON */
};

enum st { S_VALUE, S_KEY, S_COLON, S_AFTER };

enum { ESC_NONE, ESC_CHAR, ESC_HEX };

enum { SCOPE_DOC, SCOPE_CHOICE, SCOPE_ITEM };

/* [DONE] */
enum { DM_NONE, DM_OPEN, DM_WORD, DM_DONE, DM_NO };

enum bits {
	B_CONTENT = 1,
	B_REASONING = 2,
	B_TOOL = 4,
	B_FINISHED = 8,
	B_PRESENT = 16,
	/* not of a choice */
	B_ERROR = 32,
	B_DELTA = 64,
	B_NAME = 128,
	B_STOPPED = 256,
	B_GUIDED = 512,
	B_SCAN = 1024, /* searched for what says that the prompt is too long */
};

enum node {
	N_SKIP,
	N_ROOT_REQ,
	N_ROOT_RSP,
	N_REQ,
	N_RSP,
	N_STREAM_OPTIONS,
	N_PARAMS,
	N_FORMAT,
	N_REQ_TOOLS,
	N_PROMPT,
	N_INPUT,
	N_MESSAGES,
	N_REQ_MESSAGE,
	N_REQ_PARTS,
	N_REQ_PART,
	N_CHOICES,
	N_CHOICE,
	N_DELTA,
	N_PARTS,
	N_PART,
	N_THINK_PARTS,
	N_THINK_PART,
	N_TOOLS,
	N_TOOL,
	N_FUNCTION,
	N_USAGE,
	N_PROMPT_DETAILS,
	N_COMPLETION_DETAILS,
	N_TIMINGS,
	N_PROGRESS,
	N_ERROR,
	N_TOKENS,
	N_MESSAGE,
	N_DOC_DELTA,
	N_RESPONSE,
	N_INCOMPLETE,
	N_OUTPUT,
	N_ITEM,
	N_TGI_TOKEN,
	N_TGI_DETAILS,
	N_META,
	N_META_FINISH,
	N_METRICS,
	N_SPECULATION,
	N_COUNT
};

enum act {
	A_NONE,
	/* strings */
	A_MODEL,
	A_ID,
	A_ID_INNER,
	A_OBJECT,
	A_TYPE,
	A_CODE,
	A_ITEM_TYPE,
	A_STATUS,
	A_PART_TYPE,
	A_FINISH,
	A_STOP_TYPE,
	A_STOP_REASON,
	A_ERROR_TYPE,
	A_ERROR_CODE,
	A_INCOMPLETE,
	A_TIER,
	A_FORMAT,
	/* emptiness */
	A_CONTENT,
	A_REASONING,
	A_TOOL,
	A_TOOL_ARGS,
	A_NATIVE,
	A_DELTA,
	A_ITEM_NAME,
	A_ERROR,
	A_DETAIL,
	A_GUIDED,
	A_ERROR_TEXT,
	/* booleans */
	A_STREAM,
	A_INCLUDE_USAGE,
	A_STOP,
	A_STOPPED_WORD,
	A_STOPPED_LIMIT,
	/* counts */
	A_N,
	A_MAX_TOKENS,
	A_CHOICE_INDEX,
	A_INDEX,
	A_PROMPT_TOKENS,
	A_COMPLETION_TOKENS,
	A_TOTAL_TOKENS,
	A_CACHED,
	A_REASONING_TOKENS,
	A_INPUT_TOKENS,
	A_CACHE_READ,
	A_CACHE_WRITE,
	A_CACHE_MISS,
	A_PROMPT_AUDIO,
	A_COMPLETION_AUDIO,
	A_ACCEPTED,
	A_REJECTED,
	A_TOOL_USE,
	A_AUDIO_SECONDS,
	A_SPEC_STEPS,
	A_SPEC_DRAFT,
	A_SPEC_ACCEPTED,
	A_VIDEO_TIME,
	A_VIDEO_MEMORY,
	A_T_PROMPT_N,
	A_T_PREDICTED_N,
	A_T_CACHE_N,
	A_T_PROMPT_MS,
	A_T_PREDICTED_MS,
	/* containers */
	A_PROMPT,
	A_MESSAGE,
	A_USAGE,
	A_TIMINGS,
	A_PROGRESS,
	A_COUNT
};

enum kind { K_NONE, K_STR, K_SOME, K_BOOL, K_NUM, K_DBL, K_WORD };

#define OFF(m) offsetof(struct rp_json, m)
#define STR(m)                                                         \
	{                                                              \
		K_STR, sizeof(((struct rp_json *)0)->m) - 1, OFF(m), 0 \
	}
#define NUM(m)                      \
	{                           \
		K_NUM, 0, OFF(m), 0 \
	}
#define DBL(m)                      \
	{                           \
		K_DBL, 0, OFF(m), 0 \
	}
#define SOME(b)                 \
	{                       \
		K_SOME, 0, 0, b \
	}

static const struct act_info {
	uint8_t kind;
	uint8_t max;   /* length of a string */
	uint16_t off;  /* where the value goes in struct rp_json */
	uint16_t bits; /* set by a non-empty string */
} acts[A_COUNT] = {
	[A_MODEL] = STR(f.model),
	[A_ID] = STR(f.id),
	[A_ID_INNER] = STR(f.id),
	[A_OBJECT] = STR(f.object),
	[A_TYPE] = STR(type),
	[A_CODE] = STR(code),
	[A_ITEM_TYPE] = STR(itype),
	[A_STATUS] = STR(status),
	[A_FINISH] = STR(rfin),
	[A_STOP_TYPE] = STR(rfin),
	[A_STOP_REASON] = STR(rfin),
	[A_INCOMPLETE] = STR(rfin),
	[A_TIER] = STR(f.service_tier),
	[A_FORMAT] = STR(fmt),
	[A_ERROR_TYPE] = STR(f.error_type),
	[A_ERROR_CODE] = STR(f.error_code),
	[A_CONTENT] = SOME(B_CONTENT),
	[A_REASONING] = SOME(B_REASONING),
	[A_TOOL] = SOME(B_TOOL),
	[A_TOOL_ARGS] = SOME(B_TOOL),
	[A_NATIVE] = SOME(B_CONTENT),
	[A_DELTA] = SOME(B_DELTA),
	[A_ITEM_NAME] = SOME(B_NAME),
	[A_GUIDED] = SOME(B_GUIDED),
	[A_ERROR] = SOME(B_ERROR | B_SCAN),
	[A_DETAIL] = SOME(B_ERROR | B_SCAN),
	[A_ERROR_TEXT] = { K_NONE, 0, 0, B_SCAN },
	[A_MESSAGE] = { K_NONE, 0, 0, B_SCAN }, /* of an error, when it is a string */
	[A_PART_TYPE] = { K_WORD, 0, 0, 0 },
	[A_STREAM] = { K_BOOL, 0, OFF(f.stream), 0 },
	[A_INCLUDE_USAGE] = { K_BOOL, 0, OFF(f.include_usage), 0 },
	[A_STOP] = { K_BOOL, 0, OFF(f.stop), 0 },
	[A_STOPPED_WORD] = { K_BOOL, 0, 0, 0 },
	[A_STOPPED_LIMIT] = { K_BOOL, 0, 0, 0 },
	[A_N] = NUM(f.n),
	[A_MAX_TOKENS] = NUM(f.max_tokens),
	[A_CHOICE_INDEX] = NUM(cindex),
	[A_INDEX] = NUM(rindex),
	[A_PROMPT_TOKENS] = NUM(f.prompt_tokens),
	[A_COMPLETION_TOKENS] = NUM(f.completion_tokens),
	[A_TOTAL_TOKENS] = NUM(f.total_tokens),
	[A_CACHED] = NUM(f.cached_tokens),
	[A_REASONING_TOKENS] = NUM(f.reasoning_tokens),
	[A_INPUT_TOKENS] = NUM(f.input_tokens),
	[A_CACHE_READ] = NUM(f.cache_read_tokens),
	[A_CACHE_WRITE] = NUM(f.cache_write_tokens),
	[A_CACHE_MISS] = NUM(f.cache_miss_tokens),
	[A_PROMPT_AUDIO] = NUM(f.prompt_audio_tokens),
	[A_COMPLETION_AUDIO] = NUM(f.completion_audio_tokens),
	[A_ACCEPTED] = NUM(f.accepted_tokens),
	[A_REJECTED] = NUM(f.rejected_tokens),
	[A_TOOL_USE] = NUM(f.tool_use_tokens),
	[A_AUDIO_SECONDS] = DBL(f.prompt_audio_seconds),
	[A_SPEC_STEPS] = NUM(f.spec_steps),
	[A_SPEC_DRAFT] = NUM(f.spec_draft_tokens),
	[A_SPEC_ACCEPTED] = NUM(f.spec_accepted_tokens),
	[A_VIDEO_TIME] = DBL(f.video_inference_s),
	[A_VIDEO_MEMORY] = DBL(f.video_peak_memory_mb),
	[A_T_PROMPT_N] = NUM(f.t_prompt_n),
	[A_T_PREDICTED_N] = NUM(f.t_predicted_n),
	[A_T_CACHE_N] = NUM(f.t_cache_n),
	[A_T_PROMPT_MS] = DBL(f.t_prompt_ms),
	[A_T_PREDICTED_MS] = DBL(f.t_predicted_ms),
};

struct entry {
	const char *key;
	uint8_t len;
	uint8_t act; /* what a value means */
	uint8_t obj; /* node of an object there */
	uint8_t arr; /* node of an array there */
};

#define E(k, a, o, r)                     \
	{                                 \
		k, sizeof(k) - 1, a, o, r \
	}

static const struct entry e_req[] = {
	E("model", A_MODEL, 0, 0),
	E("stream", A_STREAM, 0, 0),
	E("n", A_N, 0, 0),
	E("n_cmpl", A_N, 0, 0),
	E("max_tokens", A_MAX_TOKENS, 0, 0),
	E("max_completion_tokens", A_MAX_TOKENS, 0, 0),
	E("max_output_tokens", A_MAX_TOKENS, 0, 0),
	E("n_predict", A_MAX_TOKENS, 0, 0),
	E("stream_options", A_NONE, N_STREAM_OPTIONS, 0),
	E("options", A_NONE, N_PARAMS, 0),
	E("parameters", A_NONE, N_PARAMS, 0),
	E("sampling_params", A_NONE, N_PARAMS, 0),
	E("prompt", A_PROMPT, 0, N_PROMPT),
	E("input", A_PROMPT, 0, N_INPUT),
	E("text", A_PROMPT, 0, N_PROMPT),
	E("input_ids", A_PROMPT, 0, N_PROMPT),
	E("messages", A_NONE, 0, N_MESSAGES),
	E("request_id", A_ID, 0, 0),
	E("rid", A_ID, 0, 0),
	E("service_tier", A_TIER, 0, 0),
	E("tools", A_NONE, 0, N_REQ_TOOLS),
	E("functions", A_NONE, 0, N_REQ_TOOLS),
	/* what binds the answer's form: OpenAI, vLLM (new and old), llama.cpp */
	E("response_format", A_NONE, N_FORMAT, 0),
	E("structured_outputs", A_GUIDED, 0, 0),
	E("guided_json", A_GUIDED, 0, 0),
	E("guided_regex", A_GUIDED, 0, 0),
	E("guided_choice", A_GUIDED, 0, 0),
	E("guided_grammar", A_GUIDED, 0, 0),
	E("grammar", A_GUIDED, 0, 0),
	E("json_schema", A_GUIDED, 0, 0),
};

static const struct entry e_format[] = {
	E("type", A_FORMAT, 0, 0),
};

static const struct entry e_req_message[] = {
	E("content", A_NONE, 0, N_REQ_PARTS),
};

static const struct entry e_req_part[] = {
	E("type", A_PART_TYPE, 0, 0),
};

static const struct entry e_stream_options[] = {
	E("include_usage", A_INCLUDE_USAGE, 0, 0),
};

static const struct entry e_params[] = {
	E("n", A_N, 0, 0),
	E("num_predict", A_MAX_TOKENS, 0, 0),
	E("max_new_tokens", A_MAX_TOKENS, 0, 0),
};

static const struct entry e_rsp[] = {
	E("id", A_ID, 0, 0),
	E("object", A_OBJECT, 0, 0),
	E("model", A_MODEL, 0, 0),
	E("choices", A_NONE, 0, N_CHOICES),
	E("usage", A_USAGE, N_USAGE, 0),
	E("timings", A_TIMINGS, N_TIMINGS, 0),
	E("prompt_progress", A_PROGRESS, N_PROGRESS, 0),
	E("error", A_ERROR, N_ERROR, 0),
	E("detail", A_DETAIL, 0, 0),
	E("type", A_TYPE, 0, 0),
	E("code", A_CODE, 0, 0),
	/* llama.cpp */
	E("content", A_NATIVE, 0, N_PARTS),
	E("index", A_INDEX, 0, 0),
	E("tokens", A_NONE, 0, N_TOKENS),
	E("stop", A_STOP, 0, 0),
	E("stop_type", A_STOP_TYPE, 0, 0),
	E("stopped_eos", A_STOPPED_WORD, 0, 0),
	E("stopped_word", A_STOPPED_WORD, 0, 0),
	E("stopped_limit", A_STOPPED_LIMIT, 0, 0),
	E("tokens_evaluated", A_PROMPT_TOKENS, 0, 0),
	E("tokens_predicted", A_COMPLETION_TOKENS, 0, 0),
	/* Ollama */
	E("message", A_MESSAGE, N_MESSAGE, 0),
	E("response", A_NATIVE, N_RESPONSE, 0),
	E("thinking", A_REASONING, 0, 0),
	E("done", A_STOP, 0, 0),
	E("done_reason", A_FINISH, 0, 0),
	E("prompt_eval_count", A_PROMPT_TOKENS, 0, 0),
	E("eval_count", A_COMPLETION_TOKENS, 0, 0),
	/* Responses API, Anthropic's Messages */
	E("delta", A_DELTA, N_DOC_DELTA, 0),
	E("content_block", A_NONE, N_PART, 0),
	E("stop_reason", A_STOP_REASON, 0, 0),
	E("output", A_NONE, 0, N_OUTPUT),
	E("item", A_NONE, N_ITEM, 0),
	E("status", A_STATUS, 0, 0),
	E("incomplete_details", A_NONE, N_INCOMPLETE, 0),
	/* SGLang and TGI */
	E("text", A_NATIVE, 0, 0),
	E("meta_info", A_NONE, N_META, 0),
	E("token", A_NONE, N_TGI_TOKEN, 0),
	E("generated_text", A_CONTENT, 0, 0),
	E("details", A_NONE, N_TGI_DETAILS, 0),
	/* vLLM's figures of speculative decoding; SGLang's of a video */
	E("metrics", A_NONE, N_METRICS, 0),
	E("inference_time_s", A_VIDEO_TIME, 0, 0),
	E("peak_memory_mb", A_VIDEO_MEMORY, 0, 0),
};

static const struct entry e_metrics[] = {
	E("speculative_decoding", A_NONE, N_SPECULATION, 0),
};

static const struct entry e_speculation[] = {
	E("num_spec_steps", A_SPEC_STEPS, 0, 0),
	E("num_draft_tokens", A_SPEC_DRAFT, 0, 0),
	E("num_accepted_draft_tokens", A_SPEC_ACCEPTED, 0, 0),
};

static const struct entry e_choice[] = {
	E("index", A_CHOICE_INDEX, 0, 0),   E("delta", A_NONE, N_DELTA, 0),
	E("message", A_NONE, N_DELTA, 0),   E("text", A_CONTENT, 0, 0),
	E("finish_reason", A_FINISH, 0, 0),
};

#define DELTA_KEYS                                                                           \
	E("content", A_CONTENT, 0, N_PARTS), E("reasoning", A_REASONING, 0, 0),              \
		E("reasoning_content", A_REASONING, 0, 0), E("thinking", A_REASONING, 0, 0), \
		E("tool_calls", A_NONE, 0, N_TOOLS), E("function_call", A_NONE, N_FUNCTION, 0)

static const struct entry e_delta[] = { DELTA_KEYS };

static const struct entry e_message[] = {
	DELTA_KEYS,
	E("id", A_ID_INNER, 0, 0),
	E("model", A_MODEL, 0, 0),
	E("usage", A_USAGE, N_USAGE, 0),
	E("stop_reason", A_STOP_REASON, 0, 0),
};

static const struct entry e_part[] = {
	E("text", A_CONTENT, 0, 0),
	E("thinking", A_REASONING, 0, N_THINK_PARTS),
	E("name", A_TOOL, 0, 0),
};

static const struct entry e_think_part[] = {
	E("text", A_REASONING, 0, 0),
};

static const struct entry e_tool[] = {
	E("function", A_NONE, N_FUNCTION, 0),
};

static const struct entry e_function[] = {
	E("name", A_TOOL, 0, 0),
	E("arguments", A_TOOL_ARGS, 0, 0),
};

static const struct entry e_usage[] = {
	E("prompt_tokens", A_PROMPT_TOKENS, 0, 0),
	E("completion_tokens", A_COMPLETION_TOKENS, 0, 0),
	E("total_tokens", A_TOTAL_TOKENS, 0, 0),
	E("input_tokens", A_INPUT_TOKENS, 0, 0),
	E("output_tokens", A_COMPLETION_TOKENS, 0, 0),
	E("cached_tokens", A_CACHED, 0, 0),
	E("cache_read_input_tokens", A_CACHE_READ, 0, 0),
	E("cache_creation_input_tokens", A_CACHE_WRITE, 0, 0),
	E("prompt_cache_hit_tokens", A_CACHED, 0, 0),
	E("prompt_cache_miss_tokens", A_CACHE_MISS, 0, 0),
	E("prompt_audio_seconds", A_AUDIO_SECONDS, 0, 0),
	/* the names that gateways to Gemini and Bedrock pass on */
	E("promptTokenCount", A_PROMPT_TOKENS, 0, 0),
	E("candidatesTokenCount", A_COMPLETION_TOKENS, 0, 0),
	E("totalTokenCount", A_TOTAL_TOKENS, 0, 0),
	E("cachedContentTokenCount", A_CACHED, 0, 0),
	E("thoughtsTokenCount", A_REASONING_TOKENS, 0, 0),
	E("toolUsePromptTokenCount", A_TOOL_USE, 0, 0),
	E("inputTokens", A_INPUT_TOKENS, 0, 0),
	E("outputTokens", A_COMPLETION_TOKENS, 0, 0),
	E("totalTokens", A_TOTAL_TOKENS, 0, 0),
	E("cacheReadInputTokens", A_CACHE_READ, 0, 0),
	E("cacheWriteInputTokens", A_CACHE_WRITE, 0, 0),
	E("prompt_tokens_details", A_NONE, N_PROMPT_DETAILS, 0),
	E("input_tokens_details", A_NONE, N_PROMPT_DETAILS, 0),
	E("completion_tokens_details", A_NONE, N_COMPLETION_DETAILS, 0),
	E("output_tokens_details", A_NONE, N_COMPLETION_DETAILS, 0),
};

static const struct entry e_prompt_details[] = {
	E("cached_tokens", A_CACHED, 0, 0),
	E("audio_tokens", A_PROMPT_AUDIO, 0, 0),
};

static const struct entry e_completion_details[] = {
	E("reasoning_tokens", A_REASONING_TOKENS, 0, 0),
	E("audio_tokens", A_COMPLETION_AUDIO, 0, 0),
	E("accepted_prediction_tokens", A_ACCEPTED, 0, 0),
	E("rejected_prediction_tokens", A_REJECTED, 0, 0),
};

static const struct entry e_timings[] = {
	E("prompt_n", A_T_PROMPT_N, 0, 0),
	E("predicted_n", A_T_PREDICTED_N, 0, 0),
	E("cache_n", A_T_CACHE_N, 0, 0),
	E("prompt_ms", A_T_PROMPT_MS, 0, 0),
	E("predicted_ms", A_T_PREDICTED_MS, 0, 0),
	E("draft_n", A_SPEC_DRAFT, 0, 0),
	E("draft_n_accepted", A_SPEC_ACCEPTED, 0, 0),
};

static const struct entry e_error[] = {
	E("type", A_ERROR_TYPE, 0, 0),
	E("code", A_ERROR_CODE, 0, 0),
	E("message", A_ERROR_TEXT, 0, 0),
};

static const struct entry e_doc_delta[] = {
	E("text", A_CONTENT, 0, 0),
	E("thinking", A_REASONING, 0, 0),
	E("partial_json", A_TOOL, 0, 0),
	E("stop_reason", A_STOP_REASON, 0, 0),
};

static const struct entry e_response[] = {
	E("id", A_ID_INNER, 0, 0),	 E("model", A_MODEL, 0, 0),
	E("usage", A_USAGE, N_USAGE, 0), E("error", A_ERROR, N_ERROR, 0),
	E("status", A_STATUS, 0, 0),	 E("incomplete_details", A_NONE, N_INCOMPLETE, 0),
};

static const struct entry e_incomplete[] = {
	E("reason", A_INCOMPLETE, 0, 0),
};

static const struct entry e_item[] = {
	E("type", A_ITEM_TYPE, 0, 0),	     E("name", A_ITEM_NAME, 0, 0),
	E("arguments", A_ITEM_NAME, 0, 0),   E("content", A_CONTENT, 0, N_PARTS),
	E("summary", A_CONTENT, 0, N_PARTS),
};

static const struct entry e_tgi_token[] = {
	E("text", A_CONTENT, 0, 0),
};

static const struct entry e_tgi_details[] = {
	E("finish_reason", A_STOP_REASON, 0, 0),
	E("generated_tokens", A_COMPLETION_TOKENS, 0, 0),
};

static const struct entry e_meta[] = {
	E("id", A_ID_INNER, 0, 0),
	E("prompt_tokens", A_PROMPT_TOKENS, 0, 0),
	E("completion_tokens", A_COMPLETION_TOKENS, 0, 0),
	E("cached_tokens", A_CACHED, 0, 0),
	E("finish_reason", A_FINISH, N_META_FINISH, 0),
};

static const struct entry e_meta_finish[] = {
	E("type", A_FINISH, 0, 0),
};

#define OBJ(e)                                 \
	{                                      \
		e, sizeof(e) / sizeof((e)[0]), \
		{                              \
			0                      \
		}                              \
	}
#define ARR(a, o, r)                     \
	{                                \
		NULL, 0,                 \
		{                        \
			NULL, 0, a, o, r \
		}                        \
	}

static const struct {
	const struct entry *keys;
	uint8_t n;
	struct entry elem;
} nodes[N_COUNT] = {
	/* a document may be an array of documents (llama.cpp, several prompts) */
	[N_ROOT_REQ] = ARR(A_NONE, N_REQ, N_ROOT_REQ),
	[N_ROOT_RSP] = ARR(A_NONE, N_RSP, N_ROOT_RSP),
	[N_REQ] = OBJ(e_req),
	[N_RSP] = OBJ(e_rsp),
	[N_STREAM_OPTIONS] = OBJ(e_stream_options),
	[N_PARAMS] = OBJ(e_params),
	[N_FORMAT] = OBJ(e_format),
	[N_REQ_TOOLS] = ARR(A_NONE, 0, 0),
	[N_PROMPT] = ARR(A_NONE, 0, 0),
	[N_INPUT] = ARR(A_NONE, N_REQ_MESSAGE, 0),
	[N_MESSAGES] = ARR(A_NONE, N_REQ_MESSAGE, 0),
	[N_REQ_MESSAGE] = OBJ(e_req_message),
	[N_REQ_PARTS] = ARR(A_NONE, N_REQ_PART, 0),
	[N_REQ_PART] = OBJ(e_req_part),
	[N_CHOICES] = ARR(A_NONE, N_CHOICE, 0),
	[N_CHOICE] = OBJ(e_choice),
	[N_DELTA] = OBJ(e_delta),
	[N_PARTS] = ARR(A_NONE, N_PART, 0),
	[N_PART] = OBJ(e_part),
	[N_THINK_PARTS] = ARR(A_NONE, N_THINK_PART, 0),
	[N_THINK_PART] = OBJ(e_think_part),
	[N_TOOLS] = ARR(A_NONE, N_TOOL, 0),
	[N_TOOL] = OBJ(e_tool),
	[N_FUNCTION] = OBJ(e_function),
	[N_USAGE] = OBJ(e_usage),
	[N_PROMPT_DETAILS] = OBJ(e_prompt_details),
	[N_COMPLETION_DETAILS] = OBJ(e_completion_details),
	[N_TIMINGS] = OBJ(e_timings),
	[N_PROGRESS] = { NULL, 0, { 0 } },
	[N_ERROR] = OBJ(e_error),
	[N_TOKENS] = ARR(A_NONE, 0, 0),
	[N_MESSAGE] = OBJ(e_message),
	[N_DOC_DELTA] = OBJ(e_doc_delta),
	[N_RESPONSE] = OBJ(e_response),
	[N_INCOMPLETE] = OBJ(e_incomplete),
	[N_OUTPUT] = ARR(A_NONE, N_ITEM, 0),
	[N_ITEM] = OBJ(e_item),
	[N_TGI_TOKEN] = OBJ(e_tgi_token),
	[N_TGI_DETAILS] = OBJ(e_tgi_details),
	[N_META] = OBJ(e_meta),
	[N_META_FINISH] = OBJ(e_meta_finish),
	[N_METRICS] = OBJ(e_metrics),
	[N_SPECULATION] = OBJ(e_speculation),
};

#define SLOTS 128
static uint8_t slots[N_COUNT][SLOTS]; /* index + 1 into a node's keys, hashed */

static unsigned int key_hash(const uint8_t *k, size_t len)
{
	return (len * 29 + k[0] * 7 + k[len / 2] * 3 + k[len - 1]) % SLOTS;
}

/* Filled once before main(): constant afterwards. */
__attribute__((constructor)) static void slots_fill(void)
{
	for (int n = 0; n < N_COUNT; n++)
		for (unsigned int k = 0; k < nodes[n].n; k++) {
			const struct entry *e = &nodes[n].keys[k];
			unsigned int h = key_hash((const uint8_t *)e->key, e->len);

			while (slots[n][h])
				h = (h + 1) % SLOTS;
			slots[n][h] = k + 1;
		}
}

static const struct entry *key_find(uint8_t node, const uint8_t *k, size_t len)
{
	unsigned int h;

	if (!len)
		return NULL;
	for (h = key_hash(k, len); slots[node][h]; h = (h + 1) % SLOTS) {
		const struct entry *e = &nodes[node].keys[slots[node][h] - 1];

		if (e->len == len && !memcmp(e->key, k, len))
			return e;
	}
	return NULL;
}

/* Is k the beginning of a key of this node? */
static bool key_prefix(uint8_t node, const char *k, size_t len)
{
	for (unsigned int i = 0; i < nodes[node].n; i++) {
		const struct entry *e = &nodes[node].keys[i];

		if (e->len >= len && e->key[0] == k[0] && !memcmp(e->key, k, len))
			return true;
	}
	return false;
}

enum cls { C_OTHER, C_BLANK, C_QUOTE, C_OBJ, C_ARR, C_CLOSE, C_COLON, C_COMMA };

static const uint8_t cls[256] = {
	[' '] = C_BLANK, ['\t'] = C_BLANK, ['\r'] = C_BLANK, ['\n'] = C_BLANK,
	['"'] = C_QUOTE, ['{'] = C_OBJ,	   ['['] = C_ARR,    ['}'] = C_CLOSE,
	[']'] = C_CLOSE, [':'] = C_COLON,  [','] = C_COMMA,
};

/* ---- meaning ---- */

static void bits_set(struct rp_json *p, uint16_t bits)
{
	if (bits & B_ERROR)
		p->f.error = true;
	if (p->scope == SCOPE_CHOICE)
		p->cbits |= bits;
	else if (p->scope == SCOPE_ITEM)
		p->ibits |= bits;
	else
		p->rbits |= bits;
}

static void finish_set(struct rp_json *p, const char *why)
{
	char *to = p->scope == SCOPE_CHOICE ? p->cfin : p->rfin;

	if (why != to)
		strcpy(to, why);
	bits_set(p, B_FINISHED);
}

/* One choice's bits become facts. */
static void bits_commit(struct rp_json *p, uint16_t bits, int64_t index, const char *fin)
{
	struct rp_json_facts *f = &p->f;
	uint64_t m;

	if (index >= RP_JSON_CHOICES) {
		if (f->choices_over < UINT32_MAX)
			f->choices_over++;
		return;
	}
	m = 1ull << index;
	f->choices |= m;
	if (bits & B_CONTENT)
		f->content |= m;
	if (bits & B_REASONING)
		f->reasoning |= m;
	if (bits & B_TOOL)
		f->tool |= m;
	if (bits & B_FINISHED) {
		f->finished |= m;
		if (index <= p->fin_index) {
			p->fin_index = index;
			strcpy(f->finish_reason, fin);
		}
	}
}

static void choice_commit(struct rp_json *p, uint32_t position)
{
	bits_commit(p, p->cbits, p->cindex >= 0 ? p->cindex : position, p->cfin);
	p->scope = SCOPE_DOC;
}

/* An element of a Responses API output, or the item an event is about. */
static void item_commit(struct rp_json *p, bool whole)
{
	uint16_t b = p->ibits;

	p->scope = SCOPE_DOC;
	if (!whole) {
		/* its text came, or comes, as deltas; a name comes only here */
		if ((b & B_NAME) && strstr(p->itype, "call"))
			p->rbits |= B_NAME;
		return;
	}
	p->rbits |= B_PRESENT;
	if (!strcmp(p->itype, "reasoning")) {
		if (b & (B_CONTENT | B_REASONING))
			p->rbits |= B_REASONING;
	} else if (strstr(p->itype, "call")) {
		if (b & B_NAME)
			p->rbits |= B_TOOL;
	} else {
		p->rbits |= b & B_CONTENT;
	}
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static const char *finish_word(const char *s)
{
	static const char *const words[][2] = {
		{ "eos", "stop" },
		{ "word", "stop" },
		{ "limit", "length" },
		{ "end_turn", "stop" },
		{ "stop_sequence", "stop" },
		{ "max_tokens", "length" },
		{ "max_output_tokens", "length" },
		{ "tool_use", "tool_calls" },
		{ "eos_token", "stop" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(s, words[i][0]))
			return words[i][1];
	return s;
}

/* What can be said only when the whole document was seen, in whatever order. */
static void doc_commit(struct rp_json *p)
{
	struct rp_json_facts *f = &p->f;
	const char *type = p->type;
	uint16_t b = p->rbits;
	int64_t index = 0;

	f->guided |= (b & B_GUIDED) || (p->fmt[0] && strcmp(p->fmt, "text"));
	if (!strncmp(type, "response.", 9)) {
		if ((b & B_DELTA) && ends_with(type, ".delta")) {
			if (strstr(type, "reasoning"))
				b |= B_REASONING;
			else if (strstr(type, "output_text"))
				b |= B_CONTENT;
			else if (strstr(type, "call"))
				b |= B_TOOL;
		}
		if ((b & B_NAME) && !strcmp(type, "response.output_item.added"))
			b |= B_TOOL;
		if (!strcmp(type, "response.failed"))
			f->error = true;
	}
	if (p->status[0] && (!strncmp(type, "response.", 9) || !strcmp(f->object, "response"))) {
		if (!strcmp(p->status, "completed")) {
			strcpy(p->rfin, "stop");
			b |= B_FINISHED;
		} else if (!strcmp(p->status, "incomplete")) {
			b |= B_FINISHED;
		} else if (!strcmp(p->status, "failed")) {
			f->error = true;
		}
	}
	if (!strcmp(type, "error") || !strcmp(f->object, "error"))
		f->error = true;
	if (f->error) {
		if (!f->error_type[0] && strcmp(type, "error") && strncmp(type, "response.", 9))
			strcpy(f->error_type, type);
		if (!f->error_code[0])
			strcpy(f->error_code, p->code);
	}
	/* `index` counts prompts only where llama.cpp's own format has it */
	if ((b & B_STOPPED) && p->rindex >= 0)
		index = p->rindex;
	b &= B_CONTENT | B_REASONING | B_TOOL | B_FINISHED | B_PRESENT;
	if (b)
		bits_commit(p, b, index, p->rfin);
}

static void doc_begin(struct rp_json *p)
{
	p->scope = SCOPE_DOC;
	p->rbits = 0;
	p->rindex = RP_ABSENT;
	p->type[0] = p->code[0] = p->status[0] = p->rfin[0] = p->itype[0] = 0;
	p->fmt[0] = 0;
}

/* A string for tok is complete. */
static void string_done(struct rp_json *p)
{
	const struct act_info *a = &acts[p->act];
	char *to = (char *)p + a->off;
	const char *w;

	p->tok[p->tlen] = 0;
	switch (p->act) {
	case A_ID_INNER:
		if (p->f.id[0])
			return;
		/* fall through */
	case A_ID:
		p->f.id_cut = p->cut;
		break;
	case A_MODEL:
		p->f.model_cut = p->cut;
		break;
	case A_FINISH:
	case A_STOP_TYPE:
	case A_STOP_REASON:
		/* "" and llama.cpp's "none": not finished */
		if (!p->tlen || (p->act == A_STOP_TYPE && !strcmp(p->tok, "none")))
			return;
		w = p->act == A_FINISH && p->scope == SCOPE_CHOICE ? p->tok : finish_word(p->tok);
		finish_set(p, w);
		return;
	case A_INCOMPLETE:
		strcpy(p->rfin, finish_word(p->tok));
		return;
	}
	memcpy(to, p->tok, p->tlen + 1u);
}

/*
 * A number in tok. Not strtod(): that one follows the locale. 19 digits and a
 * long double are enough to give back what a shortest-digits printer wrote.
 */
static bool number_parse(const char *s, size_t n, bool *integer, int64_t *iv, double *dv)
{
	static const long double ten[] = { 1e1L,  1e2L,	 1e4L,	 1e8L,	1e16L,
					   1e32L, 1e64L, 1e128L, 1e256L };
	uint64_t m = 0;
	int exp10 = 0, e = 0;
	bool neg = false, eneg = false, digits = false, inexact = false;
	long double v;
	size_t i = 0;

	*integer = true;
	if (i < n && s[i] == '-') {
		neg = true;
		i++;
	}
	for (; i < n && s[i] >= '0' && s[i] <= '9'; i++) {
		digits = true;
		if (m < 1000000000000000000u) {
			m = m * 10 + (s[i] - '0');
		} else {
			inexact = true;
			exp10++;
		}
	}
	if (!digits)
		return false;
	if (i < n && s[i] == '.') {
		*integer = false;
		for (i++; i < n && s[i] >= '0' && s[i] <= '9'; i++)
			if (m < 1000000000000000000u) {
				m = m * 10 + (s[i] - '0');
				exp10--;
			}
	}
	if (i < n && (s[i] == 'e' || s[i] == 'E')) {
		*integer = false;
		i++;
		if (i < n && (s[i] == '+' || s[i] == '-'))
			eneg = s[i++] == '-';
		if (i == n)
			return false;
		for (; i < n && s[i] >= '0' && s[i] <= '9'; i++)
			if (e < 1000)
				e = e * 10 + (s[i] - '0');
		exp10 += eneg ? -e : e;
	}
	if (i != n)
		return false;
	v = m;
	e = exp10 < 0 ? -exp10 : exp10;
	if (e > 400) {
		v = exp10 < 0 || !m ? 0 : INFINITY;
	} else {
		for (unsigned int k = 0; e >> k; k++)
			if (e >> k & 1)
				v = exp10 < 0 ? v / ten[k] : v * ten[k];
	}
	*dv = (double)(neg ? -v : v);
	if (!*integer && fabsl(v) < 9e18L && v == (long double)(uint64_t)v) {
		/* 12.0 and 1e3 are counts too */
		*integer = true;
		m = (uint64_t)v;
	} else if (inexact || m > INT64_MAX) {
		*integer = false;
	}
	*iv = neg ? -(int64_t)m : (int64_t)m;
	return true;
}

static bool tok_is(const struct rp_json *p, const char *s)
{
	return strlen(s) == p->tlen && !memcmp(p->tok, s, p->tlen);
}

/* Bytes of a bare scalar that are looked at. */
#define BARE_MAX 31

static void bare_done(struct rp_json *p)
{
	const struct act_info *a = &acts[p->act];
	bool is_true, is_false, is_null, integer;
	int64_t iv;
	double dv;

	if (p->dm == DM_OPEN && p->depth == 1)
		p->dm = !p->dev && tok_is(p, "DONE") ? DM_WORD : DM_NO;
	if (p->act == A_NONE || p->dev) {
		if (a->bits & B_ERROR) /* a number, or junk: not null */
			p->f.error = true;
		return;
	}
	is_true = tok_is(p, "true");
	is_false = tok_is(p, "false");
	is_null = tok_is(p, "null");
	switch (a->kind) {
	case K_BOOL:
		if (p->act == A_STOP)
			p->rbits |= B_STOPPED;
		if (!is_true && !is_false)
			return;
		if (p->act == A_STOPPED_WORD || p->act == A_STOPPED_LIMIT) {
			if (is_true)
				finish_set(p, p->act == A_STOPPED_WORD ? "stop" : "length");
			return;
		}
		*(int8_t *)((char *)p + a->off) = is_true;
		return;
	case K_NUM:
		if (number_parse(p->tok, p->tlen, &integer, &iv, &dv) && integer)
			*(int64_t *)((char *)p + a->off) = iv;
		return;
	case K_DBL:
		if (number_parse(p->tok, p->tlen, &integer, &iv, &dv))
			*(double *)((char *)p + a->off) = dv;
		return;
	case K_SOME:
		if ((a->bits & B_ERROR) && !is_null && !is_false)
			p->f.error = true;
		return;
	case K_STR:
		if ((p->act == A_ERROR_CODE || p->act == A_CODE) &&
		    number_parse(p->tok, p->tlen, &integer, &iv, &dv)) {
			memcpy((char *)p + a->off, p->tok, p->tlen);
			((char *)p)[a->off + p->tlen] = 0;
		}
		return;
	}
}

/*
 * Anthropic and Bedrock count the tokens of a cache beside input_tokens, not among
 * them; where they stand in the same object, the prompt is the sum. With OpenAI's
 * Responses, which has the same name, cached ones are in a details object.
 */
static void usage_commit(struct rp_json *p)
{
	struct rp_json_facts *f = &p->f;
	bool read = f->cache_read_tokens >= 0, write = f->cache_write_tokens >= 0;

	if (read && f->cached_tokens == RP_ABSENT)
		f->cached_tokens = f->cache_read_tokens;
	if (f->input_tokens == RP_ABSENT)
		return;
	f->prompt_tokens = f->input_tokens;
	if (f->input_tokens < 0 || f->input_tokens > INT32_MAX)
		return;
	if (read && f->cache_read_tokens <= INT32_MAX)
		f->prompt_tokens += f->cache_read_tokens;
	if (write && f->cache_write_tokens <= INT32_MAX)
		f->prompt_tokens += f->cache_write_tokens;
}

static void level_close(struct rp_json *p)
{
	uint8_t node = p->lv[p->depth].node;
	uint32_t count = p->lv[p->depth].count;

	switch (node) {
	case N_REQ:
	case N_RSP:
		doc_commit(p);
		break;
	case N_CHOICE:
		choice_commit(p, p->lv[p->depth - 1].count - 1);
		break;
	case N_ITEM:
		item_commit(p, p->lv[p->depth - 1].node == N_OUTPUT);
		break;
	case N_TOKENS:
		p->f.native_tokens = count;
		break;
	case N_REQ_TOOLS:
		p->f.tools |= count > 0;
		break;
	case N_USAGE:
		usage_commit(p);
		break;
	case N_PROMPT:
	case N_INPUT:
		/* numbers: one prompt of token ids (text may be mixed in) */
		p->f.prompts = (p->lv[p->depth].seen & 1) ||
					       (node == N_INPUT && (p->lv[p->depth].seen & 2)) ?
				       1 :
				       count;
		break;
	}
}

/* ---- structure ---- */

static void value_over(struct rp_json *p)
{
	p->st = S_AFTER;
	p->mode = p->depth ? M_PLAIN : M_END;
}

static void unwind(struct rp_json *p);

/*
 * This is no JSON: words that a server wrote without quotes, or with quotes that end
 * early. What looks like JSON behind it may be part of them.
 */
static void die(struct rp_json *p)
{
	p->dm = DM_NO;
	unwind(p);
}

/* Of the document, or of an array that it may be: nothing but documents. */
static bool at_root(const struct rp_json *p)
{
	const uint8_t node = p->lv[p->depth].node;

	return node == N_ROOT_REQ || node == N_ROOT_RSP;
}

/* May a byte of this class stand here? */
static bool fits(const struct rp_json *p, uint8_t c)
{
	const bool arr = p->lv[p->depth].arr;

	switch (cls[c]) {
	case C_COLON:
		return p->st == S_COLON;
	case C_COMMA:
		return p->st == S_AFTER;
	case C_CLOSE: /* trailing commas are let pass */
		return p->depth && (c == ']') == arr &&
		       (p->st == S_AFTER || p->st == (arr ? S_VALUE : S_KEY));
	case C_QUOTE:
		return p->st == S_VALUE || p->st == S_KEY;
	case C_OTHER: /* [DONE] */
		return p->st == S_VALUE && (!at_root(p) || p->dm == DM_OPEN);
	default:
		return p->st == S_VALUE;
	}
}

/* A value begins: choose what is to be done with it. */
static void value_begin(struct rp_json *p, enum cls c)
{
	if (p->lv[p->depth].arr) {
		const struct entry *e = &nodes[p->lv[p->depth].node].elem;

		p->act = e->act;
		p->obj = e->obj;
		p->arr = e->arr;
		if (p->lv[p->depth].count < UINT32_MAX)
			p->lv[p->depth].count++;
		p->lv[p->depth].seen |= c == C_OTHER ? 1 : c == C_OBJ ? 2 : 0;
	}
	if (p->act == A_PROMPT && (c == C_QUOTE || c == C_OBJ))
		p->f.prompts = 1;
	if (p->act == A_NATIVE && c == C_QUOTE)
		p->rbits |= B_PRESENT;
}

static void container_open(struct rp_json *p, enum cls c)
{
	uint8_t node;

	value_begin(p, c);
	if (p->act) {
		if (acts[p->act].bits & B_ERROR)
			p->f.error = true;
		if (p->act == A_GUIDED)
			bits_set(p, B_GUIDED);
		if (c == C_OBJ) {
			switch (p->act) {
			case A_TOOL_ARGS:
				bits_set(p, B_TOOL);
				break;
			case A_MESSAGE:
				p->rbits |= B_PRESENT;
				break;
			case A_USAGE:
				p->f.has_usage = true;
				break;
			case A_TIMINGS:
				p->f.has_timings = true;
				break;
			case A_PROGRESS:
				p->f.prompt_progress = true;
				break;
			}
		}
	}
	node = c == C_OBJ ? p->obj : p->arr;
	if (!node || p->depth == RP_JSON_DEPTH) {
		p->mode = M_SKIP;
		p->skip = 1;
		return;
	}
	p->depth++;
	p->lv[p->depth].node = node;
	p->lv[p->depth].arr = c == C_ARR;
	p->lv[p->depth].count = 0;
	p->lv[p->depth].seen = 0;
	p->act = p->obj = p->arr = 0;
	p->st = c == C_ARR ? S_VALUE : S_KEY;
	switch (node) {
	case N_REQ:
	case N_RSP:
		doc_begin(p);
		break;
	case N_CHOICE:
		p->scope = SCOPE_CHOICE;
		p->cbits = 0;
		p->cindex = RP_ABSENT;
		p->cfin[0] = 0;
		break;
	case N_ITEM:
		p->scope = SCOPE_ITEM;
		p->ibits = 0;
		p->itype[0] = 0;
		break;
	}
}

static void container_close(struct rp_json *p)
{
	if (p->lv[p->depth].node == N_REQ)
		p->f.whole = true;
	level_close(p);
	p->depth--;
	value_over(p);
}

static void key_done(struct rp_json *p, const uint8_t *k, size_t len)
{
	const struct entry *e = key_find(p->lv[p->depth].node, k, len);

	p->act = e ? e->act : 0;
	p->obj = e ? e->obj : 0;
	p->arr = e ? e->arr : 0;
	p->st = S_COLON;
	p->mode = M_PLAIN;
}

/*
 * One decoded byte of a key that is a beginning of a known one so far. Says
 * whether it still is. If not, and a filler here would look as if it were,
 * another filler is put in its place.
 */
static bool key_byte(struct rp_json *p, uint8_t c, uint8_t *keep)
{
	uint8_t node = p->lv[p->depth].node;

	p->tok[p->tlen] = c;
	if (key_prefix(node, p->tok, p->tlen + 1u)) {
		p->tlen++;
		return true;
	}
	p->dev = true;
	if (keep) {
		p->tok[p->tlen] = 'x';
		if (key_prefix(node, p->tok, p->tlen + 1u))
			*keep = 'z';
	}
	return false;
}

static int hexval(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static uint8_t unescape(uint8_t c)
{
	switch (c) {
	case '"':
	case '\\':
	case '/':
		return c;
	case 'b':
		return '\b';
	case 'f':
		return '\f';
	case 'n':
		return '\n';
	case 'r':
		return '\r';
	case 't':
		return '\t';
	default:
		return '?';
	}
}

/*
 * A key that does not lie whole and plain in one input. An escape is followed
 * only as far as it can still spell a letter of a key, since its bytes are
 * kept as they come.
 */
static size_t key_slow(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	for (; i < n; i++) {
		uint8_t c = in[i];
		uint8_t *k = keep ? keep + i : NULL;
		int h;

		if (p->dev) {
			/* only the end matters */
			if (p->esc) {
				p->esc = ESC_NONE;
			} else if (c == '\\') {
				p->esc = ESC_CHAR;
			} else if (c == '"') {
				if (k)
					*k = c;
				key_done(p, NULL, 0);
				return i + 1;
			}
			continue;
		}
		if (p->esc == ESC_CHAR) {
			p->esc = ESC_NONE;
			if (c != 'u') {
				p->dev = true;
				continue;
			}
			p->esc = ESC_HEX;
			p->hex = p->hexn = 0;
		} else if (p->esc == ESC_HEX && c != '"') {
			h = hexval(c);
			if (h < 0 || (p->hexn < 2 && h) || (p->hexn == 2 && (h < 5 || h > 7))) {
				p->esc = c == '\\' ? ESC_CHAR : ESC_NONE;
				p->dev = true;
				continue;
			}
			p->hex = p->hex << 4 | h;
			if (++p->hexn == 4) {
				p->esc = ESC_NONE;
				/* a filler is no hex digit: none needed in its place */
				if (!key_byte(p, p->hex, NULL))
					continue;
			}
		} else if (c == '"') {
			if (k)
				*k = c;
			/* an escape that was cut short spells nothing */
			key_done(p, (uint8_t *)p->tok, p->esc ? 0 : p->tlen);
			p->esc = ESC_NONE;
			return i + 1;
		} else if (c == '\\') {
			p->esc = ESC_CHAR;
		} else if (!key_byte(p, c, k)) {
			continue;
		}
		if (k)
			*k = c;
	}
	return i;
}

#define KEY_FAST 40

static size_t key_begin(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	size_t e = i, end = n - i < KEY_FAST ? n : i + KEY_FAST;

	while (e < end && in[e] != '"' && in[e] != '\\')
		e++;
	if (e < end && in[e] == '"') {
		key_done(p, in + i, e - i);
		if (!keep)
			return e + 1;
		if (p->act || p->obj || p->arr) {
			memcpy(keep + i, in + i, e - i + 1);
			return e + 1;
		}
	}
	p->mode = M_KEY;
	p->dev = false;
	p->esc = ESC_NONE;
	p->tlen = 0;
	return key_slow(p, in, keep, i, n);
}

/*
 * What errors say when a prompt is too long: AIPerf 0.13.0's list, and llama-server's
 * words, which that lacks. The last one is what a scrubbed copy has in their place.
 */
static const char *const too_long[] = {
	"context length",
	"maximum context",
	"context_length_exceeded",
	"prompt is too long",
	"exceeds the available context size",
	"xxxxxxxxxxxxxz",
};

/*
 * The bytes of a string pass by, in whatever pieces. Found: said by a byte that is
 * no text, at the end of it, so that a scrubbed copy says the same.
 */
static void scan(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	for (; i < n; i++) {
		uint8_t c = in[i] >= 'A' && in[i] <= 'Z' ? in[i] | 0x20 : in[i];

		if (p->wlen == sizeof(p->win)) {
			memmove(p->win, p->win + sizeof(p->win) / 2, sizeof(p->win) / 2);
			p->wlen = sizeof(p->win) / 2;
		}
		p->win[p->wlen++] = (char)c;
		for (size_t k = 0; k < sizeof(too_long) / sizeof(too_long[0]); k++) {
			size_t l = strlen(too_long[k]);

			if (p->wlen < l || (uint8_t)too_long[k][l - 1] != c ||
			    memcmp(p->win + p->wlen - l, too_long[k], l) != 0)
				continue;
			p->f.too_long = true;
			if (keep)
				keep[i] = 'z';
			p->scan = false;
			return;
		}
	}
}

/*
 * Find the end of a string that does not matter: the first quote with an even
 * number of backslashes before it. Returns n, or the index after the quote.
 */
static size_t text(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	const size_t from = i;

	while (i < n) {
		const uint8_t *q = memchr(in + i, '"', n - i);
		size_t e = q ? (size_t)(q - in) : n, b = e;
		unsigned int odd;

		while (b > i && in[b - 1] == '\\')
			b--;
		odd = (e - b) & 1;
		if (b == i)
			odd ^= p->esc;
		if (!q) {
			p->esc = odd;
			if (p->scan)
				scan(p, in, keep, from, n);
			return n;
		}
		p->esc = ESC_NONE;
		i = e + 1;
		if (odd)
			continue;
		if (p->scan)
			scan(p, in, keep, from, e);
		p->scan = false;
		if (keep)
			keep[e] = '"';
		if (p->skip)
			p->mode = M_SKIP;
		else
			value_over(p);
		return i;
	}
	if (p->scan)
		scan(p, in, keep, from, n);
	return i;
}

static const struct {
	const char *word;
	uint8_t what; /* index into f.media */
} parts[] = {
	{ "image_url", RP_JSON_IMAGE },	  { "input_image", RP_JSON_IMAGE },
	{ "image", RP_JSON_IMAGE },	  { "input_audio", RP_JSON_AUDIO },
	{ "audio_url", RP_JSON_AUDIO },	  { "video_url", RP_JSON_VIDEO },
	{ "input_video", RP_JSON_VIDEO },
};

/* A string of which only these words matter: kept as far as it is the beginning of one. */
static size_t word(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	for (; i < n; i++) {
		uint8_t c = in[i];
		bool begins = false;

		for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
			size_t l = strlen(parts[k].word);

			if (l < p->tlen || memcmp(parts[k].word, p->tok, p->tlen) != 0)
				continue;
			if (c == '"' && l == p->tlen && p->f.media[parts[k].what] < UINT32_MAX)
				p->f.media[parts[k].what]++;
			begins |= l > p->tlen && (uint8_t)parts[k].word[p->tlen] == c;
		}
		if (c == '"') {
			if (keep)
				keep[i] = c;
			value_over(p);
			return i + 1;
		}
		if (!begins) {
			p->mode = M_TEXT;
			return text(p, in, keep, i, n);
		}
		p->tok[p->tlen++] = (char)c;
		if (keep)
			keep[i] = c;
	}
	return i;
}

static void copy_put(struct rp_json *p, const char *s, unsigned int n)
{
	/* nothing behind what had no room, be it shorter */
	if (p->cut || p->tlen + n > acts[p->act].max) {
		p->cut = true;
		return;
	}
	memcpy(p->tok + p->tlen, s, n);
	p->tlen += n;
}

/* A character in UTF-8. What is none, and NUL, which would end the name, is U+FFFD. */
static void copy_char(struct rp_json *p, uint32_t c)
{
	static const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
	unsigned int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	char u[4];

	if (!c || (c >= 0xd800 && c < 0xe000)) {
		copy_put(p, "\xef\xbf\xbd", 3);
		return;
	}
	for (unsigned int i = n - 1; i; i--, c >>= 6)
		u[i] = (char)(0x80 | (c & 0x3f));
	u[0] = (char)(lead[n] | c);
	copy_put(p, u, n);
}

/* Half of a pair of \u escapes, whose other half did not come. */
static void copy_half(struct rp_json *p)
{
	if (p->high)
		copy_char(p, p->high);
	p->high = 0;
}

static void copy_unit(struct rp_json *p, uint16_t u)
{
	if (p->high && u >= 0xdc00 && u < 0xe000) {
		copy_char(p, 0x10000 + ((p->high & 0x3ffu) << 10) + (u & 0x3ffu));
		p->high = 0;
		return;
	}
	copy_half(p);
	if (u >= 0xd800 && u < 0xdc00)
		p->high = u;
	else
		copy_char(p, u);
}

/* Where a string was cut, half a character may be left of one that was not escaped. */
static void copy_trim(struct rp_json *p)
{
	unsigned int back = 1;
	uint8_t c;

	while (back < 4 && back < p->tlen && ((uint8_t)p->tok[p->tlen - back] & 0xc0) == 0x80)
		back++;
	if (back > p->tlen)
		return;
	c = (uint8_t)p->tok[p->tlen - back];
	if (back < (c >= 0xf0 ? 4u : c >= 0xe0 ? 3u : c >= 0xc0 ? 2u : 1u))
		p->tlen -= back;
}

static size_t copy(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	const unsigned int max = acts[p->act].max;

	for (; i < n; i++) {
		uint8_t c = in[i];
		/* an escape is kept whole or not at all: tlen moves at its end */
		bool k = keep && p->tlen < max && !p->cut;

		if (p->esc == ESC_CHAR) {
			p->esc = ESC_NONE;
			if (c == 'u') {
				p->esc = ESC_HEX;
				p->hex = p->hexn = 0;
			} else {
				copy_half(p);
				copy_char(p, unescape(c));
			}
			if (k)
				keep[i] = c;
			continue;
		}
		if (p->esc == ESC_HEX) {
			int h = hexval(c);

			if (h >= 0) {
				p->hex = p->hex << 4 | h;
				if (++p->hexn == 4) {
					p->esc = ESC_NONE;
					copy_unit(p, p->hex);
				}
				if (k)
					keep[i] = c;
				continue;
			}
			/* malformed: the byte is looked at again as itself */
			p->esc = ESC_NONE;
			copy_half(p);
			copy_char(p, '?');
			k = keep && p->tlen < max && !p->cut;
		}
		if (c == '"') {
			if (keep)
				keep[i] = c;
			copy_half(p);
			if (p->cut)
				copy_trim(p);
			string_done(p);
			value_over(p);
			return i + 1;
		}
		if (c == '\\') {
			p->esc = ESC_CHAR;
		} else {
			copy_half(p);
			k = k && p->tlen < max && !p->cut;
			if (c)
				copy_put(p, (const char *)in + i, 1);
			else
				copy_char(p, c);
		}
		if (k)
			keep[i] = c;
	}
	return i;
}

/* The quote before in[i] opens a value. */
static size_t string_begin(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	uint8_t kind;

	value_begin(p, C_QUOTE);
	kind = acts[p->act].kind;
	p->esc = ESC_NONE;
	p->scan = acts[p->act].bits & B_SCAN && !p->f.too_long;
	p->wlen = 0;
	switch (kind) {
	case K_STR:
		p->mode = M_COPY;
		p->tlen = 0;
		p->high = 0;
		p->cut = false;
		return copy(p, in, keep, i, n);
	case K_SOME:
		p->mode = M_FIRST;
		return i;
	case K_WORD:
		p->mode = M_WORD;
		p->tlen = 0;
		return word(p, in, keep, i, n);
	default:
		p->mode = M_TEXT;
		return text(p, in, keep, i, n);
	}
}

static bool is_prefix(const char *s, size_t n, const char *of)
{
	return n <= strlen(of) && !memcmp(s, of, n);
}

/* May this bare scalar, as long as it is now, be kept? */
static bool bare_known(const struct rp_json *p)
{
	const uint8_t kind = acts[p->act].kind;

	if (p->act == A_NONE)
		return p->dm == DM_OPEN && p->depth == 1 && is_prefix(p->tok, p->tlen, "DONE");
	if (is_prefix(p->tok, p->tlen, "null") || is_prefix(p->tok, p->tlen, "true") ||
	    is_prefix(p->tok, p->tlen, "false"))
		return true;
	if (kind != K_NUM && kind != K_DBL && p->act != A_ERROR_CODE && p->act != A_CODE)
		return false;
	if (p->tok[0] != '-' && (p->tok[0] < '0' || p->tok[0] > '9'))
		return false;
	switch (p->tok[p->tlen - 1]) {
	case '0' ... '9':
	case '+':
	case '-':
	case '.':
	case 'e':
	case 'E':
		return true;
	}
	return false;
}

static size_t bare(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	for (; i < n && cls[in[i]] == C_OTHER; i++) {
		if (p->dev)
			continue;
		p->tok[p->tlen++] = in[i];
		if (p->tlen > BARE_MAX || !bare_known(p))
			p->dev = true;
		else if (keep)
			keep[i] = in[i];
	}
	if (i < n) {
		bare_done(p);
		value_over(p);
		if (at_root(p) && p->dm != DM_WORD)
			die(p);
	}
	return i;
}

static size_t bare_begin(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	value_begin(p, C_OTHER);
	p->mode = M_BARE;
	p->tlen = 0;
	p->dev = p->act == A_NONE && p->dm != DM_OPEN;
	return bare(p, in, keep, i, n);
}

static size_t skip(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	while (i < n) {
		uint8_t c = in[i], k = cls[c];

		if (k == C_OTHER) {
			i++;
			continue;
		}
		if (keep)
			keep[i] = c;
		i++;
		switch (k) {
		case C_QUOTE:
			p->mode = M_TEXT;
			p->esc = ESC_NONE;
			i = text(p, in, keep, i, n);
			if (p->mode == M_TEXT)
				return i;
			break;
		case C_OBJ:
		case C_ARR:
			if (p->skip < UINT32_MAX)
				p->skip++;
			break;
		case C_CLOSE:
			if (!--p->skip) {
				value_over(p);
				return i;
			}
			break;
		}
	}
	return i;
}

/* Progress through "[DONE]": `c` is a structural byte, or the start of a scalar. */
static void done_step(struct rp_json *p, uint8_t c)
{
	if (p->dm == DM_NONE)
		p->dm = c == '[' ? DM_OPEN : DM_NO;
	else if (p->dm == DM_OPEN)
		p->dm = cls[c] == C_OTHER ? DM_OPEN : DM_NO;
	else
		p->dm = p->dm == DM_WORD && c == ']' ? DM_DONE : DM_NO;
}

static size_t plain(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	while (i < n && p->mode == M_PLAIN) {
		uint8_t c = in[i], k = cls[c];

		if (k == C_BLANK) {
			if (keep)
				keep[i] = c;
			i++;
			continue;
		}
		if (!fits(p, c)) {
			/* a filler could be a value here, where this is none */
			if (keep && k != C_OTHER)
				keep[i] = c;
			die(p);
			return n;
		}
		if (p->dm != DM_NO)
			done_step(p, c);
		if (k == C_OTHER) {
			i = bare_begin(p, in, keep, i, n);
			continue;
		}
		if (keep)
			keep[i] = c;
		i++;
		switch (k) {
		case C_QUOTE:
			if (p->st == S_KEY)
				i = key_begin(p, in, keep, i, n);
			else
				i = string_begin(p, in, keep, i, n);
			break;
		case C_OBJ:
		case C_ARR:
			container_open(p, k);
			break;
		case C_CLOSE:
			container_close(p);
			break;
		case C_COLON:
			p->st = S_VALUE;
			break;
		case C_COMMA:
			p->st = p->lv[p->depth].arr ? S_VALUE : S_KEY;
			break;
		}
	}
	return i;
}

/* Blanks, and in front a byte order mark; then a bracket, or it is no document. */
static size_t start(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	static const uint8_t bom[] = { 0xef, 0xbb, 0xbf };

	for (; i < n; i++) {
		uint8_t c = in[i];

		if (p->bom < sizeof(bom) && c == bom[p->bom]) {
			p->bom++;
		} else if ((p->bom && p->bom < sizeof(bom)) || cls[c] != C_BLANK) {
			p->f.any = true;
			if ((p->bom && p->bom < sizeof(bom)) || (c != '{' && c != '['))
				die(p);
			else
				p->mode = M_PLAIN;
			return i;
		}
		if (keep)
			keep[i] = c;
	}
	return i;
}

/* What stands behind the document, other than blanks, is none of it. */
static size_t behind(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t i, size_t n)
{
	for (; i < n; i++) {
		if (cls[in[i]] != C_BLANK) {
			die(p);
			return n;
		}
		if (keep)
			keep[i] = in[i];
	}
	return i;
}

void rp_json_feed(struct rp_json *p, const uint8_t *in, uint8_t *keep, size_t n)
{
	size_t i = 0;

	while (i < n) {
		switch (p->mode) {
		case M_START:
			i = start(p, in, keep, i, n);
			break;
		case M_END:
			i = behind(p, in, keep, i, n);
			break;
		case M_PLAIN:
			i = plain(p, in, keep, i, n);
			break;
		case M_SKIP:
			i = skip(p, in, keep, i, n);
			break;
		case M_KEY:
			i = key_slow(p, in, keep, i, n);
			break;
		case M_FIRST:
			if (in[i] != '"')
				bits_set(p, acts[p->act].bits);
			p->mode = M_TEXT;
			/* fall through */
		case M_TEXT:
			i = text(p, in, keep, i, n);
			break;
		case M_COPY:
			i = copy(p, in, keep, i, n);
			break;
		case M_WORD:
			i = word(p, in, keep, i, n);
			break;
		case M_BARE:
			i = bare(p, in, keep, i, n);
			break;
		default:
			i = n;
		}
	}
	p->f.done_marker = p->dm == DM_DONE;
}

void rp_json_init(struct rp_json *p, enum rp_json_role role)
{
	struct rp_json_facts *f = &p->f;

	/* the buffer at the end is written before it is read */
	memset(p, 0, offsetof(struct rp_json, tok));
	p->lv[0].node = role == RP_JSON_REQUEST_BODY ? N_ROOT_REQ : N_ROOT_RSP;
	p->lv[0].arr = 1;
	p->fin_index = UINT8_MAX;
	f->stream = f->include_usage = f->stop = -1;
	f->n = f->max_tokens = f->prompts = RP_ABSENT;
	f->prompt_tokens = f->completion_tokens = f->total_tokens = RP_ABSENT;
	f->cached_tokens = f->reasoning_tokens = f->input_tokens = RP_ABSENT;
	f->cache_read_tokens = f->cache_write_tokens = f->cache_miss_tokens = RP_ABSENT;
	f->prompt_audio_tokens = f->completion_audio_tokens = f->tool_use_tokens = RP_ABSENT;
	f->accepted_tokens = f->rejected_tokens = RP_ABSENT;
	f->spec_steps = f->spec_draft_tokens = f->spec_accepted_tokens = RP_ABSENT;
	f->prompt_audio_seconds = f->video_inference_s = f->video_peak_memory_mb = NAN;
	f->t_prompt_n = f->t_predicted_n = f->t_cache_n = RP_ABSENT;
	f->t_prompt_ms = f->t_predicted_ms = NAN;
	f->native_tokens = RP_ABSENT;
	p->rindex = p->cindex = RP_ABSENT;
}

/* What is open says what it has seen; half a string or number says nothing. */
static void unwind(struct rp_json *p)
{
	for (; p->depth; p->depth--) {
		uint8_t node = p->lv[p->depth].node;

		if (node == N_REQ || node == N_RSP || node == N_CHOICE || node == N_ITEM ||
		    node == N_USAGE)
			level_close(p);
	}
	p->mode = M_DEAD;
}

void rp_json_gap(struct rp_json *p)
{
	p->f.gapped = true;
	p->f.done_marker = false;
	p->dm = DM_NO;
	if (p->mode != M_DEAD)
		unwind(p);
}

void rp_json_end(struct rp_json *p)
{
	if (p->mode == M_DEAD)
		return;
	if (p->mode == M_BARE)
		bare_done(p);
	unwind(p);
}
