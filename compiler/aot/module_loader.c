/* In: what is known of a model. Out: JavaScript and TypeScript. See module_loader.h. */
#include "aot/module_loader.h"

#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tfm/abi/weights_file.h"

extern const char module_mjs[]; /* web/module.mjs, embedded by the build */

// ---- what the loader knows: MODEL ----

/* Of a member of the args struct. */
static json_int_t place_of(const LibraryParts *parts, ArgsGroup group, uint32_t index) {
  const ArgsMembers members = parts->names->members;
  uint32_t i = 0;
  while (members.items[i].group != group || members.items[i].index != index) i++;
  return args_offset(i);
}

static json_t *describe_sizes(const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  json_t *list = json_array();
  for (uint32_t i = 0; i < p->n_symbols; i++)
    json_array_append_new(
        list, json_pack("{s:s, s:I}", "name", p->symbols[i], "offset", place_of(parts, ARGS_symbols, i)));
  return list;
}

static json_t *describe_inputs(const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  json_t *list = json_array();
  for (uint32_t i = 0; i < p->n_inputs; i++)
    json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "name", p->inputs[i].name, "type", p->inputs[i].shape,
                                          "offset", place_of(parts, ARGS_inputs, i)));
  return list;
}

static json_t *describe_outputs(const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  json_t *list = json_array();
  for (uint32_t i = 0; i < p->n_outputs; i++)
    json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:I}", "name", p->outputs[i].name,
                                          "type", p->outputs[i].shape,
                                          "offset", place_of(parts, ARGS_outputs, i),
                                          "capacity", place_of(parts, ARGS_capacities, i)));
  return list;
}

/* Options by name: kind and place. Functions of the caller and lists of biases cannot be given. */
static json_t *describe_options(void) {
  json_t *options = json_object();
#define PUT(option, member, kind) \
  json_object_set_new(options, #option, json_pack("[s, I]", #kind, (json_int_t)offsetof(tfm_generate_options, member)));
#define PUT_count(option, member) PUT(option, member, count)
#define PUT_limit(option, member) PUT(option, member, limit)
#define PUT_real(option, member) PUT(option, member, real)
#define PUT_flag(option, member) PUT(option, member, flag)
#define PUT_token(option, member) PUT(option, member, token)
#define PUT_tokens(option, member) PUT(option, member, tokens)
#define PUT_early(option, member) PUT(option, member, early)
#define PUT_seed(option, member) PUT(option, member, seed)
#define PUT_biases(option, member)
#define PUT_start(option, member)
#define GENERATE_OPTION(option, member, kind, ...) PUT_##kind(option, member)
#include "tfm/abi/generate_options.def"
  return options;
}

static json_t *describe_generation(const LibraryParts *parts) {
  const tfm_generation *generation = parts->generation;
  const tfm_program *p = &parts->plans[0].forward->program;
  if (!generation) return json_null();
  return json_pack("{s:s, s:I, s:o}", "input", p->inputs[generation->tokens].name, "bytes",
                   (json_int_t)sizeof(tfm_generate_options), "options", describe_options());
}

/* The number of the args struct has 64 bits, which a number of JavaScript does not hold: it is a text. */
static json_t *describe_model(Arena *arena, const LibraryParts *parts, const ModuleFiles *files) {
  const tfm_program *p = &parts->plans[0].forward->program;
  const uint64_t number = args_number(arena, p, parts->names);
  return json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:s?, s:b, s:I, s:s, s:I, s:o, s:o, s:o, s:o}",
                   "name", p->name, "prefix", parts->names->prefix, "version", parts->version,
                   "plain", files->plain, "relaxed", files->relaxed, "weights", files->weights,
                   "embedded", parts->weights != NULL,
                   "file_bytes", (json_int_t)(p->weights_bytes + TFM_WEIGHTS_HEADER_BYTES),
                   "layout", arena_printf(arena, "%llu", (unsigned long long)number),
                   "args_bytes", (json_int_t)args_offset(parts->names->members.n),
                   "sizes", describe_sizes(parts), "inputs", describe_inputs(parts), "outputs", describe_outputs(parts),
                   "generate", describe_generation(parts));
}

void write_module_loader(StrBuf *out, const LibraryParts *parts, const ModuleFiles *files) {
  json_t *model = describe_model(out->arena, parts, files);
  char *text = json_dumps(model, JSON_COMPACT);
  strbuf_printf(out, "// The model %s in WebAssembly; made by tfmc %s.\n//\n", parts->plans[0].forward->program.name,
                parts->version);
  strbuf_add(out, "//   const model = await open();              // {weights, relaxed, signal, progress}\n"
                  "//   const {NAME} = model.run({NAME: value}); // value: {data, dims}, or lists\n"
                  "//   model.close();\n\n");
  strbuf_printf(out, "const MODEL = %s;\n\n", text ? text : "{}");
  strbuf_add(out, module_mjs);
  free(text);
  json_decref(model);
}

// ---- types ----

static const char *type_of_elements(uint8_t dtype) {
  return dtype == TFM_F32 ? "Float32Array" : dtype == TFM_I32 ? "Int32Array" : "Uint8Array";
}

static void add_members(StrBuf *out, const tfm_tensor_info *tensors, uint32_t n, bool are_inputs) {
  for (uint32_t i = 0; i < n; i++) {
    strbuf_printf(out, "  /** %s */\n  ", tensors[i].shape);
    strbuf_add_json(out, tensors[i].name);
    strbuf_printf(out, "%s: %s<%s>;\n", are_inputs && !tensors[i].has_default ? "" : "?",
                  are_inputs ? "Input" : "Tensor", type_of_elements(tensors[i].dtype));
  }
}

static void add_sizes(StrBuf *out, const tfm_program *p) {
  strbuf_add(out, "export interface Sizes {\n");
  for (uint32_t i = 0; i < p->n_symbols; i++) {
    strbuf_add(out, "  ");
    strbuf_add_json(out, p->symbols[i]);
    strbuf_add(out, "?: number;\n");
  }
  strbuf_add(out, "}\n\n");
}

static void add_options(StrBuf *out) {
  strbuf_add(out, "/** By the names of a generation_config.json. */\nexport interface GenerateOptions {\n"
                  "  /** tokens of each prompt; without it all of the input */\n  lengths?: number[];\n"
                  "  sizes?: Sizes;\n");
#define TYPE_count "number | bigint"
#define TYPE_limit TYPE_count
#define TYPE_real "number"
#define TYPE_flag "boolean"
#define TYPE_token "number | bigint"
#define TYPE_tokens "number | number[]"
#define TYPE_early "boolean | 'never'"
#define TYPE_seed "number | bigint"
#define TYPE_biases NULL
#define TYPE_start NULL
#define ADD(name, type) \
  if (type) strbuf_printf(out, "  %s?: %s;\n", name, (const char *)(type));
#define GENERATE_OPTION(name, member, kind, ...) ADD(#name, TYPE_##kind)
#include "tfm/abi/generate_options.def"
  strbuf_add(out, "}\n\n/** Rows end with their last token. */\nexport interface Generated {\n"
                  "  sequences: Int32Array[];\n  scores: Float32Array | null;\n"
                  "  token_scores: Float32Array[] | null;\n}\n\n");
}

static const char types_before[] =
    "export interface Tensor<T> {\n  data: T;\n  dims: number[];\n}\n\n"
    "export type Lists = number | boolean | Lists[];\nexport type Input<T> = Tensor<T> | Lists;\n\n"
    "export class TfmError extends Error {\n  /** 1 input, 2 usage, 3 environment, 4 memory, 70 internal */\n"
    "  status: number;\n  reason: number;\n  place: string | null;\n}\n\n";

static const char types_of_model[] =
    "export interface Model {\n"
    "  /** Whether products are fused with sums: then results have the bits of x86-64-v3, else those of x86-64. */\n"
    "  readonly fused: boolean;\n  readonly threads: 1;\n  readonly memoryBytes: number;\n"
    "  readonly description: object;\n"
    "  run(inputs: Inputs, options?: { outputs?: string[]; sizes?: Sizes }): Outputs;\n"
    "  workspaceBytes(sizes: Sizes): number;\n";

static const char types_behind[] =
    "  close(): void;\n}\n\nexport interface OpenOptions {\n"
    "  /** The .tfmw file: a URL, bytes, a response or a stream; the one beside this module. */\n"
    "  weights?: string | URL | ArrayBuffer | ArrayBufferView | Response | ReadableStream<Uint8Array>;\n"
    "  module?: string | URL | ArrayBuffer | ArrayBufferView | WebAssembly.Module;\n"
    "  /** Take the module with relaxed SIMD where the engine does. */\n  relaxed?: boolean;\n"
    "  signal?: AbortSignal;\n  progress?: (done: number, total: number) => void;\n}\n\n"
    "export function open(options?: OpenOptions): Promise<Model>;\nexport function takesRelaxed(): boolean;\n";

void write_module_types(StrBuf *out, const LibraryParts *parts) {
  const tfm_program *p = &parts->plans[0].forward->program;
  strbuf_printf(out, "/** The model %s in WebAssembly; made by tfmc %s. */\n", p->name, parts->version);
  strbuf_add(out, types_before);
  strbuf_add(out, "export interface Inputs {\n");
  add_members(out, p->inputs, p->n_inputs, true);
  strbuf_add(out, "}\n\nexport interface Outputs {\n");
  add_members(out, p->outputs, p->n_outputs, false);
  strbuf_add(out, "}\n\n");
  add_sizes(out, p);
  if (parts->generation) add_options(out);
  strbuf_add(out, types_of_model);
  if (parts->generation)
    strbuf_add(out, "  generate(inputs: Partial<Inputs>, options?: GenerateOptions): Generated;\n");
  strbuf_add(out, types_behind);
}
